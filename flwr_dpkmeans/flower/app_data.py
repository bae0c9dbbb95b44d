"""Data of the project's own Flower app: a partition in simulation, the node's own file in a deployment."""

from __future__ import annotations

from typing import Any

from flwr.app import Context

from flwr_dpkmeans.data.bundled import BUNDLED, load_source
from flwr_dpkmeans.data.partition import partition_indices
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client import KMeansClient
from flwr_dpkmeans.flower.logs import show_logs
from flwr_dpkmeans.flower.node import is_simulation, output_folder


def load_client(context: Context) -> KMeansClient:
    """Load the rows of one node.

    Parameters
    ----------
    context : Context
        Node configuration: ``data-path`` (a deployment's own file); in simulation Flower sets ``partition-id`` and
        ``num-partitions``. Run configuration: ``data``, ``label-column``, ``partition``, ``partition-seed``.

    Returns
    -------
    KMeansClient

    Raises
    ------
    ConfigurationError
        In a deployment without ``data-path``: the server may not choose which file a node reads.
    DataError
        If the data cannot be used.
    """
    if not is_simulation():
        # A deployed node's operator looks here for the paths; in simulation the server prints them.
        show_logs()
    run: dict[str, Any] = dict(context.run_config)
    node: dict[str, Any] = dict(context.node_config)
    label = str(run.get("label-column", ""))
    source = str(run.get("data", ""))
    described = BUNDLED.get(source)
    if node.get("data-path"):
        table = load_source(str(node["data-path"]), label_column=label)
        described = None
    elif is_simulation() or described is not None:
        table = load_source(source, label_column=label)
        if "partition-id" in node:
            rows = partition_indices(
                len(table.points),
                int(node["num-partitions"]),
                int(node["partition-id"]),
                seed=int(run.get("partition-seed", 0)),
                kind=str(run.get("partition", "iid")),
            )
            table = type(table)(table.points[rows], table.feature_names)
    else:
        raise ConfigurationError(
            "this node has no 'data-path' in its node configuration, and the server may not choose a file on it: start "
            "the SuperNode with --node-config \"data-path='/path/to/file.csv'\"."
        )
    return KMeansClient(
        table.points,
        output_dir=output_folder(context),
        image_shape=None if described is None else described.image_shape,
        feature_names=table.feature_names,
    )
