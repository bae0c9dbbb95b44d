"""Private means and standard deviations of columns, of all rows or of groups of them: one round of sums.

Squares are released less one half: a square of a number in [-1, 1] lies in [0, 1], so that half the noise is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.dplloyd import root_at_least
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.algorithms.server_points import plan_bounds
from flwr_dpkmeans.kmeans.assignment import is_on_grid
from flwr_dpkmeans.kmeans.clipping import toward_zero
from flwr_dpkmeans.kmeans.statistics import sum_by_label
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, Array, Labels, PrivateSum
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.task import Known, Result, Task

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
    narrow = groups.astype(np.int32)
    halved = toward_zero(np.square(points) - 0.5)
    return [counts, sum_by_label(points, narrow, n_groups), sum_by_label(halved, narrow, n_groups)]


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
    """Mean and standard deviation of every column, and the number of rows."""

    name = "moments"
    title = "private means and standard deviations"

    def build(self, known: Known) -> Algorithm:
        """One round."""
        (blocks,) = allocate(known, [moment_parts(1, known.n_features)])

        def statistic(points: Array, state: State) -> Sequence[Array]:
            del state
            return moment_arrays(points, np.zeros(len(points), dtype=np.int64), 1)

        def advance(state: State, released: ReleasedSum) -> State:
            rows, means, variances = read_moments(released)
            return state.changed(rows=rows, means=round_to_grid(means), deviations=deviations_of(variances, _LEAST))

        return Algorithm(self.name, (PrivateSum("moments", blocks, statistic, advance),), from_nothing)

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """Nothing is known before; then three arrays."""
        shape = (1, plan.n_features or 0)
        return fits(state, {} if step is not None else {"rows": (1,), "means": shape, DEVIATIONS: shape})

    def result(self, plan: Plan, state: State) -> Result:
        """``mean`` and ``deviation`` of every column, (n_features,), in the units of the data, and ``rows``."""
        bounds = plan_bounds(plan, state["means"].shape[1])
        widths = (np.array(bounds.upper) - np.array(bounds.lower)) / 2.0
        (mean,) = bounds.unscale(state["means"])
        return Result({"mean": mean, "deviation": state[DEVIATIONS][0] * widths, "rows": state["rows"]})


def from_nothing(seed: int, server_points: Array | None = None, /) -> State:
    """The start of a task that learns everything in its first round."""
    del seed, server_points
    return State({})


def fits(state: State, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a state that a server sent has just these arrays, on the grid: a server may tell clients no more."""
    return {name: array.shape for name, array in state.arrays.items()} == dict(shapes) and all(
        map(is_on_grid, state.arrays.values())
    )
