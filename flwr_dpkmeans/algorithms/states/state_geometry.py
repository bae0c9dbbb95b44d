"""Whether a state's arrays are projections, or points near the box."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.sums.round import Array

_STRETCH = 1.01  # largest length of a projection's column: 1, and room for rounding


def is_projection(array: Array) -> bool:
    """Whether the columns of a table are on the grid and do not stretch."""
    if not is_on_grid(array):
        return False
    squares = np.square(array)
    squared_lengths = squares.sum(axis=0)
    longest = squared_lengths.max(initial=0.0)
    return bool(longest <= _STRETCH**2)


def is_near(array: Array, n_features: int) -> bool:
    """Whether points are on the grid, and no farther from the origin than rows can be.

    Rows count from a centre in the box.
    """
    # At most 2 sqrt(d) from a centre in the box.
    farthest = (2.0 * _STRETCH) ** 2 * n_features
    if not is_on_grid(array):
        return False
    squares = np.square(array)
    squared_lengths = squares.sum(axis=-1)
    longest = squared_lengths.max(initial=0.0)
    return bool(longest <= farthest)
