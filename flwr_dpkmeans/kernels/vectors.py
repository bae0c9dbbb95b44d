"""Small steps that all statistics are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray

TINY = 1e-300
"""What a divisor is at least, so that 0 over 0 is 0."""


def as_floats(values: npt.ArrayLike) -> FloatArray:
    """View values as float64, without a copy where they are already."""
    floats: FloatArray = np.asarray(values, np.float64)
    return floats


def as_column(values: FloatArray) -> FloatArray:
    """View numbers (n,) as a column (n, 1), one for each row of a table."""
    return values[:, None]


def squared_lengths(rows: FloatArray) -> FloatArray:
    """Squared Euclidean norm, (n,), of each row (n, d)."""
    squares: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return squares
