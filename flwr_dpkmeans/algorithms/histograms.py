"""A private histogram of every column: the smallest private sum, one array in one round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.dplloyd import root_at_least
from flwr_dpkmeans.algorithms.moments import fits, from_nothing
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.algorithms.server_points import plan_bounds
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum
from flwr_dpkmeans.sums.settings import Options, whole
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.task import Known, Result, Task


@dataclass(frozen=True)
class HistogramsOptions(Options):
    """Options of histograms."""

    bins: int = whole(20, 1, 20, "bins of equal width between each column's bounds", most=10_000)


@dataclass(frozen=True, kw_only=True)
class Histograms(Task):
    """Noisy counts of every column's values in bins."""

    name = "histograms"
    title = "private histograms of columns"
    options: HistogramsOptions = HistogramsOptions()

    def build(self, known: Known) -> Algorithm:
        """One round of one array."""
        d, n = shape = (known.n_features, self.options.bins)
        because = "S26: one row lies in one bin of each of d columns"
        moved = Sensitivity(Norm.L2, root_at_least(d), PrivacyUnit.RECORD, because, nonnegative=True)
        (blocks,) = allocate(known, [[ReleasePart("bins", shape, moved, 1.0, 1.0)]])

        def statistic(points: Array, state: State) -> Sequence[Array]:
            # From [-1, 1] to bins 0 to n - 1; the upper bound belongs to the last one.
            bins = np.minimum((points + 1.0) * (n / 2.0), n - 1).astype(np.int64)
            return [np.stack([np.bincount(column, minlength=n) for column in bins.T]).astype(np.float64)]

        def advance(state: State, released: ReleasedSum) -> State:
            return state.changed(bins=released["bins"])

        return Algorithm(self.name, (PrivateSum("histograms", blocks, statistic, advance),), from_nothing)

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """Nothing is known before; then the counts."""
        return fits(state, {} if step is not None else {"bins": (plan.n_features or 0, self.options.bins)})

    def result(self, plan: Plan, state: State) -> Result:
        """``counts``, (n_features, bins), and ``edges``, (n_features, bins + 1), in the units of the data."""
        d, n = state["bins"].shape
        edges = plan_bounds(plan, d).unscale(np.repeat(np.linspace(-1.0, 1.0, n + 1)[:, None], d, axis=1)).T
        return Result({"counts": state["bins"], "edges": edges})
