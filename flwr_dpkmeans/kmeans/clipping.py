"""Clipping that keeps its bound on the grid: whatever is scaled down is rounded toward zero afterwards.

Rounding a coordinate toward zero never increases an L1 or L2 norm, so a clipped row or vector has a norm of at most
the bound, exactly, and the sensitivity of a sum of them needs no slack.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError

FloatArray = npt.NDArray[np.float64]

_GRID = 2.0**16
SHADE = 1.0 - 2.0**-30
"""A norm of 2^24 entries is computed with a relative error of some 2^-37: the shade makes every factor too small."""


@lru_cache(maxsize=64)
def largest_kept_square(radius: float) -> float:
    """Return the largest float64 that is at most radius^2, so that rounding never keeps a point beyond the radius.

    The radius is at least 0 and may be infinite; else a `ConfigurationError` is raised.
    """
    if not radius >= 0.0:
        raise ConfigurationError(
            f"radius is {radius!r}, but it must be at least 0: give a distance in data units, or None to drop no point."
        )
    square = float(radius) * float(radius)
    if math.isfinite(square) and Fraction(square) > Fraction(radius) ** 2:
        square = math.nextafter(square, 0.0)
    return square


def toward_zero(values: npt.ArrayLike) -> FloatArray:
    """Round to multiples of 2^-16 toward zero."""
    rounded: FloatArray = np.trunc(np.asarray(values, dtype=np.float64) * _GRID) / _GRID
    # A negative zero would be a different bit pattern of the same number.
    rounded += 0.0
    return rounded


def clip_rows(points: npt.ArrayLike, radius: float) -> FloatArray:
    """Pull rows (n, d) that are farther than `radius` from the origin back to the ball, on the 2^-16 grid.

    FedDP-KMeans, section 3: every record is clipped to the data radius Delta. Rows inside the ball are unchanged, and
    every row that is returned has a norm of at most `radius`.
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
    """Return the factor, at most 1, that brings a vector's norm down to `bound`, in L1 or L2 by its `order`."""
    flat = np.ravel(np.asarray(vector, dtype=np.float64))
    norm = float(np.abs(flat).sum()) if order == 1 else math.sqrt(float(flat @ flat))
    # The computed norm may be a little too small, so vectors within the shade of the bound are scaled as well.
    return 1.0 if norm <= bound * SHADE else bound * SHADE * SHADE / norm


def clip_vector(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> FloatArray:
    """Scale a vector of any shape down to a norm of at most `bound` and put it on the grid, rounding toward zero.

    FedDP-KMeans, appendix G.4: one client's statistic before aggregation. `order` is that of `clip_factor`.
    """
    return toward_zero(np.asarray(vector, dtype=np.float64) * clip_factor(vector, bound, order=order))
