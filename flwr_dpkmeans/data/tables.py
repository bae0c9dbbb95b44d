"""Load one client's table: by what the file looks like, or by what its owner declared.

A server sees whether a node answers, and with how many features. Where the file decided that (is the first row a
header, is a column text, can all cells be read), one row could change the answer, at no charge to any budget. So a
deployed node's table is read by a declared layout or schema: each line is a row and is read by itself, and one
that has a cell that is no finite number is left out; what the server gets is then, but for the noised sums, the same
with any row and without it.
"""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data import readers
from flwr_dpkmeans.data.points import require_names
from flwr_dpkmeans.data.readers import RawColumn, RawTable, block_rows, source_name, table_blocks, values_of
from flwr_dpkmeans.data.rows import Store
from flwr_dpkmeans.data.schema import Encoded, Schema, Seen, added, say_once
from flwr_dpkmeans.errors import ConfigurationError, DataError


@dataclass(frozen=True, eq=False)
class Table:
    """Finite points, (n, d), or what `Encoded` has; the file's own names of columns (else none); what is read beside.

    Of a large table, points and labels are `Rows`. `partition_values`, (n,), is the column of numbers or text by which
    rows may be split over clients; `labels`, (n,), what the label column holds, read by `as_classes` where an
    evaluation looks at it.
    """

    points: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...] = ()
    partition_values: NDArray[np.generic] | None = field(default=None, repr=False)
    labels: NDArray[np.generic] | None = field(default=None, repr=False)
    schema: Schema | None = None
    """What the points were encoded by."""
    rows: NDArray[np.int64] | None = field(default=None, repr=False)
    """(n,): which of the source's rows these are; None: all of them."""

    @classmethod
    def of(
        cls, encoded: Encoded, values: NDArray[np.generic] | None = None, labels: NDArray[np.generic] | None = None
    ) -> Table:
        """The rows that a schema keeps, with what stands beside each row of the table, (n_rows,)."""
        values, labels = (None if beside is None else beside[encoded.rows] for beside in (values, labels))
        return cls(encoded.points, encoded.schema.feature_names, values, labels, encoded.schema, encoded.rows)

    def part(self, rows: NDArray[np.int64]) -> Table:
        """Some of the rows, whose numbers ascend, as a table of their own."""
        labels = None if self.labels is None else self.labels[rows]
        places = rows if self.rows is None else self.rows[rows]
        return replace(self, points=self.points[rows], partition_values=None, labels=labels, rows=places)

    def with_values(self, values: Any) -> Table:
        """The same of other rows: their points and, in a last column, their labels, where this one has some."""
        points, labels = (values, None) if self.labels is None else (values[:, :-1], values[:, -1])
        return replace(self, points=points, labels=labels, rows=None)

    @classmethod
    def joined(cls, blocks: Iterable[Table], store: Store, what: str | Path) -> Table:
        """A table of the rows of all blocks."""
        one, rows = cls(np.zeros((0, 1))), list[NDArray[np.int64]]()

        def values() -> Iterator[NDArray[np.float64]]:
            nonlocal one
            for one in blocks:
                rows.extend([] if one.rows is None or store.name else [one.rows])
                yield one.points if one.labels is None else np.column_stack([one.points, one.labels])

        whole = store.keep(values(), source_name(what))
        return replace(one.with_values(whole), rows=np.concatenate(rows) if rows else None)


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
    points are the array ``X``, or else the only one with two dimensions. Unless `header` says it, whether a .csv file
    has one is guessed, which deployed nodes do not do (`load_declared`); a header without rows is an empty client.

    `label_column` is left out: a name, an index (such as ``"-1"``) if the file has no names, or the name of an array
    beside the points. So is `partition_column`, of numbers or text, which is returned beside the points. `ignored` are
    left out where the file has them; of a file with names only `columns` are looked at besides (empty: all). A
    `DataError` contains no value of a cell.
    """
    split_by, found, n_bad = list[RawColumn](), list[str](), np.zeros((2, 1), dtype=np.int64)

    def read() -> Iterator[Table]:
        nonlocal found, n_bad
        for raw in table_blocks(path, csv_reader=partial(readers.whole_csv, header=header)):
            by = raw.column_of("partition_column", partition_column)
            split_by.extend([] if by is None else [by])
            numeric = _numeric(raw, (raw.column_of("label_column", label_column), by), ignored, columns)
            points = np.stack([column.numbers() for column in numeric], axis=1)
            found = [column.name for column in numeric]
            n_bad = np.add(n_bad, [[one.n_unparsable for one in numeric], (~np.isfinite(points)).sum(axis=0)])
            yield Table(points, require_names(found, len(found)) if raw.named else (), labels=raw.labels(label_column))

    table = Table.joined(read(), Store(), path)
    values = values_of(split_by, partition_column, len(table.points), path)
    is_guessed = header is None and not table.names and Path(path).suffix == ".csv"
    _require_numbers(found, n_bad.tolist(), path, ", or say header='yes' if its first row is names" * is_guessed)
    return replace(table, partition_values=values)


def _numeric(
    raw: RawTable, others: Collection[RawColumn | None], ignored: Collection[str], columns: Collection[str]
) -> list[RawColumn]:
    if not raw.columns:
        raise DataError(f"{raw} has 0 columns, but it needs at least 1: add a row of column names.")
    kept = [column for column in raw.columns if column not in others and column.name not in ignored]
    if columns and raw.named:
        for name in columns:
            raw.column_of("columns", name)
        kept = [column for column in kept if column.name in columns]
    if commas := [column.name for column in kept if column.has_decimal_commas()]:
        raise DataError(
            f"{raw} has numbers with a decimal comma in {', '.join(map(repr, commas))}, which would be left out as "
            "text: write a point, 3.5 and not 3,5, or name other columns in columns."
        )
    text = [column.name for column in kept if column.values is None]
    if text:
        say_once(logging.WARNING, f"{raw.path}: left out {', '.join(map(repr, text))}, which hold no numbers.")
    if len(text) == len(kept):
        raise DataError(f"{raw} has 0 numeric columns, but clustering needs at least 1: encode text as numbers.")
    return [column for column in kept if column.values is not None]


def _require_numbers(names: Sequence[str], n_bad: Sequence[Sequence[int]], path: str | Path, or_else: str) -> None:
    """Refuse the first column with cells that are text among numbers, or missing, of which so many are bad."""
    text_mend = f"correct these cells, or remove the column from the file{or_else}"
    for counts, problem, mend in (
        (n_bad[0], "that is not a number among numbers", text_mend),
        (n_bad[1], "that is missing or infinite", "fill in these cells, or remove the rows or the column"),
    ):
        bad = [place for place, count in enumerate(counts) if count]
        if bad:
            more = f" (and {len(bad) - 1} more columns have such rows)" if len(bad) > 1 else ""
            raise DataError(
                f"the column {names[bad[0]]!r} of {source_name(path)!r} has {counts[bad[0]]} rows with a value "
                f"{problem}{more}, but every value must be a finite number: {mend}."
            )


@dataclass(frozen=True)
class Layout:
    """What a node's owner says of its table."""

    columns: tuple[str, ...] = ()
    """The columns that are clustered, by name. Of a file without names (.npy, .npz, .csv without header): the names of
    all its columns in their order; empty for an array whose columns have none."""
    label_column: str = ""
    """Column of classes, by name (or, without names, by index), which is left out; empty for none."""
    header: bool = True
    """Whether the first row of a .csv file holds names; without, its cells are separated by commas."""
    query: str = ""
    """What a database is asked for, where the table is the URL of one."""

    @classmethod
    def of(cls, columns: object, label_column: object = "", header: object = None, query: object = "") -> Layout:
        """Read it from scalars, as a node's configuration has them: names separated by commas."""
        names = next(csv.reader([str(columns)], skipinitialspace=True), [])
        said = parse_header(header) is not False
        return cls(tuple(name.strip() for name in names if name.strip()), str(label_column), said, str(query))


def parse_header(value: object) -> bool | None:
    """Whether a .csv file is said to have a header; None where nothing is said."""
    said = {"": None, "auto": None, "none": None, "yes": True, "true": True, "no": False, "false": False}
    if str(value).lower() not in said:
        raise ConfigurationError(f"header is {value!r}, but it says whether a file has one: give 'yes' or 'no'.")
    return said[str(value).lower()]


def load_declared(path: str | Path, layout: Layout, store: Store = Store()) -> Table:  # noqa: B008 - frozen
    """Load the rows of a file in which every declared column is a finite number, with their labels if it has some.

    A `DataError` is raised if the file is missing or of no known format, or has other columns than declared.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "people.csv"
    ...     _ = file.write_text("name,age,height\\nA,31,170\\nB,>89,160\\n")
    ...     load_declared(file, Layout.of("age,height")).points.tolist()
    [[31.0, 170.0]]
    """
    reader = partial(_from_csv, layout=layout, numbers={*layout.columns, layout.label_column})
    bad = dict[str, None]()

    def read() -> Iterator[Table]:
        for raw in table_blocks(path, layout.header, layout.query, reader):
            named = _renamed(raw, layout.columns) if layout.columns and not raw.named else raw
            wanted = _declared(named, layout)
            points = np.stack([column.numbers() for column in wanted], axis=1)
            finite = np.isfinite(points)
            names = tuple(column.name for column in wanted) if named.named else ()
            block = Table(points, names, labels=named.labels(layout.label_column))
            if not finite.all():
                bad.update({wanted[place].name: None for place in np.flatnonzero(~finite.all(axis=0))})
                block = block.part(np.flatnonzero(finite.all(axis=1)))
            yield block

    if (kept := store.kept()) is not None:
        names = tuple(name for name in layout.columns if name != layout.label_column)
        return Table(kept, names, labels=kept if layout.label_column else None).with_values(kept)
    table = replace(Table.joined(read(), store, path), rows=None)
    if bad:
        # On the node only; how many rows is for the owner to count.
        level, sentence = logging.WARNING, "left out rows with cells that are no finite number, in"
        if not len(table.points):
            level, sentence = logging.ERROR, "NO row has a finite number in each of the columns; look at"
        say_once(level, f"{source_name(path)}: {sentence} {', '.join(map(repr, bad))}.")
    return table


def load_by_schema(
    source: str | Path,
    schema: Schema,
    layout: Layout = Layout(),
    store: Store = Store(),  # noqa: B008 - frozen
    *,
    partition_column: str = "",
) -> Table:
    """Load what a schema asks for, as points in units with its feature names; other columns are left out.

    A `ColumnError` is raised for a column that the table lacks, a `DataError` if it cannot be read. Nothing that
    stands in a row is an error, or changes what becomes of another one.
    """
    texts = schema.text_columns | {partition_column}
    split_by, all_seen, n_rows = list[RawColumn](), list[Sequence[Seen]](), 0

    def read() -> Iterator[Table]:
        nonlocal n_rows
        for raw in _by_schema(source, schema, layout, texts):
            by = raw.column_of("partition_column", partition_column)
            split_by.extend([] if by is None else [by])
            encoded = schema.encoded(raw)
            all_seen.append(encoded.seen)
            yield replace(Table.of(encoded, labels=raw.labels(layout.label_column)), rows=encoded.rows + n_rows)
            n_rows += encoded.n_rows

    if (kept := store.kept()) is not None:
        labels = kept if layout.label_column else None
        return Table(kept, schema.feature_names, labels=labels, schema=schema).with_values(kept)
    table = Table.joined(read(), store, source)
    schema.tell(f"the table {source_name(source)!r}", n_rows, added(all_seen), len(table.points))
    values = values_of(split_by, partition_column, n_rows, source)
    return replace(table, partition_values=None if values is None or table.rows is None else values[table.rows])


def load_stated(source: Any, layout: Layout, schema: Schema | None, store: Store = Store()) -> Table:  # noqa: B008
    """Load rows as a node's owner says: by a schema or by declared columns; `source` may be an Arrow table, too."""
    return load_declared(source, layout, store) if schema is None else load_by_schema(source, schema, layout, store)


def look_by_schema(source: str | Path, schema: Schema, layout: Layout = Layout()) -> list[Seen]:
    """What a schema finds in each of its columns, the spellings of unknown cells among it; raises as the above does."""
    blocks = _by_schema(source, schema, layout, {one.name for one in schema.columns})
    return added([seen for _, _, seen in schema.read(raw, with_spreads=True)] for raw in blocks)


def _by_schema(source: str | Path, schema: Schema, layout: Layout, texts: Collection[str]) -> Iterator[RawTable]:
    """The columns of a schema, and that of the labels; `texts` are read as they are written."""
    numbers = {one.name for one in schema.columns} | {layout.label_column}
    reader = partial(_from_csv, layout=layout, numbers=numbers, texts=texts)
    for raw in table_blocks(source, layout.header, layout.query, reader):
        if layout.columns and raw.named and layout.header:
            raise DataError(f"columns are named beside a schema, which names those of {raw} itself: leave them out.")
        yield _renamed(raw, layout.columns) if layout.columns and not raw.named else raw


def _declared(raw: RawTable, layout: Layout) -> list[RawColumn]:
    """The columns that are clustered, in the declared order; each is there once, and at least one is left."""
    if raw.named and not layout.columns:
        raise DataError(
            f"nothing says which columns of {raw} are clustered, and what stands in them may not decide "
            "it: name them in the node's configuration, as in columns='age,height'."
        )
    times = Counter(column.name for column in raw.columns)
    missing = [name for name in layout.columns if times[name] != 1]
    if missing:
        raise DataError(
            f"columns has {missing[0]!r}, but {raw} does not have one column of that name: correct the "
            "node's configuration, or the header."
        )
    require_names(layout.columns, len(layout.columns))
    label = raw.column_of("label_column", layout.label_column)
    others = {column.name: column for column in raw.columns if column is not label}
    wanted = [others[name] for name in layout.columns or others if name in others]
    if not wanted:
        raise DataError(f"no column of {raw} is left to be clustered: name one in columns.")
    return wanted


def _renamed(raw: RawTable, names: Sequence[str]) -> RawTable:
    if len(names) != len(raw.columns):
        raise DataError(f"columns has {len(names)} names, but {raw} has {len(raw.columns)} columns: name all of them.")
    renamed = [replace(column, name=name) for name, column in zip(names, raw.columns, strict=True)]
    return replace(raw, columns=tuple(renamed), named=True)


def _from_csv(path: Path, layout: Layout, numbers: Collection[str], texts: Collection[str] = ()) -> Iterator[RawTable]:
    """Read some columns of a .csv file, line by line: a quote or a bad byte spoils its own line only.

    Numbers are read as such, texts as they are written; of other columns there is the name alone. A line with another
    number of cells is no row: a record of many lines would be as many, each of gaps that a schema may fill. An empty
    file has no header, so not one of its columns is found.
    """
    n_others = 0
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = (line for line in file if line.strip())
            names, separator = readers.header_of(lines) if layout.header else (list(layout.columns), ",")
            block: list[str] | None = []
            while block is not None:
                found = [readers.cells_of(line.rstrip("\r\n"), separator) for line in block]
                rows = [cells for cells in found if len(cells) == len(names)]
                n_others += len(found) - len(rows)
                yield RawTable(path, tuple(_csv_columns(names, rows, numbers, texts)), named=True)
                block = list(islice(lines, block_rows(4 * len(names)))) or None
        if n_others:
            told = f"left out {n_others} lines that do not have {len(names)} cells, as the header has"
            say_once(logging.WARNING, f"{source_name(path)}: {told}; a cell may hold no line break.")
    except OSError as error:
        raise DataError(f"the table {str(path)!r} is unreadable ({type(error).__name__}): check its rights.") from error


def _csv_columns(
    names: Sequence[str], rows: list[list[str]], numbers: Collection[str], texts: Collection[str]
) -> Iterator[RawColumn]:
    """The columns of some lines."""
    places = [place for place, name in enumerate(names) if name in numbers and name not in texts]
    values, unread = np.zeros((0, len(places))), np.zeros(len(places), dtype=np.int64)
    if rows and places:
        values, unread = readers.numbers_in([[cells[place] for place in places] for cells in rows])
    for order, place in enumerate(places):
        yield RawColumn(names[place], values[:, order], int(unread[order]))
    written = [place for place, name in enumerate(names) if name in texts]
    yield from (RawColumn.of_cells(names[place], [cells[place] for cells in rows]) for place in written)
    yield from (RawColumn(name, None) for name in names if name not in {*numbers, *texts})
