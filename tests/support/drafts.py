"""Plans with ordinary values for what a test does not care about."""

from __future__ import annotations

from typing import Any

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.settings import Box


def draft_of(
    *,
    n_clients: int = 5,
    width: int | None = 2,
    counted: int | None = None,
    box: Box | None = None,
    server: ServerFacts | None = None,
    run_id: int = 1,
    seed: int = 1,
    **values: Any,
) -> Plan:
    """Draft a plan from flat options; tables have `width` columns.

    `counted` and `box` are what preliminary sums have found.
    """
    settings = {"n_clusters": 2, "bounds": ((-1.0,), (1.0,))} | values
    return draft_plan(
        parse_config(**settings), run_id=run_id, n_clients=n_clients, seed=seed,
        n_features=width, n_examples=counted, box=box, server=server,
    )  # fmt: skip
