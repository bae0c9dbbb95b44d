"""Virtual clients that answer together, to the bits of one after another.

What a client checks of a request, and computes of what was released, is the same for
all that remember the same and are asked the same. So the first of a group does it, as a
real `Client`, and the others' memories follow it; their statistics are computed with
its own. What is a client's own stays so: its keys, its masks, its share of the noise.

A group of which this cannot be said has no answers here, and its clients answer one
after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from flwr_dpkmeans.secagg.party import Party, changed
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.sums.aggregation import party_of
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.client.contribution import Contribution
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.virtual.group_masks import prepare_masks
from flwr_dpkmeans.sums.virtual.paired import Paired
from flwr_dpkmeans.sums.virtual.virtual_client import Virtual, VirtualRun
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
"""Where a client stands in the aggregation."""
_SUM_MESSAGE = attrgetter(
    "attempt_id",
    "roster",
    "release",
    "state",
    "credentials",
    "cohort",
    "confirmations",
)
_FINISH_MESSAGE = attrgetter("release", "state", "confirmations")


class Asked(NamedTuple):
    """One client of a group, and what it is asked."""

    virtual: Virtual
    request: Request


class Answered(NamedTuple):
    """What a client remembers then, and what it replies."""

    memory: Memory
    reply: Reply


Group = Sequence[Asked]


def groups(
    run: VirtualRun,
    requests: Iterable[tuple[int, Request]],
) -> Iterator[Group]:
    """Cut who is asked into groups that fit into memory together."""
    most_numbers = min(_MOST_NUMBERS, limits().table_bytes // _BYTES_PER_NUMBER)
    group: list[Asked] = []
    n_numbers = 0
    for node, request in requests:
        virtual = Virtual(run, node)
        n_more = _numbers_of(run, virtual, request)
        is_full = len(group) == _MOST_CLIENTS or n_numbers + n_more > most_numbers
        if group and is_full:
            yield group
            group = []
            n_numbers = 0
        group.append(Asked(virtual, request))
        n_numbers += n_more
    if group:
        yield group


def _numbers_of(run: VirtualRun, virtual: Virtual, request: Request) -> int:
    """How many numbers of a client its group has in memory while it answers."""
    message = request.body
    if not isinstance(message, SumRequest):
        return 0
    if _sums_alone(run, request):
        # Asked alone, so that no table but its own is in memory.
        return _MOST_NUMBERS
    length = run.plan.round_at(message.round_index).length
    return max(length, run.size_of(virtual))


def _sums_alone(run: VirtualRun, request: Request) -> bool:
    """Whether a vector is asked for that each client computes by itself."""
    message = request.body
    if not isinstance(message, SumRequest):
        return False
    return not _sums_together(run, message.round_index)


def _sums_together(run: VirtualRun, index: int) -> bool:
    """Whether a round has a statistic of many clients, of all rows alike.

    It looks at no labels, and rows have no weights, as persons' have.
    """
    plan = run.plan
    if plan.is_preliminary(index) or plan.settings.weighs_rows:
        return False
    step = task_round(plan, index)
    looks_at_labels = step.labelled is not None and run.labels is not None
    return step.of_each is not None and not looks_at_labels


def answers_together(run: VirtualRun, group: Group) -> dict[int, Answered]:
    """What the clients of a group answer, by node id, if the first speaks for all.

    They remember the same but for their keys, stand at the same message, and are asked
    the same but for boxes; before they remember anything, their tables are alike. Empty
    where it does not, such as with a later plan, which each client looks at.
    """
    if not _first_speaks_for_all(run, group):
        return {}
    match group[0].request.stage:
        case Stage.KEYS:
            return _keys(run, group)
        case Stage.SUM:
            return _sums(run, group)
        case Stage.FINISH:
            return _ends(run, group)
    # What takes masks away differs from client to client.
    return {}


def _first_speaks_for_all(run: VirtualRun, group: Group) -> bool:
    """Whether the first client of a group can check and compute for all."""
    if len(group) == 1:
        return False
    first, *others = group
    if _sums_alone(run, first.request):
        return False
    message = _message(first.request)
    if any(_message(request) != message for _, request in others):
        return False
    if first.request.stage is Stage.KEYS:
        facts = first.virtual.describe()
        return all(virtual.describe() == facts for virtual, _ in others)
    if first.request.plan is not None:
        return False
    leader = _remembered(run, first.virtual)
    return all(_remembered(run, virtual) == leader for virtual, _ in others)


def _message(request: Request) -> tuple[object, ...]:
    """What a request says, but for what is sealed for one client."""
    body = request.body
    contents: tuple[object, ...] = ()
    if isinstance(body, SumRequest):
        contents = _SUM_MESSAGE(body)
    elif isinstance(body, FinishRequest):
        contents = _FINISH_MESSAGE(body)
    return (
        request.stage,
        request.plan,
        request.run_id,
        request.wait,
        *contents,
    )


def _remembered(run: VirtualRun, virtual: Virtual) -> list[object]:
    """What a client remembers, but for what is its own."""
    fields = dict(vars(run.memories[virtual.node_id]))
    party = fields.pop("party")
    return [*fields.values(), *_STANDING(party)]


def _keys(run: VirtualRun, group: Group) -> dict[int, Answered]:
    """The answers to a plan of clients whose tables are alike."""
    first, *others = group
    client = Client(first.virtual, first.virtual, None)
    memory, reply = client.handle(first.request)
    assert memory is not None
    assert isinstance(reply, KeysReply)
    answers = {first.virtual.node_id: Answered(memory, reply)}
    leader = memory.party
    for virtual, _ in others:
        party = party_of(
            memory.plan,
            virtual.node_id,
            generate_private_key(),
            leader.min_cohort,
            leader.plan_digest,
        )
        answers[virtual.node_id] = Answered(
            changed(memory, party=party),
            changed(reply, public_key=party.public_key),
        )
    return answers


class _Leader(Virtual):
    """The first client of a group, which computes the statistics of all."""

    def __init__(self, run: VirtualRun, group: Group) -> None:
        first, *others = group
        super().__init__(run, first.virtual.node_id)
        self._others = others
        self._virtuals = [virtual for virtual, _ in group]
        self.statistics: Array = np.zeros((0, 0))
        """(n_clients, n_entries), after `compute`."""
        self.admitted: list[Party] = []
        """Those of the others that have admitted the request, after `compute`."""

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> Sequence[Array]:
        """The first client's statistic; see `Statistic.compute`."""
        plan = memory.plan
        step = task_round(plan, index)
        assert memory.clusters is not None
        assert step.of_each is not None
        tables = self._run.scaled_points(plan, self._virtuals)
        rows = np.concatenate(tables)
        sizes = np.array([len(table) for table in tables], np.int64)
        state = memory.clusters.view(step.reads)
        arrays = step.of_each(
            rows,
            sizes,
            state,
        )
        flat = [np.reshape(array, (len(tables), -1)) for array in arrays]
        self.statistics = np.concatenate(flat, axis=1)
        self._admit_others(memory)
        return [self.statistics[0]]

    def _admit_others(self, memory: Memory) -> None:
        """Have the others admit the request, and all clients' masks prepared."""
        plan = memory.plan
        for virtual, request in self._others:
            message = request.body
            assert isinstance(message, SumRequest)
            before = self._run.memories[virtual.node_id].party
            admitted = before.admit(
                message,
                plan.first_round,
                plan.skips_to,
            )
            self.admitted.append(admitted)
        parties = [memory.party, *self.admitted]
        paired = [party for party in parties if isinstance(party, Paired)]
        if paired:
            _, length = self.statistics.shape
            prepare_masks(paired, length)


def _sums(run: VirtualRun, group: Group) -> dict[int, Answered]:
    """One vector of each client of a group."""
    first, *others = group
    node = first.virtual.node_id
    leader = _Leader(run, group)
    client = Client(
        leader,
        leader,
        run.memories[node],
        watch=run.watch_vector,
    )
    memory, reply = client.handle(first.request)
    assert memory is not None
    answers = {node: Answered(memory, reply)}
    assert isinstance(first.request.body, SumRequest)
    contribution = Contribution(memory, first.request.body)
    streams = [virtual.stream for virtual, _ in others]
    vectors = contribution.on_grid_each(leader.statistics[1:], streams)
    of_others = zip(others, leader.admitted, vectors, strict=True)
    for (virtual, request), admitted, exact in of_others:
        message = request.body
        assert isinstance(message, SumRequest)
        vector = contribution.noised(FixedPointVector(exact), virtual.stream)
        if run.watch_vector is not None:
            run.watch_vector(vector.values)
        party, sum_reply = contribution.masked(admitted, message, vector)
        answers[virtual.node_id] = Answered(changed(memory, party=party), sum_reply)
    return answers


def _ends(run: VirtualRun, group: Group) -> dict[int, Answered]:
    """The last release, taken in by each client of a group."""
    first, *others = group
    node = first.virtual.node_id
    client = Client(
        first.virtual,
        first.virtual,
        run.memories[node],
    )
    memory, reply = client.handle(first.request)
    assert memory is not None
    answers = {node: Answered(memory, reply)}
    digest = memory.digest()
    for virtual, request in others:
        message = request.body
        assert isinstance(message, FinishRequest)
        party = run.memories[virtual.node_id].party.finish(message)
        tag = party.tag(message.release.round_index + 1, party.attempt, digest)
        answers[virtual.node_id] = Answered(
            changed(memory, party=party),
            FinishReply(tag),
        )
    return answers
