"""Ready-made ClientApps: `client_app(load_data)` for any app, and `app`, which `flwr run` starts.

Its data are a partition in simulation, and the node's own file in a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike

from flwr_dpkmeans.data.bundled import BUNDLED, load_source_once
from flwr_dpkmeans.data.partition import MIXTURE, MixtureClients, Partition, parse_sizes, partition_indices
from flwr_dpkmeans.data.points import frame_columns
from flwr_dpkmeans.data.tables import Schema, Table, load_declared, parse_header
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation, run_numpy_client, secure_aggregation_mod
from flwr_dpkmeans.flower.node import is_simulation, output_folder, result_folder
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.options import AUTO

logger = placed_logger("flwr_dpkmeans.client")


def client_app(
    load_data: Callable[[Context], KMeansClient | ArrayLike], *, mod: SecureAggregation = secure_aggregation_mod
) -> ClientApp:
    """Make a ClientApp that takes part in private k-means, masks included.

    Parameters
    ----------
    load_data : callable
        ``load_data(context)`` returns this node's rows, (n_examples, n_features), or a `KMeansClient` that holds them.
        Of a table of numbers, rows that are not finite are left out: were they an error, the server would see that one
        is there. Results are written in the node's output folder (see `output_folder`).
    mod : SecureAggregation
        The secure-aggregation mod; on by default.

    Returns
    -------
    ClientApp

    Examples
    --------
    >>> app = client_app(lambda context: [[0.0, 1.0], [2.0, 3.0]])
    """
    app = ClientApp(mods=[])

    def serve(message: Message, context: Context) -> Message:
        data = load_data(context)
        client = data if isinstance(data, KMeansClient) else _client_of(data, output_folder(context))
        return Message(run_numpy_client(client, message), reply_to=message)

    app.train(mods=[mod])(serve)
    app.evaluate(mods=[mod])(serve)
    return app


def _client_of(data: ArrayLike, folder: Path) -> KMeansClient:
    """A client with the rows of a table that are finite numbers."""
    array = np.asarray(data)
    if array.dtype.kind != "f" or array.ndim != 2 or bool((kept := np.isfinite(array).all(axis=1)).all()):
        return KMeansClient(data, output_dir=folder)
    logger.warning("left out rows with a value that is missing or infinite")
    return KMeansClient(array[kept], output_dir=folder, feature_names=frame_columns(data))


# -- this project's own app -------------------------------------------------------------------------------------------


def load_client(context: Context) -> KMeansClient:
    """Load the rows of one node.

    The node's configuration says ``data-path`` (a deployment's own file), ``columns`` (those of it that are clustered),
    ``header`` and ``label-column``; in a simulation the run's says ``data`` and how its rows are split. Labels are
    looked at in an evaluation's round only, which is after the node's policy has approved the plan, and nothing in a
    label column is an error. In a deployment the node's own configuration is the schema, and nothing that the run says,
    nor a cell of the file, changes what the node answers (`flwr_dpkmeans.data.declared`).

    Raises a ConfigurationError in a deployment without ``data-path``, since the server may not choose which file a node
    reads, and a DataError if the data cannot be used.
    """
    simulated = is_simulation(context)
    run: dict[str, Any] = dict(context.run_config)
    node: dict[str, Any] = dict(context.node_config)
    source = str(run.get("data", ""))
    described = None if node.get("data-path") else BUNDLED.get(source)
    if node.get("data-path"):
        schema = Schema.of(node.get("columns", ""), node.get("label-column", ""), node.get("header"))
        table = load_declared(str(node["data-path"]), schema)
    elif simulated and source == MIXTURE:
        table = Table(mixture_of(run).client_points(int(node.get("partition-id", 0))))
    elif simulated or described is not None:
        table = _own_part(source, run, node)
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
        labels=None if table.labels is None else partial(np.asarray, table.labels),
    )


def mixture_of(run_config: Mapping[str, Any]) -> MixtureClients:
    """Return the generated clients of ``data='mixture'``; raises a ConfigurationError for a size or seed below 0."""
    return MixtureClients(run_config.get("partition-seed", 0), run_config.get("mixture-rows-per-client", 50))


def _own_part(source: str, run: Mapping[str, Any], node: Mapping[str, Any]) -> Table:
    """The rows of one virtual node; all of them where nothing says that there are others."""
    column, header = str(run.get("label-column", "")), parse_header(run.get("header", AUTO))
    by = str(run.get("partition-column", ""))
    names = Schema.of(stated if (stated := run.get("columns", AUTO)) != AUTO else "").columns
    table = load_source_once(source, label_column=column, partition_column=by, columns=names, header=header)
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
        sizes=parse_sizes(run.get("partition-sizes", "")) if kind == Partition.FIXED_SIZES.value else None,
    )
    return table.part(rows)


app = client_app(load_client)
"""The ClientApp of this project's own Flower app."""
