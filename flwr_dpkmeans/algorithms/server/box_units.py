"""From the caller's units to the box and back."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.rows import Rows, is_large, windows
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array


@lru_cache(maxsize=16)
def plan_bounds(plan: Plan, n_features: int) -> Bounds:
    """The plan's box, declared or released, one pair per feature."""
    return Bounds(*plan.bounds).for_features(n_features)


def in_box(
    bounds: Bounds,
    points: Array,
    fraction_bits: int,
) -> Array:
    """Points, (n_points, n_features), in the scaled box, on the grid.

    Large tables block by block, when looked at.
    """
    n, d = points.shape
    # Two grid steps at once: products with powers of two are exact, so that each saves
    # a pass over the rows.
    half = 2.0**fraction_bits
    first_window = next(windows((max(n, 1), d)))
    height = min(n, first_window.stop)
    lower, upper, step = _sides(bounds, height, d, half)

    def scaled(block: Array) -> Array:
        """`Bounds.scale` and `round_to_grid` in place, to the last bit."""
        in_steps: Array = np.empty(block.shape)
        for rows in windows(block.shape):
            part = in_steps[rows]
            n_rows = len(part)
            least = lower[:n_rows]
            most = upper[:n_rows]
            np.maximum(block[rows], least, out=part)
            np.minimum(part, most, out=part)
            part -= least
            part /= step[:n_rows]
            part -= half
            np.rint(part, out=part)
            part *= 1.0 / half
        # Kept for the next round, which must not find what a statistic wrote into it.
        in_steps.setflags(write=False)
        return in_steps

    if is_large(points.shape):
        rows: Array = Rows(points.shape, points.__getitem__).then(scaled)
        return rows
    return scaled(points)


@lru_cache(maxsize=1)
def _sides(
    bounds: Bounds,
    height: int,
    d: int,
    half: float,
) -> tuple[Array, Array, Array]:
    """Bounds and steps, of as many rows as are scaled at a time.

    a row by itself would be too short to be fast.

    Kept for all virtual clients of one process, which have the same.
    """
    fitted = bounds.for_features(d)
    copies = (height, 1)
    lower = np.tile(fitted.lower, copies)
    upper = np.tile(fitted.upper, copies)
    n_steps = 2.0 * half
    steps = (upper - lower) / n_steps
    return lower, upper, steps


def in_callers_units(plan: Plan, centroids: Array) -> Array:
    """Scaled centroids, (n_clusters, n_features), in the caller's units."""
    return np.asarray(plan_bounds(plan, centroids.shape[1]).unscale(centroids))
