"""What a client of Lloyd's family sums in a round, exactly on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.blocks import row_blocks, sum_in_threads
from flwr_dpkmeans.kernels.clipping import largest_square_within
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.label_sums import add_by_label


def relative_statistics(
    points: npt.ArrayLike,
    centroids: npt.ArrayLike,
    radius: float | None,
) -> tuple[FloatArray, FloatArray]:
    """Sum and count the points of each cluster relative to its centroid.

    Sums are (k, d), counts (k,). FastLloyd, Algorithm 1, lines 6 to 13: a point is
    assigned to its nearest centroid (ties: the lowest index) and dropped when its
    distance is greater than `radius`, if there is one. Adding or removing one point
    therefore changes one row of the sums by a vector of norm at most `radius`, without
    slack on the grid, and one count by 1.
    """
    centers = np.asarray(centroids, dtype=np.float64)
    largest_square = None if radius is None else largest_square_within(radius)
    sums, counts = _summed(points, centers, largest_square)
    return sums - counts[:, None] * centers, counts


def absolute_statistics(
    points: npt.ArrayLike, centroids: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster, on the grid.

    Plain Lloyd, SuLloyd and GLloyd do so.
    """
    return _summed(points, np.asarray(centroids, dtype=np.float64), None)


def _summed(
    points: npt.ArrayLike,
    centroids: FloatArray,
    largest_square: float | None,
) -> tuple[FloatArray, FloatArray]:
    """Sum the points of every block that are no farther away than the bound.

    A point that is dropped goes to an extra row, which is cut off.
    """
    table: Any = points if hasattr(points, "shape") else np.asarray(points)
    k, n_features = len(centroids), centroids.shape[-1]

    def sum_of(blocks: Sequence[slice]) -> list[FloatArray]:
        sums = np.zeros((k + 1, n_features))
        counts = np.zeros(k + 1)
        for rows in blocks:
            block = table[rows]
            labels, squares = nearest_centroids(block, centroids)
            if largest_square is not None:
                # Negated, so that a distance that is not a number drops its point.
                labels[~(squares <= largest_square)] = k
            add_by_label(sums, block, labels)
            counts += np.bincount(labels, minlength=k + 1)
        return [sums, counts]

    blocks = row_blocks(len(table), table.shape[-1])
    sums, counts = sum_in_threads(sum_of, blocks)
    return sums[:-1], counts[:-1]
