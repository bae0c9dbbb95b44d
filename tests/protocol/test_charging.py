"""A node's decision and its charge are one.

Many runs that are allowed at once are not all charged.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.asked_plans import room_for
from support.ledger_entries import charged_epsilon
from support.protocol_federation import grid_parts, make_federation, small_config

from flwr_dpkmeans.errors import BudgetError, RefusalError
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.ledger import MemoryLedger, unfinished
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.sums.draft import draft_plan, worst_case

N_REQUESTS = 41
SIZES = (120, 80, 60)


def settings_of(ledger: Any) -> NodeSettings:
    """Room for four runs of epsilon 1 without retries."""
    policy = ClientPolicy(max_epsilon_total=room_for(4.3, 1.0), max_delta_total=1e-6)
    return NodeSettings(policy, ledger, "rows")


def ask(ledger: Any, run_id: int, wait: Callable[[], Any]) -> str:
    """One run: its plan is allowed, and when all are, its first release is due."""
    config = small_config(epsilon=1.0, max_retries=0, delta=1e-6)
    plan = draft_plan(config, run_id=run_id, n_clients=3, seed=7, n_features=2)
    protocol: Any = SimpleNamespace(run_id=run_id, node_id=2)
    memory: Any = SimpleNamespace(party=protocol, plan=plan, agreed_digest=b"\1")
    guard = NodeGuard(settings_of(ledger), run_id, 2, 2, 0.0)
    guard.require_allowed(plan)
    wait()
    try:
        guard.charge(memory, 1, 0, 3)
    except RefusalError as error:
        return str(error)
    return "charged"


def require_four(told: list[str], spent: float) -> None:
    assert len(told) == N_REQUESTS
    assert told.count("charged") == 4
    assert all(
        "what is left of this client's max_epsilon_total of 2" in one
        for one in told
        if one != "charged"
    )
    assert 3.9 < spent <= 4.0


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_threads_that_were_all_allowed_are_charged_no_more_than_fits(
    tmp_path: Path, kind: str
) -> None:
    ledger = MemoryLedger() if kind == "memory" else FileLedger(tmp_path / "ledger")
    start, told = threading.Barrier(N_REQUESTS), []

    def run(run_id: int) -> None:
        told.append(ask(ledger, run_id, start.wait))

    threads = [
        threading.Thread(target=run, args=(run_id,))
        for run_id in range(1, N_REQUESTS + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    require_four(told, charged_epsilon(ledger, "rows", "record"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_processes_that_were_all_allowed_are_charged_no_more_than_fits(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(N_REQUESTS), context.Queue()

    def run(run_id: int) -> None:
        answers.put(ask(FileLedger(tmp_path / "ledger"), run_id, start.wait))

    processes = [
        context.Process(target=run, args=(run_id,))
        for run_id in range(1, N_REQUESTS + 1)
    ]
    for process in processes:
        process.start()
    told = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=180)
    require_four(
        told, charged_epsilon(FileLedger(tmp_path / "ledger"), "rows", "record")
    )


# -- what a run is charged -------------------------------------------------------------


@pytest.mark.parametrize("n_examples", [300, None])
def test_a_run_is_charged_once_in_full_with_its_first_release(
    n_examples: int | None,
) -> None:
    """Whoever stops it later saves nothing, before it nothing is charged."""
    federation = make_federation(grid_parts(SIZES))
    spent = []

    def on_request(_: Any) -> bool:
        spent.append(charged_epsilon(federation.ledgers[2], "rows", "record"))
        return True

    federation.faults.on_request = on_request
    result = federation.start(epsilon=1.0, n_examples=n_examples)
    assert set(spent) == {0.0, result.privacy.epsilon_worst_case}
    assert spent == sorted(spent)
    assert (
        worst_case(federation.plan)
        == result.privacy.epsilon_worst_case
        >= federation.plan.epsilon_worst_case
    )
    for ledger in federation.ledgers.values():
        assert (
            charged_epsilon(ledger, "rows", "record")
            == result.privacy.epsilon_worst_case
        )


def test_a_run_that_is_stopped_before_its_first_release_costs_nothing() -> None:
    federation = make_federation(
        grid_parts(SIZES), policies={3: ClientPolicy(max_epsilon_per_run=0.5)}
    )
    with pytest.raises(RefusalError):
        federation.start(epsilon=1.0)
    assert federation.charges() == 0


def test_runs_in_both_units_have_a_total_each() -> None:
    """Neither is added to the other, and each is held against the policy's total."""
    ledgers = {node: MemoryLedger() for node in (2, 3, 4)}
    policy = ClientPolicy(max_epsilon_total=1.5, max_delta_total=1e-6)
    for unit in ("record", "client"):
        federation = make_federation(grid_parts(SIZES), policy=policy, ledgers=ledgers)
        federation.start(epsilon=1.0, unit=unit, delta=1e-6)
        assert 1.0 <= charged_epsilon(ledgers[2], "rows", unit) <= 1.5
        federation = make_federation(grid_parts(SIZES), policy=policy, ledgers=ledgers)
        with pytest.raises(RefusalError, match="what is left of this client"):
            federation.start(epsilon=1.0, unit=unit, delta=1e-6)


# -- series of runs --------------------------------------------------------------------


@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_a_context_that_served_an_earlier_run_serves_the_next_one_of_the_series(
    dropout: str,
) -> None:
    """Flower keeps one context for a series of runs."""
    parts = grid_parts((60,) * 6)
    first = make_federation(parts)
    first.start(dropout=dropout)
    second = make_federation(parts, ledgers=first.ledgers)
    for node in first.clients:
        second.grid.contexts[node].state.update(first.grid.contexts[node].state)
    result = second.start(dropout=dropout)
    assert result.confirmed == tuple(first.clients)
    assert result.privacy.n_attempts == second.plan.last_round
    ledger = first.ledgers[2]
    spent = charged_epsilon(ledger, "rows", "record")
    assert spent == pytest.approx(2 * result.privacy.epsilon_worst_case)
    past = ledger.past("rows", "record")
    assert past.cost.mu == pytest.approx(math.sqrt(2.0) * ledger.entries()[0].mu)
    assert len(past.begun) == 2


def test_a_run_does_not_go_on_with_the_memory_of_another() -> None:
    parts = grid_parts((60,) * 4)
    first = make_federation(parts)
    first.start()
    second = make_federation(parts)

    def on_request(message: Any) -> bool:
        node = message.metadata.dst_node_id
        second.grid.contexts[node].state.update(first.grid.contexts[node].state)
        return True

    second.faults.on_request = on_request
    with pytest.raises(Exception, match="clients are left"):
        second.start()
    assert second.charges() == 0


# -- runs that have had no result ------------------------------------------------------


class KilledError(Exception):
    """The server is gone."""


def test_a_run_whose_server_is_killed_is_told_at_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A ledger knows which runs had a result, at no cost."""
    parts, ledgers = grid_parts(SIZES), {node: MemoryLedger() for node in (2, 3, 4)}
    complete = make_federation(parts, ledgers=ledgers)
    cost = complete.start(epsilon=1.0).privacy.epsilon_worst_case
    for ledger in ledgers.values():
        *_, last = ledger.entries()
        assert (last.attempt, last.release, last.is_release) == (
            RESULT_TAKEN,
            "the result",
            False,
        )
        assert charged_epsilon(ledger, "rows", "record") == cost
        assert unfinished(ledger, "rows") is None
    killed = make_federation(parts, ledgers=ledgers)

    def on_request(_: Any) -> bool:
        if any(run == killed.grid.run.run_id and index == 2 for run, index in given()):
            raise KilledError
        return True

    def given() -> list[tuple[int, int]]:
        entries = ledgers[4].entries()
        return [
            (int(entry.run_id.partition("/")[0]), entry.round_index)
            for entry in entries
        ]

    killed.faults.on_request = on_request
    caplog.set_level("WARNING")
    with pytest.raises(KilledError):
        killed.start(epsilon=1.0)
    assert "has had no result" not in caplog.text
    assert "unless it is going on now" not in caplog.text
    make_federation(parts, ledgers=ledgers).start(epsilon=1.0)
    for node, ledger in ledgers.items():
        told = f"run {killed.grid.run.run_id}/{node} gave its last release"
        assert caplog.text.count(told) == 1
        assert charged_epsilon(ledger, "rows", "record") == pytest.approx(3 * cost)
    assert (
        "and has had no result: unless it is going on now, it has ended elsewhere, and"
        f" its epsilon {cost:.4g}" in (caplog.text)
    )


def test_a_ledger_that_fails_at_the_end_costs_nobody_the_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(MemoryLedger):
        """Takes no more than releases."""

        def charge(self, entry: LedgerEntry, admit: Any = None) -> None:
            if entry.attempt == RESULT_TAKEN:
                raise BudgetError(
                    "the ledger cannot be used (No space left on device)."
                )
            super().charge(entry, admit)

    federation = make_federation(grid_parts(SIZES), ledgers={3: Full()})
    assert federation.start(epsilon=1.0).confirmed == (2, 3, 4)
    assert caplog.text.count("No space left on device") == 1
