"""Columns of a table as its file has them, before any choice about them is made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_column import RawColumn
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
        """Return the numbers of a label column; see `numbers_of`."""
        return self.numbers_of("label_column", name)

    def numbers_of(self, what: str, name: str) -> NDArray[np.float64] | None:
        """Return the numbers of a column, (n,), also those written as text.

        NaN for other cells; None for no name.
        """
        column = self.column_of(what, name)
        if column is None:
            return None
        values = column.numbers()
        if values.shape != (self.n_rows,):
            return np.full(self.n_rows, math.nan)
        return values
