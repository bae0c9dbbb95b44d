"""A whole federation of Flower's messages in one process.

The same strategy, ClientApp, secure-aggregation mod and records as a deployment.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import IN_SIMULATION
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.checks.columns import planned_schema
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.row_units import Weights
from flwr_dpkmeans.sums.round import Array, Labels
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.threads import one_thread

logger = placed_logger("flwr_dpkmeans.estimator")


def play_inprocess(
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
    *,
    persons: Sequence[Persons] | None = None,
    weights: Sequence[Weights] | None = None,
) -> Federated:
    """Run any task through Flower's messages.

    Every client is behind the secure-aggregation mod.

    `parts` (n_i, d; or as in `Encoded`) and `server_points` (n_server, d) are in the
    caller's units; `labels` (n_i,) are for what looks at them; `on_step` is told of
    each step; `persons` say whose rows these are, where one person is protected, and
    `weights` what each row weighs, where rows are weighed. The result is one client's:
    under ``oblivious`` the server has none.
    """
    n_beside = config.settings.n_beside
    split = [np.split(part, [part.shape[1] - n_beside], axis=1) for part in parts]
    clients = [
        KMeansClient(
            points,
            feature_names=config.feature_names,
            labels=None if labels is None else labels[i],
            persons=None if persons is None else persons[i],
        )
        for i, (points, _) in enumerate(split)
    ]
    for client, (_, beside) in zip(clients, split, strict=True):
        # All parts were encoded by one schema, if any.
        client.agreement, client.beside = planned_schema(config.settings), beside
    if weights is not None:
        for client, of_party in zip(clients, weights, strict=True):
            client.weigh(of_party)
    grid = InProcessGrid(
        [node_of(client) for client in clients], run_id=secrets.randbits(62)
    )
    strategy = PrivateKMeans.from_config(
        config,
        server_points=server_points,
        on_step=on_step,
        # The result says it, and Python's warnings show it once, not once for each fit
        # in a loop.
        on_warning=logger.debug,
    )
    with one_thread(), grid.running():
        steps = strategy.start(grid).steps
    # Others may have failed.
    first = next(
        (client for client in clients if client.state_ is not None), clients[0]
    )
    if first.state_ is None or first.privacy_ is None:
        raise ConfigurationError(
            "the run ended without a result: look at the log of flwr_dpkmeans."
        )
    return Federated(
        strategy.run.plan,
        first.state_,
        first.privacy_,
        config.feature_names,
        steps,
        first.evaluation_,
    )


def node_of(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    settings = NodeSettings(
        IN_SIMULATION,
        MemoryLedger(),
        "default",
        simulated=True,
    )
    return Node(client_app(lambda _: client, mod=SecureAggregation(lambda _: settings)))
