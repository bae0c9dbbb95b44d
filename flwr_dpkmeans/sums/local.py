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
from flwr_dpkmeans.secagg.messages import Release, Stage
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.signing import Signer
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.draft import build_algorithm
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.round import Labels, State
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.task import Found, Result
from flwr_dpkmeans.sums.trust import Broadcast, trust_model
from flwr_dpkmeans.sums.wire import Failure, Request

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


def _as_given(plan: Plan, points: Array) -> Array:
    """Take points that are in the plan's box already."""
    del plan
    return points


def run_direct(
    plan: Plan,
    parts: Sequence[Array],
    *,
    scale: Callable[[Plan, Array], Array] = _as_given,
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
    nodes = {}
    for place, part in enumerate(parts):
        rows = _Rows(plan, part, scale, None if labels is None else labels[place])
        nodes[FIRST_NODE_ID + place] = _Virtual(plan, FIRST_NODE_ID + place, rows)
    server = _Observed(plan, node_ids=tuple(nodes), own_points=server_points)
    return _Run(server, nodes, on_step, watch).play()


class _Observed(Server):
    """A server that shows an audit what passes through it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        nothing: Ring = np.zeros(0, dtype=np.uint64)
        self.passed: tuple[AggregateVector, Ring] = (AggregateVector(nothing, blinded=False), nothing)
        """Its last sum, and what it sends on."""

    def _broadcast(self, aggregate: AggregateVector, planned: PlannedRound) -> Broadcast:
        result = super()._broadcast(aggregate, planned)
        # Without masks it sees what the trust model would have key authors hide.
        shown = AggregateVector(aggregate.values, blinded=aggregate.blinded and self.plan.config.masking)
        self.passed = (shown, result.values)
        return result


@dataclass(frozen=True)
class _Given:
    """A reply that was handed over as it is."""

    reply: Any

    @property
    def failure(self) -> Failure | None:
        """None: whatever goes wrong here is raised."""
        return None

    def opened(self, stage: Stage, node: int) -> Any:
        """The reply."""
        del stage, node
        return self.reply


class _OpenGuard:
    """A virtual client's: all parties are the caller's own, so nothing is refused, charged or logged."""

    def __init__(self, plan: Plan, node_id: int) -> None:
        self.run_id, self.node_id, self.stream = plan.run_id, node_id, node_id
        self.data_id, self.started, self.min_cohort = "", "", 0
        self.identity: Signer | None = None
        self.pinned: Mapping[bytes, str] | None = None
        self.marks: frozenset[bytes] = frozenset()

    def identities(self, n_recognised: int) -> str:
        """See `Guard`."""
        del n_recognised
        return SIMULATED

    def _pass(self, *_: Any) -> None:
        """Nothing to decide or to write down."""

    require_in_time = require_approved = require_allowed = require_new_run = require_names = _pass
    require_fresh = require_same_history = charge = note_shares = asked = shared = unmasked = finished = _pass


class _Rows:
    """One table as what computes statistics."""

    def __init__(self, plan: Plan, points: Array, scale: Callable[[Plan, Array], Array], labels: Labels | None) -> None:
        self._points, self._scale, self._labels = points, scale, labels
        self._names = plan.config.feature_names
        self._scaled: Array | None = None

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


class _Virtual:
    """One client between two requests."""

    def __init__(self, plan: Plan, node_id: int, rows: _Rows) -> None:
        self._guard, self._rows = _OpenGuard(plan, node_id), rows
        self.memory: Memory | None = None

    def answer(self, request: Request) -> tuple[Any, Ring]:
        """Handle a request; with the reply, what was masked for it."""
        client = Client(self._guard, self._rows, self.memory)
        self.memory, reply = client.handle(request)
        return reply, client.unmasked_vector


class _Run:
    """One run, and what is told of it."""

    def __init__(
        self,
        server: _Observed,
        nodes: Mapping[int, _Virtual],
        on_step: Callable[[Step], None],
        watch: Callable[[Seen], None] | None,
    ) -> None:
        self._server, self._nodes = server, nodes
        self._on_step, self._watch = on_step, watch
        self._steps: list[Step] = []
        self._sent: list[Ring] = []
        self._received: list[Ring] = []

    def play(self) -> DirectResult:
        """Ask and answer until nothing is due."""
        server = self._server
        done: _Aggregation | None = None
        while server.due is not None:
            if server.due is Stage.SUM:
                self._sent, self._received = [], []
            step = server.take(self._answered(server.requests()))
            if done is not None:
                # What clients read of a sum they read when they are asked the next thing.
                self._tell(done)
            done = None if step is None else self._aggregation(step)
        memory = self._first
        assert memory.clusters is not None
        # The server's state has all that was computed, where it may have one.
        state = server.clusters or memory.clusters
        return DirectResult(state, tuple(self._steps), server.attempts, memory.plan, memory.found)

    @property
    def _first(self) -> Memory:
        memory = self._nodes[FIRST_NODE_ID].memory
        assert memory is not None
        return memory

    def _answered(self, asked: Iterable[tuple[int, Request]]) -> Iterator[tuple[int, _Given]]:
        """Let one client after another answer."""
        for node, request in asked:
            reply, sent = self._nodes[node].answer(request)
            if self._watch is not None and request.stage is Stage.SUM:
                self._sent.append(sent)
                self._received.append(reply.masked.values)
            yield node, _Given(reply)

    def _aggregation(self, step: Step) -> _Aggregation:
        """What passed by in the aggregation that was completed just now."""
        return _Aggregation(step, self._first, tuple(self._sent), tuple(self._received), *self._server.passed)

    def _tell(self, done: _Aggregation) -> None:
        """Tell of one aggregation, now that the first client has read it."""
        memory, step, index = self._first, done.step, done.step.round_index
        plan, state = done.memory.plan, done.memory.clusters
        steers = plan.discovers(index)
        movements = memory.clusters.movements if memory.clusters is not None and not steers else ()
        self._steps.append(replace(step, movement=movements[-1] if movements else None))
        self._on_step(self._steps[-1])
        if self._watch is None:
            return
        shown: State | Found = done.memory.found
        if state is not None and not steers:
            shown = state.view(build_algorithm(plan).rounds[index - 1].reads)
        release = Release(index, step.attempt, done.broadcast)
        released = memory.protocol.unblind(release, blinded=trust_model(plan.round_at(index).trust).blinded).values
        parts = (done.sent, done.received, done.aggregate, done.broadcast, released)
        self._watch(Seen(plan, index, step.attempt, shown, *parts))


@dataclass(frozen=True)
class _Aggregation:
    """What passed by in one aggregation, before clients have read it."""

    step: Step
    memory: Memory = field(repr=False)
    sent: tuple[Ring, ...] = field(repr=False)
    received: tuple[Ring, ...] = field(repr=False)
    aggregate: AggregateVector = field(repr=False)
    broadcast: Ring = field(repr=False)
