"""Hundreds of runs under random kills, losses of memory, delays, repetitions and
reorderings: never a wrong sum.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from support.chaos import COHORTS, Outcome, run_in_a_storm

from flwr_dpkmeans.secagg import retry
from flwr_dpkmeans.secagg.retry_session import RetrySession
from flwr_dpkmeans.sums.client import transitions as mod

TRUSTS = ("oblivious", "central", "distributed")
N_RUNS = 14
"""For each trust model and each way to deal with dropouts."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of refusals need no text."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("dropout", COHORTS)
def test_no_sum_is_wrong_whatever_happens_to_messages(dropout: str, trust: str) -> None:
    require_telling([run_in_a_storm(seed, trust, dropout) for seed in range(N_RUNS)])


def require_telling(outcomes: list[Outcome]) -> None:
    """Faults happened in most runs.

    Enough of those ended well, and enough were stopped, for both to mean something.
    """
    disturbed = [outcome for outcome in outcomes if outcome.faults]
    assert len(disturbed) > 0.7 * len(outcomes)
    ended = sum(outcome.result is not None for outcome in disturbed)
    assert 0.2 * len(disturbed) < ended < 0.9 * len(disturbed)


def run_many() -> None:
    for seed in range(N_RUNS):
        run_in_a_storm(seed, "oblivious", "retry")


def compare_no_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients go on whatever the others' states are."""
    monkeypatch.setattr(retry, "require_equal_tags", lambda *_: None)


def careless_receive(session: Any, node_id: int, reply: Any) -> None:
    """Take any vector of a node that has not answered, of whatever attempt."""
    if node_id in session.roster.keys and node_id not in session.tags:
        session.tags[node_id], session.sealed[node_id] = reply.tag, reply.boxes
        session.total += reply.masked.values


def test_the_checker_of_sums_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where late vectors are taken and tags not compared."""
    monkeypatch.setattr(RetrySession, "take", careless_receive)
    compare_no_tags(monkeypatch)
    with pytest.raises(AssertionError, match="wrong"):
        run_many()


def test_the_checker_of_states_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads one release in three another way is noticed, tags or not."""
    advance, calls = mod.next_state, []

    def sloppy(*args: Any) -> Any:
        state = advance(*args)
        calls.append(1)
        if len(calls) % 3:
            return state
        return state.changed(centroids=state.centroids + np.float64(2.0**-16))

    monkeypatch.setattr(mod, "next_state", sloppy)
    compare_no_tags(monkeypatch)
    with pytest.raises(AssertionError, match=r"states|wrong"):
        run_many()
