"""What a node's guard refuses, writes down and logs, case by case."""

from __future__ import annotations

import contextvars
import logging
import math
import time
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flwr_dpkmeans.errors import BudgetError, ProtocolError, RefusalError
from flwr_dpkmeans.node.guard import NodeGuard, cost_of
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import (
    RESULT_TAKEN,
    SHARES_GIVEN,
    LedgerEntry,
    MemoryLedger,
)
from flwr_dpkmeans.node.node_log import log_plan
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.node.settings import NodeSettings
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.messages import Stage, SumRequest, UnmaskRequest
from flwr_dpkmeans.secagg.party import Phase
from flwr_dpkmeans.secagg.pins import pin_mark
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.draft import draft_plan, worst_case
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.wire import Request, terms_digest

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
        "data_id": "rows",
        "plan_digest": "abcd",
        "release": "sums",
        "epsilon": 1.5,
        "delta": 1e-6,
    }
    for index, attempt in attempts:
        entry = LedgerEntry(
            run_id=run,
            round_index=index,
            attempt=attempt,
            unit="record",
            **given | values,
        )
        node.settings.ledger.charge(entry)


class Broken(MemoryLedger):
    """A ledger on a disk that has failed."""

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        raise BudgetError("the disk is gone")


# -- what is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "age", "late"),
    [
        (None, 1e9, False),
        (600.0, 500.0, False),
        (600.0, 700.0, True),
        (0.5, 9.5, False),
        (0.5, 11.0, True),
    ],
)
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
        (1, 0), protocol=SimpleNamespace(cohort=SimpleNamespace(members=(1, 2, 3)))
    )
    node.give_shares(told, UnmaskRequest(1, 0, (2, 3)))
    assert [(entry.attempt, entry.release) for entry in node.settings.ledger.entries()][
        1:
    ] == [(SHARES_GIVEN, f"key shares of {plan().round_at(1).name}")]
    with pytest.raises(
        ProtocolError, match="shares of round 1, attempt 0 of run 7 were given already"
    ):
        node.give_shares(told, UnmaskRequest(1, 0, (2, 3)))
    with pytest.raises(ProtocolError, match="lacks releases"):
        node.give_shares(memory((1, 0), (2, 0)), UnmaskRequest(2, 0, (2, 3)))


@pytest.mark.parametrize(("last", "told"), [((2, 1), True), ((2, RESULT_TAKEN), False)])
def test_a_run_without_a_result_is_spoken_of_before_the_next(
    last: tuple[int, int], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = guard()
    charged(node, (1, 0), last, run="5/3")
    node.require_new_run()
    assert ("run 5/3 gave its last release" in caplog.text) is told


def test_sums_without_noise_are_released_in_simulation_only() -> None:
    exact = plan(evaluation="exact")
    guard(simulated=True).require_approved(exact, b"digest")
    with pytest.raises(
        RefusalError,
        match="which releases sums without noise and exists in simulation only",
    ):
        guard().require_approved(exact, b"digest")


def test_a_plan_is_allowed_by_the_digest_of_its_terms() -> None:
    guard(ClientPolicy(approved_plan_digests=(terms_digest(plan()),))).require_allowed(
        plan()
    )
    with pytest.raises(RefusalError, match=f"have the digest '{terms_digest(plan())}'"):
        guard(ClientPolicy(approved_plan_digests=("0" * 64,))).require_allowed(plan())


@pytest.mark.parametrize(
    ("own", "allowed", "fits"),
    [
        (
            ("b", "a"),
            ((0.0, 10.0), (-1.0, 1.0)),
            True,
        ),  # the second of the plan's ranges is that of the first column
        (("b", "a"), ((-1.0, 1.0), (0.0, 10.0)), False),
        (("a", "b"), ((-1.0, 1.0), (0.0, 10.0)), True),
        ((), ((-1.0, 1.0), (0.0, 10.0)), True),
        ((), ((0.0, 10.0), (-1.0, 1.0)), False),
    ],
)
def test_ranges_are_held_against_the_policy_in_the_order_of_the_own_table(
    own: Any, allowed: Any, fits: bool
) -> None:
    named = plan(bounds=((-1.0, 0.0), (1.0, 10.0)), feature_names=("a", "b"))
    node = guard(ClientPolicy(allowed_bounds=allowed))
    if fits:
        node.require_names(named, own)
    else:
        with pytest.raises(RefusalError, match="the plan's bounds of feature 0"):
            node.require_names(named, own)


def test_a_table_without_names_is_matched_by_position(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        guard(ClientPolicy(allowed_bounds=((-1.0, 1.0),))).require_names(
            plan(), ("a", "b")
        )
        assert "has no column names" not in caplog.text
        guard().require_names(plan(), ())
        assert "has no column names: its columns are matched by position" in caplog.text


# -- whom it knows ---------------------------------------------------------------------


def test_a_node_that_pins_says_whom_in_marks_of_the_run() -> None:
    own, peer = Identity.generate(), Identity.generate()
    node = guard(
        ClientPolicy(pinned_peers=(("ward-8", peer.public_key.hex()),)), identity=own
    )
    assert node.marks() == {
        pin_mark(own.public_key, RUN),
        pin_mark(peer.public_key, RUN),
    }
    assert guard(identity=own).marks() == guard().marks() == frozenset()
    asked = Request(Stage.SUM, body=SimpleNamespace(credentials={}))
    for one in (node, guard(identity=own)):
        contextvars.copy_context().run(
            one.name_peers, None, asked
        )  # before anything is remembered of the run


@pytest.mark.parametrize(
    ("n_recognised", "simulated", "words"),
    [(2, False, "2"), (2, True, "2"), (0, True, "simul"), (0, False, "not")],
)
def test_the_report_says_what_is_known_of_the_others(
    n_recognised: int, simulated: bool, words: str
) -> None:
    said = [
        guard(simulated=which).identities(n)
        for which, n in ((False, 2), (True, 2), (True, 0), (False, 0))
    ]
    assert said[0] == said[1]
    assert len(set(said)) == 3
    assert words in guard(simulated=simulated).identities(n_recognised)


# -- what is written down --------------------------------------------------------------


def test_a_release_is_charged_with_what_the_whole_run_can_cost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = guard()
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        node.charge(memory(), 1, 0, 3)
    cost = f"{worst_case(plan()):.4g}"
    assert (
        f"gave: lloyd-1, masked, in a sum of 3 clients; ledger: epsilon {cost} for all"
        " of this run" in caplog.text
    )
    node.charge(memory((1, 0)), 2, 1, 3)
    first, second = node.settings.ledger.entries()
    assert (first.run_id, first.plan_digest, first.unit) == ("7/3", "abcd", "record")
    assert [(one.round_index, one.attempt, one.release) for one in (first, second)] == [
        (1, 0, plan().round_at(1).name),
        (2, 1, plan().round_at(2).name),
    ]
    assert first.epsilon == second.epsilon == worst_case(plan())
    assert first.delta == plan().delta
    assert (
        cost_of(plan(algorithm="lloyd"))
        == cost_of(plan(noise="seeded", random_state=1))
        == math.inf
    )


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


@pytest.mark.parametrize(
    ("attempts", "phase", "n_releases", "told"),
    [
        ([], None, 0, "stopped this run, and it has cost nothing here; it says: why"),
        (
            [(1, 0)],
            Phase.MASKED,
            1,
            (
                "stopped this run, and what 1 release(s) cost here stays charged; it"
                " says: why"
            ),
        ),
        (
            [(1, 0), (1, SHARES_GIVEN - 1), (1, SHARES_GIVEN), (2, RESULT_TAKEN)],
            Phase.FINISHED,
            2,
            (
                "stopped this run, of whose end this node had heard before, and what 2"
                " release(s) cost here stays charged;"
            ),
        ),
    ],
)
def test_a_stopped_run_is_logged_with_its_releases(
    attempts: Any,
    phase: Phase | None,
    n_releases: int,
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = guard()
    charged(node, *attempts)
    node.stopped(
        None if phase is None else memory(protocol=SimpleNamespace(phase=phase)), "why"
    )
    assert told in caplog.text
    assert [vars(line)["details"]["n_releases"] for line in caplog.records] == [
        n_releases
    ]


def test_a_stopped_run_is_logged_where_the_ledger_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard(ledger=Broken()).stopped(None, "why")
    assert (
        "stopped this run, and its ledger cannot be read; it says: why" in caplog.text
    )
    assert vars(caplog.records[-1])["details"]["n_releases"] == -1


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {},
            (
                "2 rounds, 3 clients, unit record, epsilon 2 (at most {worst} with all"
                " 1 retries) at delta {delta}; "
            ),
        ),
        (
            {"algorithm": "lloyd"},
            (
                "epsilon inf (at most inf with all 1 retries) at delta {delta} (NOT"
                " PRIVATE); plan "
            ),
        ),
        (
            {"n_examples": None, "delta": 1e-6},
            "rounds still to be planned, 3 clients, unit record, epsilon 2 (at most",
        ),
    ],
)
def test_a_plan_is_logged_when_it_comes(
    values: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        log_plan(plan(**values), b"\xab" * 32)
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        told.format(worst=f"{worst_case(plan()):.4g}", delta=f"{plan().delta:.3g}")
        in line
    )
    assert line.endswith("plan " + "ab" * 8)


def test_a_plan_without_a_price_is_logged_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is looked at before anything of it is checked."""
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        log_plan(replace(plan(), delta=2.0), b"")
    assert (
        "epsilon nan (at most nan with all 1 retries) at delta 2; plan" in caplog.text
    )


@pytest.mark.parametrize(
    ("n_recognised", "pinned"),
    [(0, ""), (2, ", 2 of them recognised by pinned identities")],
)
def test_what_is_asked_for_is_logged_with_its_cohort_and_noise(
    n_recognised: int, pinned: str, caplog: pytest.LogCaptureFixture
) -> None:
    roster = Roster(0, ((3, bytes(32)), (5, bytes([1] * 32))))
    block = plan().round_at(1).blocks[0]
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        guard().require_open(
            memory(n_recognised=n_recognised), SumRequest(1, 0, roster)
        )
        guard().require_open(memory(n_recognised=n_recognised), SumRequest(1, 0))
    first, second = [record.getMessage() for record in caplog.records]
    start = f"asked for: {plan().round_at(1).name} (round 1 of 2)"
    noise = (
        f"; {block.name} (sensitivity {block.sensitivity.bound:.3g}, gaussian noise"
        f" +-{block.noise_scale:.3g})"
    )
    assert first.startswith(f"{start}; a cohort of 2 clients{pinned}: 3, 5{noise}")
    assert second.startswith(f"{start}{noise}")


@pytest.mark.parametrize(
    ("total", "left"),
    [(math.inf, "."), (5.0, "; epsilon 3.5 is left by"), (1.0, "epsilon 0 is")],
)
def test_a_node_is_told_what_its_runs_have_cost_and_what_is_left(
    total: float, left: str
) -> None:
    node = guard(ClientPolicy(max_epsilon_total=total))
    charged(node, (1, 0))
    told = node.spent(plan())
    assert "may have cost epsilon 1.5 and delta 1e-06 in all, this one included" in told
    assert left in told.partition("included")[2]


def test_keys_that_were_shared_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        for announced in (None, SimpleNamespace(members=(1, 2, 3))):
            told = memory(protocol=SimpleNamespace(announced=announced), n_recognised=2)
            guard().shared(told, 5, 4)
    counts = [vars(line)["details"]["n_clients"] for line in caplog.records]
    assert counts == [0, 3]
    assert (
        "3 clients, 2 of them recognised; 5 neighbours hold shares, 4 give a key back"
        in caplog.text
    )


@pytest.mark.parametrize("simulated", [True, False])
def test_what_a_report_says_against_its_result_is_a_warning_on_a_deployed_node(
    simulated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    report: Any = SimpleNamespace(
        warnings=("few rows", "much noise"), provenance="run 7"
    )
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        guard(simulated=simulated).finished(memory((1, 0), (2, 0)), report)
    warned = [
        line.getMessage() for line in caplog.records if line.levelno == logging.WARNING
    ]
    assert warned == ([] if simulated else ["few rows", "much noise"])
    assert (
        caplog.records[-1].getMessage() == "the result is here, after 2 releases; run 7"
    )


@pytest.mark.parametrize(
    ("total", "spent", "said"), [(math.inf, 1.5, (1.5, "inf")), (5.0, 1.5, (1.5, 5.0))]
)
def test_what_was_allowed_is_logged_in_numbers_that_json_has(
    total: float, spent: float, said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = guard(ClientPolicy(max_epsilon_total=total))
    charged(node, (1, 0), run="6/3", epsilon=spent)
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        node.require_approved(plan(), b"digest")
    details = vars(caplog.records[-1])["details"]
    assert (details["spent"], details["limit"]) == said
    of = "" if math.isinf(total) else f" of {total:.4g}"
    assert f"epsilon 1.5{of} on data set 'rows' was spent in other runs" in caplog.text
