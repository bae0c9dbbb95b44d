"""Tables that a schema reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from flwr_dpkmeans.data.columns.seen import Seen, added
from flwr_dpkmeans.data.files.open_table import ColumnUse, OpenTable, say_doubts
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable, source_name
from flwr_dpkmeans.data.files.split_column import values_of
from flwr_dpkmeans.data.loading.layout import (
    UNSTATED_LAYOUT,
    Layout,
    renamed,
)
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.loading.unit_columns import digests_of, weights_of
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.store import Store
from flwr_dpkmeans.errors import ConfigurationError, DataError

IN_MEMORY = Store()


def load_by_schema(
    source: object,
    schema: Schema,
    layout: Layout = UNSTATED_LAYOUT,
    store: Store = IN_MEMORY,
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
    stored = store.stored()
    if stored is not None:
        labels = stored if layout.label_column else None
        persons = stored if layout.units.person else None
        weights = stored if layout.units.weight else None
        table = Table(
            stored,
            schema.feature_names,
            labels=labels,
            schema=schema,
            persons=persons,
            weights=weights,
        )
        return table.with_values(stored)
    layout = layout.over(schema.file)
    _require_not_clustered(schema, layout.units.person, "person_column")
    _require_not_clustered(schema, layout.units.weight, "weight_column")
    named = {column.name for column in schema.columns}
    opened = layout.open(source, named | {partition_column})
    numbers = schema.number_columns | {layout.label_column, layout.units.weight}
    texts = schema.text_columns | {partition_column, layout.units.person}
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
            block = Table.of(
                encoded,
                labels=raw.labels(layout.label_column),
                persons=digests_of(raw, layout.units),
                weights=weights_of(raw, layout.units),
            )
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


def _require_not_clustered(schema: Schema, name: str, what: str) -> None:
    """Refuse a column of persons or weights that the schema clusters or profiles."""
    if name in {column.name for column in schema.columns}:
        raise ConfigurationError(
            f"{what} is {name!r}, which is a column of the schema, but how a row counts"
            " says nothing about the row: take it out there."
        )


def look_by_schema(
    source: str | Path,
    schema: Schema,
    layout: Layout = UNSTATED_LAYOUT,
) -> tuple[list[Seen], OpenTable]:
    """Return what a schema finds in each of its columns.

    The spellings of unknown cells among it.

    Beside it, the table that was read, whose reading has the owner's doubts. Raises as
    `load_by_schema` does.
    """
    layout = layout.over(schema.file)
    names = {column.name for column in schema.columns}
    opened = layout.open(source, names)
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
    """The columns of a schema, and that of the labels.

    With the names that a layout gives them.
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
        yield renamed(raw, layout.columns)


def _file_names(layout: Layout, names: Collection[str] | None) -> set[str]:
    """What the reader calls columns of a file without header."""
    return {
        f"x{index}"
        for index, name in enumerate(layout.columns)
        if name in (names or ())
    }
