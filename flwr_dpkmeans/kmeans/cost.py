"""The cost of a clustering."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.grid import FloatArray


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
    _, squares = nearest_centroids(points, centroids)
    total = float(squares.sum())
    return total / len(points)


def sum_of_squares(
    points: FloatArray,
    centroids: FloatArray,
    weights: FloatArray | None = None,
) -> float:
    """Sum the squared distances of points, (n, d), to the nearest of centroids, (k, d).

    Both in one unit; each counts by its weight, (n,), if there are weights.

    From differences, which are exact to the last digits far from zero too, where a
    product of large numbers is not.
    """
    total = 0.0
    n_rows, n_features = points.shape
    for rows in row_blocks(n_rows, 2 * n_features):
        part = points[rows]
        differences = (part - centroid for centroid in centroids)
        squares = [np.square(each).sum(axis=1) for each in differences]
        nearest = np.min(squares, axis=0)
        if weights is not None:
            nearest = nearest * weights[rows]
        total += float(nearest.sum())
    return total
