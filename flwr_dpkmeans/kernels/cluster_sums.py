"""What a client of Lloyd's family sums in a round, exactly on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.blocks import _in_threads, row_blocks
from flwr_dpkmeans.kernels.clipping import largest_kept_square
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.label_sums import add_by_label


def relative_statistics(
    points: npt.ArrayLike, centroids: npt.ArrayLike, radius: float | None
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster relative to its centroid,
    without those beyond the radius.

    FastLloyd, Algorithm 1, lines 6 to 13. A point is assigned to its nearest centroid
    (ties: the lowest index) and dropped when its distance is greater than `radius`, if
    there is one. Adding or removing one point therefore changes one row of the sums by
    a vector of norm at most `radius`, without slack on the grid, and one count by 1.
    """
    centroids = np.asarray(centroids, dtype=np.float64)
    sums, counts = _summed(
        points, centroids, None if radius is None else largest_kept_square(radius)
    )
    return sums - counts[:, None] * centroids, counts


def absolute_statistics(
    points: npt.ArrayLike, centroids: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster, on the grid, as plain
    Lloyd, SuLloyd and GLloyd do.
    """
    return _summed(points, np.asarray(centroids, dtype=np.float64), None)


def _summed(
    points: npt.ArrayLike, centroids: FloatArray, max_square: float | None
) -> tuple[FloatArray, FloatArray]:
    """Sum the kept points of every block.

    a dropped point goes to an extra row, which is cut off.
    """
    table: Any = points if hasattr(points, "shape") else np.asarray(points)
    n_rows = len(centroids) + 1

    def summed(blocks: Sequence[slice]) -> list[FloatArray]:
        sums, counts = np.zeros((n_rows, *centroids.shape[1:])), np.zeros(n_rows)
        for rows in blocks:
            block = table[rows]
            labels, squares = nearest_centroids(block, centroids)
            if max_square is not None:
                # Negated, so that a distance that is not a number drops its point as
                # well.
                labels[~(squares <= max_square)] = len(centroids)
            add_by_label(sums, block, labels)
            counts += np.bincount(labels, minlength=n_rows)
        return [sums, counts]

    sums, counts = _in_threads(summed, row_blocks(len(table), table.shape[-1]))
    return sums[:-1], counts[:-1]
