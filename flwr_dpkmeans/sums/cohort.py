"""Virtual clients that answer together, to the bits of one after another.

What a client checks of a request, and computes of what was released, is the same for
all that remember the same and are asked the same. So the first of a group does it, as a
real `Client`, and the others' memories follow it; their statistics are computed with
its own. What is a client's own stays so: its keys, its masks, its share of the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from flwr_dpkmeans.resources import limits
from flwr_dpkmeans.secagg.keys import generate_private_key
from flwr_dpkmeans.secagg.messages import (
    FinishReply,
    FinishRequest,
    Stage,
    SumRequest,
)
from flwr_dpkmeans.secagg.party import changed
from flwr_dpkmeans.secagg.ring import FixedPointVector, Ring, encode
from flwr_dpkmeans.sums.aggregation import party_of
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.client.contribution import Contribution
from flwr_dpkmeans.sums.plan import Plan, takes_part
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.virtual import Tables, Virtual, scaled_together
from flwr_dpkmeans.sums.wire import KeysReply, Reply, Request

_MOST_CLIENTS = 64
_MOST_NUMBERS = 1 << 20
"""Of the rows, or the vectors, of a group."""
_BYTES_PER_NUMBER = 8
_STANDING = attrgetter(
    "phase",
    "attempt_id",
    "min_cohort",
    "max_silent",
    "authored",
    "plan_digest",
    "roster",
)
_SUM_MESSAGE = attrgetter(
    "attempt_id",
    "roster",
    "release",
    "state",
    "credentials",
    "confirmations",
)
_FINISH_MESSAGE = attrgetter("release", "state", "confirmations")


class Asked(NamedTuple):
    """One client of a group, and what it is asked."""

    virtual: Virtual
    request: Request


class Answered(NamedTuple):
    """What one client remembers then, and what it replies."""

    node_id: int
    memory: Memory
    reply: Reply
    unmasked_vector: Ring


Group = Sequence[Asked]


def computes_together(
    run: Tables,
    plan: Plan,
    index: int,
) -> bool:
    """Whether a round has a statistic of many clients, and looks at no labels."""
    if plan.discovers(index):
        return False
    step = task_round(plan, index)
    if step.labelled is not None and run.labels is not None:
        return False
    return step.many is not None


def groups(
    run: Tables,
    requests: Iterable[tuple[int, Request]],
    numbers_of: Callable[[Virtual], int] | None,
) -> Iterator[Group]:
    """Cut who is asked into groups that fit into memory together.

    A client needs as many numbers as ``numbers_of(virtual)``; without it, each is a
    group of its own.
    """
    most_numbers = min(_MOST_NUMBERS, limits().table_bytes // _BYTES_PER_NUMBER)
    most_clients = _MOST_CLIENTS if numbers_of is not None else 1
    group: list[Asked] = []
    n_numbers = 0
    for node, request in requests:
        virtual = Virtual(run, node)
        n_more = 0 if numbers_of is None else numbers_of(virtual)
        is_full = len(group) == most_clients or n_numbers + n_more > most_numbers
        if group and is_full:
            yield group
            group = []
            n_numbers = 0
        group.append(Asked(virtual, request))
        n_numbers += n_more
    if group:
        yield group


def answers_together(
    group: Group,
    memories: Mapping[int, Memory],
) -> bool:
    """Whether the first client of a group can check and compute for all.

    They remember the same but for their keys, stand at the same message, and are asked
    the same but for boxes; before they remember anything, their tables are alike. A
    later plan is looked at by each.
    """
    if len(group) == 1:
        return False
    first, *others = group
    message = _message(first.request)
    if any(_message(request) != message for _, request in others):
        return False
    if first.request.stage is Stage.KEYS:
        facts = first.virtual.describe()
        return all(virtual.describe() == facts for virtual, _ in others)
    if first.request.plan is not None:
        return False
    leader = _shared(memories[first.virtual.node_id])
    return all(_shared(memories[virtual.node_id]) == leader for virtual, _ in others)


def answers(
    run: Tables,
    group: Group,
    memories: Mapping[int, Memory],
) -> Iterator[Answered]:
    """What the clients of a group answer together."""
    match group[0].request.stage:
        case Stage.KEYS:
            return _keys(group)
        case Stage.FINISH:
            return _ends(group, memories)
    return _sums(run, group, memories)


def _shared(memory: Memory) -> list[object]:
    """What a client remembers, but for what is its own."""
    fields = dict(vars(memory))
    party = fields.pop("protocol")
    return [*fields.values(), *_STANDING(party)]


def _message(request: Request) -> tuple[object, ...]:
    """What a request says, but for what is sealed for one client."""
    body = request.body
    contents: tuple[object, ...] = ()
    if isinstance(body, SumRequest):
        contents = _SUM_MESSAGE(body)
    elif isinstance(body, FinishRequest):
        contents = _FINISH_MESSAGE(body)
    return (request.stage, request.plan, request.run_id, request.wait, *contents)


def _keys(
    group: Group,
) -> Iterator[Answered]:
    """The answers to a plan of clients whose tables are alike."""
    first, *others = group
    client = Client(first.virtual, first.virtual, None)
    memory, reply = client.handle(first.request)
    assert memory is not None
    assert isinstance(reply, KeysReply)
    yield Answered(first.virtual.node_id, memory, reply, client.unmasked_vector)
    leader = memory.protocol
    for virtual, _ in others:
        node = virtual.node_id
        party = party_of(
            memory.plan,
            node,
            generate_private_key(),
            leader.min_cohort,
            leader.plan_digest,
        )
        yield Answered(
            node,
            changed(memory, protocol=party),
            changed(reply, public_key=party.public_key),
            client.unmasked_vector,
        )


class _Leader(Virtual):
    """The first client of a group, which computes the statistics of all."""

    def __init__(self, run: Tables, group: Group) -> None:
        super().__init__(run, group[0].virtual.node_id)
        self._virtuals = [virtual for virtual, _ in group]
        self.statistics: Array = np.zeros((0, 0))
        """(n_clients, n_entries), after `compute`."""

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> Sequence[Array]:
        """The first client's statistic; see `Statistic.compute`."""
        plan = memory.plan
        step = task_round(plan, index)
        assert memory.clusters is not None
        assert step.many is not None
        tables = scaled_together(self._run, self._virtuals, plan)
        rows = np.concatenate(tables)
        sizes = np.array([len(table) for table in tables], np.int64)
        state = memory.clusters.view(step.reads)
        arrays = step.many(rows, sizes, state)
        flat = [np.reshape(array, (len(tables), -1)) for array in arrays]
        self.statistics = np.concatenate(flat, axis=1)
        return [self.statistics[0]]


def _sums(
    run: Tables,
    group: Group,
    memories: Mapping[int, Memory],
) -> Iterator[Answered]:
    """One vector of each client of a group that answers together."""
    first, *others = group
    node = first.virtual.node_id
    leader = _Leader(run, group)
    client = Client(leader, leader, memories[node])
    memory, reply = client.handle(first.request)
    assert memory is not None
    yield Answered(node, memory, reply, client.unmasked_vector)
    assert isinstance(first.request.body, SumRequest)
    contribution = Contribution(memory, first.request.body)
    plan = memory.plan
    streams = [virtual.stream for virtual, _ in others]
    exact = _on_grid(contribution, leader.statistics[1:], streams)
    for (virtual, request), values in zip(others, exact, strict=True):
        message = request.body
        assert isinstance(message, SumRequest)
        node = virtual.node_id
        before = memories[node].protocol
        admitted = before.admit(message, plan.first_round, plan.skips_to)
        vector = contribution.noised(FixedPointVector(values), virtual.stream)
        party, reply = contribution.masked(admitted, message, vector)
        yield Answered(node, changed(memory, protocol=party), reply, vector.values)


def _on_grid(
    contribution: Contribution,
    statistics: Array,
    streams: Sequence[int],
) -> Ring:
    """Put statistics (n_clients, n_entries) on the grid; see `Contribution.on_grid`."""
    plan = contribution.plan
    if plan.settings.client_sampling_rate < 1.0:
        attempt_id = contribution.message.attempt_id
        coins = [takes_part(plan, stream, *attempt_id) for stream in streams]
        statistics = statistics * np.array(coins, bool)[:, None]
    encoded = encode(statistics, plan.fraction_bits)
    return encoded.values.reshape(statistics.shape)


def _ends(
    group: Group,
    memories: Mapping[int, Memory],
) -> Iterator[Answered]:
    """The last release, taken in by each client of a group that answers together."""
    first, *others = group
    node = first.virtual.node_id
    client = Client(first.virtual, first.virtual, memories[node])
    memory, reply = client.handle(first.request)
    assert memory is not None
    yield Answered(node, memory, reply, client.unmasked_vector)
    digest = memory.digest()
    for virtual, request in others:
        message = request.body
        assert isinstance(message, FinishRequest)
        node = virtual.node_id
        party = memories[node].protocol.finish(message)
        tag = party.tag(message.release.round_index + 1, party.attempt, digest)
        yield Answered(
            node,
            changed(memory, protocol=party),
            FinishReply(tag),
            client.unmasked_vector,
        )
