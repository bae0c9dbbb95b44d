"""Points and values on the grid of released sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.grid import GRID

Floats = NDArray[np.float64]


def on_grid(values: Any) -> Floats:
    """Values as rows of the box have them."""
    rounded: Floats = np.rint(np.asarray(values, dtype=np.float64) * GRID) / GRID + 0.0
    return rounded


def is_on_grid(values: Floats) -> bool:
    """Whether nothing is lost by rounding."""
    return bool((np.rint(values * GRID) == values * GRID).all())


def grid_points(
    generator: np.random.Generator, rows: int, features: int, cells: int = 65536
) -> Floats:
    """Uniform points of [-1, 1]^d on a grid of 2 * cells + 1 values per axis."""
    drawn: Floats = generator.integers(-cells, cells + 1, (rows, features)) / cells
    return drawn
