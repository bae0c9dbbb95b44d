"""A private histogram of every column: the smallest private sum, one array of one round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.dplloyd import root_at_least
from flwr_dpkmeans.algorithms.moments import fits
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, Array, ClusterState, PrivateSum
from flwr_dpkmeans.sums.settings import Options, whole
from flwr_dpkmeans.sums.task import Known, Task


@dataclass(frozen=True)
class HistogramOptions(Options):
    """Options of a histogram."""

    bins: int = whole(20, 1, 20, "bins of equal width between each column's bounds", most=10_000)


@dataclass(frozen=True, kw_only=True)
class Histogram(Task):
    """Noisy counts of every column's values in bins: the state's extra ``histogram``, (n_features, bins)."""

    name = "histogram"
    title = "private histograms of columns"
    options: HistogramOptions = HistogramOptions()

    def build(self, known: Known) -> Algorithm:
        """One round of one array."""
        shape = (known.n_features, self.options.bins)
        because = "S26: one row lies in one bin of each of d columns"
        moved = Sensitivity(Norm.L2, root_at_least(shape[0]), PrivacyUnit.RECORD, because, nonnegative=True)
        (blocks,) = allocate(known, [[ReleasePart("histogram", shape, moved, 1.0, 1.0)]])

        def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
            del state
            # From [-1, 1] to bins 0 to n - 1; the upper bound belongs to the last one.
            bins = np.minimum((points + 1.0) * (shape[1] / 2.0), shape[1] - 1).astype(np.int64)
            return [np.stack([np.bincount(column, minlength=shape[1]) for column in bins.T]).astype(np.float64)]

        def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
            return ClusterState(state.centroids, state.counts, (), {"histogram": released["histogram"]})

        def start(seed: int, server_points: Array | None = None, /) -> ClusterState:
            del seed, server_points
            return ClusterState(np.zeros((0, shape[0])), np.zeros(0))

        return Algorithm(self.name, (PrivateSum("histogram", blocks, statistic, advance),), start)

    def admits(self, plan: Plan, step: PrivateSum | None, state: ClusterState) -> bool:
        """Whether a state has nothing yet, or in the end the histogram."""
        width = plan.n_features or 0
        return fits(state, (0, width), {} if step is not None else {"histogram": (width, self.options.bins)})
