"""The cost of a clustering."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids


def cost_per_point(points: ArrayLike, centroids: ArrayLike) -> float:
    """Mean squared distance of points (n, d), n >= 1, to the nearest centroid (k, d).

    FastLloyd's NICV, exact.
    """
    points = np.asarray(points)
    if len(points) == 0:
        raise DataError(
            "the number of points is 0, but a cost per point needs at least 1: give at"
            " least one row."
        )
    return float(nearest_centroids(points, centroids)[1].sum()) / len(points)
