"""One client of a run that takes place in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.checks.columns import planned_schema
from flwr_dpkmeans.sums.client import Guard, Memory, Statistic
from flwr_dpkmeans.sums.client.injected import TableFacts
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.person_rows import (
    arrays_of_units,
    preliminary_of_units,
)
from flwr_dpkmeans.sums.persons.row_units import RowUnits, Weights
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import Array, Labels


class VirtualRun(Protocol):
    """What virtual clients share; see `flwr_dpkmeans.sums.local.LocalRun`."""

    plan: Plan
    parts: Sequence[Array]
    labels: Sequence[Labels] | None
    persons: Sequence[Persons] | None
    weights: Sequence[Weights] | None
    memories: dict[int, Memory]
    """By node id."""
    watch_vector: Callable[[Ring], None] | None

    @property
    def n_columns_of_all(self) -> int | None:
        """Width of all tables, where one is refused that has another."""

    def size_of(self, virtual: Virtual) -> int:
        """How many numbers a client's table has."""

    def scaled_points(self, plan: Plan, virtuals: Sequence[Virtual]) -> list[Array]:
        """Clients' points in the plan's box."""


class Virtual(Guard, Statistic):
    """One client of this process while it answers.

    Nothing is refused, charged or logged.
    """

    def __init__(
        self,
        run: VirtualRun,
        node_id: int,
    ) -> None:
        self.run_id = run.plan.run_id
        self.node_id = node_id
        self.stream = node_id
        self._run = run
        self.index = node_id - FIRST_NODE_ID
        self._settings = run.plan.settings
        self._labels = None
        if run.labels is not None:
            self._labels = run.labels[self.index]
        self._units = RowUnits(
            None if run.persons is None else run.persons[self.index],
            None if run.weights is None else run.weights[self.index],
        )

    @cached_property
    def table(self) -> Array:
        """Its rows, looked at once while it answers."""
        return self._run.parts[self.index]

    def split_table(self) -> tuple[Array, Array]:
        """Points, and the columns of a profile beside them."""
        table = self.table
        _, n_columns = table.shape
        width = n_columns - self._settings.n_beside
        points = table[:, :width]
        beside = table[:, width:]
        return points, beside

    def describe(self) -> TableFacts:
        """See `Statistic.describe`; names and schema are those of the plan."""
        settings = self._settings
        run = self._run
        n_columns = run.n_columns_of_all
        if n_columns is None:
            _, n_columns = run.parts[self.index].shape
        n_features = n_columns - settings.n_beside
        has_labels = self._labels is not None
        schema = planned_schema(settings)
        return TableFacts(
            n_features,
            settings.feature_names,
            has_labels,
            schema,
            has_persons=self._units.persons is not None,
            has_weights=self._units.weights is not None,
        )

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> Sequence[Array]:
        """See `Statistic.compute`."""
        plan = memory.plan
        points, beside = self.split_table()
        task = plan.task
        weighs_rows = plan.settings.weighs_rows
        if plan.is_preliminary(index):
            discoveries = memory.discoveries
            if weighs_rows:
                return preliminary_of_units(
                    plan,
                    index,
                    self._units,
                    points,
                    discoveries,
                )
            return task.preliminary_statistic(plan, index, points, discoveries)
        assert memory.clusters is not None
        step = task_round(plan, index)
        (scaled,) = self._run.scaled_points(plan, [self])
        state = memory.clusters.view(step.reads)
        if weighs_rows:
            return arrays_of_units(
                plan,
                step,
                self._units,
                scaled,
                state,
                self._labels,
                beside,
            )
        return step.arrays_of(scaled, state, self._labels, beside)

    def deliver(
        self,
        memory: Memory,
        report: Callable[[], PrivacyReport],
    ) -> bool:
        """The memory is the result."""
        return True
