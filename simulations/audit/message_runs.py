"""One run through Flower's messages: strategy, ClientApp, mod and records, with
everything that travels recorded.

Slower than `runs.run_directly` (some 20 ms), but with what a deployment has: plans that
are parsed and checked, and replies that are held back, so that sums are asked for
twice, or recovered.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import Context, Message

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.client_app import SecureAggregation, client_app
from flwr_dpkmeans.flower.engines import InProcessGrid, Node
from flwr_dpkmeans.flower.exchange import packet_of, recall
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.guard import NodeSettings
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.secagg.keys import FixedPointVector, Ring
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, Stage, SumRequest
from flwr_dpkmeans.secagg.party import Party, Phase
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.local import FIRST_NODE_ID
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.wire import decode_reply, decode_request
from simulations.audit.cases import Case, Neighbours
from simulations.audit.views import Adversary, HiddenWords, ReadableSum, View, colluding

Place = tuple[int, int]
"""Round and attempt."""
HELD_BACK = 1
"""Position of the client whose reply is held back.

Neither the target nor a colluding one.
"""


@dataclass
class Recorder:
    """Everything that travelled, and what the last client remembered when it had
    answered.

    Parameters
    ----------
    retries : int
        Replies that are held back.
    n_clients : int
    """

    retries: int
    n_clients: int
    vectors: dict[Place, dict[int, Ring]] = field(default_factory=dict)
    releases: dict[Place, Ring] = field(default_factory=dict)
    readable: dict[Place, Ring] = field(default_factory=dict)
    memories: dict[Place, dict[int, Memory]] = field(default_factory=dict)
    lost: set[Place] = field(default_factory=set)

    def on_request(self, message: Message, context: Context) -> None:
        """Note a release on its way.

        The last one is read at once, as its client forgets its keys with it.
        """
        body = decode_request(packet_of(message.content)).body
        release: Release | None = getattr(body, "release", None)
        if release is not None and release.values.size:
            self.releases[release.round_index, release.attempt] = release.values
        memory = recall(context)
        if isinstance(body, FinishRequest) and memory is not None:
            self._read(replace(memory, protocol=memory.protocol.finish(body)))

    def on_reply(self, reply: Message, context: Context) -> list[Message]:
        """Note a masked vector, and what its client knows now."""
        if reply.has_error():
            return [reply]
        node = reply.metadata.src_node_id
        memory = recall(context)
        if memory is None:
            return [reply]
        self._read(memory)
        try:
            parsed = decode_reply(packet_of(reply.content), Stage.SUM, node)
        except DPKMeansError:
            return [reply]
        place = (parsed.round_index, parsed.attempt)
        self.vectors.setdefault(place, {})[node - FIRST_NODE_ID] = parsed.masked.values
        self.memories.setdefault(place, {})[node - FIRST_NODE_ID] = memory
        if node == FIRST_NODE_ID + HELD_BACK and len(self.lost) < self.retries:
            self.lost.add(place)
            return []
        return [reply]

    def _read(self, memory: Memory) -> None:
        """Read the releases as this client can."""
        for place, values in self.releases.items():
            if place not in self.readable and place[1] == memory.protocol.attempt:
                blinded = trust_model(memory.plan.round_at(place[0]).trust).blinded
                release = Release(*place, values)
                self.readable[place] = memory.protocol.unblind(
                    release, blinded=blinded
                ).values


class _Watched(InProcessGrid):
    """A grid whose messages a recorder looks at."""

    recorder: Recorder

    def deliver(self, message: Message) -> list[Message]:
        """See `InProcessGrid`."""
        self.recorder.on_request(message, self.contexts[message.metadata.dst_node_id])
        (reply,) = super().deliver(message)
        return self.recorder.on_reply(
            reply, self.contexts[message.metadata.dst_node_id]
        )


def run_with_messages(
    case: Case,
    neighbours: Neighbours,
    adversary: Adversary,
    retries: int,
    present: bool,
) -> View:
    """Run the strategy over an in-process grid and cut the adversary's view out of what
    was recorded.
    """
    return run_and_report(case, neighbours, adversary, retries, present)[0]


def run_and_report(
    case: Case,
    neighbours: Neighbours,
    adversary: Adversary,
    retries: int,
    present: bool,
) -> tuple[View, float]:
    """Likewise, with the epsilon of the run's own report."""
    config = case.plan.config
    parts = neighbours.present if present else neighbours.absent
    if retries and len(parts) < 4:
        raise ConfigurationError(
            f"retries is {retries} with {len(parts)} clients, but the target, one that"
            " falls silent and one that colludes leave nobody: give n_clients=4."
        )
    recorder = Recorder(retries, len(parts))
    clients = [KMeansClient(part) for part in parts]
    grid = _Watched([_node(client) for client in clients], run_id=secrets.randbits(62))
    grid.recorder = recorder
    server_points = None if case.held is None else case.held.scaled
    strategy = PrivateKMeans.from_config(
        config, server_points=server_points, on_step=lambda _: None
    )
    with grid.running():
        strategy.start(grid)
    plan = strategy.run.plan
    attempts = tuple(
        (line.round_index, line.attempt) for line in strategy.run.report.releases
    )
    every = tuple(dict.fromkeys(attempts))
    return (
        _view(recorder, adversary, plan, clients[-1], every),
        strategy.run.report.epsilon,
    )


def _view(
    recorder: Recorder,
    adversary: Adversary,
    final: Plan,
    client: KMeansClient,
    attempts: tuple[Place, ...],
) -> View:
    """What the adversary got."""
    sums: list[ReadableSum] = []
    words: list[HiddenWords] = []
    for place in sorted(recorder.vectors):
        vectors, memory = recorder.vectors[place], _latest(recorder.memories[place])
        planned = memory.plan.round_at(place[0])
        trust = trust_model(planned.trust)
        held = {HELD_BACK} if place in recorder.lost else set()
        recovers = memory.plan.dropout is Dropout.RECOVER
        values, members = (
            recorder.readable.get(place),
            tuple(sorted(set(vectors) - held)),
        )
        if adversary is Adversary.SERVER and trust.server_reads and not recovers:
            # Also of an attempt that was given up: the reply that was late completes
            # it.
            values, members = _added(vectors), tuple(sorted(vectors))
        elif adversary is Adversary.SERVER and not trust.server_reads:
            values = None
        if values is not None:
            known = (
                colluding(memory.plan, adversary, recorder.n_clients)
                if trust.shared_noise
                else ()
            )
            left = values.copy()
            for position in known:
                own = recorder.memories[place][position].protocol
                left -= vectors[position] - masks_of(
                    own, place, len(left), blinded=trust.blinded
                )
            honest = tuple(position for position in members if position not in known)
            state: State | Discoveries = memory.discoveries
            if place[0] > 0:
                state = _clusters(memory).view(_reads(memory.plan, place[0]))
            sums.append(
                ReadableSum(memory.plan, *place, state, left, honest, len(vectors))
            )
        if adversary is Adversary.SERVER:
            words += [
                HiddenWords(f"client {i}", *place, (i,), vector)
                for i, vector in sorted(vectors.items())
            ]
            if not trust.server_reads:
                words.append(
                    HiddenWords(
                        "aggregate", *place, tuple(sorted(vectors)), _added(vectors)
                    )
                )
    reads_result = (
        adversary is Adversary.CLIENTS or trust_model(final.config.trust).server_reads
    )
    result = np.zeros(0)
    if (
        reads_result
        and client.cluster_centers_ is not None
        and client.counts_ is not None
    ):
        result = np.concatenate(
            [client.cluster_centers_.ravel(), client.counts_.ravel()]
        )
    return View(tuple(sums), tuple(words), result, final, attempts)


def masks_of(state: Party, place: Place, length: int, *, blinded: bool) -> Ring:
    """What a client masked its vector of one aggregation with.

    It can compute it again, and a colluding one tells.
    """
    admitted = replace(state, phase=Phase.ADMITTED)
    nothing = FixedPointVector(np.zeros(length, dtype=np.uint64))
    return admitted.answer(
        SumRequest(*place), nothing, blinded=blinded, state_digest=b""
    )[1].masked.values


def _added(vectors: dict[int, Ring]) -> Ring:
    """The sum of all clients' vectors."""
    total: Ring = np.sum(list(vectors.values()), axis=0, dtype=np.uint64)
    return total


def _latest(memories: dict[int, Memory]) -> Memory:
    """What the last client remembers: all know the same state."""
    return memories[max(memories)]


def _clusters(memory: Memory) -> State:
    """The clustering state, once the plan is final."""
    assert memory.clusters is not None
    return memory.clusters


def _reads(plan: Plan, round_index: int) -> tuple[str, ...]:
    """Extras that a round's statistic reads."""
    return build_algorithm(plan).rounds[round_index - 1].reads


def _node(client: KMeansClient) -> Node:
    """A virtual node whose policy allows everything."""
    settings = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)

    def own_settings(_: Context) -> NodeSettings:
        return settings

    def own_client(_: Context) -> KMeansClient:
        return client

    return Node(client_app(own_client, mod=SecureAggregation(own_settings)))
