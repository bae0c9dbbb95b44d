"""Rows and labels that a caller gives, checked."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.arrays_of import as_array
from flwr_dpkmeans.data.files.cell_numbers import number_of
from flwr_dpkmeans.data.frame_names import frame_columns, require_names
from flwr_dpkmeans.data.table_labels import column_labels
from flwr_dpkmeans.errors import DataError, nearest

_NUMBERS = (numbers.Real, np.bool_, Decimal)
"""What a cell of a frame of objects may be.

a database's decimals are no `numbers.Real`.
"""


def validate_points(points: object) -> NDArray[np.float64]:
    """Check a caller's points (n, d), n >= 0 and d >= 1.

    As C-contiguous float64, itself if it has this form already.

    An array, nested sequences or a data frame; a `DataError` without 2 dimensions, or
    for a value that is not finite.
    """
    array = as_array(points)
    if array.ndim == 0:
        raise DataError(
            f"the points are a {type(points).__name__}, but they must be a table:"
            f" {_mend_of(points)}."
        )
    if array.ndim != 2:
        mend = (
            "points.reshape(-1, 1) for a single feature or points.reshape(1, -1) for a"
            " single row"
        )
        if array.ndim > 2:
            mend = "np.concatenate(points) for a list of tables"
        raise DataError(
            f"the points have {array.ndim} dimensions, but they must have 2 (rows and"
            f" features). Reshape your data: {mend}."
        )
    if array.shape[1] == 0:
        raise DataError(
            f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is"
            " required: add a column."
        )
    labels = column_labels(points) or range(array.shape[1])
    values = np.ascontiguousarray(_as_real(array, labels), dtype=np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        n_bad = int((~finite.all(axis=1)).sum())
        column = int(np.flatnonzero(~finite.all(axis=0))[0])
        raise DataError(
            f"the points have {n_bad} rows with a missing or infinite value (the first"
            f" such feature is {labels[column]!r}), but every value must be finite:"
            " fill in the values or remove the rows."
        )
    return values


def _mend_of(points: object) -> str:
    """How to make a table of what is none."""
    if isinstance(points, str | Path):
        return "read the file, as pandas.read_csv does"
    if isinstance(points, Mapping):
        return "give pandas.DataFrame(points)"
    if hasattr(points, "collect"):
        return "give points.collect()"
    if hasattr(points, "to_table"):
        return "give points.to_table()"
    if hasattr(points, "__arrow_c_stream__"):
        return "give pyarrow.table(points)"
    if hasattr(points, "__iter__"):
        return "give list(points)"
    return "give an array of shape (rows, features)"


def validate_columns(points: object, names: Sequence[str]) -> NDArray[np.float64]:
    """Check points as `validate_points` does.

    And put a data frame's columns in the order of `names`.

    What has no column names stays in its order; no names allow any names in any order.
    Other names are a `DataError`.
    """
    columns = frame_columns(points)
    if not columns or not names or columns == tuple(names):
        return validate_points(points)
    indexes = {name: index for index, name in enumerate(columns)}
    lacking = [name for name in names if name not in indexes]
    more = sorted(set(columns) - set(names))
    if lacking:
        mend = "add it."
        if more:
            mend = f"add it or rename this table's; {nearest(lacking[0], more)}"
        raise DataError(
            f"the points have no column {lacking[0]!r}, but the first table, or the"
            f" fit, had one: {mend}"
        )
    if more:
        raise DataError(
            f"the points have a column {more[0]!r} that was not there before: leave it"
            " out."
        )
    require_names(columns, len(names))
    in_order = [indexes[name] for name in names]
    return np.ascontiguousarray(validate_points(points)[:, in_order])


def validate_labels(
    labels: object,
    n_rows: int,
    n_classes: int | None = None,
    option: str = "n_classes",
) -> NDArray[np.int64]:
    """Check a caller's class labels (n_rows,).

    Whole numbers from 0 on, below `n_classes` if an `option` says it.
    """
    try:
        array = (
            as_array(labels)
            if isinstance(labels, np.ma.MaskedArray)
            else np.asarray(labels)
        )
    except ValueError:
        array = np.empty((n_rows, 0))  # entries of different lengths
    if array.shape != (n_rows,):
        raise DataError(
            f"labels have shape {array.shape}, but the table has {n_rows} rows: give"
            " one for each row."
        )
    if array.dtype.kind == "O" and all(isinstance(cell, Decimal) for cell in array):
        array = np.array([number_of(cell) for cell in array])
    if array.dtype.kind not in "iufb" or not np.array_equal(np.rint(array), array):
        raise DataError(
            "labels must be whole numbers, but some are not: code the classes as 0, 1,"
            " 2 and so on, the same way on every client."
        )
    whole = array.astype(np.int64)
    least, most = int(whole.min(initial=0)), int(whole.max(initial=0))
    if least < 0 or (n_classes is not None and n_rows and most >= n_classes):
        bound = "at least 0" if n_classes is None else f"from 0 to {n_classes - 1}"
        raise DataError(
            f"labels go from {least} to {most}, but they must be {bound}: code the"
            f" classes so, or declare {option} as large as they need."
        )
    return whole


def _as_real(
    array: NDArray[np.generic], labels: Sequence[object]
) -> NDArray[np.generic]:
    """Accept real numbers and truth values; a frame with both has dtype object."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        which = "Complex data not supported: " if array.dtype.kind == "c" else ""
        raise DataError(
            f"{which}the points have dtype {array.dtype}, but they must be real"
            " numbers: convert them with points.astype('float64')."
        )
    for label, column in zip(labels, array.T, strict=True):
        # NumPy calls its time differences integers.
        spans = any(isinstance(cell, np.timedelta64) for cell in column)
        if spans or not all(isinstance(cell, _NUMBERS) for cell in column):
            raise DataError(
                f"the points have values in feature {label!r} which are no numbers, but"
                " all must be real numbers: leave the feature out, encode it as"
                " numbers and fill in what is missing, or let a schema do so."
            )
    try:
        return array.astype(np.float64)
    except ValueError:  # a Decimal that signals that it is no number
        return np.array([[number_of(cell) for cell in row] for row in array])
    except OverflowError:
        pass
    raise DataError(
        "the points have an integer beyond float64's range, but every value must be"
        " finite: rescale it."
    )
