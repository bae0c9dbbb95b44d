"""The nearest centroid of each point, in blocks that fit the processor's caches.

It maximises the score ``x . c - |c|^2 / 2``; one matrix product gives the (n_clusters, chunk) scores of a chunk. NumPy
has no vector code for ``argmax`` along their first axis, but for ``max``: so the centroid's index is stored in the
lowest bits of a score (`_LabelCode`), and one pass gives score and label; where bits do not suffice, ``argmax`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.threads import one_thread

FloatArray = npt.NDArray[np.float64]
LabelArray = npt.NDArray[np.int32]

# Scores per matrix product: 512 KiB, the second-level cache of common processors.
_CHUNK_SCORES = 1 << 16
# Small problems use arrays below 128 KiB: the C library maps larger ones anew on every call, which costs more than
# the arithmetic.
_SMALL_CHUNK_SCORES = 15 << 10
_SMALL_PROBLEM_SCORES = 1 << 18
_MINIMUM_CHUNK = 64
# Points per block: labels are decoded and sums are formed once per block.
_BLOCK_POINTS = 1 << 15
_GRID = 2.0**16
# On the grid x . c is a multiple of 2^-32 and |c|^2 / 2 of 2^-33.
_SCORE_RESOLUTION = 2.0**-33


@dataclass(frozen=True, repr=False)
class AssignedBlock:
    """Consecutive points with their labels and the scores ``x . c - |c|^2 / 2`` of their nearest centroids."""

    start: int
    points: FloatArray
    labels: LabelArray
    scores: FloatArray

    def squared_distances(self) -> FloatArray:
        """Return |x - c|^2 = |x|^2 - 2 score; exact on the grid, never negative off it."""
        squared_norms = np.asarray(np.einsum("ij,ij->i", self.points, self.points), dtype=np.float64)
        squared_norms -= 2.0 * self.scores
        np.maximum(squared_norms, 0.0, out=squared_norms)
        return squared_norms


@dataclass(frozen=True)
class _LabelCode:
    """How a score is moved into one binade with its label in the lowest bits.

    3 * 2^exponent + score lies in [2^(exponent + 1), 2^(exponent + 2)), where floats are multiples of `unit`. A
    score on the grid is a multiple of unit * 2^label_bits, so adding label code * unit changes only free bits. Lower
    indices have the larger code: they win ties.
    """

    exponent: int
    label_bits: int
    unit: float
    """Spacing of floats in the binade."""
    centre: float
    """Middle of the binade."""
    rounding_shift: float
    """Number whose addition rounds a score to a multiple of unit * 2^label_bits."""

    @classmethod
    def of(cls, centroids: FloatArray, offsets: FloatArray) -> _LabelCode | None:
        """Return the code for these centroids, or None when float64 has too few bits for it."""
        # Points of the box have |x_i| <= 1, so |x . c| <= |c|_1.
        bound = float(np.max(np.abs(centroids).sum(axis=1) - offsets))
        if not bound < 2.0**20:
            return None
        exponent, label_bits = max(math.frexp(bound)[1], 0), (len(centroids) - 1).bit_length()
        unit, centre = 2.0 ** (exponent - 51), 3.0 * 2.0**exponent
        if unit * 2.0**label_bits > _SCORE_RESOLUTION:
            return None
        return cls(exponent, label_bits, unit, centre, centre * 2.0**label_bits)

    def terms(self, n_clusters: int) -> FloatArray:
        """Return what to add to the score of each centroid to move it to the binade and to label it."""
        codes = (2.0**self.label_bits - 1.0) - np.arange(n_clusters)
        return np.asarray(self.centre + codes * self.unit, dtype=np.float64)

    def covers(self, best: FloatArray) -> bool:
        """Say whether every maximum lies in the binade; false for points far outside the box and for NaN."""
        return bool(best.min() >= 2.0 ** (self.exponent + 1) and best.max() < 2.0 ** (self.exponent + 2))

    def decode(self, best: FloatArray) -> tuple[LabelArray, FloatArray]:
        """Split the coded maxima into labels and scores."""
        mask = (1 << self.label_bits) - 1
        bits = best.view(np.int64)
        labels = np.bitwise_and(bits, mask).astype(np.int32)
        np.subtract(mask, labels, out=labels)
        scores: FloatArray = np.bitwise_and(bits, ~mask).view(np.float64)
        scores -= self.centre
        return labels, scores


class _BlockAssigner:
    """The buffers and constants of one call, shared by all its blocks."""

    def __init__(self, centroids: FloatArray, n_points: int) -> None:
        n_clusters, n_features = centroids.shape
        self._centroids = centroids
        self._offsets = -0.5 * np.einsum("ij,ij->i", centroids, centroids)
        small = n_points * n_clusters <= _SMALL_PROBLEM_SCORES
        chunk = (_SMALL_CHUNK_SCORES if small else _CHUNK_SCORES) // n_clusters
        self._chunk = max(1, min(n_points, max(_MINIMUM_CHUNK, chunk), block_length(n_clusters)))
        self._code = _LabelCode.of(centroids, self._offsets)
        if self._code is None:
            return
        self._scores = np.empty((n_clusters, self._chunk))
        # Looking at every coordinate pays when it saves two additions per score.
        self._look_for_grid = 2 * n_features <= n_clusters and is_on_grid(centroids)
        self._columns: dict[bool, list[FloatArray]] = {}

    def _constants(self, code: _LabelCode, on_grid: bool) -> list[FloatArray]:
        """Return what to add to the scores, as full matrices: twice as fast to add as a broadcast column."""
        if on_grid not in self._columns:
            terms = code.terms(len(self._centroids))
            columns = [self._offsets + terms] if on_grid else [self._offsets + code.rounding_shift, terms]
            self._columns[on_grid] = [np.repeat(column[:, None], self._chunk, axis=1) for column in columns]
        return self._columns[on_grid]

    def assign(self, points: FloatArray) -> tuple[LabelArray, FloatArray]:
        """Return the labels and best scores of one block."""
        if self._code is not None:
            best = self._coded_maxima(points, self._code)
            if self._code.covers(best):
                return self._code.decode(best)
        return self._plain(points)

    def _coded_maxima(self, points: FloatArray, code: _LabelCode) -> FloatArray:
        """Return for each point the largest coded score."""
        best = np.empty(len(points))
        on_grid = self._look_for_grid and is_on_grid(points)
        first, *rest = self._constants(code, on_grid)
        for start in range(0, len(points), self._chunk):
            part = points[start : start + self._chunk]
            size = len(part)
            # A slice of the buffer would not be contiguous: the last, shorter chunk gets its own.
            scores = self._scores if size == self._chunk else np.empty((len(self._centroids), size))
            np.matmul(self._centroids, part.T, out=scores)
            scores += first[:, :size]
            # Off the grid the bits for the label must be cleared before it is added: the first constant rounded.
            for labels in rest:
                scores -= code.rounding_shift
                scores += labels[:, :size]
            np.maximum.reduce(scores, axis=0, out=best[start : start + size])
        return best

    def _plain(self, points: FloatArray) -> tuple[LabelArray, FloatArray]:
        """Return labels and scores without the code, for data far from the box or with too many features."""
        labels = np.empty(len(points), dtype=np.int32)
        best = np.empty(len(points))
        for start in range(0, len(points), self._chunk):
            part = points[start : start + self._chunk]
            scores = part @ self._centroids.T
            scores += self._offsets
            chosen = scores.argmax(axis=1)
            labels[start : start + len(part)] = chosen
            best[start : start + len(part)] = scores[np.arange(len(part)), chosen]
        return labels, best


def is_on_grid(values: FloatArray) -> bool:
    """Say whether all values are multiples of 2^-16."""
    scaled = values * _GRID
    return bool((np.rint(scaled) == scaled).all())


def iterate_assigned_blocks(points: npt.ArrayLike, centroids: npt.ArrayLike) -> Iterator[AssignedBlock]:
    """Yield points (n, d) in blocks with the nearest of the centroids (k, d) for each; no points give no blocks.

    The arrays are not copied as a whole. A `DataError` is raised if the shapes do not fit or there is no centroid.
    """
    points = np.asarray(points)
    centroids = np.ascontiguousarray(centroids, dtype=np.float64)
    _check_shapes(points, centroids)
    assigner = _BlockAssigner(centroids, len(points))
    step = min(_BLOCK_POINTS, block_length(points.shape[1]))
    for start in range(0, len(points), step):
        block = np.ascontiguousarray(points[start : start + step], dtype=np.float64)
        labels, scores = assigner.assign(block)
        yield AssignedBlock(start, block, labels, scores)


@one_thread()
def nearest_centroids(points: npt.ArrayLike, centroids: npt.ArrayLike) -> tuple[LabelArray, FloatArray]:
    """Find the nearest centroid (k, d) of each point (n, d), n >= 0, and the squared distance to it, both (n,).

    Exact on the 2^-16 grid inside [-1, 1]^d, where ties go to the lowest index. For other data, centroids whose
    squared distances differ by less than about 2^-32 count as tied. A `DataError` is raised if the shapes do not fit.
    """
    points = np.asarray(points)
    labels = np.empty(len(points), dtype=np.int32)
    squared_distances = np.empty(len(points))
    for block in iterate_assigned_blocks(points, centroids):
        rows = slice(block.start, block.start + len(block.points))
        labels[rows], squared_distances[rows] = block.labels, block.squared_distances()
    return labels, squared_distances


@one_thread()
def cost_per_point(points: npt.ArrayLike, centroids: npt.ArrayLike) -> float:
    """Mean squared distance of points (n, d), n >= 1, to the nearest centroid (k, d): FastLloyd's NICV, exact."""
    points = np.asarray(points)
    if len(points) == 0:
        raise DataError("the number of points is 0, but a cost per point needs at least 1: give at least one row.")
    blocks = iterate_assigned_blocks(points, centroids)
    return math.fsum(float(block.squared_distances().sum()) for block in blocks) / len(points)


def _check_shapes(points: npt.NDArray[np.generic], centroids: FloatArray) -> None:
    """Refuse arrays that are not two tables of equal width."""
    for name, array in (("points", points), ("centroids", centroids)):
        if array.ndim != 2:
            raise DataError(
                f"{name} has {array.ndim} dimensions, but it must have 2: give an array of shape (rows, features)."
            )
    if points.shape[1] != centroids.shape[1]:
        raise DataError(
            f"points have {points.shape[1]} features, but the centroids have {centroids.shape[1]}: "
            "give both the same number of columns."
        )
    if len(centroids) == 0:
        raise DataError("the number of centroids is 0, but it must be at least 1: give at least one centroid.")


BLOCK_BYTES = 1 << 23
"""Of one working array; a step has a handful of them. What is returned, and the centres, come on top."""


def block_length(values_each: int) -> int:
    """How many items of `values_each` numbers, such as d features and k scores, fit into a block, at least 1."""
    return max(1, BLOCK_BYTES // (8 * max(1, values_each)))


def row_blocks(n_rows: int, values_each: int) -> Iterator[slice]:
    """Cut rows into blocks; no rows are one empty block."""
    step = block_length(values_each)
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(n_rows, start + step))


def sum_over_blocks(
    statistic: Callable[[slice], Sequence[FloatArray]], n_rows: int, values_each: int
) -> list[FloatArray]:
    """Add up ``statistic(rows) -> arrays`` over blocks of rows (slices); exact on the grid, so no block shows."""
    first, *others = row_blocks(n_rows, values_each)
    total = list(statistic(first))
    for rows in others:
        for whole, part in zip(total, statistic(rows), strict=True):
            whole += part
    return total
