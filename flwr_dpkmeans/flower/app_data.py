"""Data of the project's own Flower app: a partition in simulation, the node's own file in a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from flwr_dpkmeans.data.bundled import BUNDLED, as_classes, load_labels, load_source_once
from flwr_dpkmeans.data.declared import Schema, load_declared, parse_header
from flwr_dpkmeans.data.mixtures import MIXTURE, MixtureClients
from flwr_dpkmeans.data.partition import Partition, parse_sizes, partition_indices
from flwr_dpkmeans.data.tables import Table
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.node import is_simulation, result_folder
from flwr_dpkmeans.options import AUTO

LabelSource = Callable[[], NDArray[np.int64]]
"""Reads the labels of one node's rows."""


def load_client(context: Context) -> KMeansClient:
    """Load the rows of one node.

    The node's configuration says ``data-path`` (a deployment's own file), ``columns`` (those of it that are clustered),
    ``header`` and ``label-column``; in a simulation the run's says ``data`` and how its rows are split. Labels are read
    in an evaluation's round only, which is after the node's policy has approved the plan, and nothing in a label column
    is an error. In a deployment the node's own configuration is the schema, and nothing that the run says, nor a cell
    of the file, changes what the node answers (`flwr_dpkmeans.data.declared`).

    Raises a ConfigurationError in a deployment without ``data-path``, since the server may not choose which file a node
    reads, and a DataError if the data cannot be used.
    """
    simulated = is_simulation(context)
    run: dict[str, Any] = dict(context.run_config)
    node: dict[str, Any] = dict(context.node_config)
    source = str(run.get("data", ""))
    described = None if node.get("data-path") else BUNDLED.get(source)
    labels: LabelSource | None = None
    if node.get("data-path"):
        schema = Schema.of(node.get("columns", ""), node.get("label-column", ""), node.get("header"))
        loaded = load_declared(str(node["data-path"]), schema)
        table, classes = loaded.table, loaded.labels
        if classes is not None:
            labels = partial(as_classes, classes, len(table.points))
    elif simulated and source == MIXTURE:
        points = mixture_of(run).client_points(int(node.get("partition-id", 0)))
        table = Table(points, tuple(f"x{index}" for index in range(points.shape[1])), named=False)
    elif simulated or described is not None:
        table, labels = _own_part(source, run, node)
    else:
        raise ConfigurationError(
            "this node has no 'data-path' in its node configuration, and the server may not choose a file on it: start "
            "the SuperNode with --node-config \"data-path='/path/to/file.csv'\"."
        )
    return KMeansClient(
        table.points,
        output_dir=result_folder(context),
        image_shape=None if described is None else described.image_shape,
        feature_names=table.names,
        labels=labels,
    )


def mixture_of(run_config: Mapping[str, Any]) -> MixtureClients:
    """Return the generated clients of ``data='mixture'``; raises a ConfigurationError for a size or seed below 0."""
    return MixtureClients(run_config.get("partition-seed", 0), run_config.get("mixture-rows-per-client", 50))


def _labels(
    source: str, column: str, n_rows: int, header: bool | None, rows: NDArray[np.int64] | None = None
) -> LabelSource | None:
    """What reads the labels when an approved plan's evaluation needs them; None where there are none."""
    if not column and source not in BUNDLED:
        return None

    def read() -> NDArray[np.int64]:
        labels = load_labels(source, column, n_rows, header)
        return labels if rows is None else labels[rows]

    return read


def _own_part(source: str, run: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[Table, LabelSource | None]:
    """The rows of one virtual node and their labels; all of them where nothing says that there are others."""
    column, header = str(run.get("label-column", "")), parse_header(run.get("header", AUTO))
    by = str(run.get("partition-column", ""))
    names = Schema.of(stated if (stated := run.get("columns", AUTO)) != AUTO else "").columns
    table = load_source_once(source, label_column=column, partition_column=by, columns=names, header=header)
    n_rows = len(table.points)
    if "partition-id" not in node:
        return table, _labels(source, column, n_rows, header)
    kind = str(run.get("partition", Partition.IID.value))
    rows = partition_indices(
        n_rows,
        int(node["num-partitions"]),
        int(node["partition-id"]),
        seed=int(run.get("partition-seed", 0)),
        kind=kind,
        column_values=table.partition_values,
        alpha=float(run.get("partition-alpha", 0.5)),
        sizes=parse_sizes(run.get("partition-sizes", "")) if kind == Partition.FIXED_SIZES.value else None,
    )
    own = Table(table.points[rows], table.feature_names, named=table.named)
    return own, _labels(source, column, n_rows, header, rows)
