"""Sums of the outer products of rows, as the upper triangle of a symmetric matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.grid import GRID, FloatArray
from flwr_dpkmeans.kernels.residual_sums import UnitResiduals
from flwr_dpkmeans.kernels.triangles import triangle_of
from flwr_dpkmeans.kernels.vectors import squared_lengths

# Sums of multiples of 2^-32 below it are exact in float64.
_EXACT_SUM = 2.0**20
# From here on a matrix product by BLAS is faster.
_WIDE = 128
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
        raw = points[part]
        triangle = _by_kernel(raw, prepare)
        if triangle is not None:
            scaled = triangle * GRID
            whole = np.floor(scaled)
            return [whole, scaled - whole]
        steps = np.zeros(len(entries))
        rests = np.zeros(len(entries))
        rows = prepare(raw)
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
    sums = sum_over_blocks(
        summed,
        len(points),
        n_features,
        least=n_features,
    )
    return np.stack(sums)


def _by_kernel(rows: FloatArray, prepare: _Prepare) -> FloatArray | None:
    """The triangle of rows (n, d), unless NumPy is to sum it."""
    if rows.shape[1] >= _WIDE:
        return None
    if isinstance(prepare, UnitResiduals):
        return compiled.outer_products(rows, prepare.centre, prepare.at_least)
    return compiled.outer_products(prepare(rows))


@lru_cache(maxsize=16)
def _entries(n_features: int) -> npt.NDArray[np.intp]:
    """Flat indices of the upper triangle, row by row."""
    rows, columns = np.triu_indices(n_features)
    return rows * n_features + columns
