"""Sums of the outer products of rows, as the upper triangle of a symmetric matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import blocks, grid
from flwr_dpkmeans.kernels.grid import GRID, FloatArray
from flwr_dpkmeans.kernels.vectors import as_floats, squared_lengths

_ROOT_TWO = math.sqrt(2.0)
# Sums of multiples of 2^-32 below it are exact in float64.
_EXACT_SUM = 2.0**20
_Prepare = Callable[[FloatArray], FloatArray]


def _unchanged(rows: FloatArray) -> FloatArray:
    """Prepare nothing."""
    return rows


def triangle_size(n_features: int) -> int:
    """Number of entries of a symmetric matrix that have to be sent."""
    return n_features * (n_features + 1) // 2


def outer_product_triangle(
    points: FloatArray,
    prepare: _Prepare = _unchanged,
) -> FloatArray:
    """Sum the outer products of rows (n, d), as the matrix's upper triangle.

    Row by row: (d (d + 1) / 2,). Off-diagonal entries are multiplied by sqrt(2), so
    that the vector's Euclidean norm is the matrix's Frobenius norm and noise of equal
    size on all entries is isotropic over symmetric matrices, with 1/sqrt(2) of the size
    off the diagonal. FedDP-KMeans, Algorithm 1, line 4. ``prepare(rows) -> rows``, such
    as clipping, is called on blocks of rows, and takes each row by itself. The result
    is in squared data units, not rounded to the grid.
    """
    return triangle_of(outer_product_sums(points, prepare))


def outer_product_sums(
    points: FloatArray,
    prepare: _Prepare,
) -> FloatArray:
    """Exact sums that `triangle_of` makes `outer_product_triangle` of.

    (2, d (d + 1) / 2): whole grid steps, and the rests. Products of grid values are
    multiples of 2^-32. A block's sums are exact; the blocks are added up as whole grid
    steps and the rest, both exact, so that no row's contribution depends on how many
    others there are.
    """
    n_features = points.shape[1]
    entries = _entries(n_features)

    def summed(part: slice) -> Sequence[FloatArray]:
        steps = np.zeros(len(entries))
        rests = np.zeros(len(entries))
        rows = prepare(points[part])
        squares = squared_lengths(rows)
        largest = float(squares.max(initial=1.0))
        n_exact = max(1, int(_EXACT_SUM / largest))
        for first in range(0, len(rows), n_exact):
            block = rows[first : first + n_exact]
            product = block.T @ block
            scaled = product.ravel()[entries] * GRID
            whole = np.floor(scaled)
            steps += whole
            rests += scaled - whole
        return [steps, rests]

    # Up to d rows are no larger than their product.
    sums = blocks.sum_over_blocks(
        summed,
        len(points),
        n_features,
        least=n_features,
    )
    return np.stack(sums)


def triangle_of(sums: FloatArray) -> FloatArray:
    """Make a triangle of whole grid steps and the rests, one behind the other.

    Both are without the factors of off-diagonal entries.
    """
    steps, rests = sums.reshape(2, -1)
    total = steps + rests
    n_features = math.isqrt(2 * len(total))
    scaled = total * (_factors(n_features) / GRID)
    return as_floats(scaled)


def rounded_triangle(sums: FloatArray) -> FloatArray:
    """Make the same, on the grid."""
    triangle = triangle_of(sums)
    return grid.round_to_grid(triangle)


def symmetric_from_triangle(
    triangle: npt.ArrayLike,
    n_features: int,
) -> FloatArray:
    """Undo `outer_product_triangle`: the symmetric matrix (d, d) of a triangle."""
    upper = np.zeros((n_features, n_features))
    entries = np.triu_indices(n_features)
    upper[entries] = as_floats(triangle) / _factors(n_features)
    diagonal = np.diag(upper)
    doubled = upper + upper.T
    return as_floats(doubled - np.diag(diagonal))


@lru_cache(maxsize=16)
def _entries(n_features: int) -> npt.NDArray[np.intp]:
    """Flat indices of the upper triangle, row by row."""
    rows, columns = np.triu_indices(n_features)
    return rows * n_features + columns


@lru_cache(maxsize=16)
def _factors(n_features: int) -> FloatArray:
    """Factors of the entries: sqrt(2) off the diagonal."""
    rows, columns = np.triu_indices(n_features)
    is_diagonal = rows == columns
    return np.where(is_diagonal, 1.0, _ROOT_TWO)
