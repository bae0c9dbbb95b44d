"""Where a table is opened: the file of each format becomes columns, before any choice about them is made.

Another format is one more of the `READERS`; another kind of source, one more branch of `table_blocks`.
"""

from __future__ import annotations

import csv
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ColumnError, DataError, DPKMeansError, LocalMisuseError, nearest

ReaderT = TypeVar("ReaderT")
Reader = Callable[[Path], "Iterator[RawTable]"]
"""Reads a file, some rows after the other."""

# Below this width a first row 0, 1, ... is more likely data than the header that pandas writes for unnamed columns.
_MIN_NUMBERED_HEADER = 3
_BUFFER_BYTES = 1 << 16  # of each column; else whole groups of rows are in memory
# 3,5 or 1.200,50; and what stands between two such commas where a file without header was split at them.
_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.' ]*,\d+|\d+;[+-]?[\d.' ]+")
_TRUTH = {"true": 1.0, "false": 0.0}
_BLOCK_ROWS, _BLOCK_CELLS = 1 << 16, 1 << 18
_MARKERS = "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan null"
MISSING = frozenset({"", "#N/A N/A", *_MARKERS.split()})
"""Text that is a missing cell, in every kind of table alike: what pandas.read_csv takes for one."""
UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
"""What readers raise for a file of another format."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column: its values, or None for text; `n_unparsable` counts text cells among numbers.

    `text` reads its cells as they are written, None where one is missing.
    """

    name: str
    values: NDArray[np.float64] | None = field(repr=False)
    n_unparsable: int = 0
    text: Callable[[], list[str | None]] = field(default=list, repr=False)
    own: NDArray[np.float64] | None = field(default=None, repr=False)
    """Numbers of a column that is text only in another file, which may not decide how these are read."""

    @classmethod
    def of_cells(cls, name: str, cells: Iterable[Any], values: NDArray[np.float64] | None = None) -> RawColumn:
        """A column of Python objects, of which each is read by itself unless their `values` are known."""
        return cls(name, values, text=cache(lambda: list(map(text_of, cells))))

    def has_decimal_commas(self) -> bool:
        """Whether it is text for no other reason than that its numbers are written as 3,5."""
        cells = [cell for cell in self.text() if cell is not None] if self.values is None else []
        return bool(cells) and all(map(_DECIMAL_COMMA.fullmatch, cells))

    def numbers(self) -> NDArray[np.float64]:
        """Its numbers, those that are written as text too; NaN where a cell is none."""
        known = self.values if self.own is None else self.own
        if known is not None:
            return known
        return np.array([math.nan if cell is None else plain_number(cell) for cell in self.text()], dtype=float)


@dataclass(frozen=True, eq=False)
class RawTable:
    """The columns of a file, `named` unless the names were made up here; `beside` are an archive's other arrays."""

    path: Path
    columns: tuple[RawColumn, ...]
    named: bool
    beside: tuple[RawColumn, ...] = ()

    def __str__(self) -> str:
        return f"the table {str(self.path)!r}" if self.path.name else "the table"

    @property
    def n_rows(self) -> int:
        """Rows; a column of numbers tells them sooner than text."""
        numbers = next((column.values for column in self.columns if column.values is not None), None)
        return len(numbers) if numbers is not None else len(self.columns[0].text()) if self.columns else 0

    def one_each(self, names: Sequence[str], what: str) -> list[RawColumn]:
        """Columns by name; a `ColumnError` tells which one `what` needs, but is not there, or is there twice."""
        own = [column.name for column in self.columns]
        for position, name in enumerate(names):
            if (n := own.count(name)) != 1:
                problem = f"{n or 'no'} columns named {name!r}, but {what} needs one"
                hint = "rename the others" if n else nearest(name, set(own) - set(names))
                raise ColumnError(f"{self} has {problem}: {hint}", position, len(names))
        return [self.columns[own.index(name)] for name in names]

    def column_of(self, what: str, name: str) -> RawColumn | None:
        """Find a column, or an array beside the points, by name or, without names, by index; None for no name."""
        known = {column.name: column for column in (*self.columns, *self.beside)}
        if not name or name in known:
            return known.get(name)
        if self.named:
            hint = nearest(name, known)
            raise DataError(f"{what} is {name!r}, but the table {str(self.path)!r} has no such column: {hint}")
        n_columns = len(self.columns)
        index = int(name) if name.removeprefix("-").isdecimal() else n_columns
        if not -n_columns <= index < n_columns:
            raise DataError(
                f"{what} is {name!r}, but the table {str(self.path)!r} has no column names and {n_columns} columns: "
                f"give an index from '0' to '{n_columns - 1}'."
            )
        return self.columns[index]

    def labels(self, name: str) -> NDArray[np.generic] | None:
        """The numbers of a label column, (n,), those written as text too; NaN for others, None without a column."""
        column = self.column_of("label_column", name)
        if column is None:
            return None
        values = column.numbers()
        return values if values.shape == (self.n_rows,) else np.full(self.n_rows, math.nan)


def values_of(parts: Sequence[RawColumn], name: str, n_rows: int, path: str | Path) -> NDArray[np.generic] | None:
    """The column that rows are split by, (n,): numbers if it holds nothing else, text otherwise; None without."""
    if not parts:
        return None
    column = joined_column(parts)
    values: NDArray[np.generic] = column.numbers()
    if (column.values is not None and not column.n_unparsable) or bool(np.isfinite(values).all()):
        n_missing = int((~np.isfinite(values)).sum())
    else:
        cells = column.text()
        values, n_missing = np.array([cell or "" for cell in cells], dtype=np.str_), cells.count(None)
    if values.shape != (n_rows,):
        raise DataError(
            f"the partition column {name!r} is an array of {source_name(path)!r} that is not {n_rows} numbers or "
            "texts, but each row needs one: save it as an array of one value per row."
        )
    if n_missing:
        raise DataError(
            f"the partition column {name!r} of {source_name(path)!r} has {n_missing} rows with a value that is "
            "missing or infinite, but each row needs one: fill in these cells, or remove the rows."
        )
    return values


def joined_column(parts: Sequence[RawColumn]) -> RawColumn:
    """One column of the cells of all parts."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts if part.values is not None]
    whole = np.concatenate(values) if len(values) == len(parts) else None
    text = cache(lambda: [cell for part in parts for cell in part.text()])
    return RawColumn(parts[0].name, whole, sum(part.n_unparsable for part in parts), text)


def block_rows(width: int) -> int:
    """How many rows of so many cells are read together."""
    return max(1, min(_BLOCK_ROWS, _BLOCK_CELLS // max(1, width)))


def locate_file(path: str | Path, what: str, error: type[LocalMisuseError]) -> Path:
    """Return the absolute path of an existing file; `what` names it in the error sentence."""
    try:
        located = Path(path).expanduser().absolute()
    except RuntimeError:  # "~someone" without such a user stays as it was written
        located = Path(path).absolute()
    if located.is_dir():
        told = "is a directory, but it must be one file: give the path of the file"
        raise error(f"the {what} {str(located)!r} {told}{', or put .parquet files into it' * (what == 'table')}.")
    if not located.is_file():
        relative = not Path(path).is_absolute() and located.is_relative_to(Path.cwd())
        begins = f", which begins in the working directory, {str(Path.cwd())!r}" if relative else ""
        told = "does not exist, but it must be a file on this machine: correct the path"
        raise error(f"the {what} {str(located)!r} {told}{begins}.")
    return located


def _has_index(first_row: list[str]) -> bool:
    """Tell whether the first column of a header is the unnamed index that pandas writes."""
    return len(first_row) > 1 and first_row[0] == ""


def _is_header(first_row: list[str]) -> bool:
    """Guess whether the first row holds names: each cell is one, no two are equal, or pandas numbered the columns.

    "nan" may be a name (and "Na" is sodium), infinity is not; what has no letter may be censored (">89") or a date.
    """
    names = first_row[1:] if _has_index(first_row) else first_row
    if len(names) >= _MIN_NUMBERED_HEADER and names == [str(index) for index in range(len(names))]:
        return True
    lettered = all(name.lower() not in _TRUTH and any(letter.isalpha() for letter in name) for name in names)
    return lettered and all(math.isnan(number_of(name)) for name in names) and len(set(names)) == len(names)


def cells_of(line: str, separator: str) -> list[str]:
    """The cells of one line of a .csv file; none where a quote spoils it."""
    if '"' not in line:
        return line.split(separator) if line else []
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        return []


def header_of(lines: Iterable[str]) -> tuple[list[str], str]:
    """The cells of the first line that is not blank (none in an empty file), and the separator."""
    line = next((line for line in lines if line.strip()), "")
    separators = [one for one in (",", ";", "\t") if one in line] or [","]
    separator = separators[0]
    if _is_header(cells_of(line, separator)):  # names may hold others
        separator = max(separators, key=lambda one: len(cells_of(line, one)))
    return [cell.strip() for cell in cells_of(line, separator)], separator


def number_of(cell: Any) -> float:
    """The number in a cell; NaN if it is none (pandas.to_numeric reads "1_000" as 1, and float as 1000)."""
    if isinstance(cell, str) and "_" in cell:
        return math.nan
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf
    except (ArithmeticError, TypeError, ValueError):
        return math.nan


def plain_number(cell: str) -> float:
    """The number or truth value in a cell as it is written; NaN if it is none.

    Each cell is what NumPy, which reads whole blocks, takes it for: else one row's text would decide about the others.
    """
    plain = cell.strip()  # float alone keeps the ASCII separators
    return _TRUTH.get(plain.lower(), number_of(plain))


def numbers_in(rows: list[list[str]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Numbers of cells, each for itself (faster where all are plain), and how many of each column hold others."""
    others = np.zeros(len(rows[0]), dtype=np.int64)
    try:
        if not any("_" in cell for cells in rows for cell in cells):
            return np.array(rows, dtype=np.float64), others
    except ValueError:
        pass
    numbers = np.array([list(map(plain_number, cells)) for cells in rows])
    for row, column in np.argwhere(np.isnan(numbers)).tolist():
        others[column] += text_of(rows[row][column]) is not None
    return numbers, others


def text_of(cell: Any) -> str | None:
    """A Python object as a file would have it, None where it is `MISSING`: 1.0 as 1, true in small letters.

    Whatever it is, it is no error, which would tell that it is there.
    """
    try:
        if cell is None or type(cell).__name__ == "NAType" or bool(cell != cell):
            return None
        if isinstance(cell, bool | np.bool_):
            return str(cell).lower()
        if isinstance(cell, float | np.floating) and float(cell).is_integer():
            return str(int(cell))
        text = cell.isoformat() if isinstance(cell, date) else str(cell).strip()
    except Exception:  # of any object's own comparison or text
        return f"<{type(cell).__name__}>"
    return None if text in MISSING else text


def frame_table(frame: Any) -> RawTable:
    """The columns of a mapping or a data frame: pandas, polars, and what has an Arrow stream or the interchange."""
    import pandas as pd

    if isinstance(frame, Mapping):
        frame = _mapped(frame)
    if not isinstance(frame, pd.DataFrame):
        if hasattr(frame, "__arrow_c_stream__"):
            import pyarrow as pa

            # polars' own has texts that Arrow can take apart.
            return _raw_parquet(frame.to_arrow() if hasattr(frame, "to_arrow") else pa.table(frame), Path())
        if not hasattr(frame, "to_pandas") and not hasattr(frame, "__dataframe__"):
            raise DataError(
                f"the table is of type {type(frame).__name__}, but a schema tells columns by name: give a data frame, "
                "or a mapping of names to columns."
            )
        frame = frame.to_pandas() if hasattr(frame, "to_pandas") else pd.api.interchange.from_dataframe(frame)
    columns = [_frame_column(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    return RawTable(Path(), tuple(columns), named=True)


def _mapped(columns: Mapping[str, Any]) -> Any:
    """A data frame of a mapping: of lists each cell by itself, where pandas would choose one type for all of them."""
    import pandas as pd

    indexes = [cells.index for cells in columns.values() if isinstance(cells, pd.Series)] or [None]

    def column(cells: Any) -> Any:
        plain = not isinstance(cells, Sequence) or isinstance(cells, str) or set(map(type, cells)) == {float}
        return cells if plain else pd.Series(cells, dtype=object, index=indexes[0])

    try:
        lengths = {len(cells) for cells in columns.values() if hasattr(cells, "__len__") and not isinstance(cells, str)}
        if len(lengths) > 1 or not all(one is None or one.equals(indexes[0]) for one in indexes):
            raise ValueError
        return pd.DataFrame({name: column(cells) for name, cells in columns.items()})
    except (TypeError, ValueError):
        raise DataError("a table of columns by name is none: give columns of one length, and of one index.") from None


def _frame_column(name: str, series: Any) -> RawColumn:
    """Numbers as they are, all else cell by cell."""
    if type(series.dtype).__name__ == "ArrowDtype":  # not by way of Python, which lacks the year 10000
        return _arrow_column(name, series.array.__arrow_array__(), Path())
    if series.dtype.kind == "c":  # one cell that is none made complex numbers of all
        series = series.map(lambda cell: cell.real if cell.imag == 0.0 else None).astype(object)
    is_number = isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf"
    cells = series.to_numpy()
    if not is_number and series.dtype.kind != "O":
        cells = series.astype(object).where(series.notna(), None)
    return RawColumn.of_cells(name, cells, series.to_numpy(dtype=np.float64) if is_number else None)


def _csv_column(name: str, series: Any, text: Callable[[], list[str | None]]) -> RawColumn:
    """Decide between numbers and text: text is a column without a single number."""
    if series.dtype.kind in "biuf":
        return RawColumn(name, series.to_numpy(dtype=np.float64), text=text)
    present = series.notna().to_numpy(dtype=bool)
    values = np.full(len(series), np.nan)
    values[present] = [number_of(cell) for cell in series[present]]
    is_number = ~np.isnan(values)
    if present.any() and not is_number.any():
        return RawColumn(name, None, text=text)
    return RawColumn(name, values, int((present & ~is_number).sum()), text)


def _csv_reader(path: Path, header: bool | None) -> tuple[list[str], bool, partial[Any]]:
    """The first row of a .csv file, whether it is a header, which is guessed unless it is said, and pandas' reader."""
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as lines:
        first_row, separator = header_of(lines)
    named = _is_header(first_row) if header is None else header
    how: dict[str, Any] = {"sep": separator, "header": 0 if named else None, "encoding": "utf-8-sig"}
    return first_row, named, partial(pd.read_csv, path, skipinitialspace=True, **how)


def whole_csv(path: Path, header: bool | None = None) -> Iterator[RawTable]:
    """Read a .csv file in one block, as all of its cells say what a column is; its header is guessed unless said."""
    import pandas as pd

    first_row, header, read = _csv_reader(path, header)
    if not first_row:
        yield RawTable(path, (), named=False)
        return
    read = partial(read, index_col=False)
    with warnings.catch_warnings():
        # Rows that are all longer than the header would only raise a warning and lose their last cells.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = read(low_memory=False)
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            raise DataError(
                f"the rows of {str(path)!r} do not all have the {len(first_row)} cells of the first row, but a table "
                "needs equally long rows: correct the longer rows, or quote the cells which contain the separator "
                f"{read.keywords['sep']!r}."
            ) from error
    columns = [
        # Not pandas' own names, which tell equal ones apart.
        _csv_column(name if header else f"x{place}", frame.iloc[:, place], partial(_csv_text, read, place))
        for place, name in enumerate(first_row)
    ]
    yield RawTable(path, tuple(columns[1:] if header and _has_index(first_row) else columns), named=header)


def _csv_text(read: Callable[..., Any], place: int) -> list[str | None]:
    """Read one column of a .csv file as it is written; None where a cell is missing."""
    return list(map(text_of, read(usecols=[place], dtype=str, na_filter=False).iloc[:, 0]))


def _array_table(array: NDArray[Any], path: Path, beside: tuple[RawColumn, ...] = ()) -> RawTable:
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
    pairs = enumerate(zip(array.T, array.astype(np.float64).T, strict=True))
    columns = (RawColumn.of_cells(f"x{place}", cells, values) for place, (cells, values) in pairs)
    return RawTable(path, tuple(columns), named=False, beside=beside)


def _npy_blocks(path: Path) -> Iterator[RawTable]:
    """Mapped anew for each block, so that it leaves memory with the block."""
    shape = np.load(path, mmap_mode="r").shape
    for start in range(0, max(1, shape[0] if shape else 1), step := block_rows(math.prod(shape[1:]))):
        array = np.load(path, mmap_mode="r")
        yield _array_table(array[start : start + step] if array.ndim == 2 else array, path)


def _npz_blocks(path: Path) -> Iterator[RawTable]:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: _array_of(archive, name) for name in archive.files}
    matrices = ["X"] if "X" in arrays else [name for name, array in arrays.items() if array.ndim == 2]
    if len(matrices) != 1:
        raise DataError(
            f"the archive {str(path)!r} has {len(matrices)} two-dimensional arrays and none named 'X', but one "
            "must hold the points: save them under the name 'X', as in numpy.savez(path, X=points)."
        )
    points = arrays.pop(*matrices)
    numbers = {name: array.astype(np.float64) for name, array in arrays.items() if array.dtype.kind in "biuf"}
    beside = [RawColumn.of_cells(name, array.ravel(), numbers.get(name)) for name, array in arrays.items()]
    yield _array_table(points, path, tuple(beside))


def _array_of(archive: Any, name: str) -> NDArray[np.generic]:
    """An array of an archive as it is; one without dimensions for Python objects, which are not loaded."""
    try:
        return np.asarray(archive[name])
    except ValueError:
        return np.zeros(())


def _parquet_values(column: Any) -> NDArray[np.float64] | None:
    """Return the numbers of a column by its stored type, or None if the type is no number."""
    import pyarrow as pa

    # Without one value (null) it is missing rather than text.
    numeric = (pa.types.is_null, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif not any(is_kind(column.type) for is_kind in numeric):
        return None
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _parquet_text(column: Any, name: str, path: Path) -> list[str | None]:
    """The cells of a column of a Parquet file as text; None where one is missing."""
    import pyarrow as pa

    try:
        # Durations, and what others have made of numbers, would be numbers of nobody knows which unit.
        if not pa.types.is_duration(column.type) and not isinstance(column.type, pa.BaseExtensionType):
            cells = column.cast(pa.string(), safe=False).cast(pa.binary()).to_pylist()  # bytes may be no UTF-8
            pa.nulls(1, column.type).cast(pa.string())  # an unknown time zone is an error whatever rows there are
            found = [None if cell is None else text_of(cell.decode(errors="replace")) for cell in cells]
            if pa.types.is_floating(column.type):
                # A gap makes them of whole numbers, and Arrow writes large ones as 1e15: all cells would be others.
                pairs = zip(found, column.to_pylist(), strict=True)
                found = [text_of(cell) if cell is not None and cell.is_integer() else text for text, cell in pairs]
            return found
    except pa.ArrowException:
        pass
    # Outside of the handler: the chained error could carry a cell.
    of = f" of {str(path)!r}" if path.name else ""
    raise DataError(
        f"the column {name!r}{of} holds neither numbers nor text, but rows can be split, or encoded, "
        "by these only: write the column as text, or leave it out."
    )


def parquet_schemas(path: Path) -> dict[Path, Any]:
    """By file, or by all files of a folder in the order of their names, the types of its columns, the same ones."""
    import pyarrow.parquet as pq

    schemas = {file: pq.read_schema(file) for file in sorted(path.glob("*.parquet")) or [path]}
    if len({frozenset(schema.names) for schema in schemas.values()}) > 1:
        raise DataError(f"the .parquet files in {str(path)!r} do not all have the same columns: make them so.")
    return schemas


def _parquet_blocks(path: Path) -> Iterator[RawTable]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        files = parquet_schemas(path)
        whole, empty = next(iter(files.values())), [_raw_parquet(one.empty_table(), path) for one in files.values()]
        texts = [{column.name for column in table.columns if column.values is None} for table in empty]
        # What is a number in one file and text in another is text in all; the numbers are still their file's.
        mixed = set[str]().union(*texts) - texts[0].intersection(*texts)
        yield _raw_parquet(whole.empty_table(), path, mixed)
        step = block_rows(len(whole))
        for place in files:
            # Not pq.read_table, which opens the file as a data set, where directory names may become columns.
            with pq.ParquetFile(place, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=step, use_threads=False):
                    # Each file by its own types: one type for all would let a cell decide about other files' rows.
                    block = pa.Table.from_batches([batch])
                    yield _raw_parquet(block.select(whole.names) if len(files) > 1 else block, path, mixed)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _raw_parquet(table: Any, path: Path, texts: Collection[str] = ()) -> RawTable:
    columns = (
        _arrow_column(name, cells, path, is_text=name in texts)
        for name, cells in zip(table.column_names, table.columns, strict=True)
        if not name.startswith(("__index_level_", "__null_dask_index__"))  # of a pandas or Dask frame
    )
    return RawTable(path, tuple(columns), named=True)


def _arrow_column(name: str, cells: Any, path: Path, *, is_text: bool = False) -> RawColumn:
    text, values = cache(partial(_parquet_text, cells, name, path)), _parquet_values(cells)
    return RawColumn(name, None if is_text else values, text=text, own=values)


def _csv_blocks(path: Path, header: bool | None = None) -> Iterator[RawTable]:
    import pandas as pd

    first_row, named, read = _csv_reader(path, header)
    with read(dtype=str, na_filter=False, chunksize=block_rows(len(first_row))) as chunks:
        for frame in chunks:
            if not isinstance(frame.index, pd.RangeIndex):
                raise ValueError("rows are longer than the first")
            yield replace(frame_table(frame.set_axis(first_row, axis=1) if named else frame), named=named)


READERS: Mapping[str, Reader] = MappingProxyType(
    {".csv": _csv_blocks, ".npy": _npy_blocks, ".npz": _npz_blocks, ".parquet": _parquet_blocks}
)
"""By the suffix of a format."""


def reader_of(
    path: str | Path, what: str, readers: Mapping[str, ReaderT], error: type[LocalMisuseError]
) -> tuple[Path, ReaderT]:
    """A file's absolute path, and its reader by the suffix."""
    located = locate_file(path, what, error)
    if located.suffix.lower() not in readers:
        *others, last = readers
        raise error(
            f"the {what} {str(located)!r} has the suffix {located.suffix!r}, but only {', '.join(others)} and {last} "
            "can be read: convert the file to one of these."
        )
    return located, readers[located.suffix.lower()]


def _query_blocks(url: str, query: str) -> Iterator[RawTable]:
    """What a database answers (SQLAlchemy); the URL, which may hold a password, is in no sentence."""
    problem = "'query' does not say what to ask it for: add it"
    if query:
        try:
            import pandas as pd
            import sqlalchemy

            engine = sqlalchemy.create_engine(url)
            file = engine.url.database if engine.dialect.name == "sqlite" else None
            if file and not file.startswith((":memory:", "file:")):
                Path(file).stat()  # SQLite would make it, and a node leave an empty one behind
            with engine.connect() as connection:
                if engine.dialect.name == "sqlite":  # which else fails for one text that is no UTF-8
                    raw: Any = connection.connection.driver_connection
                    raw.text_factory = partial(str, encoding="utf-8", errors="replace")
                if engine.dialect.name == "postgresql":  # whose drivers fail for one date such as 'infinity'
                    query = _as_text(connection, query)
                found = connection.execute(sqlalchemy.text(query), execution_options={"stream_results": True})
                names = list(found.keys())
                for rows in chain([[]], found.partitions(block_rows(len(names)))):
                    # Each cell is read by itself: frames of one type for a column would let one decide about others.
                    yield replace(frame_table(pd.DataFrame(rows, columns=names, dtype=object)), path=Path("database"))
            engine.dispose()
            return
        except ImportError:
            problem = "SQLAlchemy, or the database's driver, is not there: pip install 'flwr-dpkmeans[database]'"
        except Exception as error:  # of any driver; its text may quote cells
            problem = f"it fails with {type(error).__name__}: try URL and query on this machine"
    raise DataError(f"the table is a database, but {problem}.")


def _as_text(connection: Any, query: str) -> str:
    """The query that asks PostgreSQL for the same columns as text, whose cells are then read by themselves."""
    import sqlalchemy

    connection.exec_driver_sql("SET datestyle TO ISO")
    table = f"FROM ({query.strip().rstrip(';')}\n) AS found"
    names = connection.execute(sqlalchemy.text(f"SELECT * {table} LIMIT 0")).keys()
    quoted = ['"' + name.replace('"', '""').replace(":", "\\:") + '"' for name in names]
    return f"SELECT {', '.join(f'CAST({name} AS text) AS {name}' for name in quoted)} {table}"


def table_blocks(
    path: str | Path, header: bool | None = None, query: str = "", csv_reader: Reader | None = None
) -> Iterator[RawTable]:
    """All columns of a source, some rows after the other; at least one block, perhaps without rows.

    Cells of a .csv file are text as it is written, unless another reader says otherwise. Only archives (.npz) are ever
    in memory as a whole. A `DataError` has one sentence, without a value of a cell.
    """
    if not isinstance(path, str | Path):  # rows that something else has read, such as a block of a cluster's
        yield frame_table(path)
        return
    if "://" in str(path):
        yield from _query_blocks(str(path), query)
        return
    located = Path(path).expanduser().absolute()
    reader: Reader = _parquet_blocks
    if not (located.is_dir() and any(located.glob("*.parquet"))):
        located, reader = reader_of(
            path, "table", {**READERS, ".csv": csv_reader or partial(_csv_blocks, header=header)}, DataError
        )
        if located.suffix.lower() == ".csv" and header is not False:
            _require_text(located)
    blocks = reader(located)
    while (block := in_one_sentence(located, partial(next, blocks, None))) is not None:
        yield block


_BEGINNINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip", b"PK\3\4": "an Excel or zip file"}


def _require_text(located: Path) -> None:
    """Refuse what would otherwise be read as one column with an unreadable name, if at all.

    Only a header is looked at: what a row begins with may not decide whether a node answers.
    """
    with suppress(OSError), located.open("rb") as file:  # whoever reads it says so
        begins = b"".join(file.read(4).splitlines()[:1])
        kinds = [kind for mark, kind in _BEGINNINGS.items() if begins.startswith(mark)] + ["UTF-16"] * (0 in begins)
        if kinds:
            raise DataError(
                f"the table {str(located)!r} is {kinds[0]}, but a .csv file must be UTF-8 text: save it "
                "again as that, or give the file its own suffix."
            )


def is_clustered(source: object) -> bool:
    """Whether a source is a table of the Ray or Dask cluster of this machine, as ``ray:///shared/rows``."""
    return str(source).startswith(("ray://", "dask://"))


def source_name(path: str | Path) -> str:
    """What sentences call a source: no URL, which may hold a password."""
    if not isinstance(path, str | Path):
        return "table"
    return "database" if "://" in str(path) else str(Path(path).expanduser().absolute())


def in_one_sentence(located: Path, step: Callable[[], ReaderT]) -> ReaderT:
    """The outcome of a step of reading; what goes wrong becomes a `DataError`."""
    try:
        return step()
    except DPKMeansError:
        raise
    except UnicodeDecodeError:
        problem = f"the table {str(located)!r} is not UTF-8 text, but a .csv file must be: save it again as UTF-8."
    except UNREADABLE as error:
        problem = (
            f"the table {str(located)!r} cannot be read as {located.suffix.lower()} ({type(error).__name__}), but its "
            "content must match its suffix (or, in a folder, be .parquet): check that it is complete, readable by this "
            "user and holds no pickled objects."
        )
    # Outside of the handlers: the chained error could carry the bytes of a cell.
    raise DataError(problem)


def whole_frame(
    path: str | Path, header: bool | None = None, names: Sequence[str] = (), query: str = "", rows: Any = None
) -> Any:
    """All blocks of a table in one data frame, or some `rows`; `names` are for columns that have none."""
    import pandas as pd

    frames, n_rows = [], 0
    for raw in table_blocks(path, header, query):
        cells = (column.text() if column.values is None else column.values for column in raw.columns)
        frame = pd.DataFrame(dict(enumerate(cells)))
        frame.index += n_rows
        n_rows += len(frame)
        own = [column.name for column in raw.columns] if raw.named else names
        frame = frame.set_axis(own, axis=1) if own else frame
        frames.append(frame if rows is None else frame[frame.index.isin(rows)])
    whole = pd.concat(frames)
    return whole if rows is None else whole.loc[rows]
