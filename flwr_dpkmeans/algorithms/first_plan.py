"""The plan that a run begins with."""

from __future__ import annotations

import secrets
from typing import Any

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
    """The plan that a run begins with, and the server's own points where the server
    alone keeps them.
    """
    seed = (
        config.random_state if config.random_state is not None else secrets.randbits(62)
    )
    known: dict[str, Any] = {"n_features": n_features}
    held = None if points is None else hold_points(config, points)
    if held is not None:
        known = {
            "n_features": held.scaled.shape[1],
            "server": held.facts,
            "public_points": held.public,
        }
    plan = draft_plan(
        config,
        run_id=run_id,
        n_clients=n_clients,
        seed=seed,
        **known,
    )
    return plan, None if held is None else held.kept
