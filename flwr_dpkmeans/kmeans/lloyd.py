"""One Lloyd round: the nearest centroid of each point, what a client sums, clipping,
and the next centroids.

The nearest centroid maximises the score ``x . c - |c|^2 / 2``; one matrix product gives
the (chunk, n_clusters) scores of a chunk that fits the processor's caches. On the grid
x . c is a multiple of 2^-32 and |c|^2 / 2 of 2^-33: their sums are exact in any order.

Rounding toward zero never increases an L1 or L2 norm: clipped rows and vectors are
within the bound, exactly. Clients' copies of the centroids must be equal bit for bit,
so updates are elementwise IEEE arithmetic that ends on the grid, and the only reduction
(the norm of a step) does not depend on the order of summation.
"""

from __future__ import annotations

import copy
import enum
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.threads import one_thread

FloatArray = npt.NDArray[np.float64]
LabelArray = npt.NDArray[np.int32]

# Scores per matrix product: 512 KiB, the second-level cache of common processors.
_CHUNK_SCORES = 1 << 16
_MINIMUM_CHUNK = 64
_MANY = 32
GRID_BITS = 16
GRID = 2.0**GRID_BITS
"""Steps of the grid in a unit."""


def is_on_grid(values: FloatArray) -> bool:
    """Say whether all values are multiples of 2^-16."""
    scaled = values * GRID
    return bool((np.rint(scaled) == scaled).all())


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


BLOCK_BYTES = 1 << 21
"""Of one working array; a step has a handful of them.

What is returned, and the centres, come on top.
"""


def block_length(values_each: int) -> int:
    """How many items of `values_each` numbers, such as d features and k scores, fit
    into a block, at least 1.
    """
    return max(1, BLOCK_BYTES // (8 * max(1, values_each)))


def row_blocks(n_rows: int, values_each: int, least: int = 1) -> Iterator[slice]:
    """Cut rows into blocks, of `least` rows or more; no rows are one empty block."""
    step = max(least, block_length(values_each))
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(n_rows, start + step))


def sum_over_blocks(
    statistic: Callable[[slice], Sequence[FloatArray]],
    n_rows: int,
    values_each: int,
    *,
    least: int = 1,
) -> list[FloatArray]:
    """Add up ``statistic(rows) -> arrays`` over blocks of rows (slices), of `least`
    rows or more, on all processors.

    Exact on the grid, so that neither blocks nor threads show.
    """
    return _in_threads(
        lambda blocks: _added(map(statistic, blocks)),
        row_blocks(n_rows, values_each, least),
    )


def _in_threads(
    summed: Callable[[Sequence[slice]], list[FloatArray]], parts: Iterator[slice]
) -> list[FloatArray]:
    """Add up what each thread sums over its share of the blocks."""
    blocks = list(parts)
    n_threads = 1 if len(blocks) == 1 else min(len(blocks), os.cpu_count() or 1)
    if n_threads == 1:
        return summed(blocks)
    with ThreadPoolExecutor(n_threads) as pool:
        return _added(
            pool.map(lambda i: summed(blocks[i::n_threads]), range(n_threads))
        )


def _added(parts: Iterator[Sequence[FloatArray]]) -> list[FloatArray]:
    total = list(next(parts))
    for arrays in parts:
        for whole, part in zip(total, arrays, strict=True):
            whole += part
    return total


def in_blocks(
    statistic: Callable[..., Sequence[FloatArray]],
) -> Callable[..., Sequence[FloatArray]]:
    """Let ``statistic(points, state, *labels) -> arrays``, a sum over rows on the grid,
    see one block after another.
    """

    def summed(
        points: FloatArray, state: object, *labels: npt.NDArray[np.int64]
    ) -> Sequence[FloatArray]:
        def of_block(rows: slice) -> Sequence[FloatArray]:
            return statistic(points[rows], state, *(own[rows] for own in labels))

        return sum_over_blocks(of_block, len(points), points.shape[1])

    return summed


# -- what a client sums, exactly on the grid for up to 10^11 points --------------------

# Up to so many entries a matrix of zeros and ones costs less than a sparse one.
_SMALL_MATRIX = 1 << 14
# Up to here one pass per feature costs less than setting up a sparse matrix.
_FEW_FEATURES = 4
# From here on adding a row costs more than a turn of a loop.
_WIDE = 1 << 12


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


def add_by_label(sums: FloatArray, points: FloatArray, labels: LabelArray) -> None:
    """Add points (n, d) to the rows of `sums` with their labels, in place."""
    if points.shape[1] < _WIDE:
        sums += sum_by_label(points, labels, len(sums))
        return
    # A block has few of such rows: a table of their sums alone would be as large as all
    # sums, for each block.
    for label, row in zip(labels.tolist(), points, strict=True):
        sums[label] += row


def sum_by_label(points: FloatArray, labels: LabelArray, n_rows: int) -> FloatArray:
    """Sum the points (n, d) with each label below `n_rows`.

    Exact on the grid, so that their order does not matter.
    """
    n_points, n_features = points.shape
    if n_rows == 1:
        return np.asarray(np.ones((1, n_points)) @ points, dtype=np.float64)
    if n_features <= _FEW_FEATURES:
        columns = [
            np.bincount(labels, weights=points[:, j], minlength=n_rows)
            for j in range(n_features)
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((n_rows, 0))
    if n_rows * n_points <= _SMALL_MATRIX:
        chosen = (labels == np.arange(n_rows)[:, None]).astype(np.float64)
        return np.asarray(chosen @ points, dtype=np.float64)
    chosen = copy.copy(_one_each(n_rows, n_points))
    chosen.indices = labels.astype(np.int32, copy=False)
    return np.asarray(chosen @ points, dtype=np.float64)


@lru_cache(maxsize=4)
def _one_each(n_rows: int, n_points: int) -> Any:
    """A sparse matrix whose column i says in which row point i is summed.

    Making one costs as much as a product.
    """
    from scipy.sparse import csc_array

    places, starts = (
        np.zeros(n_points, dtype=np.int32),
        np.arange(n_points + 1, dtype=np.int32),
    )
    return csc_array((np.ones(n_points), places, starts), shape=(n_rows, n_points))


# -- clipping, and the next centroids --------------------------------------------------

SHADE = 1.0 - 2.0**-30
"""A norm of 2^24 entries is computed with a relative error of some 2^-37.

The shade makes every factor too small.
"""


@lru_cache(maxsize=64)
def largest_kept_square(radius: float) -> float:
    """The largest float64 that is at most radius^2, radius >= 0.

    Rounding keeps no point beyond the radius.
    """
    if not radius >= 0.0:
        raise ConfigurationError(
            f"radius is {radius!r}, but it must be at least 0: give a distance in data"
            " units, or None to drop no point."
        )
    square = float(radius) * float(radius)
    if math.isfinite(square) and Fraction(square) > Fraction(radius) ** 2:
        square = math.nextafter(square, 0.0)
    return square


def toward_zero(values: npt.ArrayLike) -> FloatArray:
    """Round to multiples of 2^-16 toward zero."""
    rounded: FloatArray = np.trunc(np.asarray(values, dtype=np.float64) * GRID) / GRID
    # A negative zero would be a different bit pattern of the same number.
    rounded += 0.0
    return rounded


def clip_rows(points: npt.ArrayLike, radius: float) -> FloatArray:
    """Pull rows (n, d) farther than `radius` from the origin back to the ball, toward
    zero on the grid, exactly.

    FedDP-KMeans, section 3: every record is clipped to the data radius Delta. Rows
    inside the ball are unchanged.
    """
    rows = np.asarray(points, dtype=np.float64)
    squares = np.einsum("ij,ij->i", rows, rows)
    # Negated, so that a norm that is not a number is clipped as well.
    far = ~(squares <= largest_kept_square(radius))
    if not far.any():
        return rows
    clipped = rows.copy()
    factors = (radius * SHADE) / np.sqrt(squares[far])
    clipped[far] = toward_zero(rows[far] * factors[:, None])
    return clipped


def clip_factor(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> float:
    """The factor, at most 1, that brings a vector's norm down to `bound`, in L1 or L2
    by its `order`.
    """
    flat = np.ravel(np.asarray(vector, dtype=np.float64))
    norm = float(np.abs(flat).sum()) if order == 1 else math.sqrt(float(flat @ flat))
    # The computed norm may be a little too small, so vectors within the shade of the
    # bound are scaled as well.
    return 1.0 if norm <= bound * SHADE else bound * SHADE * SHADE / norm


def clip_vector(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> FloatArray:
    """Scale a vector of any shape down to a norm of at most `bound`, on the grid
    (FedDP-KMeans, appendix G.4).
    """
    return toward_zero(
        np.asarray(vector, dtype=np.float64) * clip_factor(vector, bound, order=order)
    )


SATURATION = 16.0
"""Centroids that are not brought back into the box stay this near to 0, so that scores
are exact in float64.
"""
# The relative error of a computed and rescaled norm stays below 2^-50: at most six
# roundings of 2^-53.
_NORM_SLACK = 2.0**-50
# Below it the clipped coordinates would be subnormal numbers, whose rounding the slack
# does not cover.
_SMALLEST_RADIUS = 2.0**-1000


class PostProcessing(enum.Enum):
    """What happens to centroids outside the box [-1, 1]^d (FastLloyd, section 5.3.5 and
    appendix B).
    """

    FOLD = "fold"
    TRUNCATE = "truncate"
    NONE = "none"


def round_to_grid(values: npt.ArrayLike, fraction_bits: int = GRID_BITS) -> FloatArray:
    """Round to the nearest multiple of 2^-fraction_bits (0 to 52 of them), halves to
    the even multiple.
    """
    scale = 2.0**fraction_bits
    return np.asarray(np.rint(np.asarray(values, dtype=np.float64) * scale) / scale)


def fold(values: npt.ArrayLike) -> FloatArray:
    """Reflect finite values at the walls -1 and 1 until they lie between them.

    Values inside are unchanged.

    FastLloyd, section 5.3.5. The paper's text takes the remainder modulo 2, which would
    mirror values that are inside already (0.5 to -0.5); the period of a reflection is
    4, and that is what its code uses.

    Examples
    --------
    >>> fold([0.5, 1.25, -1.25, 3.5]).tolist()
    [0.5, 0.75, -0.75, -0.5]
    """
    original = np.asarray(values, dtype=np.float64)
    remainder = np.mod(original + 1.0, 4.0)
    reflected = np.where(remainder > 2.0, 4.0 - remainder, remainder) - 1.0
    return np.where(np.abs(original) <= 1.0, original, reflected)


def truncate(values: npt.ArrayLike) -> FloatArray:
    """Move values outside [-1, 1] to the nearer wall."""
    return np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)


def clip_steps(steps: npt.ArrayLike, radius: float | FloatArray) -> FloatArray:
    """Scale every row of steps (k, d) that is longer than the radius, at least 0, down
    to it, in exact arithmetic.

    One radius, or one for each row. FastLloyd, section 5.3.5 ("radius clipping").
    Shorter rows come back unchanged. Norms are correctly rounded sums (`math.fsum`),
    hence equal on all machines.
    """
    clipped = np.array(steps, dtype=np.float64)
    # Each row over a power of two, so that scaling is exact and squares neither
    # overflow nor vanish.
    exponents = np.frexp(np.max(np.abs(clipped), axis=1, initial=0.0))[1]
    scaled = np.ldexp(clipped, -exponents[:, None])
    radii = np.broadcast_to(radius, len(clipped))
    with np.errstate(
        all="ignore"
    ):  # A radius out of range becomes infinity or 0, which compares rightly.
        limits = np.ldexp(radii, -exponents).tolist()
    rows = zip(
        clipped, scaled, (scaled * scaled).tolist(), limits, radii.tolist(), strict=True
    )
    for row, unit, squares, limit, own in rows:
        norm = math.sqrt(math.fsum(squares))
        if _is_longer(unit, norm, limit):
            row[:] = (
                unit
                * ((1.0 - _NORM_SLACK) / norm)
                * (own if own > _SMALLEST_RADIUS else 0.0)
            )
    return clipped


def relative_update(
    centroids: npt.ArrayLike,
    noisy_relative_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    clip_radius: float | None,
    post_processing: PostProcessing,
) -> FloatArray:
    """Move each centroid by its noisy relative sum over its noisy count (FastLloyd,
    Algorithm 1, lines 18 to 20).

    The count may have any sign. Where it is 0, or so small that the quotient is not
    finite, the centroid stays. Steps are clipped to `clip_radius`, in data units, if
    there is one; without post-processing, coordinates are saturated at
    -16 and 16, so that scores stay exact in float64.
    """
    steps, _ = _quotients(noisy_relative_sums, noisy_counts)
    if clip_radius is not None:
        steps = clip_steps(steps, clip_radius)
    return _finish(np.asarray(centroids, dtype=np.float64) + steps, post_processing)


def absolute_update(
    centroids: npt.ArrayLike,
    noisy_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    post_processing: PostProcessing,
) -> FloatArray:
    """Replace each centroid by its noisy sum over its noisy count, as in Lloyd's
    family; see `relative_update`.
    """
    quotients, usable = _quotients(noisy_sums, noisy_counts)
    return _finish(np.where(usable[:, None], quotients, centroids), post_processing)


def _quotients(
    sums: npt.ArrayLike, counts: npt.ArrayLike
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Divide row by row.

    Rows with a non-finite quotient become 0 and are marked as unusable.
    """
    divisors = np.asarray(counts, dtype=np.float64)
    with np.errstate(all="ignore"):
        quotients = np.asarray(sums, dtype=np.float64) / divisors[:, None]
    usable = np.isfinite(quotients).all(axis=1) & (divisors != 0.0)
    return np.where(usable[:, None], quotients, 0.0), usable


def _finish(values: FloatArray, post_processing: PostProcessing) -> FloatArray:
    """Bring the values into the box, or into the range where the grid is exact, and
    onto the grid.
    """
    if post_processing is PostProcessing.FOLD:
        return round_to_grid(fold(values))
    if post_processing is PostProcessing.TRUNCATE:
        return round_to_grid(truncate(values))
    return round_to_grid(np.clip(values, -SATURATION, SATURATION))


def _is_longer(row: FloatArray, norm: float, radius: float) -> bool:
    """Compare the exact norm with the radius; `norm` is its float64 approximation."""
    if norm <= radius * (1.0 - _NORM_SLACK):
        return False
    if norm > radius * (1.0 + _NORM_SLACK):
        return True
    return (
        sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0))
        > Fraction(radius) ** 2
    )
