"""The grid of multiples of 2^-16, on which sums are exact in any order.

Rounding toward zero never increases an L1 or L2 norm.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
LabelArray = npt.NDArray[np.int32]
Sizes = npt.NDArray[np.int64]
"""Numbers of rows of clients, (m,), any of which may be 0.

Their rows (n, d) lie one client behind the other, and what is made of each client's has
a leading axis of clients.
"""
Mask = npt.NDArray[np.bool_]
GRID_BITS = 16
GRID = 2.0**GRID_BITS
"""Steps of the grid in a unit."""


def is_on_grid(values: FloatArray) -> bool:
    """Say whether all values are multiples of 2^-16."""
    scaled = values * GRID
    is_whole = np.rint(scaled) == scaled
    return bool(is_whole.all())


def toward_zero(values: npt.ArrayLike) -> FloatArray:
    """Round to multiples of 2^-16 toward zero."""
    rounded: FloatArray = np.array(values, np.float64)
    rounded *= GRID
    np.trunc(rounded, out=rounded)
    rounded /= GRID
    # A negative zero would be a different bit pattern of the same number.
    rounded += 0.0
    return rounded


def round_to_grid(values: npt.ArrayLike, fraction_bits: int = GRID_BITS) -> FloatArray:
    """Round to the nearest multiple of 2^-fraction_bits, halves to the even one.

    There are 0 to 52 fraction bits.
    """
    scale = 2.0**fraction_bits
    floats = np.asarray(values, np.float64)
    steps = np.rint(floats * scale)
    rounded = steps / scale
    return np.asarray(rounded)
