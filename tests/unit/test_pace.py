"""A run's length is said before it starts: T + 2 round trips."""

from __future__ import annotations

import logging
import runpy
import time

import pytest
from flwr.supernode import start_client_internal
from support.machine import type_command

from flwr_dpkmeans.flower.strategy import FastLloyd, announce
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


def test_a_supernode_looks_three_times_as_often_as_flower_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where Flower asks each three: it still waits there, and by nothing but the
    module's own clock.
    """
    slept: list[float] = []
    waits = start_client_internal.start_client_internal.__code__
    assert {"time", "sleep"} <= {*waits.co_names}
    assert 3 in waits.co_consts
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(start_client_internal, "time", time)
    monkeypatch.setattr(
        "flwr.supernode.cli.flower_supernode",
        lambda: start_client_internal.time.sleep(3),
    )
    for name in (
        "get_fused_config_from_fab",
        "_push_messages",
    ):  # which the program replaces
        monkeypatch.setattr(
            start_client_internal, name, getattr(start_client_internal, name)
        )
    type_command(monkeypatch, ["supernode", "--eager"])
    runpy.run_module("flwr_dpkmeans.deploy.supernode", run_name="__main__")
    assert slept == [1.0]
