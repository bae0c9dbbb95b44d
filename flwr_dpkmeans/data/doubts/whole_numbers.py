"""Whether a column's numbers are constant, whole or all different."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def is_constant(values: NDArray[np.float64]) -> bool:
    return len(values) > 0 and bool((values == values[0]).all())


def is_whole(values: NDArray[np.float64]) -> bool:
    """Whether all values are whole numbers, and none is missing."""
    return bool((np.isfinite(values) & (np.rint(values) == values)).all())


def are_different(values: NDArray[np.float64]) -> bool:
    return len(np.unique(values)) == len(values)
