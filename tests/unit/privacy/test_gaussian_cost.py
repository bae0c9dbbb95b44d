"""Costs as squared GDP parameters: conversions, and what they add up to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.asked_plans import gaussian_cost
from support.protocol_federation import small_config

from flwr_dpkmeans.privacy.closeness import Closeness
from flwr_dpkmeans.privacy.gaussian import gaussian_delta, gaussian_delta_bound
from flwr_dpkmeans.privacy.gaussian_cost import (
    GaussianCost,
    Total,
    drawn_cost,
    largest_mu,
    pure_mu,
)
from flwr_dpkmeans.sums.draft import draft_plan, worst_case, worst_cost
from flwr_dpkmeans.sums.plan import Plan

EPSILONS = np.concatenate([np.linspace(0.0, 8.0, 161), np.linspace(8.5, 60.0, 40)])


def joint(cost: GaussianCost, n_runs: int) -> GaussianCost:
    total = GaussianCost()
    for _ in range(n_runs):
        total = total.and_run(cost)
    return total


@pytest.mark.parametrize(
    ("n_runs", "epsilon", "total"),
    [(52, 0.5, 3.49), (10, 0.5, 1.52), (12, 1.0, 3.45), (52, 0.1, 0.634)],
)
def test_runs_cost_what_squared_parameters_add_up_to(
    n_runs: int, epsilon: float, total: float
) -> None:
    """Each at delta 1e-6; all of them at the sum of their deltas."""
    cost = joint(gaussian_cost(epsilon, 1e-6), n_runs)
    assert cost.epsilon(n_runs * 1e-6) == pytest.approx(total, abs=0.005)
    assert total < 0.35 * n_runs * epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0, 690.0, 1e4])
def test_a_pure_release_tells_no_more_than_its_mu(epsilon: float) -> None:
    """Its trade-off curve has a corner, which the Gaussian's meets."""
    mu = pure_mu(epsilon)
    corner = -math.log1p(math.exp(-epsilon)) - epsilon
    log_tail = math.log(0.5 * math.erfc(0.5 * mu * math.sqrt(0.5))) if mu < 75 else None
    if log_tail is None:
        # Phi(-x) <= exp(-x^2 / 2) / 2.
        log_tail = -0.125 * mu**2 - math.log(2.0)
    assert log_tail <= corner + 1e-9 * abs(corner)
    if 1e-3 < epsilon < 100.0:
        assert log_tail == pytest.approx(corner, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_randomized_response_is_dominated_and_by_nothing_smaller(
    epsilon: float,
) -> None:
    def delta(at: float) -> float:
        right = 1.0 / (1.0 + math.exp(-epsilon))
        return max(0.0, right - math.exp(at) * (1.0 - right))

    mu = pure_mu(epsilon)
    for at in EPSILONS:
        assert delta(at) <= gaussian_delta_bound(at, mu) * (1.0 + 1e-9)
    assert any(delta(at) > gaussian_delta(at, mu * 0.999) for at in EPSILONS)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 1e-2])
def test_drawn_noise_is_within_its_cost_at_every_epsilon(
    mu: float, ratio: float
) -> None:
    """The price of closeness, as it is proved, and the cost that ledgers add up."""
    closeness = Closeness(0.4 * ratio, 0.6 * ratio, 4e-44)
    cost = drawn_cost(mu, [closeness])
    assert cost is not None
    assert cost.own_delta < 1e-12
    excess = []
    least = 1.0
    for at in EPSILONS:
        analysed = max(0.0, at - ratio)
        drawn = math.exp(0.4 * ratio) * gaussian_delta(analysed, mu)
        if at < ratio:
            # By symmetry, at an epsilon below 0.
            drawn = math.exp(0.4 * ratio) * (
                -math.expm1(at - ratio)
                + math.exp(at - ratio) * gaussian_delta(ratio - at, mu)
            )
        drawn += (1.0 + math.exp(at)) * 4e-44
        bound = gaussian_delta_bound(at, cost.mu) + cost.own_delta
        # No delta is larger than one at a smaller epsilon.
        least = min(least, drawn)
        assert least <= bound * (1.0 + 1e-12)
        excess.append(drawn - gaussian_delta(at, mu) * (1.0 + 1e-11))
    # Without what it adds to mu it would not hold.
    assert max(excess) > 0.0


def test_beyond_every_epsilon_the_tail_is_bounded_by_one_number() -> None:
    closeness = Closeness(1e-9, 1e-9, 1e-30)
    cost = drawn_cost(0.5, [closeness])
    assert cost is not None
    # From this epsilon on, delta is no larger than there.
    at = [float(step) for step in range(4, 100, 4)]
    least = min(
        math.exp(1e-9) * gaussian_delta(epsilon - 2e-9, 0.5)
        + (1.0 + math.exp(epsilon)) * 1e-30
        for epsilon in at
    )
    assert least <= cost.own_delta < 1e-20


@pytest.mark.parametrize(
    ("mu", "closeness"),
    [
        (80.0, Closeness(1e-9, 1e-9, 0.0)),
        (1e-6, Closeness(1e-3, 1e-3, 0.0)),
        (0.5, Closeness(0.7, 0.7, 0.0)),
        (20.0, Closeness(1e-3, 1e-3, 0.0)),
    ],
)
def test_noise_that_is_too_coarse_has_no_cost_of_its_own(
    mu: float, closeness: Closeness
) -> None:
    assert drawn_cost(mu, [closeness]) is None


@pytest.mark.parametrize("epsilon", [0.0, -1.0])
def test_no_room_is_no_mu(epsilon: float) -> None:
    assert largest_mu(epsilon, 1e-6) == largest_mu(1.0, 0.0) == 0.0
    assert largest_mu(math.inf, 1e-6) == largest_mu(1.0, 1.0) == math.inf


def test_what_is_left_is_what_one_more_run_may_cost() -> None:
    spent = joint(gaussian_cost(0.5, 1e-6), 20)
    total = Total(4.0, 1e-5)
    left = total.left(spent)
    assert 2.5 < left < 4.0
    more = spent.and_run(gaussian_cost(left, 0.99e-5))
    assert more.mu == pytest.approx(total.cost.mu, rel=1e-9)
    assert total.left(GaussianCost()) == pytest.approx(4.0)
    assert total.left(GaussianCost(9.0)) == 0.0
    assert total.left(GaussianCost(0.1, 1.01e-7)) == 0.0
    assert total.left(GaussianCost(0.1, 0.99e-7)) > 3.0
    assert Total(math.inf, 1e-5).left(GaussianCost(0.1)) == math.inf
    assert Total(math.inf, math.inf).left(GaussianCost(0.1)) == math.inf


def test_a_total_has_parts_for_both_that_are_fixed_beforehand() -> None:
    total = Total(3.0, 1e-5, own_share=0.25)
    assert total.cost == GaussianCost(largest_mu(3.0, 0.75e-5), 0.25e-5)
    assert total.cost.epsilon(1e-5) <= 3.0 * (1.0 + 1e-9)


def test_without_room_for_what_is_not_gaussian_epsilon_is_infinite() -> None:
    cost = GaussianCost(0.3, 1e-6)
    assert cost.epsilon(1e-6) == math.inf
    assert cost.epsilon(2e-6) == pytest.approx(GaussianCost(0.3).epsilon(1e-6))
    assert GaussianCost(0.0, 1e-6).epsilon(1e-6) == 0.0
    assert GaussianCost(math.inf).epsilon(0.1) == math.inf


# -- of plans --------------------------------------------------------------------------


def planned(**values: Any) -> Plan:
    given: dict[str, Any] = {"n_examples": 9000, "epsilon": 1.0, "delta": 1e-6}
    config = small_config(**given | values)
    return draft_plan(config, run_id=1, n_clients=20, seed=7, n_features=2)


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "proxy_lloyd"])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_gaussian_plan_costs_the_mu_of_its_worst_case(
    algorithm: str, max_retries: int
) -> None:
    plan = planned(algorithm=algorithm, max_retries=max_retries)
    cost = worst_cost(plan)
    # The price at delta and the cost are two ways to the same number.
    assert cost.epsilon(1e-6) == pytest.approx(worst_case(plan), rel=1e-6)
    assert cost.own_delta < 1e-20


def test_pure_releases_add_up_as_squares() -> None:
    """Not as the conversion of their sum, which would cost twice as much."""
    cost = worst_cost(planned(algorithm="sulloyd", max_retries=0))
    assert cost.own_delta == 0.0
    assert cost.mu < 0.6 * pure_mu(1.0)


def test_a_sampled_run_is_charged_the_smaller_of_two_bounds() -> None:
    plan = planned(
        unit="client",
        client_sampling_rate=0.1,
        algorithm="proxy_lloyd",
        max_retries=0,
        examples_per_client=50,
    )
    cost = worst_cost(plan)
    assert cost.mu <= pure_mu(worst_case(plan))
    assert cost.own_delta in (0.0, plan.delta) or cost.own_delta < 1e-20


def test_a_run_without_privacy_costs_everything() -> None:
    assert worst_cost(planned(algorithm="lloyd")).mu == math.inf
