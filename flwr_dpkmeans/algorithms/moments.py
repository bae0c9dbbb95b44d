"""Private means and standard deviations of columns, of all rows or of groups of them: one round of sums.

Squares are released less one half: a square of a number in [-1, 1] lies in [0, 1], so that half the noise is enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.dplloyd import root_at_least
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.algorithms.received import has_exact_centroids
from flwr_dpkmeans.kmeans.assignment import is_on_grid
from flwr_dpkmeans.kmeans.clipping import toward_zero
from flwr_dpkmeans.kmeans.statistics import sum_by_label
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, Array, ClusterState, Labels, PrivateSum
from flwr_dpkmeans.sums.task import Known, Task

DEVIATIONS = "deviations"
"""Name of a state's standard deviations."""
_SHARES = (1.0, 2.0, 2.0)
"""Of the budget, for counts, sums and squares: a count's error is divided by far more than it moves a mean."""
_LEAST = 2.0**-16


def moment_parts(n_groups: int, width: int) -> list[ReleasePart]:
    """What is released of `width` columns of rows in groups: counts, sums, and squares less one half.

    Examples
    --------
    >>> [(part.name, part.shape, part.sensitivity.bound) for part in moment_parts(3, 4)]
    [('group_counts', (3,), 1.0), ('group_sums', (3, 4), 2.0), ('group_squares', (3, 4), 1.0)]
    """
    one = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "S23: one row lies in at most one group", nonnegative=True)
    counts = ReleasePart("group_counts", (n_groups,), one, _SHARES[0], 1.0)
    if not width:
        return [counts]
    root, because = root_at_least(width), "S24: one row of [-1, 1]^d has L2 norm at most sqrt(d)"
    sums = Sensitivity(Norm.L2, root, PrivacyUnit.RECORD, because)
    because = "S25: each of a row's d squares, less one half, is at most one half"
    squares = Sensitivity(Norm.L2, root / 2.0, PrivacyUnit.RECORD, because)
    return [
        counts,
        ReleasePart("group_sums", (n_groups, width), sums, _SHARES[1], 1.0),
        ReleasePart("group_squares", (n_groups, width), squares, _SHARES[2], 0.5),
    ]


def moment_arrays(points: Array, groups: Labels, n_groups: int) -> list[Array]:
    """One client's exact part of them, on the grid; `groups` are from 0 to `n_groups` - 1.

    Examples
    --------
    >>> counts, sums, squares = moment_arrays(np.array([[1.0], [0.5]]), np.array([0, 0]), 2)
    >>> counts.tolist(), sums.tolist(), squares.tolist()
    ([2.0, 0.0], [[1.5], [0.0]], [[0.25], [0.0]])
    """
    counts = np.bincount(groups, minlength=n_groups).astype(np.float64)
    if not points.shape[1]:
        return [counts]
    halved = toward_zero(np.square(points) - 0.5)
    return [counts, sum_by_label(points, groups, n_groups), sum_by_label(halved, groups, n_groups)]


def read_moments(released: ReleasedSum) -> tuple[Array, Array, Array]:
    """Counts, means in the box, and variances, of which noise may make some too small or negative."""
    counts = released["group_counts"]
    rows = np.maximum(counts, 1.0)[:, None]
    means = np.clip(released["group_sums"] / rows, -1.0, 1.0)
    squares = np.clip(released["group_squares"] / rows + 0.5, 0.0, 1.0)
    return counts, means, squares - np.square(means)


def deviations_of(variances: Array, least: float) -> Array:
    """Standard deviations of at least `least`, on the grid and above 0."""
    return np.maximum(round_to_grid(np.sqrt(np.maximum(variances, least**2))), _LEAST)


@dataclass(frozen=True, kw_only=True)
class Moments(Task):
    """Mean and standard deviation of every column.

    The state's centroids are the means, (1, n_features), its extra ``deviations`` has the same shape; both are in the
    box [-1, 1]^d of the bounds.
    """

    name = "moments"
    title = "private means and standard deviations"

    def build(self, known: Known) -> Algorithm:
        """One round."""
        width = known.n_features
        (blocks,) = allocate(known, [moment_parts(1, width)])

        def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
            del state
            return moment_arrays(points, np.zeros(len(points), dtype=np.int64), 1)

        def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
            del state
            counts, means, variances = read_moments(released)
            return ClusterState(round_to_grid(means), counts, (), {DEVIATIONS: deviations_of(variances, _LEAST)})

        def start(seed: int, server_points: Array | None = None, /) -> ClusterState:
            del seed, server_points
            return ClusterState(np.zeros((1, width)), np.zeros(1))

        return Algorithm(self.name, (PrivateSum("moments", blocks, statistic, advance),), start)

    def admits(self, plan: Plan, step: PrivateSum | None, state: ClusterState) -> bool:
        """Whether a state has one row of means on the grid, and in the end as many deviations."""
        extras = {} if step is not None else {DEVIATIONS: (1, plan.n_features or 0)}
        return fits(state, (1, plan.n_features or 0), extras)


def fits(state: ClusterState, shape: tuple[int, int], extras: dict[str, tuple[int, ...]]) -> bool:
    """Whether a state that a server sent has just these arrays, on the grid and finite."""
    named = {name: array.shape for name, array in state.extras.items()}
    exact = all(is_on_grid(array) and math.isfinite(float(np.abs(array).sum())) for array in state.extras.values())
    return state.centroids.shape == shape and named == extras and exact and has_exact_centroids(state)
