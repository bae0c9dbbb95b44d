"""A client in Flower: what a node says for itself, the secure-aggregation mod.

And ready-made ClientApps.

Settings, folders, the log, and whether it is simulated a node reads from its own part
of Flower's context.

The mod stands between Flower and the NumPyClient, so that no exact statistic leaves the
node: a message that is not of the protocol never reaches the wrapped client, which
would answer it without masks.

`client_app(load_data)` is for any app, and `app` is what `flwr run` starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike

from flwr_dpkmeans.data.schema import Encoded
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.client.result_folders import output_folder
from flwr_dpkmeans.flower.client.wrapped import InProcessClient, Wrapped
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation, secure_aggregation_mod


def client_app(
    load_data: Callable[[Context], KMeansClient | ArrayLike | Encoded],
    *,
    mod: SecureAggregation = secure_aggregation_mod,
) -> ClientApp:
    """Make a ClientApp that takes part in private k-means, masks included.

    Parameters
    ----------
    load_data : callable
        ``load_data(context)`` returns this node's rows, (n_examples, n_features),
        ``schema.encode(table)``, or a `KMeansClient` that holds them. Rows with a cell
        that is no finite number are left out: were they an error, the server would see
        that one is there. Lists must all be of one length, which the server learns as
        the table's width: of others it would learn that of most. Results are written in
        the node's output folder (see `output_folder`).
    mod : SecureAggregation
        The secure-aggregation mod; on by default.

    Returns
    -------
    ClientApp

    Examples
    --------
    >>> app = client_app(lambda context: [[0.0, 1.0], [2.0, 3.0]])
    """
    if mod.wrapped_class is not Wrapped:
        raise ConfigurationError(
            "this mod is for an app of its own, but client_app makes one of a"
            " KMeansClient: give a mod without 'wrapped', or none."
        )
    # The mod is called in `serve`: Flower would make a message of each call.
    app = ClientApp(mods=[])

    def load(context: Context) -> KMeansClient:
        data = load_data(context)
        if isinstance(data, KMeansClient):
            return data
        from flwr_dpkmeans.flower.client.clean_rows import client_of

        return client_of(data, output_folder(context))

    def serve(message: Message, context: Context) -> Message:
        return mod.answer(
            message,
            context,
            partial(InProcessClient, context, load),
        )

    app.train()(serve)
    app.evaluate()(serve)
    return app


app = client_app(load_client)
"""The ClientApp of this project's own Flower app."""
