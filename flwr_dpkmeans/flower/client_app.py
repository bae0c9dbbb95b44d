"""Ready-made ClientApps: `client_app(load_data)` for any app, and `app`, which `flwr run` starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike

from flwr_dpkmeans.data.tables import frame_columns
from flwr_dpkmeans.flower.app_data import load_client
from flwr_dpkmeans.flower.inner import run_numpy_client
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation, secure_aggregation_mod
from flwr_dpkmeans.flower.node import output_folder
from flwr_dpkmeans.log import placed_logger

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


app = client_app(load_client)
"""The ClientApp of this project's own Flower app."""
