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
from flwr_dpkmeans.privacy.release import GaussianRelease, dominating_release
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts


def plan_of(**values: Any) -> Plan:
    defaults: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 500,
        "trust": "central",
    }
    return draft_plan(
        parse_config(**(defaults | values)),
        run_id=9,
        n_clients=20,
        seed=7,
        n_features=2,
    )


def rounds_of(plan: Plan) -> list[tuple[Any, ...]]:
    return [
        plan.events([index]) for index in range(plan.first_round, plan.last_round + 1)
    ]


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd"])
def test_gaussian_rounds_and_one_that_is_as_strong_as_any_for_each_retry(
    algorithm: str,
) -> None:
    plan = plan_of(algorithm=algorithm, max_retries=2, max_iter=3)
    rounds = rounds_of(plan)
    assert all(
        isinstance(event, GaussianRelease) for events in rounds for event in events
    )
    strongest = dominating_release(rounds)
    everything = (
        *(event for events in rounds for event in events),
        strongest,
        strongest,
    )
    assert plan.epsilon_worst_case == compose_epsilon(everything, plan.delta)


def test_laplace_rounds_and_the_dearest_again() -> None:
    plan = plan_of(algorithm="sulloyd", max_retries=1, max_iter=3)
    quieter = [
        replace(block, noise_multiplier=1.5 * block.noise_multiplier)
        for block in plan.rounds[0].blocks
    ]
    plan = replace(
        plan, rounds=(replace(plan.rounds[0], blocks=tuple(quieter)), *plan.rounds[1:])
    )
    everything = [event for events in rounds_of(plan) for event in events]
    costs = [
        compose_epsilon((*everything, *events), plan.delta)
        for events in rounds_of(plan)
    ]
    assert plan.epsilon_worst_case == max(costs) > min(costs)


def test_no_retry_costs_nothing_more() -> None:
    plan = plan_of(algorithm="fastlloyd", max_retries=0)
    assert (
        plan.epsilon_worst_case
        == plan.epsilon
        == compose_epsilon(plan.events(), plan.delta)
    )


def test_sampled_rounds_are_rounded_up_by_a_millionth() -> None:
    """Two numerical searches differ by some 1e-9 of a price.

    The bound must not end below either.
    """
    server = ServerFacts(30, (0.0, 0.0), 0.5, 0.1)
    values = parse_config(
        n_clusters=3,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        trust="central",
        unit="client",
        client_sampling_rate=0.5,
        max_retries=1,
        max_iter=1,
        epsilon=2.0,
    )
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
    with pytest.raises(
        PlanError,
        match="waits for the tables' width, or knows what it is still to find",
    ):
        run_direct(plan, [np.zeros((5, 2))] * 2)
