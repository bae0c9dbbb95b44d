"""What a run costs if all retries are used.

The price of one list of releases, written out here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import dominating_release
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts


def rounds_of(plan: Plan) -> list[tuple[Any, ...]]:
    return [
        plan.events([index]) for index in range(plan.first_round, plan.last_round + 1)
    ]


def test_sampled_rounds_are_rounded_up_by_a_millionth() -> None:
    """Two numerical searches differ by some 1e-9 of a price."""
    server = ServerFacts(30, (0.0, 0.0), 0.5, 0.1)
    values = parse_config(
        n_clusters=3, bounds=((-1.0,), (1.0,)), algorithm="feddp_kmeans",
        trust="central", unit="client", client_sampling_rate=0.5, max_retries=1,
        max_iter=1, epsilon=2.0,
    )  # fmt: skip
    plan = draft_plan(
        values, run_id=9, n_clients=20, seed=7, n_features=2, server=server
    )
    rounds = rounds_of(plan)
    assert all(event.sampling_rate < 1.0 for events in rounds for event in events)
    cost = compose_epsilon(
        (*(event for events in rounds for event in events), dominating_release(rounds)),
        plan.delta,
    )
    assert math.isclose(plan.epsilon_worst_case / cost, 1.0 + 1e-6, rel_tol=1e-12)
    never = replace(plan, config=values.changed(max_retries=0))
    assert never.epsilon_worst_case == plan.epsilon


def test_a_plan_that_waits_for_the_width_is_not_run() -> None:
    config = parse_config(n_clusters=3, bounds=((-1.0,), (1.0,)), trust="central")
    plan = draft_plan(config, run_id=9, n_clients=2, seed=7, n_features=None)
    with pytest.raises(PlanError, match="waits for the tables' width, or knows what"):
        run_direct(plan, [np.zeros((5, 2))] * 2)
