"""What a node's guard refuses, writes down and logs, case by case."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flwr_dpkmeans.errors import BudgetError, PeerError, ProtocolError, RefusalError
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, SHARES_GIVEN, LedgerEntry
from flwr_dpkmeans.node.node_log import log_plan
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.messages import SumRequest, UnmaskRequest
from flwr_dpkmeans.sums.draft import draft_plan, worst_case
from flwr_dpkmeans.sums.plan import Plan

RUN, NODE = 7, 3


@lru_cache(maxsize=8)
def plan(**values: Any) -> Plan:
    """Two rounds of three clients."""
    given: dict[str, Any] = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "fastlloyd",
        "max_iter": 2,
    }
    config = parse_config(
        **given | {"n_examples": 1_000, "epsilon": 2.0, "max_retries": 1} | values
    )
    return draft_plan(config, run_id=RUN, n_clients=3, seed=0, n_features=2)


def guard(
    policy: ClientPolicy | None = None, *, created: float = 0.0, **settings: Any
) -> NodeGuard:
    given = {
        "policy": policy or ClientPolicy(),
        "ledger": MemoryLedger(),
        "data_id": "rows",
    } | settings
    return NodeGuard(NodeSettings(**given), RUN, NODE, 0, created)


def memory(*attempts: tuple[int, int], **values: Any) -> Any:
    given = {
        "plan": plan(),
        "attempts": attempts,
        "agreed_digest": b"\xab\xcd",
        "n_recognised": 0,
        "cohort": (),
    }
    return cast(Any, SimpleNamespace(**given | values))


def charged(
    node: NodeGuard,
    *attempts: tuple[int, int],
    run: str = f"{RUN}/{NODE}",
    **values: Any,
) -> None:
    given = {
        "data_id": "rows", "plan_digest": "abcd", "release": "sums", "epsilon": 1.5,
        "delta": 1e-6,
    }  # fmt: skip
    for index, attempt in attempts:
        entry = LedgerEntry(
            run_id=run, round_index=index, attempt=attempt, unit="record",
            **given | values,
        )  # fmt: skip
        node.settings.ledger.charge(entry)


class Broken(MemoryLedger):
    """A ledger on a disk that has failed."""

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        raise BudgetError("the disk is gone")


# -- what is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "age", "late"),
    [
        (None, 1e9, False), (600.0, 500.0, False), (600.0, 700.0, True),
        (0.5, 9.5, False), (0.5, 11.0, True),
    ],
)  # fmt: skip
def test_a_request_is_late_when_its_sender_has_given_up_and_ten_seconds_have_passed(
    wait: float | None, age: float, late: bool
) -> None:
    node = guard(created=time.time() - age)
    if late:
        with pytest.raises(
            ProtocolError, match=rf"made {age:.0f} s ago, but the server waits"
        ):
            node.require_in_time(wait)
    else:
        node.require_in_time(wait)


@pytest.mark.parametrize(
    ("in_ledger", "remembered", "sentence"),
    [
        ([], [], None),
        ([(1, 0), (2, 0)], [(1, 0), (2, 0)], None),
        (
            [(1, 0), (1, SHARES_GIVEN)],
            [(1, 0)],
            None,
        ),  # shares that were given are no release
        ([(1, 0)], [(1, 0), (2, 0)], "lacks releases"),
        ([(1, SHARES_GIVEN)], [(1, SHARES_GIVEN)], "lacks releases"),
        ([(1, 0), (2, 0)], [(1, 0)], "does not remember"),
        ([(1, 0), (1, SHARES_GIVEN - 1)], [(1, 0)], "does not remember"),
        ([(1, 1)], [(1, 0)], "lacks releases"),
    ],
)
def test_ledger_and_memory_have_the_same_releases(
    in_ledger: Any, remembered: Any, sentence: str | None
) -> None:
    """As the ledger says now, or as it was just read."""
    node, told = guard(), memory(*remembered)
    charged(node, *in_ledger)
    charged(node, (9, 9), run=f"{RUN}/4")  # another node's part
    if sentence is None:
        node.require_same_history(told)
        node.require_same_history(told, frozenset(in_ledger))
        return
    for entries in ((), (frozenset(in_ledger),)):
        with pytest.raises(ProtocolError, match=sentence):
            node.require_same_history(told, *entries)


def test_what_stands_in_the_ledger_is_not_answered_again() -> None:
    node = guard()
    charged(node, (1, 0))
    node.require_open(memory((1, 0)), SumRequest(2, 1))
    with pytest.raises(ProtocolError, match="stands in this client's ledger already"):
        node.require_open(memory((1, 0)), SumRequest(1, 0))
    with pytest.raises(ProtocolError, match="does not remember"):
        node.require_open(memory(), SumRequest(1, 1))
    with pytest.raises(ProtocolError, match="has releases of run 7 already"):
        node.require_new_run()
    node = guard(ClientPolicy(max_epsilon_total=4.0))
    charged(node, (1, 0), run="6/3")
    with pytest.raises(RefusalError, match="max_epsilon_total of 4"):
        node.require_open(memory(), SumRequest(1, 0))


def test_shares_of_a_sum_are_given_once() -> None:
    node = guard()
    charged(node, (1, 0), epsilon=worst_case(plan()), delta=plan().delta)
    told = memory(
        (1, 0), party=SimpleNamespace(cohort=SimpleNamespace(members=(1, 2, 3)))
    )
    node.give_shares(told, UnmaskRequest(1, 0, (2, 3)))
    assert [(entry.attempt, entry.release) for entry in node.settings.ledger.entries()][
        1:
    ] == [(SHARES_GIVEN, f"key shares of {plan().round_at(1).name}")]
    with pytest.raises(ProtocolError, match="attempt 0 of run 7 were given already"):
        node.give_shares(told, UnmaskRequest(1, 0, (2, 3)))
    with pytest.raises(ProtocolError, match="lacks releases"):
        node.give_shares(memory((1, 0), (2, 0)), UnmaskRequest(2, 0, (2, 3)))


def test_sums_without_noise_are_released_in_simulation_only() -> None:
    exact = plan(evaluation="exact")
    guard(simulated=True).require_approved(exact, b"digest")
    with pytest.raises(RefusalError, match="which releases sums without noise"):
        guard().require_approved(exact, b"digest")


# -- whom it knows ---------------------------------------------------------------------


# -- what is written down --------------------------------------------------------------


@pytest.mark.parametrize(
    ("simulated", "attempts", "n"),
    [(False, [(1, 0)], 1), (True, [(1, 0)], 0), (False, [], 0)],
)
def test_the_end_of_a_run_is_noted_once(simulated: bool, attempts: Any, n: int) -> None:
    node = guard(simulated=simulated)
    for _ in range(2):
        node.ended(memory(*attempts))
    noted = [
        (entry.round_index, entry.attempt, entry.release)
        for entry in node.settings.ledger.entries()
    ]
    assert noted == [(2, RESULT_TAKEN, "the result")] * n


def test_a_ledger_that_fails_at_the_end_takes_no_result_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard(ledger=Broken()).ended(memory((1, 0)))
    assert "cannot answer: the disk is gone" in caplog.text


# -- the node's own log ----------------------------------------------------------------


def test_a_plan_without_a_price_is_logged_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is looked at before anything of it is checked."""
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        log_plan(replace(plan(), delta=2.0), b"")
    assert "unit record, at delta 2; plan" in caplog.text


@pytest.mark.parametrize("values", [{"n_features": -1}, {"n_examples": -5}])
def test_nothing_is_computed_of_a_plan_before_it_is_checked(
    values: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """A line of the log was the price of one, by the server's numbers."""
    first = plan(algorithm="proxy_lloyd", private_bounds=True)
    with (
        caplog.at_level(logging.INFO, "flwr_dpkmeans"),
        pytest.raises(PeerError),
    ):
        guard().require_approved(replace(first, **values), b"digest")
    assert "asked for: " in caplog.text
    assert "costs epsilon" not in caplog.text
