"""How `FederatedKMeans` runs a federation in one process: through Flower's messages, or without them.

``inprocess`` uses the same strategy, ClientApp, secure-aggregation mod and records as a deployment. ``direct`` runs
the same rounds, noise and masks without messages, for thousands of virtual clients.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.feddp_steps import COST_CURVE
from flwr_dpkmeans.central import fit_central
from flwr_dpkmeans.config import Dropout, Evaluation, KMeansConfig
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.direct import run_direct
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.evaluation import read_evaluation
from flwr_dpkmeans.flower.client import KMeansClient
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.held import hold_points
from flwr_dpkmeans.flower.inprocess import InProcessGrid, Node
from flwr_dpkmeans.flower.logs import placed_logger
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.node import NodeSettings
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.flower.units import in_callers_units, plan_bounds
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.plan import Box, Plan
from flwr_dpkmeans.plan_defaults import resolve_delta
from flwr_dpkmeans.planning import draft_plan
from flwr_dpkmeans.privacy.ledger import MemoryLedger
from flwr_dpkmeans.privacy.policy import ClientPolicy
from flwr_dpkmeans.privacy.report import SIMULATED, PrivacyReport
from flwr_dpkmeans.reporting import Step, build_report
from flwr_dpkmeans.results.evaluation import EvaluationResult
from flwr_dpkmeans.rounds.private_sum import Labels

logger = placed_logger("flwr_dpkmeans.estimator")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FittedFederation:
    """What a federation found.

    Parameters
    ----------
    centers : ndarray, (n_clusters, n_features)
        In the caller's units.
    counts : ndarray, (n_clusters,)
        Noisy counts of the last release.
    movements : tuple of float
        Largest step of a centroid in each Lloyd round, in scaled units.
    privacy : PrivacyReport
        Cost, guarantee, every release.
    steps : tuple of Step
        One for each aggregation.
    cost_curve : ndarray, (largest k,), or None
        Cost over the number of clusters, if the run chose it, in squared scaled units.
    bounds : pair of tuples of float, or None
        The box that data were scaled by; None where the caller's own are used.
    evaluation : EvaluationResult or None
        Metrics, if the run had an evaluation.
    """

    centers: Array
    counts: Array
    movements: tuple[float, ...]
    privacy: PrivacyReport
    steps: tuple[Step, ...]
    cost_curve: Array | None = None
    bounds: Box | None = None
    evaluation: EvaluationResult | None = None


def fit_inprocess(
    config: KMeansConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
) -> FittedFederation:
    """Run through Flower's messages, every client behind the secure-aggregation mod.

    Parameters
    ----------
    config : KMeansConfig
        Validated.
    parts : sequence of ndarray, (n_i, n_features)
        One table for each client, in the caller's units.
    server_points : ndarray, (n_server, n_features), or None
        The server's own points, in the caller's units.
    labels : sequence of ndarray of int, (n_i,), optional
        For each client, if the run evaluates against labels.

    Returns
    -------
    FittedFederation
        As one of the clients knows it: under ``oblivious`` the server has no result.
    """
    clients = [
        KMeansClient(part, feature_names=config.feature_names, labels=None if labels is None else labels[i])
        for i, part in enumerate(parts)
    ]
    grid = InProcessGrid([_node(client) for client in clients], run_id=secrets.randbits(62))
    strategy = PrivateKMeans.from_config(
        config, server_points=server_points, on_step=lambda step: logger.debug("%s", step)
    )
    with grid.running():
        result = strategy.start(grid)
    client = clients[0]
    if client.cluster_centers_ is None or client.counts_ is None or client.privacy_ is None:
        raise ConfigurationError("the run ended without a result: look at the log of flwr_dpkmeans.")
    steps = tuple(step for step in result.steps if step.round_index > 0)
    return FittedFederation(
        client.cluster_centers_,
        client.counts_,
        client.movements_,
        client.privacy_,
        steps,
        client.cost_curve_,
        client.bounds_,
        client.evaluation_,
    )


def fit_direct(
    config: KMeansConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
) -> FittedFederation:
    """Run without messages; parameters and result as in `fit_inprocess`."""
    if config.dropout is Dropout.RECOVER:
        raise ConfigurationError(
            "dropout is 'recover', but engine='direct' has no messages that could be lost: leave dropout out, or use "
            "engine='inprocess'."
        )
    config = replace(config, dropout=Dropout.RETRY)
    held = None if server_points is None else hold_points(config, server_points)
    seed = config.random_state if config.random_state is not None else secrets.randbits(62)
    plan = draft_plan(
        config,
        run_id=1,
        n_clients=len(parts),
        seed=seed,
        n_features=parts[0].shape[1],
        server=None if held is None else held.facts,
        public_points=None if held is None else held.public,
    )
    from threadpoolctl import threadpool_limits

    # Each virtual client's matrices are small: threads would wait for each other longer than they compute.
    with threadpool_limits(1):
        found = run_direct(
            plan,
            parts,
            scale=_in_box,
            server_points=None if held is None else held.kept,
            labels=labels,
            on_step=lambda step: logger.debug("%s", step),
        )
    state = found.state
    return FittedFederation(
        in_callers_units(found.plan, state.centroids),
        state.counts,
        state.movements,
        build_report(found.plan, found.attempts, SIMULATED),
        tuple(step for step in found.steps if step.round_index > 0),
        state.extras.get(COST_CURVE),
        found.plan.bounds,
        read_evaluation(found.plan, state),
    )


def _in_box(plan: Plan, points: Array) -> Array:
    """One client's points in the plan's box, on the grid."""
    return round_to_grid(plan_bounds(plan, points.shape[1]).scale(points), plan.fraction_bits)


def fit_in_one_place(
    config: KMeansConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
) -> FittedFederation:
    """Run a baseline that needs all rows together; parameters and result as in `fit_inprocess`."""
    del server_points, labels
    if config.evaluation is not Evaluation.NONE:
        raise ConfigurationError(
            f"evaluation is {config.evaluation.value!r}, but {config.algorithm!r} runs on all rows in one place, "
            "without rounds: leave evaluation out and measure the result there."
        )
    if config.private_bounds:
        raise ConfigurationError(
            f"bounds are 'private', but {config.algorithm!r} runs on all rows in one place and needs declared ones: "
            "give bounds, or choose 'proxy_lloyd'."
        )
    bounds = Bounds(*config.bounds).for_features(parts[0].shape[1])
    scaled = [round_to_grid(bounds.scale(part)) for part in parts]
    found = fit_central(config, scaled, resolve_delta(config, len(parts)))
    return FittedFederation(bounds.unscale(found.centroids), found.counts, (), found.privacy, ())


def _node(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    # All parties are the caller's own here, so only the plan's own limits apply.
    settings = NodeSettings(ClientPolicy(max_delta=0.5), MemoryLedger(), "default", simulated=True)

    def own_settings(_: Context) -> NodeSettings:
        return settings

    def own_client(_: Context) -> KMeansClient:
        return client

    return Node(client_app(own_client, mod=SecureAggregation(own_settings)))
