"""Whole plans through the real planner, thousands at random.

What they say of their cost against the oracles.

``FULL_ORACLE=1 pytest tests/oracle`` draws 5,000 plans and 60 with sampled clients, and
prints what it found.
"""

from __future__ import annotations

import math
import os
import time

import pytest
from support.plans import ABOVE_GAUSSIAN, ABOVE_OTHERS, COARSE, Harvest, walk

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan

FULL = "FULL_ORACLE" in os.environ
PARTS = 10 if FULL else 1


def require_harvest(harvest: Harvest, began: float) -> None:
    """Every kind within its limits; say so."""
    assert harvest.smallest is not None
    assert harvest.largest is not None
    for kind, ratio in harvest.largest.items():
        if not kind.endswith(COARSE):
            assert ratio <= (ABOVE_GAUSSIAN if kind == "gaussian" else ABOVE_OTHERS)
    for kind in harvest.smallest:
        print(
            f"{kind}: {harvest.smallest[kind]:.12f} to {harvest.largest[kind]:.9f}"
            " times the oracle"
        )
    refused = sum(harvest.refused.values()) if harvest.refused else 0
    seconds = time.perf_counter() - began
    print(
        f"{harvest.plans} plans, {harvest.prices} prices, {refused} refused,"
        f" {seconds:.1f} s"
    )
    print(f"at least {harvest.least_used:.7f} of the request used")


@pytest.mark.parametrize("part", range(PARTS))
def test_plans_cost_what_the_oracle_says(part: int) -> None:
    """All algorithms, trust models, units and ways to drop out."""
    began = time.perf_counter()
    n_plans = 500 if FULL else 60
    harvest = walk(n_plans, 100 + part, accountants=50 if FULL else 60)
    require_harvest(harvest, began)
    assert harvest.smallest is not None
    assert {"gaussian", "mixture", "pure"} <= set(harvest.smallest)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_plans_over_sampled_clients_cost_what_the_oracle_says(part: int) -> None:
    began = time.perf_counter()
    harvest = walk(
        6 if FULL else 2, 200 + part, sampled=True, points=2**17 if FULL else 2**16
    )
    require_harvest(harvest, began)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize(
    "algorithm", ["proxy_lloyd", "fastlloyd", "glloyd", "sulloyd", "sphere_packing"]
)
def test_a_request_is_met_from_below(algorithm: str, epsilon: float) -> None:
    """The requested epsilon within 0.1%."""
    config = parse_config(
        algorithm=algorithm,
        n_clusters=5,
        bounds=((-1.0,), (1.0,)),
        epsilon=epsilon,
        n_examples=10_000,
        max_retries=2,
    )
    plan = draft_plan(config, run_id=1, n_clients=10, seed=7, n_features=4)
    assert 0.999 * epsilon <= plan.epsilon <= epsilon * (1 + 1e-12)
    assert plan.epsilon < plan.epsilon_worst_case < 3.0 * epsilon


def test_sulloyd_with_other_releases_uses_the_whole_budget() -> None:
    """The Laplace rounds get what a mixture saves."""
    config = parse_config(
        algorithm="sulloyd",
        n_clusters=5,
        bounds=((-1.0,), (1.0,)),
        epsilon=1.0,
        trust="central",
        count_share=0.1,
    )
    plan = draft_plan(
        config, run_id=1, n_clients=10, seed=7, n_features=4, n_examples=10_000
    )
    assert 0.999 < plan.epsilon <= 1.0
    laplace = sum(
        1.0 / block.noise_multiplier
        for planned in plan.rounds
        for block in planned.blocks
    )
    assert laplace > 0.9


def test_no_noise_costs_everything() -> None:
    for values in (
        {"algorithm": "lloyd"},
        {"algorithm": "fastlloyd", "evaluation": "exact"},
    ):
        config = parse_config(
            n_clusters=3, bounds=((-1.0,), (1.0,)), n_examples=1000, **values
        )
        plan = draft_plan(config, run_id=1, n_clients=10, seed=7, n_features=2)
        assert plan.epsilon == plan.epsilon_worst_case == math.inf
