"""The plan that a run begins with."""

from __future__ import annotations

import secrets

from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array


def first_plan(
    config: RunConfig,
    points: Array | None,
    *,
    run_id: int,
    n_clients: int,
    n_features: int | None = None,
) -> tuple[Plan, Array | None]:
    """The plan that a run begins with.

    And the server's own points, where the server alone keeps them.
    """
    seed = config.random_state
    if seed is None:
        seed = secrets.randbits(62)
    if points is None:
        plan = draft_plan(
            config,
            run_id=run_id,
            n_clients=n_clients,
            seed=seed,
            n_features=n_features,
        )
        return plan, None
    server_points = hold_points(config, points)
    plan = draft_plan(
        config,
        run_id=run_id,
        n_clients=n_clients,
        seed=seed,
        n_features=server_points.scaled.shape[1],
        server=server_points.facts,
        public_points=server_points.public,
    )
    return plan, server_points.on_server
