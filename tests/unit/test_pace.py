"""A run's length is said before it starts: T + 2 round trips."""

from __future__ import annotations

import logging

import pytest

from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd
from flwr_dpkmeans.flower.strategies.run_log import announce
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, Plan, round_trips


def plan(n_examples: int | None, n_rounds: int) -> Plan:
    strategy = FastLloyd(
        3, n_features=2, bounds=(0, 1), n_examples=n_examples, max_iter=n_rounds
    )
    return draft_plan(strategy.config, run_id=1, n_clients=3, seed=0, n_features=2)


@pytest.mark.parametrize("n_rounds", [2, 5, 7])
def test_a_known_run_takes_t_plus_two_round_trips(
    n_rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    known = plan(1000, n_rounds)
    assert round_trips(known) == n_rounds + 2
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans.server"):
        announce(known)
    seconds = (n_rounds + 2) * SECONDS_PER_ROUND_TRIP
    assert f"about {seconds:.0f} s, {n_rounds + 2} round trips" in caplog.text
    details = {"round_trips": n_rounds + 2, "seconds": seconds, "is_final": True}
    assert [vars(record)["details"] for record in caplog.records] == [details]


def test_rounds_that_follow_from_a_count_are_left_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans.server"):
        announce(plan(None, 5))
    assert "each of 3 round trips and of the rounds that follow" in caplog.text
