"""Rows that are far from what all parties' rows are like; who is flagged is known at the party alone.

Two yardsticks: private means and deviations of the columns (`moments`), or a private radius of each cluster (here).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.moments import fits, from_nothing
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.algorithms.server_points import plan_bounds
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kmeans.assignment import nearest_centroids
from flwr_dpkmeans.kmeans.clipping import toward_zero
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum
from flwr_dpkmeans.sums.settings import Options, option, real
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.task import Known, Result, Task

_MOST_CENTERS = 10_000


def _as_centers(value: object) -> object:
    """Tuples of numbers from an array, from lists, or from text such as ``"0.1,2;0.3,4"``."""
    if isinstance(value, str):
        value = [text.split(",") for text in value.split(";")]
    return tuple(tuple(float(one) for one in row) for row in value) if isinstance(value, list | np.ndarray) else value


def _require_centers(name: str, value: object) -> None:
    rows = value if isinstance(value, tuple) else ()
    widths = {len(row) for row in rows if isinstance(row, tuple)}
    if not 1 <= len(rows) <= _MOST_CENTERS or len(widths) != 1 or not np.isfinite(np.array(rows, dtype=float)).all():
        raise ConfigurationError(
            f"{name} must be 1 to {_MOST_CENTERS} rows of finite numbers: give a fitted model's cluster_centers_."
        )


@dataclass(frozen=True)
class RadiiOptions(Options):
    """Options of clusters' radii."""

    centers: tuple[tuple[float, ...], ...] | None = option(
        None,
        _require_centers,
        "public centers in the units of the data, such as those of a private clustering: '0.1,2;0.3,4'",
        _as_centers,
    )
    reach: float = real(1.0, 2.0**-16, 1e3, "1.0", "distance, in the box, at which a row's own is cut off")


@dataclass(frozen=True, kw_only=True)
class Radii(Task):
    """Root mean square distance of the rows of each cluster from its center."""

    name = "radii"
    title = "private radii of clusters"
    options: RadiiOptions = RadiiOptions()

    def build(self, known: Known) -> Algorithm:
        """One round of two arrays."""
        centers, square = self._scaled(known.settings.bounds, known.n_features), self.options.reach**2
        shape = (len(centers),)
        count = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "S23: one row lies in at most one group", True)
        because = "S28: one row adds a number from 0 to 1 to one cluster"
        cost = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, because, True)
        parts = [ReleasePart("group_counts", shape, count, 1.0, 1.0), ReleasePart("spreads", shape, cost, 1.0, 1.0)]
        (blocks,) = allocate(known, [parts])

        def statistic(points: Array, state: State) -> Sequence[Array]:
            labels, squared = nearest_centroids(points, centers)
            shares = toward_zero(np.minimum(squared / square, 1.0))
            return [np.bincount(labels, w, minlength=len(centers)).astype(float) for w in (None, shares)]

        def advance(state: State, released: ReleasedSum) -> State:
            rows = released["group_counts"]
            shares = np.clip(released["spreads"] / np.maximum(rows, 1.0), 0.0, 1.0)
            return state.changed(rows=rows, radii=round_to_grid(self.options.reach * np.sqrt(shares)))

        return Algorithm(self.name, (PrivateSum("radii", blocks, statistic, advance),), from_nothing)

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """Nothing is known before; then a radius and a count for each center."""
        shape = (len(self.options.centers or ()),)
        return fits(state, {} if step is not None else {"rows": shape, "radii": shape})

    def result(self, plan: Plan, state: State) -> Result:
        """``radii``, (n_clusters,), in the box [-1, 1]^d, where distances are taken, and ``rows``."""
        return Result(dict(state.arrays))

    def _scaled(self, box: tuple[tuple[float, ...], tuple[float, ...]], width: int) -> Array:
        """The centers in the box, on the grid."""
        if self.options.centers is None:
            raise ConfigurationError("centers are not given: give a fitted model's cluster_centers_.")
        centers = np.array(self.options.centers, dtype=float)
        if centers.shape[1] != width:
            raise ConfigurationError(f"centers have {centers.shape[1]} columns, but the table has {width}.")
        return round_to_grid(Bounds(*box).for_features(width).scale(centers))


def deviating_rows(points: Array, moments: Result, z: float = 4.0) -> NDArray[np.bool_]:
    """Flag rows, (n_rows, n_features) in the units of the data, with a value beyond z deviations; local.

    Examples
    --------
    >>> known = Result({"mean": np.array([10.0]), "deviation": np.array([2.0])})
    >>> deviating_rows(np.array([[17.0], [18.5]]), known).tolist()
    [False, True]
    """
    return np.asarray((np.abs(points - moments["mean"]) > z * moments["deviation"]).any(axis=1))


def far_rows(points: Array, plan: Plan, radii: Result, times: float = 2.0) -> NDArray[np.bool_]:
    """Flag rows beyond some times the radius of the cluster that they are nearest to; local.

    Parameters
    ----------
    points : ndarray, (n_rows, n_features)
        In the units of the data.
    plan : Plan
        Of the run of `Radii`.
    radii : Result
        Of that run.
    times : float
        Multiple of a radius.
    """
    task = plan.task
    assert isinstance(task, Radii)
    scaled = round_to_grid(plan_bounds(plan, points.shape[1]).scale(points))
    labels, squared = nearest_centroids(scaled, task._scaled(plan.bounds, points.shape[1]))
    return np.asarray(np.sqrt(squared) > times * radii["radii"][labels])
