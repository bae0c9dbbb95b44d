"""From the caller's units to the box and back."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.rows import Rows, is_large
from flwr_dpkmeans.kernels.box import GridBox
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array


@lru_cache(maxsize=16)
def plan_bounds(plan: Plan, n_features: int) -> Bounds:
    """The plan's box, declared or released, one pair per feature."""
    bounds = Bounds(*plan.bounds)
    return bounds.for_features(n_features)


def in_box(
    bounds: Bounds,
    points: Array,
    fraction_bits: int,
) -> Array:
    """Points, (n_points, n_features), in the scaled box, on the grid.

    Large tables block by block, when looked at.
    """
    n_features = points.shape[1]
    box = _grid_box(bounds, n_features, fraction_bits)

    def scaled(block: Array) -> Array:
        """`Bounds.scale` and `round_to_grid`, to the last bit."""
        on_grid = box.to_grid(block)
        # Kept for the next round, which must not find what a statistic wrote into it.
        on_grid.setflags(write=False)
        return on_grid

    if is_large(points.shape):
        table = Rows(points.shape, points.__getitem__)
        on_grid: Array = table.then(scaled)
        return on_grid
    return scaled(points)


@lru_cache(maxsize=1)
def _grid_box(bounds: Bounds, n_features: int, fraction_bits: int) -> GridBox:
    """The same for all virtual clients of one process."""
    fitted = bounds.for_features(n_features)
    return GridBox(
        lower=np.array(fitted.lower, np.float64),
        upper=np.array(fitted.upper, np.float64),
        fraction_bits=fraction_bits,
    )


def in_callers_units(plan: Plan, centroids: Array) -> Array:
    """Scaled centroids, (n_clusters, n_features), in the caller's units."""
    n_features = centroids.shape[1]
    bounds = plan_bounds(plan, n_features)
    unscaled = bounds.unscale(centroids)
    return np.asarray(unscaled)
