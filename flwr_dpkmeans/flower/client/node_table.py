"""The rows of one node, as its configuration says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from flwr.app import Context

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.sources import is_clustered
from flwr_dpkmeans.data.files.whole_tables import whole_frame
from flwr_dpkmeans.data.loading.declared_tables import load_stated
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.unit_columns import (
    UnitColumns,
    person_column_of,
    weight_column_of,
)
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.flower.client.cached_rows import cache_of, say_if_changed
from flwr_dpkmeans.flower.client.result_folders import result_folder
from flwr_dpkmeans.flower.kmeans_client import KMeansClient, held_by


def load_client(context: Context) -> KMeansClient:
    """Load the rows of one node.

    The node's configuration says ``data-path`` (a deployment's own file), ``schema`` or
    ``columns`` (what of it is clustered), ``header`` and ``label-column``, and a
    database's ``query``; in a simulation the run's says ``data`` and how its rows are
    split. Labels are looked at in an evaluation's round only, which is after the node's
    policy has approved the plan, and nothing in a label column is an error. In a
    deployment the node's own configuration says how the table is read, and nothing that
    the run says, nor a cell of the file, changes what the node answers
    (`flwr_dpkmeans.data.tables`).

    Raises a ConfigurationError in a deployment without ``data-path``, since the server
    may not choose which file a node reads, and a DataError if the data cannot be used.
    """
    node = context.node_config
    source = node.get("data-path")
    if source:
        return _client_of_path(context, str(source))
    from flwr_dpkmeans.flower.client.simulated_tables import simulated_client

    return simulated_client(context)


def _client_of_path(context: Context, source: str) -> KMeansClient:
    """Load a deployed node's own file."""
    node = context.node_config
    schema = None
    schema_path = node.get("schema")
    if schema_path:
        schema = Schema.load(str(schema_path))
    layout = layout_of(node)
    stated = str(node.get("person-column", ""))
    name = person_column_of(stated, schema)
    stated_weight = str(node.get("weight-column", ""))
    weight = weight_column_of(stated_weight, schema)
    key = b""
    if name and not is_clustered(source):
        from flwr_dpkmeans.flower.client.node_persons import key_of_node

        key = key_of_node(context)
    layout = replace(layout, units=UnitColumns(name, key, weight))
    store = cache_of(context, layout)
    say_if_changed(context, store)
    if is_clustered(source):
        from flwr_dpkmeans.flower.row_cluster import ClusterClient, require_no_units

        require_no_units(stated, stated_weight)
        load = partial(
            load_stated,
            layout=layout,
            schema=schema,
        )
        folder = result_folder(context)
        return ClusterClient(source, load, folder)
    table = load_stated(
        source,
        layout,
        schema,
        store,
    )
    clustered = table.names
    if schema is not None:
        clustered = tuple(column.name for column in schema.columns)
    profiled = _profile_columns(
        str(node.get("profile-columns", "")),
        clustered,
    )
    whole_table = partial(
        _whole_table,
        source,
        layout,
        schema,
        profiled,
    )
    return KMeansClient(
        output_dir=result_folder(context),
        table=whole_table,
        **held_by(table),
    )


def layout_of(node: Mapping[str, object]) -> Layout:
    """Return what a deployed node's own configuration says of its table."""
    file = node.get("file")
    options = {}
    if file:
        options = dict(json.loads(str(file)))
    header = node.get("header", "")
    dialect = Dialect.of_scalars({"header": header})
    dialect = dialect.over(Dialect(**options))
    columns = node.get("columns", "")
    label = node.get("label-column", "")
    query = node.get("query", "")
    return Layout.of(columns, label, dialect, query)


ALL_COLUMNS = "*"


def _profile_columns(
    stated: str,
    clustered: tuple[str, ...],
) -> tuple[str, ...] | None:
    """Columns that a node's local profile describes; None for all of its file's.

    They are those that are clustered, and those that ``profile-columns`` names, such as
    ``ward,sex``, or ``*``. Text that nobody asked for may be a hundred times as large
    as they are.
    """
    if stated == ALL_COLUMNS or not clustered:
        return None
    named = Layout.of(stated).columns
    columns = dict.fromkeys((*clustered, *named))
    return tuple(columns)


def _whole_table(
    source: str,
    layout: Layout,
    schema: Schema | None,
    columns: tuple[str, ...] | None,
) -> object:
    """All rows of a node's table, of these columns, for its own profile."""
    if schema is not None:
        layout = layout.over(schema.file)
    table = layout.open(source)
    return whole_frame(
        table,
        names=layout.columns,
        columns=columns,
        left_out=layout.units.person,
    )
