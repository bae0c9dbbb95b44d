"""The nearest centroid of each point.

It maximises the score ``x . c - |c|^2 / 2``; one matrix product gives the (chunk,
n_clusters) scores of a chunk that fits the processor's caches. On the grid x . c is a
multiple of 2^-32 and |c|^2 / 2 of 2^-33: their sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.blocks import block_length
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray
from flwr_dpkmeans.kernels.vectors import squared_lengths
from flwr_dpkmeans.threads import one_thread

# Scores per matrix product: 512 KiB, the second-level cache of common processors.
_CHUNK_SCORES = 1 << 16
_MINIMUM_CHUNK = 64
_MANY_CENTROIDS = 32
_Points = npt.NDArray[np.generic]


def nearest_centroids(
    points: npt.ArrayLike,
    centroids: npt.ArrayLike,
) -> tuple[LabelArray, FloatArray]:
    """Find the nearest centroid of each point, and the squared distance to it.

    Points are (n, d), n >= 0, centroids (k, d); both results are (n,). Exact on the
    2^-16 grid inside [-1, 1]^d; ties go to the lowest index. Shapes that do not fit are
    a `DataError`.
    """
    rows = np.asarray(points)
    centers = np.ascontiguousarray(centroids, np.float64)
    _check_shapes(rows, centers)
    outcome = compiled.nearest(rows, centers, with_squares=True)
    if outcome is not None:
        return outcome
    return _nearest_by_numpy(rows, centers)


@one_thread()
def _nearest_by_numpy(
    rows: _Points,
    centers: FloatArray,
) -> tuple[LabelArray, FloatArray]:
    n_rows = len(rows)
    labels = np.empty(n_rows, np.int32)
    squares = np.empty(n_rows)
    for chunk in _scored_chunks(rows, centers):
        nearest = chunk.nearest()
        each = np.arange(len(nearest))
        best = chunk.scores[each, nearest]
        # |x - c|^2 = |x|^2 - 2 score; exact on the grid, never negative off it.
        distances = squared_lengths(chunk.points) - 2.0 * best
        labels[chunk.rows] = nearest
        squares[chunk.rows] = np.maximum(distances, 0.0)
    return labels, squares


def nearest_labels(
    points: FloatArray,
    centroids: FloatArray,
) -> LabelArray:
    """Find the labels of `nearest_centroids` alone.

    Points are (n, d), centroids (k, d), labels (n,).
    """
    outcome = compiled.nearest(points, centroids, with_squares=False)
    if outcome is not None:
        return outcome[0]
    return _labels_by_numpy(points, centroids)


@one_thread()
def _labels_by_numpy(points: FloatArray, centroids: FloatArray) -> LabelArray:
    labels = np.empty(len(points), np.int32)
    for chunk in _scored_chunks(points, centroids):
        labels[chunk.rows] = chunk.nearest()
    return labels


@dataclass(frozen=True, repr=False)
class _Chunk:
    """Some neighbouring points with their scores (n, k).

    The next chunk overwrites the scores.
    """

    rows: slice
    points: FloatArray
    scores: FloatArray

    def nearest(self) -> npt.NDArray[np.intp]:
        """Index of the first centroid with the highest score, of each point."""
        nearest: npt.NDArray[np.intp] = self.scores.argmax(axis=1)
        return nearest


def _scored_chunks(
    points: _Points,
    centroids: FloatArray,
) -> Iterator[_Chunk]:
    """Score all points, one chunk after another."""
    k, d = centroids.shape
    n_points = len(points)
    per_product = max(_MINIMUM_CHUNK, _CHUNK_SCORES // k)
    per_block = block_length(max(k, d))
    step = min(n_points, per_product, per_block)
    offsets = -0.5 * squared_lengths(centroids)
    transposed = centroids.T
    # Of many short centroids, an addition to all scores costs more than a column of
    # ones before the product.
    with_ones = k >= max(_MANY_CENTROIDS, 2 * d)
    if with_ones:
        stacked = np.vstack([transposed, offsets])
        factors = np.ascontiguousarray(stacked)
        all_extended = np.ones((step, d + 1))
    else:
        factors = np.ascontiguousarray(transposed)
        all_extended = np.empty((0, 0))
    all_scores = np.empty((step, k))
    for start in range(0, n_points, max(1, step)):
        rows = slice(start, start + step)
        part = np.ascontiguousarray(points[rows], np.float64)
        n_part = len(part)
        scores = all_scores[:n_part]
        if with_ones:
            extended = all_extended[:n_part]
            extended[:, :-1] = part
            np.matmul(extended, factors, out=scores)
        else:
            np.matmul(part, factors, out=scores)
            scores += offsets
        yield _Chunk(rows, part, scores)


def _check_shapes(points: _Points, centroids: FloatArray) -> None:
    """Refuse tables that are not tables, or of unlike widths, or no centroids."""
    arrays = {"points": points, "centroids": centroids}
    for name, array in arrays.items():
        if array.ndim != 2:
            raise DataError(
                f"{name} has {array.ndim} dimensions, but it must have 2: give an array"
                " of shape (rows, features)."
            )
    width = points.shape[1]
    centroid_width = centroids.shape[1]
    if width != centroid_width:
        raise DataError(
            f"points have {width} features, but the centroids have"
            f" {centroid_width}: give both the same number of columns."
        )
    if len(centroids) == 0:
        raise DataError(
            "the number of centroids is 0, but it must be at least 1: give at least one"
            " centroid."
        )
