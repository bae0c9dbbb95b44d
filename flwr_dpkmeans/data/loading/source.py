"""Where a table comes from: a bundled data set, or a file."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np

from flwr_dpkmeans.data.bundled import BUNDLED, MOST_TABLES, load_bundled
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.reader import SHOWN_SUFFIXES
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.loading.unit_columns import NO_UNITS, UnitColumns
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest


class SourceOptions(TypedDict, total=False):
    """Options of `load_source`."""

    label_column: str
    partition_column: str
    ignored: tuple[str, ...]
    columns: tuple[str, ...]
    dialect: Dialect
    schema: Schema | None
    units: UnitColumns


def load_source(
    source: str,
    *,
    label_column: str = "",
    partition_column: str = "",
    ignored: Collection[str] = (),
    columns: Collection[str] = (),
    dialect: Dialect = UNSTATED,
    schema: Schema | None = None,
    units: UnitColumns = NO_UNITS,
) -> Table:
    """Load a key of ``BUNDLED`` or else a file by path, as `load_table` does.

    a file of such a name is ``./iris``.

    With a schema it decides on the columns, as in `load_by_schema`.
    """
    if source in BUNDLED:
        if label_column:
            raise DataError(
                f"label_column is {label_column!r}, but the bundled data set {source!r}"
                " is loaded without its labels: leave label_column empty."
            )
        if units.person:
            raise DataError(
                f"person_column is {units.person!r}, but each row of the bundled data"
                f" set {source!r} is of another thing: leave person_column empty."
            )
        if units.weight:
            raise DataError(
                f"weight_column is {units.weight!r}, but rows of the bundled data set"
                f" {source!r} have no weights: leave weight_column empty."
            )
        table = load_bundled(source, partition_column=partition_column)
        if schema is None:
            return table
        encoded = schema.encode(dict(zip(table.names, table.points.T, strict=True)))
        return Table.of(encoded, table.partition_values, table.labels)
    require_source("the data source", source)
    if schema is not None:
        layout = Layout(tuple(columns), label_column, dialect, units=units)
        return load_by_schema(
            source,
            schema,
            layout,
            partition_column=partition_column,
        )
    return load_table(
        source,
        label_column=label_column,
        partition_column=partition_column,
        ignored=ignored,
        columns=columns,
        dialect=dialect,
        units=units,
    )


def require_source(
    what: str,
    source: str,
    *others: str,
) -> None:
    """Refuse a mistyped name.

    One that is not known, has no suffix and no separator, and that no file has.
    """
    names = (*BUNDLED, *others)
    if (
        source in names
        or Path(source).suffix
        or {"/", "\\"} & set(source)
        or (source and Path(source).exists())
    ):
        return
    choices = ", ".join(("a bundled data set", *map(repr, others)))
    raise ConfigurationError(
        f"{what} is {source!r}, but it must be {choices} or the path of a file"
        f" ({', '.join(SHOWN_SUFFIXES)}): {nearest(source, names)}"
    )


def load_source_once(source: str, **options: Unpack[SourceOptions]) -> Table:
    """Load a data source once in a process, in which a simulation plays many clients.

    Shared, so read-only.

    At most two tables are kept, and a file that has changed (time of change or size) is
    read again.
    """
    path = Path(source).expanduser()
    if source in BUNDLED or not path.is_file():
        return _parsed(source, None, **options)
    status = path.stat()
    return _parsed(
        source, (str(path.absolute()), status.st_mtime_ns, status.st_size), **options
    )


@lru_cache(maxsize=MOST_TABLES)
def _parsed(
    source: str,
    state: tuple[str, int, int] | None,
    **options: Unpack[SourceOptions],
) -> Table:
    """Parse; which file it is and in which state is a part of the key only."""
    table = load_source(source, **options)
    beside = (table.partition_values, table.labels, table.persons, table.weights)
    for array in (table.points, *beside):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return table
