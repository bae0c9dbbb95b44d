"""Find a file, and read each format into columns, before any choice about labels or missing values is made."""

from __future__ import annotations

import csv
import math
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError, DPKMeansError, LocalMisuseError, nearest

# Below this width a first row 0, 1, ... is more likely data than the header that pandas writes for unnamed columns.
_MIN_NUMBERED_HEADER = 3


def locate_file(path: str | Path, what: str, error: type[LocalMisuseError]) -> Path:
    """Return the absolute path of an existing file; `what` names it in the error sentence."""
    try:
        located = Path(path).expanduser().absolute()
    except RuntimeError:  # "~someone" without such a user stays as it was written
        located = Path(path).absolute()
    if located.is_dir():
        raise error(f"the {what} {str(located)!r} is a directory, but it must be one file: give the path of the file.")
    if not located.is_file():
        raise error(
            f"the {what} {str(located)!r} does not exist, but it must be a file on this machine: correct the path, "
            f"where a relative path is resolved from the working directory of the process, {str(Path.cwd())!r}."
        )
    return located


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column: its values, or None for text; `n_unparsable` counts text cells among numbers.

    `cells` is the Arrow column that it was read from.
    """

    name: str
    values: NDArray[np.float64] | None = field(repr=False)
    n_unparsable: int = 0
    cells: Any = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class RawTable:
    """The columns of a file; `named` is False if the names were made up here.

    `other_arrays` holds the names of the arrays of an archive which are not the points.
    """

    columns: tuple[RawColumn, ...]
    named: bool
    other_arrays: tuple[str, ...] = ()


def _is_name(cell: str) -> bool:
    """Tell whether a cell of the first row can be a column name: it has a letter and is no number or truth value."""
    if cell.lower() in ("true", "false"):
        return False
    try:
        # "nan" may be a name (and "Na" is sodium), infinity is not.
        return math.isnan(float(cell))
    except ValueError:
        # What has no letter may be censored (">89"), a date or missing.
        return any(character.isalpha() for character in cell)


def _has_index(first_row: list[str]) -> bool:
    """Tell whether the first column of a header is the unnamed index that pandas writes."""
    return len(first_row) > 1 and first_row[0] == ""


def _is_header(first_row: list[str]) -> bool:
    """Guess whether the first row holds names: each cell is one, no two are equal, or pandas numbered the columns."""
    names = first_row[1:] if _has_index(first_row) else first_row
    if len(names) >= _MIN_NUMBERED_HEADER and names == [str(index) for index in range(len(names))]:
        return True
    return all(_is_name(name) for name in names) and len(set(names)) == len(names)


def separator_of(line: str) -> str:
    """The separator of a file whose first row this is."""
    return next((candidate for candidate in (",", ";", "\t") if candidate in line), ",")


def _first_row(path: Path) -> tuple[list[str], str]:
    """Return the cells of the first row that is not blank (none in an empty file), and the separator."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        line = next((line for line in lines if line.strip()), "")
    separator = separator_of(line)
    cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    return [cell.strip() for cell in cells], separator


def _number(cell: Any) -> float:
    """Parse a cell that pandas did not take for a number; NaN if it is none (pandas.to_numeric reads "1_000" as 1)."""
    if isinstance(cell, str) and "_" in cell:
        return math.nan
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf
    except ValueError:
        return math.nan


def _csv_column(name: str, series: Any) -> RawColumn:
    """Decide between numbers and text: text is a column without a single number."""
    if series.dtype.kind in "biuf":
        return RawColumn(name, series.to_numpy(dtype=np.float64))
    present = series.notna().to_numpy(dtype=bool)
    values = np.full(len(series), np.nan)
    values[present] = [_number(cell) for cell in series[present]]
    is_number = ~np.isnan(values)
    if present.any() and not is_number.any():
        return RawColumn(name, None)
    return RawColumn(name, values, int((present & ~is_number).sum()))


def read_csv(path: Path, header: bool | None = None) -> RawTable:
    """Read a .csv file; whether it has a header is guessed unless it is said."""
    import pandas as pd

    first_row, separator = _first_row(path)
    if not first_row:
        return RawTable((), named=False)
    header = _is_header(first_row) if header is None else header
    with warnings.catch_warnings():
        # Rows that are all longer than the header would only raise a warning and lose their last cells.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(
                path,
                sep=separator,
                header=0 if header else None,
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                encoding="utf-8-sig",
            )
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise DataError(
                f"the rows of {str(path)!r} do not all have the {len(first_row)} cells of the first row, but a table "
                "needs equally long rows: correct the longer rows, or quote the cells which contain the separator "
                f"{separator!r}."
            ) from error
    if header and _has_index(first_row):
        frame = frame.iloc[:, 1:]
    names = [str(name).strip() if header else f"x{index}" for index, name in enumerate(frame.columns)]
    columns = (_csv_column(name, frame.iloc[:, index]) for index, name in enumerate(names))
    return RawTable(tuple(columns), named=header)


def _array_table(array: NDArray[Any], path: Path, other_arrays: tuple[str, ...] = ()) -> RawTable:
    """Turn a 2-D array of numbers or truth values into columns x0, x1, ..."""
    if array.ndim != 2:
        raise DataError(
            f"the array of {str(path)!r} has {array.ndim} dimensions, but it must have 2 (rows and features): "
            "save it after array.reshape(n_rows, -1)."
        )
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"the array of {str(path)!r} has dtype {array.dtype}, but it must hold real numbers: "
            "save it after array.astype('float64')."
        )
    values = array.astype(np.float64)
    columns = tuple(RawColumn(f"x{index}", values[:, index]) for index in range(values.shape[1]))
    return RawTable(columns, named=False, other_arrays=other_arrays)


def _read_npy(path: Path) -> RawTable:
    with path.open("rb") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return _array_table(array, path)


def _matrices(archive: Any) -> list[str]:
    """Name the 2-D arrays of an archive, leaving out arrays of Python objects, which are not loaded."""
    names = []
    for name in archive.files:
        try:
            if archive[name].ndim == 2:
                names.append(name)
        except ValueError:
            continue
    return names


def _read_npz(path: Path) -> RawTable:
    with np.load(path, allow_pickle=False) as archive:
        matrices = ["X"] if "X" in archive.files else _matrices(archive)
        if len(matrices) != 1:
            raise DataError(
                f"the archive {str(path)!r} has {len(matrices)} two-dimensional arrays and none named 'X', but one "
                "must hold the points: save them under the name 'X', as in numpy.savez(path, X=points)."
            )
        others = tuple(name for name in archive.files if name != matrices[0])
        return _array_table(archive[matrices[0]], path, others)


def _parquet_values(column: Any) -> NDArray[np.float64] | None:
    """Return the numbers of a column by its stored type, or None if the type is no number."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):  # not one value: missing rather than text
        return np.full(len(column), np.nan)
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not numeric:
        return None
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _read_parquet(path: Path) -> RawTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not pq.read_table, which opens the file as a data set, where directory names may become columns.
        with pq.ParquetFile(path) as file:
            table = file.read()
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    columns = (
        RawColumn(name, _parquet_values(table.column(index)), cells=table.column(index))
        for index, name in enumerate(table.column_names)
        if not name.startswith("__index_level_")  # the index of a pandas frame
    )
    return RawTable(tuple(columns), named=True)


READERS: Mapping[str, Callable[[Path], RawTable]] = MappingProxyType(
    {".csv": read_csv, ".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet}
)

UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)


def read_raw(path: Path, header: bool | None = None) -> RawTable:
    """Choose the reader by the suffix, and turn its failures into one sentence."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"the table {str(path)!r} has the suffix {path.suffix!r}, but only .csv, .npy, .npz and .parquet can be "
            "read: convert the file to one of these."
        )
    try:
        return reader(path) if header is None or reader is not read_csv else read_csv(path, header)
    except DPKMeansError:
        raise
    except UnicodeDecodeError:
        problem = f"the table {str(path)!r} is not UTF-8 text, but a .csv file must be: save it again as UTF-8."
    except UNREADABLE as error:
        problem = (
            f"the table {str(path)!r} cannot be read as {path.suffix.lower()} ({type(error).__name__}), but its "
            "content must match its suffix: check that the file is complete, readable by this user and holds no "
            "pickled objects."
        )
    # Outside of the handlers: the chained error could carry the bytes of a cell.
    raise DataError(problem)


def find_column(raw: RawTable, what: str, name: str, path: Path) -> int | None:
    """Find a column by name or, without names, by index; None for no name, or for an array beside the points."""
    names = [column.name for column in raw.columns]
    if not name or name in raw.other_arrays:
        return None
    if name in names:
        return names.index(name)
    if raw.named:
        raise DataError(f"{what} is {name!r}, but the table {str(path)!r} has no such column: {nearest(name, names)}")
    return _column_index(what, name, len(names), path)


def partition_values(raw: RawTable, name: str, path: Path) -> NDArray[np.generic]:
    """Return the column that rows are split by: numbers if it holds nothing else, text otherwise."""
    index = find_column(raw, "partition_column", name, path)
    if index is None:
        return _column_beside_the_points(path, name, raw)
    column = raw.columns[index]
    if column.values is not None and not column.n_unparsable:
        values: NDArray[np.generic] = column.values
        n_missing = int((~np.isfinite(column.values)).sum())
    else:
        cells = _csv_text(path, index, raw.named) if path.suffix.lower() == ".csv" else _parquet_text(column, path)
        values = np.array(["" if cell is None else cell for cell in cells], dtype=np.str_)
        n_missing = sum(cell is None for cell in cells)
    if n_missing:
        raise DataError(
            f"the partition column {name!r} of {str(path)!r} has {n_missing} rows with a value that is missing or "
            "infinite, but each row needs one: fill in these cells, or remove the rows."
        )
    return values


def _column_index(what: str, name: str, n_columns: int, path: Path) -> int:
    """Read the index of a column; negative ones count from the end."""
    try:
        index = int(name)
    except ValueError:
        index = n_columns
    if not -n_columns <= index < n_columns:
        raise DataError(
            f"{what} is {name!r}, but the table {str(path)!r} has no column names and {n_columns} columns: give an "
            f"index from '0' to '{n_columns - 1}'."
        )
    return index % n_columns


def _csv_text(path: Path, index: int, header: bool) -> list[str | None]:
    """Read one column of a .csv file as it is written; None where a cell is empty."""
    import pandas as pd

    first_row, separator = _first_row(path)
    series = pd.read_csv(
        path,
        sep=separator,
        header=0 if header else None,
        index_col=False,
        usecols=[index + 1 if header and _has_index(first_row) else index],
        dtype=str,
        skipinitialspace=True,
        encoding="utf-8-sig",
    ).iloc[:, 0]
    return [None if missing else str(cell) for cell, missing in zip(series, series.isna(), strict=True)]


def _parquet_text(column: RawColumn, path: Path) -> list[str | None]:
    """The cells of a column of a Parquet file as text; None where one is missing."""
    import pyarrow as pa

    try:
        return [None if cell is None else str(cell) for cell in column.cells.cast(pa.string()).to_pylist()]
    except pa.ArrowException:
        pass
    # Outside of the handler: the chained error could carry a cell.
    raise DataError(
        f"the partition column {column.name!r} of {str(path)!r} holds neither numbers nor text, but rows can be split "
        "by these only: write the column as text."
    )


def array_beside_the_points(path: Path, name: str) -> NDArray[np.generic]:
    """Read an array of an archive as it is; an empty one for Python objects."""
    with np.load(path, allow_pickle=False) as archive:
        try:
            values: NDArray[Any] = archive[name]
        except ValueError:  # Python objects
            values = np.zeros((0, 0))
    return values


def _column_beside_the_points(path: Path, name: str, raw: RawTable) -> NDArray[np.generic]:
    """Read an array of an archive which has one value for each row of the points."""
    n_rows = len(raw.columns[0].values) if raw.columns[0].values is not None else 0
    values = array_beside_the_points(path, name)
    if values.shape != (n_rows,) or values.dtype.kind not in "biufUS":
        raise DataError(
            f"the partition column {name!r} is an array of {str(path)!r} that is not {n_rows} numbers or texts, but "
            "each row needs one: save it as an array of one value per row."
        )
    return values
