"""What a client sums in one Lloyd round: per-cluster sums and counts, relative or absolute.

On the 2^-16 grid the sums are exact while no absolute sum reaches 2^37, that is for more than 10^11 points of the box.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kmeans.assignment import FloatArray, LabelArray, iterate_assigned_blocks
from flwr_dpkmeans.kmeans.clipping import largest_kept_square

# Up to so many entries a matrix of zeros and ones costs less than a sparse one.
_SMALL_MATRIX = 1 << 14
# Up to here one pass per feature costs less than setting up a sparse matrix.
_FEW_FEATURES = 4
# From here on adding a row costs more than a turn of a loop.
_WIDE = 1 << 12


def relative_statistics(
    points: npt.ArrayLike, centroids: npt.ArrayLike, radius: float | None
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster relative to its centroid, without those beyond the radius.

    FastLloyd, Algorithm 1, lines 6 to 13. A point is assigned to its nearest centroid (ties: the lowest index) and
    dropped when its distance is greater than `radius`; None drops no point. Adding or removing one point therefore
    changes one row of the sums by a vector of norm at most `radius`, and one count by 1. The bound has no rounding
    slack on the 2^-16 grid, where points, inside [-1, 1]^d, and centroids are.

    Examples
    --------
    >>> sums, counts = relative_statistics([[0.25], [0.5], [-1.0]], [[0.0], [0.75]], radius=0.5)
    >>> sums.tolist(), counts.tolist()
    ([[0.25], [-0.25]], [1.0, 1.0])
    """
    centroids = np.asarray(centroids, dtype=np.float64)
    sums, counts = _summed(points, centroids, None if radius is None else largest_kept_square(radius))
    return sums - counts[:, None] * centroids, counts


def absolute_statistics(points: npt.ArrayLike, centroids: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster, on the grid, as plain Lloyd, SuLloyd and GLloyd do."""
    return _summed(points, np.asarray(centroids, dtype=np.float64), None)


def _summed(
    points: npt.ArrayLike, centroids: FloatArray, largest_square: float | None
) -> tuple[FloatArray, FloatArray]:
    """Sum the kept points of every block; a dropped point goes to an extra row, which is cut off."""
    n_rows = len(centroids) + 1
    sums = np.zeros((n_rows, *centroids.shape[1:]))
    counts = np.zeros(n_rows)
    for block in iterate_assigned_blocks(points, centroids):
        labels = block.labels
        if largest_square is not None:
            # Negated, so that a distance that is not a number drops its point as well.
            labels[~(block.squared_distances() <= largest_square)] = len(centroids)
        add_by_label(sums, block.points, labels)
        counts += np.bincount(labels, minlength=n_rows)
    return sums[:-1], counts[:-1]


def add_by_label(sums: FloatArray, points: FloatArray, labels: LabelArray) -> None:
    """Add points (n, d) to the rows of `sums` with their labels, in place.

    Examples
    --------
    >>> sums = np.zeros((2, 1))
    >>> add_by_label(sums, np.array([[0.5], [0.25]]), np.array([1, 1]))
    >>> sums.tolist()
    [[0.0], [0.75]]
    """
    if points.shape[1] < _WIDE:
        sums += sum_by_label(points, labels, len(sums))
        return
    # A block has few of such rows: a table of their sums alone would be as large as all sums, for each block.
    for label, row in zip(labels.tolist(), points, strict=True):
        sums[label] += row


def sum_by_label(points: FloatArray, labels: LabelArray, n_rows: int) -> FloatArray:
    """Sum the points (n, d) with each label below `n_rows`; exact on the grid, so that their order does not matter."""
    n_points, n_features = points.shape
    if n_features <= _FEW_FEATURES:
        columns = [np.bincount(labels, weights=points[:, j], minlength=n_rows) for j in range(n_features)]
        return np.stack(columns, axis=1) if columns else np.zeros((n_rows, 0))
    if n_rows * n_points <= _SMALL_MATRIX:
        chosen = (labels == np.arange(n_rows)[:, None]).astype(np.float64)
        return np.asarray(chosen @ points, dtype=np.float64)
    from scipy.sparse import csc_array

    # A sparse matrix with one entry per column: column i says in which row point i is summed.
    starts = np.arange(n_points + 1, dtype=np.int32)
    sums: FloatArray = csc_array((np.ones(n_points), labels, starts), shape=(n_rows, n_points)) @ points
    return sums
