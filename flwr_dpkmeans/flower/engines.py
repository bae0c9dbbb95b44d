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

from flwr_dpkmeans import baselines
from flwr_dpkmeans.algorithms.feddp_steps import COST_CURVE
from flwr_dpkmeans.algorithms.measure import EvaluationResult, read_evaluation
from flwr_dpkmeans.algorithms.server_points import hold_points, in_box, plan_bounds
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.client import KMeansClient
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.inprocess import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.provenance import Provenance, utc_now
from flwr_dpkmeans.privacy.report import SIMULATED, PrivacyReport
from flwr_dpkmeans.sums.defaults import resolve_delta
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Labels
from flwr_dpkmeans.sums.settings import Box, Dropout, Evaluation
from flwr_dpkmeans.sums.statement import Step, build_report
from flwr_dpkmeans.sums.task import Run

logger = placed_logger("flwr_dpkmeans.estimator")

Array = NDArray[np.float64]

RUN_ID = 1
"""Of every run without messages."""


@dataclass(frozen=True)
class FittedFederation:
    """What a federation found.

    Parameters
    ----------
    scaled : ndarray, (n_clusters, n_features)
        Centroids in the box [-1, 1]^d of `bounds`; without post-processing some may lie outside.
    bounds : pair of tuples of float
        The box that data were scaled by.
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
    evaluation : EvaluationResult or None
        Metrics, if the run had an evaluation.
    """

    scaled: Array
    bounds: Box
    counts: Array
    movements: tuple[float, ...]
    privacy: PrivacyReport
    steps: tuple[Step, ...]
    cost_curve: Array | None = None
    evaluation: EvaluationResult | None = None

    @property
    def centers(self) -> Array:
        """Centroids in the caller's units."""
        return Bounds(*self.bounds).unscale(self.scaled)


def fit_inprocess(
    config: Run,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
) -> FittedFederation:
    """Run through Flower's messages, every client behind the secure-aggregation mod.

    Parameters
    ----------
    config : Run
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
        config,
        server_points=server_points,
        on_step=lambda step: logger.debug("%s", step),
        # The result says it, and Python's warnings show it once, not once for each fit in a loop.
        on_warning=lambda sentence: logger.debug("%s", sentence),
    )
    with grid.running():
        result = strategy.start(grid)
    client = clients[0]
    if client.scaled_centers_ is None or client.counts_ is None or not client.privacy_ or not client.bounds_:
        raise ConfigurationError("the run ended without a result: look at the log of flwr_dpkmeans.")
    steps = tuple(step for step in result.steps if not Plan.discovers(step.round_index))
    return FittedFederation(
        client.scaled_centers_,
        client.bounds_,
        client.counts_,
        client.movements_,
        client.privacy_,
        steps,
        client.cost_curve_,
        client.evaluation_,
    )


def fit_direct(
    config: Run,
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
    config = config.changed(dropout=Dropout.RETRY)
    held = None if server_points is None else hold_points(config, server_points)
    started, seed = utc_now(), config.random_state if config.random_state is not None else secrets.randbits(62)
    plan = draft_plan(
        config,
        run_id=RUN_ID,
        n_clients=len(parts),
        seed=seed,
        n_features=parts[0].shape[1],
        server=None if held is None else held.facts,
        public_points=None if held is None else held.public,
    )
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
        state.centroids,
        found.plan.bounds,
        state.counts,
        state.movements,
        replace(
            build_report(found.plan, found.attempts, SIMULATED, counts=state.counts, unclear=found.found.unclear),
            provenance=_provenance(started),
        ),
        tuple(step for step in found.steps if not Plan.discovers(step.round_index)),
        state.extras.get(COST_CURVE),
        read_evaluation(found.plan, state),
    )


def _provenance(started: str) -> Provenance:
    """Where the result of a run without messages comes from; no plan had to be agreed on in it."""
    return Provenance.of(RUN_ID, "all parties", b"", started=started)


def _in_box(plan: Plan, points: Array) -> Array:
    """One client's points in the plan's box, on the grid."""
    return in_box(plan_bounds(plan, points.shape[1]), points, plan.fraction_bits)


def fit_in_one_place(
    config: Run,
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
    started = utc_now()
    found = baselines.run(config, scaled, resolve_delta(config, len(parts)))
    privacy = replace(found.privacy, provenance=_provenance(started))
    return FittedFederation(found.centroids, (bounds.lower, bounds.upper), found.counts, (), privacy, ())


def _node(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    # All parties are the caller's own here, so only the plan's own limits apply.
    settings = NodeSettings(ClientPolicy(max_delta=0.5), MemoryLedger(), "default", simulated=True)

    def own_settings(_: Context) -> NodeSettings:
        return settings

    def own_client(_: Context) -> KMeansClient:
        return client

    return Node(client_app(own_client, mod=SecureAggregation(own_settings)))
