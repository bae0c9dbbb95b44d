"""From the box [-1, 1]^d to the caller's units and back, by the plan's public bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.plan import Plan


def plan_bounds(plan: Plan, n_features: int) -> Bounds:
    """The plan's public bounds, one pair per feature."""
    lower, upper = plan.config.bounds
    return Bounds(lower, upper).for_features(n_features)


def in_callers_units(plan: Plan, centroids: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled centroids, (n_clusters, n_features), in the caller's units."""
    return np.asarray(plan_bounds(plan, centroids.shape[1]).unscale(centroids))
