"""Load one client's table and check arrays that a caller hands over."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.readers import RawColumn, open_table, read_csv
from flwr_dpkmeans.errors import DataError, nearest

_logger = logging.getLogger("flwr_dpkmeans.data")


@dataclass(frozen=True, eq=False)
class Table:
    """Finite points, (n, d), with one name per feature: the file's own where it is `named`, else ``x0``, ``x1``, ...

    n may be 0. `partition_values`, (n,), is the column of numbers or text by which rows may be split over clients,
    `labels`, (n,), what a declared label column holds (for `as_classes`).
    """

    points: NDArray[np.float64] = field(repr=False)
    feature_names: tuple[str, ...]
    partition_values: NDArray[np.generic] | None = field(default=None, repr=False)
    named: bool = True
    labels: NDArray[np.generic] | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The file's own names; empty if it has none."""
        return self.feature_names if self.named else ()


def load_table(
    path: str | Path,
    *,
    label_column: str = "",
    partition_column: str = "",
    ignored: Collection[str] = (),
    columns: Collection[str] = (),
    header: bool | None = None,
) -> Table:
    """Load the numeric columns of a file (one of `READERS`): points (n, d) with d >= 1 and n >= 0.

    Text columns (not a single number in them) and dates are left out, and named by a warning of the logger
    ``flwr_dpkmeans.data``; truth values become 0 and 1. A column of both numbers and text is an error, so that one
    mistyped cell never changes the number of features. Of a Parquet file the stored type decides; of an archive the
    points are the array ``X``, or else the only one with two dimensions.

    Unless `header` says it, the first row of a .csv file is taken for one if all of its cells are different, have a
    letter and are no number (or if it is pandas' ``0,1,2,...``). That is a guess, which a row of text can mislead:
    deployed nodes do not guess (`flwr_dpkmeans.data.declared`). An unnamed first column is pandas' index, and left out.
    A header without rows is an empty client, of which every column is a feature: no cell tells otherwise.

    `label_column` is left out: a name, an index (such as ``"-1"``) if the file has no names, or the name of an array
    beside the points. So is `partition_column`, of numbers or text, which is returned beside the points. `ignored` are
    left out where the file has them; of a file with names only `columns` are looked at besides (empty: all). A
    `DataError` contains no value of a cell.
    """
    raw = open_table(path, partial(read_csv, header=header))
    if not raw.columns:
        raise DataError(
            f"the table {str(raw.path)!r} has 0 columns, but it needs at least 1: add a row of column names."
        )
    values = raw.partition_values(partition_column) if partition_column else None
    left_out = {raw.place_of("label_column", label_column), raw.place_of("partition_column", partition_column)}
    kept = [column for place, column in enumerate(raw.columns) if place not in left_out and column.name not in ignored]
    if columns and raw.named:
        for name in columns:
            raw.place_of("columns", name)
        kept = [column for column in kept if column.name in columns]
    text = [column.name for column in kept if column.values is None]
    if text:
        _say_left_out(raw.path, ", ".join(repr(name) for name in text))
    numeric = [column for column in kept if column.values is not None]
    return Table(_points(numeric, raw.path), tuple(column.name for column in numeric), values, raw.named)


def validate_points(points: object, n_features: int | None = None) -> NDArray[np.float64]:
    """Check a caller's points (n, d), n >= 0 and d >= 1: as C-contiguous float64, itself if it has this form already.

    An array, nested sequences or a data frame; a `DataError` if it has not 2 dimensions (of `n_features`), or a value
    that is no finite real number.
    """
    array = _as_array(points)
    if array.ndim != 2:
        raise DataError(
            f"the points have {array.ndim} dimensions, but they must have 2 (rows and features): use "
            "points.reshape(-1, 1) for a single feature or points.reshape(1, -1) for a single row."
        )
    if n_features is not None and array.shape[1] != n_features:
        raise DataError(
            f"the points have {array.shape[1]} features, but {n_features} are needed: "
            "give the same features in the same order as before."
        )
    if array.shape[1] == 0:
        raise DataError("the points have 0 features, but at least 1 is needed: add a column.")
    labels = list(getattr(points, "columns", range(array.shape[1])))
    values = np.ascontiguousarray(_as_real(array, labels), dtype=np.float64)
    bad_rows = ~np.isfinite(values).all(axis=1)
    if bad_rows.any():
        column = int(np.flatnonzero(~np.isfinite(values).all(axis=0))[0])
        raise DataError(
            f"the points have {int(bad_rows.sum())} rows with a missing or infinite value (the first such feature is "
            f"{labels[column]!r}), but every value must be finite: fill in the values or remove the rows."
        )
    return values


def frame_columns(points: object) -> tuple[str, ...]:
    """Names of a data frame's columns, as scikit-learn reads them; empty for arrays and for numbered columns."""
    names = list(getattr(points, "columns", ()))
    n_texts = sum(isinstance(name, str) for name in names)
    if 0 < n_texts < len(names):
        raise DataError(
            f"{n_texts} of {len(names)} column names are text and the others are not, but columns are matched by name: "
            "make all of them text, as in frame.columns.astype(str)."
        )
    return tuple(str(name) for name in names) if n_texts else ()


def require_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Refuse names that do not tell the columns of a table apart; none are always accepted."""
    twice = sorted(name for name in set(names) if list(names).count(name) > 1)
    if twice:
        raise DataError(
            f"{list(names).count(twice[0])} of {len(names)} columns have the name {twice[0]!r}, but each needs one of "
            "its own: rename them."
        )
    if names and len(names) != n_features:
        raise DataError(f"{n_features} columns have {len(names)} names, but each needs one: name all of them.")
    return tuple(str(name) for name in names)


def validate_columns(points: object, names: Sequence[str]) -> NDArray[np.float64]:
    """Check points as `validate_points` does, and put a data frame's columns in the order of `names`.

    What has no column names stays in its order; no names allow any names in any order. Other names are a `DataError`.
    """
    own = frame_columns(points)
    if not own or not names or own == tuple(names):
        return validate_points(points)
    places = {name: place for place, name in enumerate(own)}
    other = [name for name in names if name not in places]
    if other:
        raise DataError(
            f"the points have no column {other[0]!r}, but it was there before: rename this table's column, "
            f"{nearest(other[0], own)}"
        )
    more = sorted(set(own) - set(names))
    if more:
        raise DataError(f"the points have a column {more[0]!r} that was not there before: leave it out.")
    require_names(own, len(names))
    return np.ascontiguousarray(validate_points(points)[:, [places[name] for name in names]])


def validate_labels(labels: object, n_rows: int, n_classes: int | None = None) -> NDArray[np.int64]:
    """Check a caller's class labels (n_rows,): whole numbers from 0 on, below `n_classes` where that is declared."""
    try:
        array = np.asarray(labels)
    except ValueError:
        array = np.empty((n_rows, 0))  # entries of different lengths
    if array.shape != (n_rows,):
        raise DataError(
            f"labels have shape {array.shape}, but the table has {n_rows} rows: give one label for each row."
        )
    if array.dtype.kind not in "iufb" or not np.array_equal(np.rint(array), array):
        raise DataError(
            "labels must be whole numbers, but some are not: code the classes as 0, 1, 2 and so on, the same way on "
            "every client."
        )
    whole = array.astype(np.int64)
    least, most = int(whole.min(initial=0)), int(whole.max(initial=0))
    if least < 0 or (n_classes is not None and n_rows and most >= n_classes):
        bound = "at least 0" if n_classes is None else f"from 0 to {n_classes - 1}"
        raise DataError(
            f"labels go from {least} to {most}, but they must be {bound}: code the classes so, or declare n_classes as "
            "large as they need."
        )
    return whole


@lru_cache(maxsize=64)
def _say_left_out(path: Path, names: str) -> None:
    """Warn once in a process: a client loads its table again for every message."""
    _logger.warning("%s: left out %s, which hold no numbers.", path, names)


def _points(columns: list[RawColumn], path: Path) -> NDArray[np.float64]:
    """Stack numeric columns after the checks that need their names."""
    if not columns:
        raise DataError(
            f"the table {str(path)!r} has 0 numeric columns, but clustering needs at least 1: "
            "encode the text columns as numbers."
        )
    names = [column.name for column in columns]
    unparsable = [column.n_unparsable for column in columns]
    mend = "correct these cells, or remove the column from the file"
    _refuse(names, unparsable, path, "that is not a number among numbers", mend)
    points = np.ascontiguousarray(np.stack([column.values for column in columns if column.values is not None], axis=1))
    n_bad = (~np.isfinite(points)).sum(axis=0).tolist()
    mend = "fill in these cells, or remove the rows or the column"
    _refuse(names, n_bad, path, "that is missing or infinite", mend)
    return points


def _refuse(names: list[str], counts: list[int], path: Path, problem: str, mend: str) -> None:
    """Raise for the first column with bad cells, and say how many more columns have some."""
    bad = [(name, count) for name, count in zip(names, counts, strict=True) if count]
    if not bad:
        return
    name, count = bad[0]
    more = f" (and {len(bad) - 1} more columns have such rows)" if len(bad) > 1 else ""
    raise DataError(
        f"the column {name!r} of {str(path)!r} has {count} rows with a value {problem}{more}, "
        f"but every value must be a finite number: {mend}."
    )


def _as_array(points: object) -> NDArray[Any]:
    """Turn array-likes and frames into an array of any dtype."""
    if isinstance(points, np.ma.MaskedArray):
        plain = np.asarray(points.data)
        # Only numbers can be marked as missing; other types are refused afterwards in any case.
        return np.where(np.ma.getmaskarray(points), np.nan, plain) if plain.dtype.kind in "biuf" else plain
    if hasattr(points, "to_numpy"):
        return np.asarray(points.to_numpy())
    if hasattr(points, "toarray"):
        raise DataError(
            f"the points are a sparse {type(points).__name__}, but they must be dense: give points.toarray()."
        )
    try:
        return np.asarray(points)
    except ValueError:
        pass
    raise DataError(
        "the points have rows of different lengths, but each row must have the same features: "
        "give an array of shape (n, d)."
    )


def _as_real(array: NDArray[Any], labels: Sequence[object]) -> NDArray[Any]:
    """Accept real numbers and truth values; a frame with both has dtype object."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind != "O":
        raise DataError(
            f"the points have dtype {array.dtype}, but they must be real numbers: convert them with "
            "points.astype('float64')."
        )
    for label, column in zip(labels, array.T, strict=True):
        if not all(isinstance(value, numbers.Real | np.bool_) for value in column):
            raise DataError(
                f"the points have values in feature {label!r} which are no numbers, but all must be real numbers: "
                "leave the feature out, or encode it as numbers and fill in what is missing."
            )
    try:
        return array.astype(np.float64)
    except OverflowError:
        pass
    raise DataError(
        "the points have an integer beyond the range of float64, but every value must be finite: rescale it."
    )
