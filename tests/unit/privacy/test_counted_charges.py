"""What runs are charged whose rounds follow from a private count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.ledger_entries import entry, old_entry
from support.protocol_federation import grid_parts, make_federation, small_config

from flwr_dpkmeans.errors import DPKMeansError, ProtocolError
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, pair_cost, pure_mu
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.draft import draft_plan, worst_case, worst_cost
from flwr_dpkmeans.sums.plan import Plan

ALGORITHMS = ["fastlloyd", "glloyd", "proxy_lloyd", "sulloyd"]
NUMBERS = np.unique(np.geomspace(8, 10**8, 40).astype(int)).tolist()


def counted(n_examples: int | None = None, **values: Any) -> Plan:
    options: dict[str, Any] = {"n_examples": None, "epsilon": 1.0, "delta": 1e-6}
    config = small_config(**options | values)
    return draft_plan(
        config,
        run_id=1,
        n_clients=20,
        seed=7,
        n_features=2,
        n_examples=n_examples,
    )


def true_mu(plan: Plan, max_retries: int) -> float:
    """Squares of all rounds, and of as many as there are retries of the dearest.

    From the noise of each release alone.
    """
    squares = []
    for index in range(plan.first_round, plan.last_round + 1):
        square = 0.0
        for block in plan.round_at(index).blocks:
            mu = 1.0 / block.noise_multiplier
            if block.noise is NoiseShape.LAPLACE:
                mu = pure_mu(mu)
            square += mu**2
        squares.append(square)
    return math.sqrt(math.fsum(squares) + max_retries * max(squares))


@pytest.mark.parametrize("max_retries", [0, 2])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_before_the_count_the_dearest_of_all_outcomes_is_charged(
    algorithm: str, max_retries: int
) -> None:
    values = {"algorithm": algorithm, "max_retries": max_retries}
    charged = worst_cost(counted(**values))
    mus = [true_mu(counted(n, **values), max_retries) for n in NUMBERS]
    assert max(mus) <= charged.mu <= max(mus) * (1.0 + 1e-4)
    assert charged.own_delta < 1.1e-12


@pytest.mark.parametrize("max_retries", [0, 1, 3])
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "proxy_lloyd"])
def test_after_it_the_run_is_charged_what_its_plan_can_cost(
    algorithm: str, max_retries: int
) -> None:
    values = {"algorithm": algorithm, "max_retries": max_retries, "delta": None}
    for n_examples in (50, 3000, 10**6):
        final = counted(n_examples, **values)
        cost = worst_cost(final)
        expected = true_mu(final, max_retries)
        assert expected <= cost.mu <= expected * (1.0 + 1e-6)
        assert cost.is_within(worst_cost(counted(**values)))


def test_the_epsilon_of_a_counted_run_is_that_of_its_squares() -> None:
    """Not of the whole budget again for each retry, which is 1.81."""
    first = counted(algorithm="fastlloyd", max_retries=2)
    charged = worst_cost(first)
    assert worst_case(first) == pytest.approx(charged.epsilon(1e-6))
    assert worst_case(first) == pytest.approx(1.447, abs=1e-3)


def test_squares_that_are_dearer_than_the_price_stay_whatever_is_counted() -> None:
    """A total with room for the price alone has room for this run and no other.

    Which of both it is must not depend on the count.
    """
    values = {"algorithm": "sulloyd", "max_retries": 0}
    charged = worst_cost(counted(**values))
    assert charged.epsilon(1e-6) > 1.5 * worst_case(counted(**values))
    assert worst_cost(counted(10**6, **values)) == charged


@pytest.mark.nightly
def test_sampled_clients_that_are_counted_are_charged_as_a_pair() -> None:
    values: dict[str, Any] = {
        "algorithm": "proxy_lloyd",
        "unit": "client",
        "client_sampling_rate": 0.02,
        "max_retries": 0,
        "n_features": None,
    }
    config = small_config(**values, n_examples=None, epsilon=4.0, delta=1e-6)
    try:
        plan = draft_plan(config, run_id=1, n_clients=20, seed=7, n_features=None)
    except DPKMeansError as error:
        pytest.fail(str(error))
    pair = pair_cost(worst_case(plan), 4e-6 / 3.0)
    assert worst_cost(plan).mu <= pair.mu


# -- in the ledger ---------------------------------------------------------------------


def test_a_later_line_lowers_what_a_run_is_charged_and_none_raises_it() -> None:
    ledger = MemoryLedger()
    for index, mu in enumerate([0.9, 0.9, 0.6, 0.6]):
        ledger.charge(entry("run-1", index, 1.0, mu=mu, own_delta=0.0))
    assert ledger.past("ward-7", "record").cost == GaussianCost(0.6)
    with pytest.raises(ProtocolError, match=r"was charged mu 0\.6"):
        ledger.charge(entry("run-1", 4, 1.0, mu=0.9, own_delta=0.0))
    ledger.charge(entry("run-2", 0, 1.0, mu=0.8, own_delta=0.0))
    assert ledger.past("ward-7", "record").cost == GaussianCost(pytest.approx(1.0))


def test_neither_part_is_lowered_where_the_other_is_raised() -> None:
    ledger = MemoryLedger()
    ledger.charge(entry("run-1", 0, 1.0, mu=0.9, own_delta=1e-9))
    with pytest.raises(ProtocolError, match="own_delta"):
        ledger.charge(entry("run-1", 1, 1.0, mu=0.5, own_delta=1e-8))
    assert ledger.past("ward-7", "record").cost == GaussianCost(0.9, 1e-9)


def test_lines_of_an_older_version_lower_nothing() -> None:
    """Those that came later in a run may state less, and it was charged the first."""
    ledger = MemoryLedger()
    ledger.charge(old_entry("run-1", 0, 0.75))
    ledger.charge(old_entry("run-1", 1, 0.25))
    assert ledger.past("ward-7", "record").cost == pair_cost(0.75, 1e-6)


@pytest.mark.parametrize("n_features", [2, None])
def test_a_counted_run_is_charged_in_full_and_then_for_what_was_counted(
    n_features: int | None,
) -> None:
    """In the real protocol, by every party."""
    federation = make_federation(grid_parts((400, 300, 200)))
    federation.start(
        algorithm="fastlloyd",
        n_examples=None,
        n_features=n_features,
        epsilon=4.0,
        max_retries=2,
    )
    first = worst_cost(
        counted(algorithm="fastlloyd", epsilon=4.0, delta=None, max_retries=2)
    )
    for ledger in federation.ledgers.values():
        before, *after = [item.mu for item in ledger.entries() if item.is_release]
        assert before == pytest.approx(first.mu, rel=0.2)
        cost = ledger.past("rows", "record").cost
        assert {*after} == {cost.mu}
        assert cost.mu == pytest.approx(true_mu(federation.plan, 2), rel=1e-6)
        assert cost.mu < 0.9 * before
