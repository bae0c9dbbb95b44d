"""All parties of a run in this process, without Flower's messages: for experiments with thousands of virtual clients.

`run_direct` drives the same `Server` and `Client` as Flower does. They hand each other requests and replies as they are
instead of bytes, one client after another, so that 10,000 clients need no 10,000 vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.report import SIMULATED, PrivacyReport
from flwr_dpkmeans.secagg.keys import AggregateVector, Ring
from flwr_dpkmeans.secagg.messages import Release, Stage
from flwr_dpkmeans.secagg.roster import Signer
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.draft import build_algorithm
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Labels, State
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.task import Found, Result
from flwr_dpkmeans.sums.trust import Broadcast
from flwr_dpkmeans.sums.wire import Request

Array = NDArray[np.float64]

FIRST_NODE_ID = 2
"""As in the other engines, where node 1 is the SuperLink: seeded noise depends on a client's id."""


@dataclass(frozen=True)
class DirectResult:
    """What a direct run leaves."""

    state: State
    """After the last round."""
    steps: tuple[Step, ...]
    """One for each aggregation."""
    attempts: tuple[tuple[int, int], ...]
    """Every aggregation, for the report."""
    plan: Plan
    """The final one."""
    found: Found
    """What preliminary releases told."""

    @property
    def result(self) -> Result:
        """What the task makes of the last state."""
        return self.plan.task.result(self.plan, self.state)


@dataclass(frozen=True)
class Seen:
    """Everything that passes by in one aggregation, for audits: what one party sees of a run is a part of it."""

    plan: Plan = field(repr=False)
    """In force."""
    round_index: int
    attempt: int
    """Which aggregation."""
    state: State | Found = field(repr=False)
    """What the clients' statistics were taken at; `Found` in preliminary rounds."""
    sent: tuple[Ring, ...] = field(repr=False)
    """Each client's vector before it is masked, with its share of the noise: known to that client alone."""
    received: tuple[Ring, ...] = field(repr=False)
    """What the server gets of each client."""
    aggregate: AggregateVector = field(repr=False)
    """What the server adds up."""
    broadcast: Ring = field(repr=False)
    """What the server sends on."""
    released: Ring = field(repr=False)
    """What a client reads."""


def run_direct(
    plan: Plan,
    parts: Sequence[Array],
    *,
    scale: Callable[[Plan, Array], Array] = lambda _, points: points,
    server_points: Array | None = None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = lambda _: None,
    watch: Callable[[Seen], None] | None = None,
) -> DirectResult:
    """Run a plan over clients in this process, one table (n_i, n_features) for each; `config.masking` decides on masks.

    The plan is final, or has its width and preliminary rounds. `scale` puts a table into the final plan's box, on the
    grid, where by default it is already, as `server_points` are, if the plan does not hold them. `on_step` is told of
    each aggregation, and `watch`, for audits, what all parties saw of it.

    Raises `PlanError` if the plan waits for something that no round of its own finds, or is for another number of
    clients.
    """
    if plan.is_final == bool(plan.preliminary) or plan.n_features is None:
        raise PlanError("the plan waits for the tables' width, or knows what it is still to find: draft it again.")
    if len(parts) != plan.n_clients:
        raise PlanError(f"the plan is for {plan.n_clients} clients, but there are {len(parts)}: draft it again.")
    clients = {}
    for node, (place, part) in enumerate(enumerate(parts), start=FIRST_NODE_ID):
        clients[node] = _Virtual(plan, node, part, scale, None if labels is None else labels[place])
    return _Run(plan, clients, server_points, on_step, watch).play()


class _Virtual:
    """One client of this process: what guards it, which lets everything pass, its table, and what it remembers.

    All parties are the caller's own, so nothing is refused, charged or logged.
    """

    data_id = started = ""
    min_cohort = 0
    identity: Signer | None = None
    pinned: Mapping[bytes, str] | None = None
    marks: frozenset[bytes] = frozenset()

    def __init__(
        self, plan: Plan, node_id: int, points: Array, scale: Callable[[Plan, Array], Array], labels: Labels | None
    ) -> None:
        self.run_id, self.node_id, self.stream = plan.run_id, node_id, node_id
        self._points, self._scale, self._labels = points, scale, labels
        self._names = plan.settings.feature_names
        self._scaled: Array | None = None
        self.memory: Memory | None = None

    def answer(self, request: Request) -> tuple[Any, Ring]:
        """Handle a request; with the reply, what was masked for it."""
        client = Client(self, self, self.memory)
        self.memory, reply = client.handle(request)
        return reply, client.unmasked_vector

    def identities(self, n_recognised: int) -> str:
        """See `Guard`."""
        del n_recognised
        return SIMULATED

    def _pass(self, *_: Any) -> None:
        """Nothing to decide or to write down."""

    require_in_time = require_approved = require_new_run = require_names = require_same_history = _pass
    require_open = charge = give_shares = shared = finished = _pass

    def describe(self) -> tuple[int, tuple[str, ...], bool]:
        """See `Statistic`."""
        return self._points.shape[1], self._names, self._labels is not None

    def compute(self, memory: Memory, index: int) -> Sequence[Array]:
        """See `Statistic`."""
        plan = memory.plan
        if plan.discovers(index):
            return plan.task.preliminary_statistic(plan, index, self._points, memory.found)
        if self._scaled is None:
            self._scaled = self._scale(plan, self._points)
        assert memory.clusters is not None
        step = build_algorithm(plan).rounds[index - 1]
        return step.arrays_of(self._scaled, memory.clusters.view(step.reads), self._labels)

    def deliver(self, memory: Memory, report: Callable[[], PrivacyReport]) -> None:
        """The memory is the result."""


@dataclass(frozen=True)
class _Given:
    """A reply that was handed over as it is."""

    reply: Any
    failure: None = None
    """Whatever goes wrong here is raised."""

    def opened(self, stage: Stage, node: int) -> Any:
        """The reply."""
        del stage, node
        return self.reply


class _Run(Server):
    """A server that asks clients of its own process, and tells of what passes by."""

    def __init__(
        self,
        plan: Plan,
        clients: Mapping[int, _Virtual],
        own_points: Array | None,
        on_step: Callable[[Step], None],
        watch: Callable[[Seen], None] | None,
    ) -> None:
        super().__init__(plan, node_ids=tuple(clients), own_points=own_points)
        self._clients, self._on_step, self._watch = clients, on_step, watch
        self._steps: list[Step] = []
        self._sent: list[Ring] = []
        self._received: list[Ring] = []
        self._passed: dict[str, Any] = {}

    def play(self) -> DirectResult:
        """Ask and answer until nothing is due."""
        tell: Callable[[], None] | None = None
        while self.due is not None:
            if self.due is Stage.SUM:
                self._sent, self._received = [], []
            step = self.take(self._answered(self.requests()))
            if tell is not None:
                # What clients read of a sum they read when they are asked the next thing.
                tell()
            tell = None if step is None else self._completed(step)
        memory = self._first
        assert memory.clusters is not None
        # The server's state has all that was computed, where it may have one.
        state = self.clusters or memory.clusters
        return DirectResult(state, tuple(self._steps), self.attempts, memory.plan, memory.found)

    @property
    def _first(self) -> Memory:
        memory = self._clients[FIRST_NODE_ID].memory
        assert memory is not None
        return memory

    def _answered(self, asked: Iterable[tuple[int, Request]]) -> Iterator[tuple[int, _Given]]:
        """Let one client after another answer."""
        for node, request in asked:
            reply, sent = self._clients[node].answer(request)
            if self._watch is not None and request.stage is Stage.SUM:
                self._sent.append(sent)
                self._received.append(reply.masked.values)
            yield node, _Given(reply)

    def _broadcast(self, aggregate: AggregateVector, planned: PlannedRound) -> Broadcast:
        result = super()._broadcast(aggregate, planned)
        # Without masks it sees what the trust model would have key authors hide.
        shown = aggregate if self.plan.settings.masking else AggregateVector(aggregate.values, blinded=False)
        vectors = {"sent": tuple(self._sent), "received": tuple(self._received)}
        self._passed = {**vectors, "aggregate": shown, "broadcast": result.values}
        return result

    def _completed(self, step: Step) -> Callable[[], None]:
        """What tells of the aggregation that was completed just now, once the first client has read it."""
        before, passed, index = self._first, self._passed, step.round_index

        def tell() -> None:
            memory, steers = self._first, before.plan.discovers(index)
            movements = memory.clusters.movements if memory.clusters is not None and not steers else ()
            self._steps.append(replace(step, movement=movements[-1] if movements else None))
            self._on_step(self._steps[-1])
            if self._watch is not None:
                self._watch(_seen(before, memory, step, passed))

        return tell


def _seen(before: Memory, after: Memory, step: Step, passed: Mapping[str, Any]) -> Seen:
    """What passed by in one aggregation, and what a client that remembered `before` read of it."""
    plan, index = before.plan, step.round_index
    shown: State | Found = before.found
    if before.clusters is not None and not plan.discovers(index):
        shown = before.clusters.view(build_algorithm(plan).rounds[index - 1].reads)
    release = Release(index, step.attempt, passed["broadcast"])
    released = plan.round_at(index).model.unblind(after.protocol, release).values
    return Seen(plan, index, step.attempt, shown, released=released, **passed)
