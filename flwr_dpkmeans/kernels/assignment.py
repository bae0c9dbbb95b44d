"""The nearest centroid of each point.

It maximises the score ``x . c - |c|^2 / 2``; one matrix product gives the (chunk,
n_clusters) scores of a chunk that fits the processor's caches. On the grid x . c is a
multiple of 2^-32 and |c|^2 / 2 of 2^-33: their sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.blocks import block_length
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray
from flwr_dpkmeans.threads import one_thread

# Scores per matrix product: 512 KiB, the second-level cache of common processors.
_CHUNK_SCORES = 1 << 16


_MINIMUM_CHUNK = 64


_MANY = 32


@one_thread()
def nearest_centroids(
    points: npt.ArrayLike, centroids: npt.ArrayLike
) -> tuple[LabelArray, FloatArray]:
    """Find the nearest centroid (k, d) of each point (n, d), n >= 0, and the squared
    distance to it, both (n,).

    Exact on the 2^-16 grid inside [-1, 1]^d; ties go to the lowest index. Shapes that
    do not fit are a `DataError`.
    """
    points, centroids = (
        np.asarray(points),
        np.ascontiguousarray(centroids, dtype=np.float64),
    )
    _check_shapes(points, centroids)
    labels, squares = np.empty(len(points), dtype=np.int32), np.empty(len(points))
    for rows, part, scores in _scored(points, centroids):
        labels[rows] = nearest = scores.argmax(axis=1)
        best = scores[np.arange(len(part)), nearest]
        # |x - c|^2 = |x|^2 - 2 score; exact on the grid, never negative off it.
        squares[rows] = np.maximum(np.einsum("ij,ij->i", part, part) - 2.0 * best, 0.0)
    return labels, squares


@one_thread()
def nearest_labels(points: FloatArray, centroids: FloatArray) -> LabelArray:
    """Find the labels of `nearest_centroids` alone, for points (n, d) and centroids (k,
    d).
    """
    labels = np.empty(len(points), dtype=np.int32)
    for rows, _, scores in _scored(points, centroids):
        labels[rows] = scores.argmax(axis=1)
    return labels


def _scored(
    points: npt.NDArray[np.generic], centroids: FloatArray
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Chunks of points: which, their rows, and their scores (n, k), which the next
    chunk overwrites.
    """
    k, d = centroids.shape
    step = min(
        len(points), max(_MINIMUM_CHUNK, _CHUNK_SCORES // k), block_length(max(k, d))
    )
    offsets = -0.5 * np.einsum("ij,ij->i", centroids, centroids)
    # Of many short centroids, an addition to all scores costs more than a column of
    # ones before the product.
    with_ones = k >= max(_MANY, 2 * d)
    factors = np.ascontiguousarray(
        np.vstack([centroids.T, offsets[None, :]]) if with_ones else centroids.T
    )
    all_scores, extended = (
        np.empty((step, k)),
        np.ones((step, d + 1) if with_ones else 0),
    )
    for start in range(0, len(points), max(1, step)):
        rows = slice(start, start + step)
        part = np.ascontiguousarray(points[rows], dtype=np.float64)
        scores = all_scores[: len(part)]
        if with_ones:
            extended[: len(part), :-1] = part
            np.matmul(extended[: len(part)], factors, out=scores)
        else:
            np.matmul(part, factors, out=scores)
            scores += offsets
        yield rows, part, scores


def _check_shapes(points: npt.NDArray[np.generic], centroids: FloatArray) -> None:
    for name, array in (("points", points), ("centroids", centroids)):
        if array.ndim != 2:
            raise DataError(
                f"{name} has {array.ndim} dimensions, but it must have 2: give an array"
                " of shape (rows, features)."
            )
    if points.shape[1] != centroids.shape[1]:
        raise DataError(
            f"points have {points.shape[1]} features, but the centroids have"
            f" {centroids.shape[1]}: give both the same number of columns."
        )
    if len(centroids) == 0:
        raise DataError(
            "the number of centroids is 0, but it must be at least 1: give at least one"
            " centroid."
        )
