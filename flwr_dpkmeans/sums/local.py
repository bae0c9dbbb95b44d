"""All parties of a run in this process, without Flower's messages.

For experiments with thousands of virtual clients.

`run_direct` drives the same `Server` and `Client` as Flower does. They hand each other
requests and replies as they are instead of bytes, one client after another, so that
10,000 clients need no 10,000 vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.party import changed
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.checks.columns import planned_schema
from flwr_dpkmeans.sums.client import Client, Guard, Memory, Statistic
from flwr_dpkmeans.sums.client.injected import TableFacts
from flwr_dpkmeans.sums.paired import Awaited, Paired
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.person_rows import (
    arrays_of_persons,
    preliminary_of_persons,
)
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import Array, Labels, State
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.wire import Answer, Request

logger = placed_logger("flwr_dpkmeans.local")


def _as_they_are(plan: Plan, points: Array) -> Array:
    """Points that lie in the plan's box, on the grid."""
    return points


def run_direct(
    plan: Plan,
    parts: Sequence[Array],
    *,
    scale: Callable[[Plan, Array], Array] = _as_they_are,
    server_points: Array | None = None,
    labels: Sequence[Labels] | None = None,
    persons: Sequence[Persons] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
) -> LocalRun:
    """Run a plan over clients in this process, one table (n_i, n_features) for each.

    See `LocalRun` for the options.
    """
    run = LocalRun(
        plan,
        parts,
        scale=scale,
        server_points=server_points,
        labels=labels,
        persons=persons,
        on_step=on_step,
    )
    return run.play()


class Virtual(Guard, Statistic):
    """One client of this process while it answers.

    Nothing is refused, charged or logged.
    """

    def __init__(
        self,
        run: LocalRun,
        node_id: int,
    ) -> None:
        self.run_id = run.plan.run_id
        self.node_id = node_id
        self.stream = node_id
        self._run = run
        self._index = node_id - FIRST_NODE_ID
        self._settings = run.plan.settings
        self._labels = None
        if run.labels is not None:
            self._labels = run.labels[self._index]
        self._persons = None
        if run.persons is not None:
            self._persons = run.persons[self._index]

    def _table(self) -> tuple[Array, Array]:
        """Points, and the columns of a profile beside them."""
        table = self._run.parts[self._index]
        _, n_columns = table.shape
        width = n_columns - self._settings.n_beside
        points = table[:, :width]
        beside = table[:, width:]
        return points, beside

    def describe(self) -> TableFacts:
        """See `Statistic.describe`; names and schema are those of the plan."""
        points, _ = self._table()
        _, n_features = points.shape
        settings = self._settings
        has_labels = self._labels is not None
        schema = planned_schema(settings)
        return TableFacts(
            n_features,
            settings.feature_names,
            has_labels,
            schema,
            has_persons=self._persons is not None,
        )

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> Sequence[Array]:
        """See `Statistic.compute`."""
        plan = memory.plan
        points, beside = self._table()
        task = plan.task
        is_of_persons = plan.settings.unit is PrivacyUnit.PERSON
        if plan.is_preliminary(index):
            discoveries = memory.discoveries
            if is_of_persons:
                return preliminary_of_persons(
                    plan, index, self._persons, points, discoveries
                )
            return task.preliminary_statistic(plan, index, points, discoveries)
        assert memory.clusters is not None
        step = task_round(plan, index)
        scaled = self._scaled(plan, points)
        state = memory.clusters.view(step.reads)
        if is_of_persons:
            return arrays_of_persons(
                plan, step, self._persons, scaled, state, self._labels, beside
            )
        return step.arrays_of(
            scaled,
            state,
            self._labels,
            beside,
        )

    def _scaled(
        self,
        plan: Plan,
        points: Array,
    ) -> Array:
        """The points in the plan's box, made once where the tables are a list.

        What is made anew each time is not retained either.
        """
        run = self._run
        index = self._index
        if index in run.scaled:
            return run.scaled[index]
        scaled = run.scale(plan, points)
        if isinstance(run.parts, list):
            run.scaled[index] = scaled
        return scaled

    def deliver(
        self,
        memory: Memory,
        report: Callable[[], PrivacyReport],
    ) -> bool:
        """The memory is the result."""
        return True


class LocalRun(Server):
    """A server that asks clients of its own process, and what its run leaves.

    State, steps, attempts and plan.

    The plan is final, or has its width and preliminary rounds; its ``config.masking``
    decides on masks. `scale` puts a table into the final plan's box, on the grid, where
    by default it is already, as `server_points` are, if the plan does not hold them.
    `labels` are one array for each client, `persons` say whose its rows are where one
    person is protected; `on_step` hears of each aggregation.
    `parts` may be any sequence: what is no list is asked for a table when its client
    is, and nothing made of it is retained.

    A plan that waits for what no round of its own finds, or is for another number of
    clients, is a `PlanError`.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Array],
        *,
        scale: Callable[[Plan, Array], Array] = _as_they_are,
        server_points: Array | None = None,
        labels: Sequence[Labels] | None = None,
        persons: Sequence[Persons] | None = None,
        on_step: Callable[[Step], None] = logger.debug,
    ) -> None:
        is_preliminary = bool(plan.preliminary)
        if plan.is_final == is_preliminary or plan.n_features is None:
            raise PlanError(
                "the plan waits for the tables' width, or knows what it is still to"
                " find: draft it again."
            )
        if len(parts) != plan.n_clients:
            raise PlanError(
                f"the plan is for {plan.n_clients} clients, but there are {len(parts)}:"
                " draft it again."
            )
        super().__init__(
            plan,
            node_ids=range(FIRST_NODE_ID, FIRST_NODE_ID + len(parts)),
            server_points=server_points,
        )
        self.parts = parts
        self.scale = scale
        self.labels = labels
        self.persons = persons
        self._on_step = on_step
        self.scaled: dict[int, Array] = {}
        self.memories: dict[int, Memory] = {}
        self.awaited = Awaited()
        """What one of two clients computed for both."""
        self.watch_vector: Callable[[Ring], None] | None = None
        """Shown what each client masks, for audits that play all parties."""
        self.steps: list[Step] = []

    def play(self) -> Self:
        """Ask and answer until nothing is due."""
        while self.due is not None:
            # One client after another, so that 10,000 clients need no 10,000 vectors.
            step = self.take(self._answers())
            if step is not None:
                self.steps.append(step)
                self._on_step(step)
        return self

    def _answers(self) -> Iterator[tuple[int, Answer]]:
        """Ask one client after another, when its answer is wanted."""
        for node, request in self.requests():
            yield node, self.ask(node, request)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Whom something is asked of now, along the circle of neighbours.

        What one computes, the other soon asks for.
        """
        nodes = super().nodes
        is_masked = self.plan.settings.masking
        if self.due is not Stage.SUM or not is_masked:
            return nodes
        if len(nodes) <= ALL_PAIRS_UP_TO:
            return nodes
        due = frozenset(nodes)
        roster = self.session.roster
        return tuple(node for node in roster.hashed_order if node in due)

    def ask(
        self,
        node: int,
        request: Request,
    ) -> Answer:
        """What one client answers, as it is: whatever goes wrong here is raised."""
        virtual = Virtual(self, node)
        client = Client(
            virtual, virtual, self.memories.get(node), watch=self.watch_vector
        )
        memory, reply = client.handle(request)
        # Nobody is told that such a run is stopped.
        assert memory is not None
        party = memory.party
        if request.stage is Stage.KEYS and isinstance(party, Retry):
            fields = vars(party)
            paired = Paired(**fields, awaited=self.awaited)
            memory = changed(memory, party=paired)
        self.memories[node] = memory
        return lambda *_: reply

    @property
    def first(self) -> Memory:
        """What the first client remembers."""
        return self.memories[FIRST_NODE_ID]

    @property
    def state(self) -> State:
        """After the last round.

        The server's has all that was computed, where it may have one.
        """
        state = self.clusters
        if state is None:
            state = self.first.clusters
        assert state is not None
        return state
