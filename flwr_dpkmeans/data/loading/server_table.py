"""The server's own points."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from flwr_dpkmeans.data.frame_names import frame_columns, require_names
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import DataError


def load_server_table(
    source: object,
    *,
    ignored: Collection[str] = (),
    schema: Schema | None = None,
) -> Table:
    """Load and check the server's public points, at least one.

    With the names of their columns where they have some.

    The source is an array, a data frame, a `Table`, the path of a file or a bundled
    name. Files are read as the clients' tables are, so that the server's features are
    those of the clients; a public file need not have the clients' `ignored` columns.
    With a schema, the points are encoded by it.
    """
    # Nothing is profiled of the server's points.
    schema = None if schema is None else schema.clustered
    if isinstance(source, Table) and source.schema == schema:
        table = source
    elif schema is not None:
        of_file = isinstance(source, str | Path)
        table = (
            load_by_schema(source, schema)
            if of_file
            else Table.of(schema.encode(source))
        )
    elif isinstance(source, str):
        table = load_source(source, ignored=ignored)
    elif isinstance(source, Path):
        table = load_table(source, ignored=ignored)
    else:
        points = validate_points(source)
        table = Table(points, require_names(frame_columns(source), points.shape[1]))
    if len(table.points) == 0:
        raise DataError(
            "the server's data have 0 rows, but at least 1 is needed: give public"
            " points to the server."
        )
    return table
