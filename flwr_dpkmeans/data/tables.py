"""Load one client's table: by what the file holds, or by what its owner declared.

The former is a simulation's way, the latter a deployed node's. A server sees whether a
node answers, and with how many features. Where the file decided
that (is the first row a header, is a column text, can all cells be read), one row could
change the answer, at no charge to any budget. So a deployed node's table is read by a
declared layout or schema: each record is a row and is read by itself, and one that has
a cell that is no finite number is left out; what the server gets is then, but for the
noised sums, the same with any row and without it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cell_numbers import has_decimal_comma
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.open_table import (
    ColumnUse,
    OpenTable,
    require_rows,
    say_doubts,
)
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.files.split_column import values_of
from flwr_dpkmeans.data.frame_names import require_names
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.loading.unit_columns import (
    NO_UNITS,
    UnitColumns,
    digests_of,
    weights_of,
)
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.data.store import Store
from flwr_dpkmeans.errors import DataError


def load_table(
    path: str | Path,
    *,
    label_column: str = "",
    partition_column: str = "",
    ignored: Collection[str] = (),
    columns: Collection[str] = (),
    dialect: Dialect = UNSTATED,
    units: UnitColumns = NO_UNITS,
) -> Table:
    """Load the numeric columns of a file, as a simulation does.

    Points (n, d) with d >= 1 and n >= 0.

    Text columns (not a single number in them) and dates are left out, and named by a
    warning of the logger ``flwr_dpkmeans.data``; truth values become 0 and 1. A column
    of both numbers and text is an error, so that one mistyped cell never changes the
    number of features. Of a Parquet file the stored type decides; of an archive the
    points are the array ``X``, or else the only one with two dimensions. Whether
    delimited text has a header is guessed unless `dialect` says it, which deployed
    nodes do not do (`load_declared`); a header without rows is an empty client.

    Parameters
    ----------
    path : str or Path
    label_column : str
        Column that is left out: a name, an index (such as ``"-1"``) if the file has no
        names, or the name of an array beside the points.
    partition_column : str
        Column of numbers or text that is left out, and returned beside the points.
    ignored : collection of str
        Columns that are left out where the file has them.
    columns : collection of str
        Of a file with names only these are looked at besides; empty: all.
    dialect : Dialect
        What is stated of a file of delimited text.
    units : UnitColumns
        Columns that say whose a row is and what it weighs, which are left out.

    Raises
    ------
    DataError
        One sentence, which contains no value of a cell.
    """
    opened = open_table(path, dialect, may_guess=True)
    survey = _Survey(
        opened,
        label_column,
        partition_column,
        ignored,
        columns,
        units,
    )
    table = Table.joined(survey.blocks(), Store(), path)
    say_doubts(opened)
    require_rows(opened)
    chosen = survey.numeric()
    points = table.points
    if len(chosen) < len(survey.names):
        points = points[:, chosen]
    if isinstance(points, np.ndarray):
        points = np.ascontiguousarray(points)
    names: tuple[str, ...] = ()
    if survey.named:
        used = [survey.names[index] for index in chosen]
        names = require_names(used, len(used))
    values = values_of(
        survey.split_by,
        partition_column,
        len(points),
        path,
    )
    survey.require_numbers(chosen)
    return replace(
        table,
        points=points,
        names=names,
        partition_values=values,
    )


class _Survey:
    """What the columns of a simulated table hold, learnt while its blocks are read."""

    def __init__(
        self,
        opened: OpenTable,
        label_column: str,
        partition_column: str,
        ignored: Collection[str],
        columns: Collection[str],
        units: UnitColumns,
    ) -> None:
        self._opened = opened
        self._label_column = label_column
        self._partition_column = partition_column
        self._ignored = ignored
        self._columns = columns
        self._units = units
        self.split_by = list[RawColumn]()
        self.names = list[str]()
        self.named = False
        self._table = RawTable(Path(), (), named=False)
        self._counts = np.zeros((3, 0), dtype=np.int64)
        self._is_typed_text = list[bool]()
        self._has_commas = np.zeros(0, dtype=bool)

    def blocks(self) -> Iterator[Table]:
        """Yield all columns as points; text is NaN."""
        texts = {self._partition_column, self._units.person}
        use = ColumnUse(texts=texts, keeps_text=False)
        for raw in self._opened.blocks(use):
            by = raw.column_of("partition_column", self._partition_column)
            if by is not None:
                self.split_by.append(by)
            label = raw.column_of("label_column", self._label_column)
            person = raw.column_of("person_column", self._units.person)
            weight = raw.column_of("weight_column", self._units.weight)
            chosen = self._chosen(raw, (label, by, person, weight))
            self._table, self.named = raw, raw.named
            self.names = [column.name for column in chosen]
            self._count(chosen)
            numbers = [_numbers_or_gaps(column, raw.n_rows) for column in chosen]
            yield Table(
                np.stack(numbers, axis=1),
                labels=raw.labels(self._label_column),
                persons=digests_of(raw, self._units),
                weights=weights_of(raw, self._units),
            )

    def _chosen(
        self,
        raw: RawTable,
        others: Collection[RawColumn | None],
    ) -> list[RawColumn]:
        """Columns that may be clustered."""
        if not raw.columns:
            raise DataError(
                f"{raw} has 0 columns, but it needs at least 1: add a row of column"
                " names."
            )
        chosen = [
            column
            for column in raw.columns
            if column not in others and column.name not in self._ignored
        ]
        if self._columns and raw.named:
            names = {column.name for column in raw.columns}
            for name in self._columns:
                if name not in names:
                    raw.column_of("columns", name)  # which says so
            looked_at = frozenset(self._columns)
            chosen = [column for column in chosen if column.name in looked_at]
        if not chosen:
            self._refuse_without_numbers(raw)
        return chosen

    def _refuse_without_numbers(self, raw: RawTable) -> None:
        raise DataError(
            f"{raw} has 0 numeric columns, but clustering needs at least 1: encode text"
            " as numbers."
        )

    def _count(self, columns: Sequence[RawColumn]) -> None:
        """Add up numbers, texts among them and bad cells of each column."""
        counts = np.zeros((3, len(columns)), dtype=np.int64)
        if not self._is_typed_text:
            self._counts = counts.copy()
            self._has_commas = np.ones(len(columns), dtype=bool)
            self._is_typed_text = [column.values is None for column in columns]
        for index, column in enumerate(columns):
            if column.values is None:
                self._is_typed_text[index] = True
                continue
            n_numbers = int((~np.isnan(column.values)).sum())
            n_finite = int(np.isfinite(column.values).sum())
            counts[:, index] = (
                n_numbers,
                column.n_unparsable,
                len(column.values) - n_finite,
            )
            if column.n_unparsable and self._has_commas[index]:
                cells = [cell for cell in column.text() if cell is not None]
                self._has_commas[index] = all(map(has_decimal_comma, cells))
        self._counts += counts

    def numeric(self) -> list[int]:
        """Return which columns hold numbers; a DataError if none does."""
        n_numbers, n_texts, _ = self._counts
        is_text = np.array(self._is_typed_text) | ((n_numbers == 0) & (n_texts > 0))
        commas = [
            name
            for index, name in enumerate(self.names)
            if is_text[index] and n_texts[index] and self._has_commas[index]
        ]
        if commas:
            raise DataError(
                f"{self._table} has numbers with a decimal comma in"
                f" {', '.join(map(repr, commas))}, which would be left out as text:"
                " state decimal = ',', or write a point, 3.5 and not 3,5, or name"
                " other columns in columns."
            )
        text = [name for index, name in enumerate(self.names) if is_text[index]]
        if text:
            shown = ", ".join(map(repr, text))
            say_once(
                logging.WARNING,
                f"{self._table.path}: left out {shown}, which hold no numbers.",
            )
        if len(text) == len(self.names):
            self._refuse_without_numbers(self._table)
        return np.flatnonzero(~is_text).tolist()

    def require_numbers(self, chosen: Sequence[int]) -> None:
        """Refuse the first column with cells that are text, or missing."""
        reading = self._opened.reading
        or_header = ""
        if reading.is_guessed and not reading.dialect.header:
            or_header = ", or say header='yes' if its first row is names"
        text_mend = (
            f"correct these cells, or remove the column from the file{or_header}"
        )
        gap_mend = "fill in these cells, or remove the rows or the column"
        self._require_none(
            chosen,
            1,
            "that is not a number among numbers",
            text_mend,
        )
        self._require_none(
            chosen,
            2,
            "that is missing or infinite",
            gap_mend,
        )

    def _require_none(
        self,
        chosen: Sequence[int],
        which: int,
        problem: str,
        mend: str,
    ) -> None:
        bad = [index for index in chosen if self._counts[which, index]]
        if not bad:
            return
        more = ""
        if len(bad) > 1:
            more = f" (and {len(bad) - 1} more columns have such rows)"
        raise DataError(
            f"the column {self.names[bad[0]]!r} of {self._opened.source!r} has"
            f" {self._counts[which, bad[0]]} rows with a value {problem}{more}, but"
            f" every value must be a finite number: {mend}."
        )


def _numbers_or_gaps(column: RawColumn, n_rows: int) -> NDArray[np.float64]:
    return np.full(n_rows, np.nan) if column.values is None else column.values
