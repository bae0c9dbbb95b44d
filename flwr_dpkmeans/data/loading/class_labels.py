"""Labels as numbers of classes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
_LARGEST_CLASS = 2**31
_REAL = (int, float, np.integer, np.floating)


def as_classes(values: object, n_rows: int) -> Labels:
    """Turn whatever stands in a label column into classes (n_rows,), without an error.

    A server that could make a node fail over its labels would learn about them at no
    charge, so what is no class of a row (text, a missing value, a fraction, a negative
    number) becomes -1, and all do without one value for each row.
    """
    none = np.full(n_rows, -1, dtype=np.int64)
    array = np.asarray(_one_by_one(values))
    if array.dtype.kind == "c":
        is_real = array.imag == 0.0
        array = np.where(is_real, array.real, -1.0)
    if array.shape != (n_rows,):
        return none
    if array.dtype.kind == "O":
        numbers = list(map(_number, array))
        array = np.array(numbers)
    kind = array.dtype.kind
    if kind not in "biuf":
        return none
    is_positive = array >= 0
    is_small = array <= _LARGEST_CLASS
    is_whole = np.rint(array) == array
    is_class = is_positive & is_small & is_whole
    # A narrow type need not hold -1.
    classes = np.where(is_class, array, 0)
    classes = classes.astype(np.int64)
    return np.where(is_class, classes, -1)


def _one_by_one(values: object) -> object:
    """A list as objects: NumPy would make text of all of them for one."""
    if not isinstance(values, list | tuple):
        return values
    n_values = len(values)
    return np.fromiter(
        values,
        dtype=object,
        count=n_values,
    )


def _number(value: object) -> float:
    """A Python object as a number; NaN if it is none, or too large to be a class."""
    if not isinstance(value, _REAL):
        return math.nan
    if -1 <= value <= _LARGEST_CLASS:
        return float(value)
    return math.nan
