"""The cost of a clustering."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.blocks import row_blocks


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


def sum_of_squares(
    points: NDArray[np.float64], centroids: NDArray[np.float64]
) -> float:
    """Sum the squared distances of points, (n, d), to the nearest of centroids, (k, d),
    both in one unit.

    From differences, which are exact to the last digits far from zero too, where a
    product of large numbers is not.
    """
    total = 0.0
    for rows in row_blocks(len(points), 2 * points.shape[1]):
        part = points[rows]
        squares = [np.square(part - centroid).sum(axis=1) for centroid in centroids]
        total += float(np.min(squares, axis=0).sum())
    return total
