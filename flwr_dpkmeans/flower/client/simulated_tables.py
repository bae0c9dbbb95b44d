"""The rows of virtual nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context

from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.files.whole_tables import whole_frame
from flwr_dpkmeans.data.loading.class_labels import as_classes
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.person_ids import SIMULATED_KEY
from flwr_dpkmeans.data.loading.row_weights import validate_weights
from flwr_dpkmeans.data.loading.source import load_source_once
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.loading.unit_columns import (
    UnitColumns,
    person_column_of,
    weight_column_of,
)
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.data.simulated.mixture import MixtureClients
from flwr_dpkmeans.data.simulated.partition import (
    MIXTURE,
    Partition,
    parse_sizes,
    partition_indices,
)
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.flower.client import ray_nodes
from flwr_dpkmeans.flower.client.result_folders import result_folder
from flwr_dpkmeans.flower.kmeans_client import KMeansClient, held_by
from flwr_dpkmeans.options import AUTO, DEFAULT_ALGORITHM
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.sums.task import Task

RunValues = Mapping[str, Any]
"""Keys and values of a configuration, which their readers check."""


def simulated_client(context: Context) -> KMeansClient:
    """A virtual node with its part of the rows, or a node with bundled ones.

    A ConfigurationError for a deployed one, whose table nobody else may choose.
    """
    run, node = dict(context.run_config), dict(context.node_config)
    source = str(run.get("data", ""))
    described, whole = BUNDLED.get(source), None
    simulated = ray_nodes.is_simulation(context)
    if simulated and source == MIXTURE:
        table = Table(mixture_of(run).client_points(int(node["partition-id"])))
    elif simulated or described is not None:
        table = simulated_part(source, run, node)
        if described is None:
            whole = partial(_simulated_frame, source, run, table)
    else:
        raise ConfigurationError(
            "this node has no 'data-path' in its node configuration, and the server may"
            " not choose a file on it: start the SuperNode with --node-config"
            " \"data-path='/path/to/file.csv'\"."
        )
    return KMeansClient(
        output_dir=result_folder(context),
        image_shape=None if described is None else described.image_shape,
        table=whole,
        **held_by(table, _salt_of(context)),
    )


def _salt_of(context: Context) -> int:
    """What chooses among a person's rows: with seeded noise a seed repeats it."""
    run = context.run_config
    seed = run.get("random-state")
    if run.get("noise") == NoiseKind.SEEDED.value and isinstance(seed, int):
        return seed
    return context.run_id


def _unit_columns(run: RunValues) -> UnitColumns:
    """The columns that say how rows count: the run's, or else its schema's."""
    stated = str(run.get("person-column", ""))
    stated_weight = str(run.get("weight-column", ""))
    schema = schema_of(run.get("bounds"))
    return UnitColumns(
        person_column_of(stated, schema),
        SIMULATED_KEY,
        weight_column_of(stated_weight, schema),
    )


def _dialect_of(run: RunValues) -> Dialect:
    """Return what a simulation's configuration states of its file.

    ``header``, and the keys of ``file``.
    """
    stated = {
        key.removeprefix("file."): value
        for key, value in run.items()
        if key.startswith("file.")
    }
    return Dialect.of_scalars({"header": run.get("header", AUTO), **stated})


def _simulated_frame(
    source: str,
    run: RunValues,
    table: Table,
) -> object:
    """All columns of a simulated client's rows."""
    dialect = _dialect_of(run)
    if table.schema is not None:  # which tells columns by name, as on nodes
        opened = open_table(source, dialect.over(table.schema.file))
    else:
        opened = open_table(source, dialect, may_guess=True)
    units = _unit_columns(run)
    return whole_frame(opened, rows=table.rows, left_out=units.person)


def mixture_of(run_config: RunValues) -> MixtureClients:
    """Return the generated clients of ``data='mixture'``.

    Raises a ConfigurationError for a size or seed below 0.
    """
    return MixtureClients(
        run_config.get("partition-seed", 0),
        run_config.get("mixture-rows-per-client", 50),
    )


def simulated_part(
    source: str,
    run: RunValues,
    node: RunValues,
) -> Table:
    """The rows of one virtual node.

    All of them where nothing says that there are others.
    """
    label, dialect = str(run.get("label-column", "")), _dialect_of(run)
    by = str(run.get("partition-column", ""))
    columns = Layout.of(
        stated if (stated := run.get("columns", AUTO)) != AUTO else ""
    ).columns
    schema = schema_of(run.get("bounds"))
    table = load_source_once(
        source,
        label_column=label,
        partition_column=by,
        columns=columns,
        dialect=dialect,
        schema=schema,
        units=_unit_columns(run),
    )
    if table.weights is not None:
        validate_weights(table.weights, len(table.points), "weight-column")
    # Whoever simulates holds all rows: text for classes would be paid for, and tell
    # nothing.
    task = algorithm_entry(str(run.get("algorithm", DEFAULT_ALGORITHM)))
    looks = bool(run.get("n-classes")) or task.n_classes is not Task.n_classes
    labels = (
        table.labels if isinstance(table.labels, np.ndarray) and looks else np.zeros(0)
    )
    if len(labels) and (as_classes(labels, len(labels)) < 0).all():
        raise DataError(
            f"no cell of the label column {label!r} of {source!r} is a whole number"
            " from 0 on, but classes are such numbers: code them as 0, 1, 2 and so on."
        )
    if "partition-id" not in node:
        return table
    kind = str(run.get("partition", Partition.IID.value))
    rows = partition_indices(
        len(table.points),
        int(node["num-partitions"]),
        int(node["partition-id"]),
        seed=int(run.get("partition-seed", 0)),
        kind=kind,
        column_values=table.partition_values,
        alpha=float(run.get("partition-alpha", 0.5)),
        sizes=(
            parse_sizes(run.get("partition-sizes", ""))
            if kind == Partition.FIXED_SIZES.value
            else None
        ),
    )
    return table.part(rows)
