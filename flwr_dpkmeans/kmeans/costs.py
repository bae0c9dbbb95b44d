"""What a clustering costs, of rows in any units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.blocks import row_blocks


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
