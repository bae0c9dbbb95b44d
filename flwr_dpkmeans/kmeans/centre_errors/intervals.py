"""Intervals that are made of standard deviations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID, FloatArray, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_floats

_Bounds = tuple[Sequence[float], Sequence[float]]
NORMAL_QUANTILE = 1.959963984540054
"""Half-width of a 95% interval, in standard deviations."""
WIDEST = 2.0
"""Width of the box: no coordinate is farther off."""


def half_widths(
    deviations: FloatArray | None,
    bounds: _Bounds,
    shape: tuple[int, ...],
) -> FloatArray:
    """Give half-widths of 95% intervals in the units of the bounds, (k, d).

    Parameters
    ----------
    deviations : ndarray, (k, d), or None
        Standard deviations in the box; None: nothing is known, which is infinity.
    bounds : pair of sequences
        Lower and upper bounds of the columns.
    shape : tuple
        (k, d).

    Returns
    -------
    ndarray, (k, d)
        At most the width of the bounds.
    """
    if deviations is None:
        return np.full(shape, np.inf)
    lower, upper = bounds
    widths = np.subtract(upper, lower)
    scaled = np.minimum(NORMAL_QUANTILE * deviations, WIDEST)
    units = widths / WIDEST
    return as_floats(scaled * units)


def on_grid(*parts: FloatArray | float) -> FloatArray:
    """Add standard deviations in squares.

    From a step of the grid to the width of the box, on the grid.
    """
    squares = sum(map(np.square, parts))
    roots = np.sqrt(squares)
    deviations = np.nan_to_num(roots, nan=WIDEST, posinf=WIDEST)
    narrowest = 1.0 / GRID
    clipped = np.clip(deviations, narrowest, WIDEST)
    return round_to_grid(clipped)
