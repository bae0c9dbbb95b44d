"""Values as fixed-point encoding holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID = 2.0**16


def on_grid(values: Any) -> NDArray[np.float64]:
    """The nearest values on the grid, without a negative zero."""
    nearest: NDArray[np.float64] = np.rint(np.asarray(values, dtype=np.float64) * GRID)
    return nearest / GRID + 0.0
