"""Small steps that all statistics are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray, toward_zero

TINY = 1e-300
"""What a divisor is at least, so that 0 over 0 is 0."""


def as_floats(values: npt.ArrayLike) -> FloatArray:
    """View values as float64, without a copy where they are already."""
    floats: FloatArray = np.asarray(values, np.float64)
    return floats


def as_column(values: FloatArray) -> FloatArray:
    """View numbers (n,) as a column (n, 1), one for each row of a table."""
    return values[:, None]


def weighted(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Multiply rows on the grid, (n,) or (n, d), by their weights (n,), toward zero.

    Weights are multiples of 2^-16 in [0, 1]. Each entry is rounded by itself, so that
    a row's norm is at most its weight times what it was. None leaves rows as they are.
    """
    if weights is None:
        return values
    if values.ndim == 1:
        return toward_zero(values * weights)
    return toward_zero(values * as_column(weights))


def squared_lengths(rows: FloatArray) -> FloatArray:
    """Squared Euclidean norm, (n,), of each row (n, d)."""
    squares: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return squares
