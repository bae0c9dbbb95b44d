"""What tasks of a single round have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum, private_sums
from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.outcome import CountedRows
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum, State
from flwr_dpkmeans.sums.task import Task

AxisNames = dict[str, list[str]]
"""What the positions along each axis of a result are called."""
CLEAR = 2.0
"""Deviations of its noise below which a released value is not told from zero."""


class OneRoundTask(Task):
    """A task that learns everything in one round, from nothing."""

    @abstractmethod
    def planned(self, public: PublicFacts) -> PlannedSum:
        """The round."""

    @abstractmethod
    def shapes(self, n_features: int) -> Mapping[str, tuple[int, ...]]:
        """Shapes of what it learns, by name in the state."""

    def axis_names(self, columns: Sequence[str], n_features: int) -> AxisNames:
        """Names along axes of its own; `columns` are those of the table, if any."""
        return {}

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Cautions of the released counts, where the number of rows is not public.

        a negative one is noise.
        """
        sizes = state.arrays.get("rows", state.arrays.get("bins"))
        by_client = plan.settings.unit is PrivacyUnit.CLIENT
        if sizes is None or plan.n_examples is not None or by_client:
            return ()
        return self.cautions(
            replace(
                plan,
                n_examples=max(1, round(abs(np.atleast_2d(sizes).sum(axis=1).mean()))),
            )
        )

    def counted_rows(self, state: State) -> CountedRows | None:
        """Groups' counts, or each column's bins.

        Of which the average of all columns is taken.
        """
        bins = state.arrays.get("bins", np.zeros(()))
        if bins.ndim == 2 and bins.size:
            n_columns, n_bins = bins.shape
            return CountedRows(
                "bins", float(bins.sum()) / n_columns, n_bins / n_columns
            )
        rows = state.arrays.get("rows", np.zeros(()))
        # Another package's task may have another array of this name.
        if rows.ndim != 1:
            return None
        return CountedRows("group_counts", float(rows.sum()), rows.size)

    def build(self, public: PublicFacts) -> Algorithm:
        """The one round, from which the result follows."""
        return Algorithm(
            self.name,
            private_sums(public, [self.planned(public)]),
            lambda *_: State({}),
        )

    def admits(
        self,
        plan: Plan,
        step: PrivateSum | None,
        state: State,
    ) -> bool:
        """Nothing is known before, then just these arrays, on the grid.

        A server may tell clients no more.
        """
        shapes = {} if step is not None else dict(self.shapes(plan.n_features or 0))
        sent = {name: array.shape for name, array in state.arrays.items()}
        return sent == shapes and all(map(is_on_grid, state.arrays.values()))


def noise_caution(
    plan: Plan,
    n_groups: int,
    groups: str,
    most: float,
) -> tuple[str, ...]:
    """Say so if noise is more than a part `most` of a group's average number of rows.

    That number is public or counted with noise; at client level clients count.
    """
    settings = plan.settings
    things = "rows"
    n_units: float | None = plan.n_examples
    if settings.unit is PrivacyUnit.CLIENT:
        things = "clients"
        n_units = plan.n_clients * settings.client_sampling_rate
    if n_units is None or not plan.rounds:
        return ()
    first = plan.rounds[0]
    largest = max(plan.released_std(first, block) for block in first.blocks)
    noise = largest * n_groups / n_units
    if noise <= most:
        return ()
    whose, fewer = (
        (f" in {n_groups} {groups}", f" or {groups}") if n_groups > 1 else ("", "")
    )
    adds = "one of them adds" if whose else "they add"
    return (
        (
            f"For {'' if settings.n_examples else 'about '}{n_units:.0f} {things}"
            f"{whose}, noise is about {noise:.0%} of what {adds} to a sum, and above"
            f" {most:.0%} the result differs much from run to run: have more {things},"
            f" raise epsilon, or use fewer columns{fewer}."
        ),
    )
