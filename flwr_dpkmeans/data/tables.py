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

import csv
import logging
from collections import Counter
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.seen import Seen, added
from flwr_dpkmeans.data.files.cells import has_decimal_comma
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.open_table import ColumnUse, OpenTable
from flwr_dpkmeans.data.files.raw_table import (
    RawColumn,
    RawTable,
    source_name,
    values_of,
)
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.rows import Store
from flwr_dpkmeans.data.schema import Encoded, Schema, say_once
from flwr_dpkmeans.data.table_labels import require_names
from flwr_dpkmeans.errors import ConfigurationError, DataError

_IN_MEMORY = Store()


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one client.

    Attributes
    ----------
    points : ndarray or Rows, (n, d)
        Finite numbers, or what `Encoded` has.
    names : tuple of str
        The file's names of the columns; empty for a file without.
    partition_values : ndarray, (n,), or None
        The column of numbers or text by which rows may be split over clients.
    labels : ndarray or Rows, (n,), or None
        What the label column holds, read by `as_classes` where an evaluation looks at
        it.
    schema : Schema or None
        What the points were encoded by.
    rows : ndarray, (n,), or None
        Which of the source's rows these are; None: all of them.
    """

    points: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...] = ()
    partition_values: NDArray[np.generic] | None = field(default=None, repr=False)
    labels: NDArray[np.generic] | None = field(default=None, repr=False)
    schema: Schema | None = None
    rows: NDArray[np.int64] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        encoded: Encoded,
        values: NDArray[np.generic] | None = None,
        labels: NDArray[np.generic] | None = None,
    ) -> Table:
        """Return the rows that a schema keeps.

        `values` and `labels` stand beside each row of the table, (n_rows,).
        """
        if values is not None:
            values = values[encoded.rows]
        if labels is not None:
            labels = labels[encoded.rows]
        names = encoded.schema.feature_names
        return cls(
            encoded.points,
            names,
            values,
            labels,
            encoded.schema,
            encoded.rows,
        )

    def part(self, rows: NDArray[np.int64]) -> Table:
        """Return some of the rows, whose numbers ascend, as a table of their own."""
        return replace(
            self,
            points=self.points[rows],
            partition_values=None,
            labels=None if self.labels is None else self.labels[rows],
            rows=rows if self.rows is None else self.rows[rows],
        )

    def with_values(self, values: Any) -> Table:
        """Return the same table of other rows.

        `values` are their points and, where this has labels, a last column of them.
        """
        if self.labels is None:
            return replace(self, points=values, rows=None)
        return replace(
            self,
            points=values[:, :-1],
            labels=values[:, -1],
            rows=None,
        )

    @classmethod
    def joined(
        cls,
        blocks: Iterable[Table],
        store: Store,
        what: object,
    ) -> Table:
        """Return a table of the rows of all blocks."""
        last = cls(np.zeros((0, 1)))
        rows: list[NDArray[np.int64]] = []

        def values() -> Iterator[NDArray[np.float64]]:
            nonlocal last
            for block in blocks:
                last = block
                if block.rows is not None and not store.name:
                    rows.append(block.rows)
                if block.labels is None:
                    yield block.points
                else:
                    yield np.column_stack([block.points, block.labels])

        whole = store.keep(values(), source_name(what))
        rows_of_all = np.concatenate(rows) if rows else None
        return replace(last.with_values(whole), rows=rows_of_all)


def load_table(
    path: str | Path,
    *,
    label_column: str = "",
    partition_column: str = "",
    ignored: Collection[str] = (),
    columns: Collection[str] = (),
    dialect: Dialect = UNSTATED,
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
    ) -> None:
        self._opened = opened
        self._label_column = label_column
        self._partition_column = partition_column
        self._ignored = ignored
        self._columns = columns
        self.split_by = list[RawColumn]()
        self.names = list[str]()
        self.named = False
        self._table = RawTable(Path(), (), named=False)
        self._counts = np.zeros((3, 0), dtype=np.int64)
        self._is_typed_text = list[bool]()
        self._has_commas = np.zeros(0, dtype=bool)

    def blocks(self) -> Iterator[Table]:
        """Yield all columns as points; text is NaN."""
        use = ColumnUse(texts={self._partition_column}, keeps_text=False)
        for raw in self._opened.blocks(use):
            by = raw.column_of("partition_column", self._partition_column)
            if by is not None:
                self.split_by.append(by)
            label = raw.column_of("label_column", self._label_column)
            chosen = self._chosen(raw, (label, by))
            self._table, self.named = raw, raw.named
            self.names = [column.name for column in chosen]
            self._count(chosen)
            numbers = [_numbers_or_gaps(column, raw.n_rows) for column in chosen]
            yield Table(
                np.stack(numbers, axis=1), labels=raw.labels(self._label_column)
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


def require_rows(opened: OpenTable) -> None:
    """Refuse a file of which each record was passed over.

    Its user looks at all rows anyway.
    """
    tally = opened.reading.tally
    if tally.n_records and tally.n_passed_over == tally.n_records:
        raise DataError(opened.reading.loudest_doubt().sentence)


def say_doubts(opened: OpenTable) -> None:
    """Log, on this machine only, what the owner of a table should know of how it was
    read.
    """
    for doubt in opened.reading.doubts():
        say_once(doubt.level, doubt.sentence)


@dataclass(frozen=True)
class Layout:
    """What a node's owner says of its table.

    Attributes
    ----------
    columns : tuple of str
        The columns that are clustered, by name. Of a file without names (.npy, .npz,
        text without header): the names of all its columns in their order; empty for an
        array whose columns have none.
    label_column : str
        Column of classes, by name (or, without names, by index), which is left out;
        empty: none.
    dialect : Dialect
        How a file of delimited text is written; it has a header unless this says
        otherwise.
    query : str
        What a database is asked for, where the table is the URL of one.
    """

    columns: tuple[str, ...] = ()
    label_column: str = ""
    dialect: Dialect = UNSTATED
    query: str = ""

    @classmethod
    def of(
        cls,
        columns: object,
        label_column: object = "",
        dialect: Dialect = UNSTATED,
        query: object = "",
    ) -> Layout:
        """Read it from scalars, as a node's configuration has them.

        Names separated by commas.
        """
        names = _names_in(str(columns))
        stripped = tuple(name.strip() for name in names if name.strip())
        return cls(
            stripped,
            str(label_column),
            dialect,
            str(query),
        )

    @property
    def has_header(self) -> bool:
        """Whether the first record of delimited text has names."""
        return self.dialect.header is not False

    def over(self, dialect: Dialect) -> Layout:
        """Return the same, with what its dialect leaves open taken from another one."""
        return replace(self, dialect=self.dialect.over(dialect))

    def open(self, source: Any) -> OpenTable:
        """Open a table as a node does, which looks at no row to find out what it is."""
        names = () if self.has_header else self.columns
        return open_table(
            source,
            self.dialect,
            query=self.query,
            names=names,
        )


def _names_in(columns: str) -> list[str]:
    """Names between commas.

    One with a comma or a line break in it stands within quotes.
    """
    try:
        return next(csv.reader([columns], skipinitialspace=True), [])
    except csv.Error:
        problem = (
            "columns has a line break outside of quotes, or a name that is too long"
        )
    raise ConfigurationError(
        f"{problem}, but names stand between commas: quote names that have line breaks."
    )


def load_declared(
    path: Any,
    layout: Layout,
    store: Store = _IN_MEMORY,
) -> Table:
    """Load the rows of a file in which every declared column is a finite number, and
    their labels.

    Raises
    ------
    DataError
        If the file is missing or of no known format, or has other columns than
        declared.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "people.csv"
    ...     _ = file.write_text("name,age,height\\nA,31,170\\nB,>89,160\\n")
    ...     load_declared(file, Layout.of("age,height")).points.tolist()
    [[31.0, 170.0]]
    """
    stored = store.kept()
    if stored is not None:
        names = tuple(name for name in layout.columns if name != layout.label_column)
        labels = stored if layout.label_column else None
        return Table(stored, names, labels=labels).with_values(stored)
    opened = layout.open(path)
    incomplete = dict[str, None]()

    # Columns of a file without header get their names only below.
    numbers = {*layout.columns, layout.label_column} if layout.has_header else None
    use = ColumnUse(numbers, keeps_text=False)

    def blocks() -> Iterator[Table]:
        for raw in opened.blocks(use):
            named = _renamed(raw, layout.columns)
            wanted = _declared(named, layout)
            points = np.stack([column.numbers() for column in wanted], axis=1)
            is_finite = np.isfinite(points)
            names = tuple(column.name for column in wanted) if named.named else ()
            block = Table(points, names, labels=named.labels(layout.label_column))
            if not is_finite.all():
                gaps = np.flatnonzero(~is_finite.all(axis=0))
                incomplete.update({wanted[index].name: None for index in gaps})
                block = block.part(np.flatnonzero(is_finite.all(axis=1)))
            yield block

    table = replace(Table.joined(blocks(), store, path), rows=None)
    say_doubts(opened)
    if incomplete:
        # On the node only; how many rows is for the owner to count.
        level, sentence = (
            logging.WARNING,
            "left out rows with cells that are no finite number, in",
        )
        if not len(table.points):
            level = logging.ERROR
            sentence = "NO row has a finite number in each of the columns; look at"
        shown = ", ".join(map(repr, incomplete))
        say_once(level, f"{source_name(path)}: {sentence} {shown}.")
    return table


def load_by_schema(
    source: Any,
    schema: Schema,
    layout: Layout = Layout(),
    store: Store = _IN_MEMORY,
    *,
    partition_column: str = "",
) -> Table:
    """Load what a schema asks for, as points in units with its feature names.

    Other columns are left out.

    Nothing that stands in a row is an error, or changes what becomes of another one.

    Raises
    ------
    ColumnError
        For a column that the table lacks.
    DataError
        If the table cannot be read.
    """
    stored = store.kept()
    if stored is not None:
        labels = stored if layout.label_column else None
        table = Table(
            stored,
            schema.feature_names,
            labels=labels,
            schema=schema,
        )
        return table.with_values(stored)
    layout = layout.over(schema.file)
    opened = layout.open(source)
    numbers = schema.number_columns | {layout.label_column}
    texts = schema.text_columns | {partition_column}
    split_by: list[RawColumn] = []
    counts: list[Sequence[Seen]] = []
    n_rows = 0

    def blocks() -> Iterator[Table]:
        nonlocal n_rows
        for raw in _by_schema(
            opened, layout, ColumnUse(numbers, texts, keeps_text=False)
        ):
            by = raw.column_of("partition_column", partition_column)
            if by is not None:
                split_by.append(by)
            encoded = schema.encoded(raw)
            counts.append(encoded.seen)
            block = Table.of(encoded, labels=raw.labels(layout.label_column))
            yield replace(block, rows=encoded.rows + n_rows)
            n_rows += encoded.n_rows

    table = Table.joined(blocks(), store, source)
    say_doubts(opened)
    called = f"the table {source_name(source)!r}"
    schema.tell(
        called,
        n_rows,
        added(counts),
        len(table.points),
    )
    values = values_of(
        split_by,
        partition_column,
        n_rows,
        source,
    )
    if values is not None and table.rows is not None:
        values = values[table.rows]
    return replace(table, partition_values=values)


def load_stated(
    source: Any,
    layout: Layout,
    schema: Schema | None,
    store: Store = _IN_MEMORY,
) -> Table:
    """Load rows as a node's owner says: by a schema or by declared columns.

    `source` may be an Arrow table, too.
    """
    if schema is None:
        return load_declared(source, layout, store)
    return load_by_schema(
        source,
        schema,
        layout,
        store,
    )


def look_by_schema(
    source: str | Path,
    schema: Schema,
    layout: Layout = Layout(),
) -> tuple[list[Seen], OpenTable]:
    """Return what a schema finds in each of its columns, the spellings of unknown cells
    among it.

    Beside it, the table that was read, whose reading has the owner's doubts. Raises as
    `load_by_schema` does.
    """
    layout = layout.over(schema.file)
    opened = layout.open(source)
    names = {column.name for column in schema.columns}
    blocks = _by_schema(opened, layout, ColumnUse(names, names))
    seen_of_blocks = []
    for raw in blocks:
        columns = schema.read(raw, with_spreads=True)
        seen_of_blocks.append([seen for _, _, seen in columns])
    return added(seen_of_blocks), opened


def _by_schema(
    opened: OpenTable,
    layout: Layout,
    use: ColumnUse,
) -> Iterator[RawTable]:
    """The columns of a schema, and that of the labels, with the names that a layout
    gives them.
    """
    if not layout.has_header and layout.columns:
        numbers, texts = (
            _file_names(layout, use.numbers),
            _file_names(layout, use.texts),
        )
        use = replace(use, numbers=numbers, texts=texts)
    for raw in opened.blocks(use):
        if layout.columns and raw.named and layout.has_header:
            raise DataError(
                f"columns are named beside a schema, which names those of {raw} itself:"
                " leave them out."
            )
        yield _renamed(raw, layout.columns)


def _file_names(layout: Layout, names: Collection[str] | None) -> set[str]:
    """What the reader calls columns of a file without header."""
    return {
        f"x{index}"
        for index, name in enumerate(layout.columns)
        if name in (names or ())
    }


def _declared(raw: RawTable, layout: Layout) -> list[RawColumn]:
    """The columns that are clustered, in the declared order.

    Each is there once, and at least one is left.
    """
    if raw.named and not layout.columns:
        raise DataError(
            f"nothing says which columns of {raw} are clustered, and what stands in"
            " them may not decide it: name them in the node's configuration, as in"
            " columns='age,height'."
        )
    times = Counter(column.name for column in raw.columns)
    missing = [name for name in layout.columns if times[name] != 1]
    if missing:
        raise DataError(
            f"columns has {missing[0]!r}, but {raw} does not have one column of that"
            " name: correct the node's configuration, or the header."
        )
    require_names(layout.columns, len(layout.columns))
    label = raw.column_of("label_column", layout.label_column)
    others = {column.name: column for column in raw.columns if column is not label}
    wanted = [others[name] for name in layout.columns or others if name in others]
    if not wanted:
        raise DataError(
            f"no column of {raw} is left to be clustered: name one in columns."
        )
    return wanted


def _renamed(raw: RawTable, names: Sequence[str]) -> RawTable:
    """A table without names gets those that its owner declares."""
    if raw.named or not names:
        return raw
    if len(names) != len(raw.columns):
        raise DataError(
            f"columns has {len(names)} names, but {raw} has {len(raw.columns)} columns:"
            " name all of them."
        )
    renamed = [
        replace(column, name=name)
        for name, column in zip(names, raw.columns, strict=True)
    ]
    return replace(raw, columns=tuple(renamed), named=True)
