"""One client of a run that takes place in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.build import task_round
from flwr_dpkmeans.sums.checks.columns import planned_schema
from flwr_dpkmeans.sums.client import Guard, Memory, Statistic
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import Array, Labels


@runtime_checkable
class OfOneWidth(Protocol):
    """Tables that are made anew, and refused then if they have another width."""

    @property
    def n_columns(self) -> int:
        """Width of all."""


class Tables(Protocol):
    """The rows of all clients; see `flwr_dpkmeans.sums.local.LocalRun`."""

    plan: Plan
    parts: Sequence[Array]
    scale: Callable[[Plan, Array], Array]
    labels: Sequence[Labels] | None
    scaled: dict[int, Array]
    """By index, what was put into the box and is retained."""


class Virtual(Guard, Statistic):
    """One client of this process while it answers.

    Nothing is refused, charged or logged.
    """

    def __init__(
        self,
        run: Tables,
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

    def describe(self) -> tuple[int, tuple[str, ...], bool, str]:
        """See `Statistic.describe`; names and schema are those of the plan."""
        settings = self._settings
        parts = self._run.parts
        if isinstance(parts, OfOneWidth):
            n_columns = parts.n_columns
        else:
            _, n_columns = parts[self.index].shape
        n_features = n_columns - settings.n_beside
        has_labels = self._labels is not None
        schema = planned_schema(settings)
        return n_features, settings.feature_names, has_labels, schema

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> Sequence[Array]:
        """See `Statistic.compute`."""
        plan = memory.plan
        points, beside = self.split_table()
        task = plan.task
        if plan.discovers(index):
            discoveries = memory.discoveries
            return task.preliminary_statistic(plan, index, points, discoveries)
        assert memory.clusters is not None
        step = task_round(plan, index)
        (scaled,) = scaled_together(self._run, [self], plan)
        state = memory.clusters.view(step.reads)
        return step.arrays_of(scaled, state, self._labels, beside)

    def deliver(
        self,
        memory: Memory,
        report: Callable[[], PrivacyReport],
    ) -> bool:
        """The memory is the result."""
        return True


def scaled_together(
    run: Tables,
    virtuals: Sequence[Virtual],
    plan: Plan,
) -> list[Array]:
    """Clients' points in the plan's box, made once where the tables are a list.

    What is made anew each time is not retained either.
    """
    indices = [virtual.index for virtual in virtuals]
    if all(index in run.scaled for index in indices):
        return [run.scaled[index] for index in indices]
    tables = [virtual.split_table()[0] for virtual in virtuals]
    if len(tables) == 1:
        scaled = [run.scale(plan, tables[0])]
    else:
        rows = run.scale(plan, np.concatenate(tables))
        ends = np.cumsum([len(table) for table in tables])
        scaled = np.split(rows, ends[:-1])
    if isinstance(run.parts, list):
        run.scaled.update(zip(indices, scaled, strict=True))
    return scaled
