"""Whether a column's numbers are constant, whole or all different."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def is_constant(values: Numbers) -> bool:
    """Whether there are values, and all of them are the first one."""
    if len(values) == 0:
        return False
    is_first = values == values[0]
    return bool(is_first.all())


def is_whole(values: Numbers) -> bool:
    """Whether all values are whole numbers, and none is missing."""
    if not np.isfinite(values).all():
        return False
    rounded = np.rint(values)
    return np.array_equal(rounded, values)


def are_different(values: Numbers) -> bool:
    """Whether no value occurs twice."""
    different = np.unique(values)
    return len(different) == len(values)
