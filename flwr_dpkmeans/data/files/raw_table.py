"""Columns of a table as its file has them, before any choice about them is made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cells import iso_text, plain_number, text_of
from flwr_dpkmeans.errors import ColumnError, DataError, nearest
from flwr_dpkmeans.resources import limits

_BLOCK_CELLS = 1 << 18


def block_rows(width: int) -> int:
    """Return how many rows of so many cells are read together."""
    return max(1, min(limits().rows_read, _BLOCK_CELLS // max(1, width)))


def source_name(source: object) -> str:
    """Return what sentences call a source: no URL, which may hold a password."""
    if not isinstance(source, str | Path):
        return "table"
    if "://" in str(source):
        return "database"
    return str(Path(source).expanduser().absolute())


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column of a table.

    Attributes
    ----------
    name : str
        As the file has it.
    values : ndarray, (n,), or None
        Its numbers, NaN where a cell is none; None for a column of text.
    n_unparsable : int
        How many cells among numbers are text.
    text : callable
        Reads the cells as they are written, None where one is missing.
    numeric : ndarray, (n,), or None
        Numbers of a column that is text only in another file of the same folder, which
        may not decide how these are read.
    date_format : str
        How dates are written beside ISO 8601; empty: not stated.
    """

    name: str
    values: NDArray[np.float64] | None = field(repr=False)
    n_unparsable: int = 0
    text: Callable[[], list[str | None]] = field(default=list, repr=False)
    numeric: NDArray[np.float64] | None = field(default=None, repr=False)
    date_format: str = ""

    @classmethod
    def of_cells(
        cls,
        name: str,
        cells: Iterable[Any],
        values: NDArray[np.float64] | None = None,
    ) -> RawColumn:
        """Make a column of Python objects, each read by itself without `values`."""
        return cls(name, values, text=cache(lambda: list(map(text_of, cells))))

    def as_text_without_numbers(self) -> RawColumn:
        """Return it as text if there is text in it, and not a single number."""
        if self.values is None or not self.n_unparsable:
            return self
        if not bool(np.isnan(self.values).all()):
            return self
        return replace(self, values=None, n_unparsable=0)

    def numbers(self) -> NDArray[np.float64]:
        """Return its numbers, also those written as text; NaN where a cell is none."""
        numbers = self.values if self.numeric is None else self.numeric
        if numbers is not None:
            return numbers
        cells = self.text()
        return np.array(
            [math.nan if cell is None else plain_number(cell) for cell in cells],
            dtype=float,
        )

    def dates(self) -> list[str | None]:
        """Return its cells as text, those of the stated date format as ISO 8601."""
        cells = self.text()
        if not self.date_format:
            return cells
        form = self.date_format
        return [None if cell is None else iso_text(cell, form) for cell in cells]


@dataclass(frozen=True, eq=False)
class RawTable:
    """The columns of a file or of a block of it.

    Attributes
    ----------
    path : Path
        Of the file; empty for a table that is none.
    columns : tuple of RawColumn
    named : bool
        Whether the names are the file's own; else they were made up.
    beside : tuple of RawColumn
        An archive's other arrays.
    records : ndarray, (n_rows,), or None
        Which of the file's records the rows are, counted from 0; None: all of them.
    """

    path: Path
    columns: tuple[RawColumn, ...]
    named: bool
    beside: tuple[RawColumn, ...] = ()
    records: NDArray[np.int64] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"the table {str(self.path)!r}" if self.path.name else "the table"

    @property
    def n_rows(self) -> int:
        """Number of rows; a column of numbers tells it sooner than one of text."""
        if self.records is not None:
            return len(self.records)
        for column in self.columns:
            if column.values is not None:
                return len(column.values)
        return len(self.columns[0].text()) if self.columns else 0

    def one_each(
        self,
        names: Sequence[str],
        what: str,
    ) -> list[RawColumn]:
        """Return columns by name.

        Raises
        ------
        ColumnError
            For a name that `what` needs and that is not there, or is there twice.
        """
        times = Counter(column.name for column in self.columns)
        for position, name in enumerate(names):
            n_columns = times[name]
            if n_columns == 1:
                continue
            problem = (
                f"{n_columns or 'no'} columns named {name!r}, but {what} needs one"
            )
            hint = "rename the others"
            if not n_columns:
                hint = nearest(name, set(times) - set(names))
            raise ColumnError(f"{self} has {problem}: {hint}", position, len(names))
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in names]

    def column_of(
        self,
        what: str,
        name: str,
    ) -> RawColumn | None:
        """Return a column, or an array beside the points, by name.

        Without names it is found by index; None for no name. A DataError for a name
        that the table lacks.
        """
        by_name = {column.name: column for column in (*self.columns, *self.beside)}
        if not name or name in by_name:
            return by_name.get(name)
        table = f"the table {str(self.path)!r}"
        if self.named:
            hint = nearest(name, by_name)
            raise DataError(
                f"{what} is {name!r}, but {table} has no such column: {hint}"
            )
        n_columns = len(self.columns)
        index = n_columns
        if name.removeprefix("-").isdecimal():
            index = int(name)
        if not -n_columns <= index < n_columns:
            raise DataError(
                f"{what} is {name!r}, but {table} has no column names and {n_columns} "
                f"columns: give an index from '0' to '{n_columns - 1}'."
            )
        return self.columns[index]

    def labels(self, name: str) -> NDArray[np.generic] | None:
        """Return the numbers of a label column, (n,), also those written as text.

        NaN for other cells; None without a label column.
        """
        column = self.column_of("label_column", name)
        if column is None:
            return None
        values = column.numbers()
        if values.shape != (self.n_rows,):
            return np.full(self.n_rows, math.nan)
        return values


def joined_column(parts: Sequence[RawColumn]) -> RawColumn:
    """Return one column of the cells of all parts."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts if part.values is not None]
    whole = np.concatenate(values) if len(values) == len(parts) else None
    text = cache(lambda: [cell for part in parts for cell in part.text()])
    n_unparsable = sum(part.n_unparsable for part in parts)
    date_format = parts[0].date_format
    return RawColumn(
        parts[0].name,
        whole,
        n_unparsable,
        text,
        date_format=date_format,
    )


def values_of(
    parts: Sequence[RawColumn],
    name: str,
    n_rows: int,
    source: object,
) -> NDArray[np.generic] | None:
    """Return the column that rows are split by, (n,): numbers if all are, else text.

    None without a column. A DataError where a row has no value.
    """
    if not parts:
        return None
    column = joined_column(parts)
    values: NDArray[np.generic] = column.numbers()
    is_finite = np.isfinite(values)
    is_numeric = column.values is not None and not column.n_unparsable
    if is_numeric or bool(is_finite.all()):
        n_missing = int((~is_finite).sum())
    else:
        cells = column.text()
        values = np.array([cell or "" for cell in cells], dtype=np.str_)
        n_missing = cells.count(None)
    table = repr(source_name(source))
    if values.shape != (n_rows,):
        raise DataError(
            f"the partition column {name!r} is an array of {table} that is not {n_rows}"
            " numbers or texts, but each row needs one: save it as an array of one"
            " value per row."
        )
    if n_missing:
        raise DataError(
            f"the partition column {name!r} of {table} has {n_missing} rows with a"
            " value that is missing or infinite, but each row needs one: fill in these"
            " cells, or remove the rows."
        )
    return values
