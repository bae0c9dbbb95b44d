"""What ledgers charge, against an adversary who stops runs when they have told much,
and silences clients.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from flwr.app import Message
from support.asked_plans import room_for
from support.ledger_entries import charged_epsilon
from support.messages import RECORD
from support.protocol_federation import Federation, grid_parts, make_federation
from support.stopping import true_delta

from flwr_dpkmeans.errors import CohortError, RefusalError
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.statement import epsilon_after

SIZES = (40, 30, 20)
NUMERICS = 1.002
DELTA = 1e-6


def settings(n_rounds: int, **values: Any) -> dict[str, Any]:
    given = {
        "algorithm": "fastlloyd",
        "max_iter": n_rounds,
        "epsilon": 1.0,
        "delta": DELTA,
        "n_examples": 90_000,
    }
    return given | values


@cache
def finished(n_rounds: int, max_retries: int = 0) -> Federation:
    """A run of the real protocol."""
    federation = make_federation(grid_parts(SIZES))
    federation.start(**settings(n_rounds, max_retries=max_retries))
    return federation


def signals(plan: Plan) -> list[float]:
    """mu of every round, read off its blocks."""
    return [
        math.hypot(*(1.0 / block.noise_multiplier for block in planned.blocks))
        for planned in plan.rounds
    ]


def charged(federation: Federation) -> list[float]:
    """What a client's ledger said after each release."""
    return [
        entry.epsilon for entry in federation.ledgers[2].entries() if entry.is_release
    ]


def released_so_far(plan: Plan) -> list[float]:
    """The price of the releases so far, which is no bound for a run that may be
    stopped.
    """
    attempts = [(index, 0) for index in range(1, plan.last_round + 1)]
    return [epsilon_after(plan, attempts[:n]) for n in range(1, len(attempts) + 1)]


def require_covered(
    mus: Sequence[float], charges: Sequence[float], n_runs: int = 1
) -> None:
    ratio = true_delta(mus, charges, n_runs) / (n_runs * DELTA)
    assert ratio <= NUMERICS, (
        f"whoever stops adaptively gets {ratio:.2f} times the delta that is charged"
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_rounds", [7, 30, 100])
def test_whoever_stops_a_run_gets_no_more_than_was_charged(n_rounds: int) -> None:
    federation = finished(n_rounds)
    assert len(charged(federation)) == n_rounds
    require_covered(signals(federation.plan), charged(federation))
    # It is what the whole run gives, to the last digits, so nothing is paid for
    # nothing.
    assert true_delta(signals(federation.plan), charged(federation)) == pytest.approx(
        DELTA, rel=2e-3
    )


@pytest.mark.parametrize(("n_rounds", "times"), [(7, 4.0), (30, 7.0), (100, 8.0)])
def test_a_price_of_the_releases_so_far_is_caught(n_rounds: int, times: float) -> None:
    """The ledger of former times: an odometer, which nobody may read as a bound."""
    plan = finished(n_rounds).plan
    with pytest.raises(AssertionError, match="whoever stops adaptively gets"):
        require_covered(signals(plan), released_so_far(plan))
    assert true_delta(signals(plan), released_so_far(plan)) > times * DELTA


class BitByBit(MemoryLedger):
    """Charges the price of the releases so far."""

    def __init__(self, plan: Plan, *, is_lenient: bool) -> None:
        super().__init__()
        self.plan = plan
        self.is_lenient = is_lenient
        """Whether the rule that would refuse it is left out, too."""

    def charge(self, entry: LedgerEntry, admit: Any = None) -> None:
        attempts = [(one.round_index, one.attempt) for one in (*self.entries(), entry)]
        cheaper = replace(entry, epsilon=epsilon_after(self.plan, attempts))
        if self.is_lenient:
            self._add(cheaper)
        else:
            super().charge(cheaper, admit)


def test_a_ledger_that_charges_bit_by_bit_is_caught() -> None:
    plan = finished(7).plan

    def federation_of(*, is_lenient: bool) -> Federation:
        nodes = range(FIRST_NODE_ID, FIRST_NODE_ID + len(SIZES))
        ledgers: dict[int, MemoryLedger] = {
            node: BitByBit(plan, is_lenient=is_lenient) for node in nodes
        }
        return make_federation(grid_parts(SIZES), ledgers=ledgers)

    with pytest.raises(CohortError):
        federation_of(is_lenient=False).start(**settings(7, max_retries=0))
    federation = federation_of(is_lenient=True)
    federation.start(**settings(7, max_retries=0))
    with pytest.raises(AssertionError, match="whoever stops adaptively gets"):
        require_covered(signals(plan), charged(federation))


def test_whoever_silences_clients_gets_no_more_than_was_charged() -> None:
    """Repetitions where the loss is high or low, and a stop at any time."""
    federation = finished(7, max_retries=2)
    mus = [*signals(federation.plan), *signals(federation.plan)[:2]]
    require_covered(mus, [charged(federation)[0]] * len(mus))
    cheaper = epsilon_after(
        federation.plan, [(1, 0), (1, 1), *((index, 1) for index in range(2, 8))]
    )
    with pytest.raises(AssertionError, match="times the delta"):
        require_covered(mus, [cheaper] * len(mus))


def test_a_report_without_repetitions_holds_unless_clients_can_be_silenced() -> None:
    """Whoever silences one gets more."""
    federation = finished(7, max_retries=1)
    report = federation.clients[2].privacy_
    assert report is not None
    assert report.epsilon < report.epsilon_worst_case == charged(federation)[0]
    mus = [*signals(federation.plan), signals(federation.plan)[0]]
    require_covered(mus[:7], [report.epsilon] * 7)
    assert (
        true_delta(mus, [report.epsilon] * 7 + [report.epsilon_worst_case])
        > 1.2 * DELTA
    )
    require_covered(mus, [report.epsilon_worst_case] * 8)


def is_sum(message: Message, index: int) -> bool:
    header = json.loads(str(message.content.config_records[RECORD]["header"]))
    return (header["stage"], header.get("round")) == ("sum", index)


def stopped_runs(policy: ClientPolicy) -> tuple[int, float]:
    """Start runs and stop each after its first release, until a node refuses.

    How many, and what its ledger says.
    """
    ledger = MemoryLedger()
    for n_runs in range(20):
        federation = make_federation(
            grid_parts(SIZES), policies={2: policy}, ledgers={2: ledger}
        )
        federation.faults.on_request = lambda message: not is_sum(message, 2)
        try:
            federation.start(**settings(30, max_retries=0))
        except RefusalError:
            return n_runs, charged_epsilon(ledger, "rows", "record")
        except CohortError:
            continue
    raise AssertionError("nobody refused")


@pytest.mark.parametrize("limit", ["epsilon", "delta"])
def test_a_whole_sequence_of_stopped_runs_gets_no_more_than_was_charged(
    limit: str,
) -> None:
    """Under the real policy and ledger."""
    plan = finished(30).plan
    total = room_for(3.3, plan.epsilon, DELTA)
    limits = {"max_delta_total": 3.2 * DELTA}
    if limit == "epsilon":
        limits = {"max_epsilon_total": total, "max_delta_total": DELTA}
    n_runs, spent = stopped_runs(ClientPolicy(**limits))  # type: ignore[arg-type]
    assert n_runs == 3
    assert spent == pytest.approx(3 * plan.epsilon)
    require_covered(signals(plan), charged(finished(30)), n_runs)
    assert (
        true_delta(signals(plan), released_so_far(plan), n_runs) > 2.5 * n_runs * DELTA
    )
    if limit == "epsilon":
        # Within the total, although epsilons add up to 1.5 times as much; a fourth run
        # would be beyond it.
        assert 3 * plan.epsilon > 1.5 * total
        mus = signals(plan)
        require_covered(mus * n_runs, [total] * len(mus) * n_runs)
        with pytest.raises(AssertionError, match="times the delta"):
            require_covered(mus * 4, [total] * len(mus) * 4)
