"""Tables whose columns their owner declares."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.data.files.open_table import ColumnUse, say_doubts
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable, source_name
from flwr_dpkmeans.data.frame_names import require_names
from flwr_dpkmeans.data.loading.layout import Layout, renamed
from flwr_dpkmeans.data.loading.schema_tables import IN_MEMORY, load_by_schema
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.loading.unit_columns import digests_of, weights_of
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.store import Store
from flwr_dpkmeans.errors import DataError


def load_declared(
    path: object,
    layout: Layout,
    store: Store = IN_MEMORY,
) -> Table:
    r"""Load the rows of a file in which all declared columns are finite numbers.

    And their labels.

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
    ...     _ = file.write_text("name,age,height\nA,31,170\nB,>89,160\n")
    ...     load_declared(file, Layout.of("age,height")).points.tolist()
    [[31.0, 170.0]]
    """
    stored = store.stored()
    if stored is not None:
        units = layout.units
        left_out = (layout.label_column, units.person, units.weight)
        names = tuple(name for name in layout.columns if name not in left_out)
        labels = stored if layout.label_column else None
        table = Table(
            stored,
            names,
            labels=labels,
            persons=stored if units.person else None,
            weights=stored if units.weight else None,
        )
        return table.with_values(stored)
    opened = layout.open(path)
    incomplete = dict[str, None]()

    # Columns of a file without header get their names only below.
    numbers = None
    if layout.has_header:
        numbers = {*layout.columns, layout.label_column, layout.units.weight}
    use = ColumnUse(numbers, {layout.units.person} - {""}, keeps_text=False)

    def blocks() -> Iterator[Table]:
        for raw in opened.blocks(use):
            named = renamed(raw, layout.columns)
            wanted = _declared(named, layout)
            points = np.stack([column.numbers() for column in wanted], axis=1)
            is_finite = np.isfinite(points)
            names = tuple(column.name for column in wanted) if named.named else ()
            block = Table(
                points,
                names,
                labels=named.labels(layout.label_column),
                persons=digests_of(named, layout.units),
                weights=weights_of(named, layout.units),
            )
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


def load_stated(
    source: object,
    layout: Layout,
    schema: Schema | None,
    store: Store = IN_MEMORY,
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
    person = raw.column_of("person_column", layout.units.person)
    weight = raw.column_of("weight_column", layout.units.weight)
    left_out = (label, person, weight)
    others = {column.name: column for column in raw.columns if column not in left_out}
    wanted = [others[name] for name in layout.columns or others if name in others]
    if not wanted:
        raise DataError(
            f"no column of {raw} is left to be clustered: name one in columns."
        )
    return wanted
