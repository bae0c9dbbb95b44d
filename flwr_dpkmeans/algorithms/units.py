"""From the box [-1, 1]^d to the caller's units and back, by the plan's box."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.kmeans.blocks import row_blocks
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.task import Run


def plan_bounds(plan: Plan, n_features: int) -> Bounds:
    """The plan's box, declared or released, one pair per feature."""
    lower, upper = plan.bounds
    return Bounds(lower, upper).for_features(n_features)


def in_box(bounds: Bounds, points: NDArray[np.float64], fraction_bits: int) -> NDArray[np.float64]:
    """Points, (n_points, n_features), in the scaled box, on the grid: one new table, made block by block."""
    scaled = np.empty(points.shape)
    for rows in row_blocks(len(points), points.shape[1]):
        scaled[rows] = round_to_grid(bounds.scale(points[rows]), fraction_bits)
    return scaled


def in_callers_units(plan: Plan, centroids: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled centroids, (n_clusters, n_features), in the caller's units."""
    return np.asarray(plan_bounds(plan, centroids.shape[1]).unscale(centroids))


def in_squared_units(costs: NDArray[np.float64], config: Run) -> NDArray[np.float64]:
    """Costs in the caller's squared units where all features have one width; else they stay in scaled ones."""
    lower, upper = config.settings.bounds
    widths = [high - low for low, high in zip(lower, upper, strict=True)]
    same = max(widths) <= min(widths) * (1.0 + 1e-6)
    return np.asarray(costs * (widths[0] / 2.0) ** 2 if same else costs)
