"""Classes of rows, read so that nothing in a label column can make a node fail."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bundled import BUNDLED, TARGET_COLUMN, load_bundled, state_of
from flwr_dpkmeans.data.readers import array_beside_the_points, find_column, locate_file, read_raw
from flwr_dpkmeans.errors import DataError

_LARGEST_CLASS = 2**31


def as_classes(values: object, n_rows: int) -> NDArray[np.int64]:
    """Turn whatever stands in a label column into classes (n_rows,), without an error.

    A server that could make a node fail over its labels would learn about them at no charge, so what is no class of a
    row (text, a missing value, a fraction, a negative number) becomes -1, and so do all where there is not one value
    for each row.
    """
    none = np.full(n_rows, -1, dtype=np.int64)
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return none
    if array.shape != (n_rows,):
        return none
    if array.dtype.kind == "O":
        array = np.array([_number(value) for value in array])
    if array.dtype.kind not in "biuf":
        return none
    known = (array >= 0) & (array <= _LARGEST_CLASS) & (np.rint(array) == array)
    return np.where(known, array, -1).astype(np.int64)


def _number(value: object) -> float:
    """A Python object as a number; NaN if it is none, or too large to be a class."""
    if isinstance(value, int | float | np.integer | np.floating) and -1 <= value <= _LARGEST_CLASS:
        return float(value)
    return math.nan


def _label_values(path: str, column: str, header: bool | None) -> NDArray[np.generic]:
    """A column of numbers as it is, with NaN for what is none; empty for a column of text."""
    located = locate_file(path, "table", DataError)
    raw = read_raw(located, header)
    index = find_column(raw, "label_column", column, located)
    if index is None:
        return array_beside_the_points(located, column)
    values = raw.columns[index].values
    return np.zeros(0) if values is None else values


def load_labels(source: str, column: str, n_rows: int, header: bool | None = None) -> NDArray[np.int64]:
    """Load the classes (n_rows,) of a table's rows, once in a process, whatever the column holds: shared, so read-only.

    A bundled data set's labels are its target; `column` is the name (or index) of a file's, or of an array beside the
    points of an archive. -1 where there is no class (see `as_classes`). A `DataError` is raised if the file cannot be
    read as a table or has no such column.
    """
    return _labels(source, column, n_rows, header, state_of(source))


@lru_cache(maxsize=1)
def _labels(
    source: str, column: str, n_rows: int, header: bool | None, state: tuple[str, int, int]
) -> NDArray[np.int64]:
    """Parse; `state` is a part of the key only."""
    del state
    if source in BUNDLED:
        values = load_bundled(source, partition_column=TARGET_COLUMN).partition_values
    else:
        values = _label_values(source, column, header)
    labels = as_classes(values, n_rows)
    labels.flags.writeable = False
    return labels
