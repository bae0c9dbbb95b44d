"""One run through Flower's messages, with everything that travels recorded.

Strategy, ClientApp, mod and records are those of a deployment. Slower than
`runs.run_directly` (some 20 ms), but with what a deployment has: plans that are parsed
and checked, and replies that are held back, so that sums are asked for twice, or
recovered.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import Context, Message
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.messages.client_memory import recall
from flwr_dpkmeans.flower.messages.message_records import packet_of
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    Release,
    Stage,
    SumReply,
    SumRequest,
)
from flwr_dpkmeans.secagg.party import Party, Phase
from flwr_dpkmeans.secagg.ring import FixedPointVector, Ring
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.wire import decode_reply, decode_request
from simulations.audit.cases import Case, Neighbours
from simulations.audit.views import Adversary, HiddenWords, ReadableSum, View, colluding

Array = NDArray[np.float64]
Aggregation = tuple[int, int]
"""Round and attempt."""
HELD_BACK = 1
"""Position of the client whose reply is held back.

Neither the target nor a colluding one.
"""


@dataclass
class Recorder:
    """Everything that travelled, and what clients remembered when they had answered.

    Parameters
    ----------
    retries : int
        Replies that are held back.
    n_clients : int
    """

    retries: int
    n_clients: int
    vectors: dict[Aggregation, dict[int, Ring]] = field(default_factory=dict)
    releases: dict[Aggregation, Ring] = field(default_factory=dict)
    readable: dict[Aggregation, Ring] = field(default_factory=dict)
    memories: dict[Aggregation, dict[int, Memory]] = field(default_factory=dict)
    lost: set[Aggregation] = field(default_factory=set)

    def on_request(
        self,
        message: Message,
        context: Context,
    ) -> None:
        """Note a release on its way.

        The last one is read at once, as its client forgets its keys with it.
        """
        body = decode_request(packet_of(message.content)).body
        release: Release | None = getattr(body, "release", None)
        if release is not None and release.values.size:
            self.releases[release.round_index, release.attempt] = release.values
        memory = recall(context)
        if isinstance(body, FinishRequest) and memory is not None:
            self._read(replace(memory, party=memory.party.finish(body)))

    def on_reply(
        self,
        reply: Message,
        context: Context,
    ) -> list[Message]:
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
        assert isinstance(parsed, SumReply)
        aggregation = (parsed.round_index, parsed.attempt)
        position = node - FIRST_NODE_ID
        self.vectors.setdefault(aggregation, {})[position] = parsed.masked.values
        self.memories.setdefault(aggregation, {})[position] = memory
        if position == HELD_BACK and len(self.lost) < self.retries:
            self.lost.add(aggregation)
            return []
        return [reply]

    def _read(self, memory: Memory) -> None:
        """Read the releases as this client can."""
        for aggregation, values in self.releases.items():
            round_index, attempt = aggregation
            if aggregation in self.readable or attempt != memory.party.attempt:
                continue
            trust = trust_model(memory.plan.round_at(round_index).trust)
            release = Release(round_index, attempt, values)
            unblinded = memory.party.unblind(release, blinded=trust.blinded)
            self.readable[aggregation] = unblinded.values


class _Watched(InProcessGrid):
    """A grid whose messages a recorder looks at."""

    recorder: Recorder

    def deliver(self, message: Message) -> list[Message]:
        """See `InProcessGrid`."""
        node = message.metadata.dst_node_id
        self.recorder.on_request(message, self.contexts[node])
        (reply,) = super().deliver(message)
        return self.recorder.on_reply(reply, self.contexts[node])


def run_with_messages(
    case: Case,
    neighbours: Neighbours,
    adversary: Adversary,
    retries: int,
    present: bool,
) -> View:
    """Run the strategy over an in-process grid, and cut out the adversary's view.

    The view claims the epsilon of the run's own report.
    """
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
    server_points = None if case.server_points is None else case.server_points.scaled
    strategy = PrivateKMeans.from_config(
        config,
        server_points=server_points,
        on_step=lambda _: None,
    )
    with grid.running():
        strategy.start(grid)
    report = strategy.run.report
    released = [(line.round_index, line.attempt) for line in report.releases]
    attempts = tuple(dict.fromkeys(released))
    view = _view(recorder, adversary, strategy.run.plan, clients[-1], attempts)
    return replace(view, claimed=report.epsilon)


def _view(
    recorder: Recorder,
    adversary: Adversary,
    final: Plan,
    client: KMeansClient,
    attempts: tuple[Aggregation, ...],
) -> View:
    """What the adversary got."""
    sums: list[ReadableSum] = []
    words: list[HiddenWords] = []
    for aggregation in sorted(recorder.vectors):
        readable = _readable_sum(recorder, adversary, aggregation)
        if readable is not None:
            sums.append(readable)
        if adversary is Adversary.SERVER:
            words += _hidden_words(recorder, aggregation)
    return View(
        tuple(sums),
        tuple(words),
        _result_of(adversary, final, client),
        final,
        attempts,
    )


def _readable_sum(
    recorder: Recorder,
    adversary: Adversary,
    aggregation: Aggregation,
) -> ReadableSum | None:
    """The sum that the adversary reads of one aggregation, if it can."""
    vectors = recorder.vectors[aggregation]
    memories = recorder.memories[aggregation]
    memory = _latest(memories)
    round_index, _ = aggregation
    trust = trust_model(memory.plan.round_at(round_index).trust)
    late = {HELD_BACK} if aggregation in recorder.lost else set()
    values = recorder.readable.get(aggregation)
    members = sorted(set(vectors) - late)
    if adversary is Adversary.SERVER:
        if not trust.server_reads:
            return None
        if memory.plan.dropout is not Dropout.RECOVER:
            # Also of an attempt that was given up: the reply that was late completes
            # it.
            values = _added(vectors)
            members = sorted(vectors)
    if values is None:
        return None
    colluders: Sequence[int] = ()
    if trust.shared_noise:
        colluders = colluding(memory.plan, adversary, recorder.n_clients)
    remainder = values.copy()
    for position in colluders:
        party = memories[position].party
        masks = masks_of(party, aggregation, len(remainder), blinded=trust.blinded)
        remainder -= vectors[position] - masks
    honest = tuple(position for position in members if position not in colluders)
    state: State | Discoveries = memory.discoveries
    if round_index > 0:
        state = _clusters(memory).view(_reads(memory.plan, round_index))
    return ReadableSum(
        memory.plan, *aggregation, state, remainder, honest, len(vectors)
    )


def _hidden_words(recorder: Recorder, aggregation: Aggregation) -> list[HiddenWords]:
    """The vectors of one aggregation that the server cannot read."""
    vectors = recorder.vectors[aggregation]
    memory = _latest(recorder.memories[aggregation])
    words = [
        HiddenWords(f"client {position}", *aggregation, (position,), vector)
        for position, vector in sorted(vectors.items())
    ]
    trust = trust_model(memory.plan.round_at(aggregation[0]).trust)
    if not trust.server_reads:
        everybody = tuple(sorted(vectors))
        total = _added(vectors)
        words.append(HiddenWords("aggregate", *aggregation, everybody, total))
    return words


def _result_of(
    adversary: Adversary,
    final: Plan,
    client: KMeansClient,
) -> Array:
    """Final centroids and counts, if the adversary reads them; else nothing."""
    trust = trust_model(final.config.trust)
    if adversary is not Adversary.CLIENTS and not trust.server_reads:
        return np.zeros(0)
    if client.cluster_centers_ is None or client.counts_ is None:
        return np.zeros(0)
    return np.concatenate([client.cluster_centers_.ravel(), client.counts_.ravel()])


def masks_of(
    state: Party,
    aggregation: Aggregation,
    length: int,
    *,
    blinded: bool,
) -> Ring:
    """What a client masked its vector of one aggregation with.

    It can compute it again, and a colluding one tells.
    """
    admitted = replace(state, phase=Phase.ADMITTED)
    nothing = FixedPointVector(np.zeros(length, dtype=np.uint64))
    request = SumRequest(*aggregation)
    _, reply = admitted.answer(
        request,
        nothing,
        blinded=blinded,
        state_digest=b"",
    )
    return reply.masked.values


def _added(vectors: dict[int, Ring]) -> Ring:
    """The sum of all clients' vectors."""
    total: Ring = np.sum(
        list(vectors.values()),
        axis=0,
        dtype=np.uint64,
    )
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

    def settings_of(_: Context) -> NodeSettings:
        return settings

    def client_of(_: Context) -> KMeansClient:
        return client

    return Node(client_app(client_of, mod=SecureAggregation(settings_of)))
