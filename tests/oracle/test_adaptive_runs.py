"""What a ledger's total is worth against whoever chooses each run by what all runs
before it have released.

An adversary sees the exact loss so far, and picks the next run from a menu, or stops.
The ledger's rule must keep every such strategy within the total. Filters that do not
are planted, and must be seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from support.asked_plans import gaussian_cost
from support.ledger_entries import charge, entry
from support.stopping import (
    Failure,
    Filter,
    Gaussian,
    Response,
    Run,
    adaptive_delta,
    composed_delta,
)

from flwr_dpkmeans.errors import BudgetError
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.privacy.gaussian_cost import (
    GaussianCost,
    Total,
    largest_mu,
    pure_mu,
)

EPSILON, DELTA = 3.0, 1e-5
WHOLE = Total(EPSILON, DELTA).cost
NUMERICS = 1.002
MUCH_MORE = r"gets (1\.[89]|2\.[01])\d times the total delta"


def cost_of(run: Run) -> GaussianCost:
    """What a ledger is charged for a run."""
    match run:
        case Gaussian():
            return GaussianCost(run.mu)
        case Response():
            return GaussianCost(pure_mu(run.epsilon))
        case Failure():
            return GaussianCost(0.0, run.probability)


def price_of(run: Run) -> tuple[float, float]:
    """Epsilon and delta of a run alone."""
    match run:
        case Gaussian():
            return GaussianCost(run.mu).epsilon(DELTA), DELTA
        case Response():
            return run.epsilon, 0.0
        case Failure():
            return 0.0, run.probability


def ledger_allows(history: tuple[Run, ...], run: Run) -> bool:
    """Ask the real ledger, under the real policy."""
    ledger = MemoryLedger()
    for index, other in enumerate(history):
        ledger.charge(charged(f"run-{index}", other))
    try:
        charge(ledger, charged("run-new", run), EPSILON, DELTA)
    except BudgetError:
        return False
    return True


def charged(name: str, run: Run) -> LedgerEntry:
    epsilon, delta = price_of(run)
    cost = cost_of(run)
    return entry(name, 0, epsilon, delta=delta, mu=cost.mu, own_delta=cost.own_delta)


def curves_allow(history: tuple[Run, ...], run: Run) -> bool:
    """Compose the whole privacy curves of what was run, and of what is asked for.

    It is exact for runs that were fixed beforehand, and no filter: Honkela, Koskela,
    Tran and Raisa, arXiv 2602.06756.
    """
    return composed_delta((*history, run), EPSILON) <= DELTA


def either_allows(history: tuple[Run, ...], run: Run) -> bool:
    """One delta, for mu and for failures, whichever comes first."""
    total = GaussianCost()
    for item in (*history, run):
        total = total.and_run(cost_of(item))
    left = DELTA - total.own_delta
    return left > 0.0 and total.mu <= largest_mu(EPSILON, left)


def require_valid(menu: Sequence[Run], allows: Filter) -> float:
    """Fail if some strategy gets more than the total; return what the best one gets."""
    ratio = adaptive_delta(menu, allows, EPSILON) / DELTA
    assert ratio <= NUMERICS, (
        f"whoever chooses runs as releases come gets {ratio:.2f} times the total delta"
    )
    return ratio


def part(square: float) -> Gaussian:
    """Gaussian noise of so much of the total's squares."""
    return Gaussian(WHOLE.mu * math.sqrt(square))


MENUS: dict[str, list[Run]] = {
    "one kind": [part(1 / 5)],
    "large and small": [part(1 / 2), part(1 / 5)],
    "with failures": [part(1 / 4), part(1 / 2), Failure(0.25 * WHOLE.own_delta)],
    "all of delta": [part(1 / 4), Failure(DELTA), Failure(0.5 * DELTA)],
    "with responses": [part(1 / 3), Response(0.2), Response(0.3)],
    "one that may only come alone": [part(1 / 3), Response(2.9)],
    "everything": [part(1 / 3), Response(0.3), Failure(0.5 * WHOLE.own_delta)],
}


@pytest.mark.parametrize("menu", MENUS)
def test_no_choice_of_runs_gets_more_than_the_total(menu: str) -> None:
    require_valid(MENUS[menu], ledger_allows)


@pytest.mark.parametrize("n_runs", [1, 2, 4, 10])
def test_gaussian_runs_may_use_all_of_it(n_runs: int) -> None:
    """But for the part that is for what is not Gaussian."""
    assert require_valid([part(1 / n_runs)], ledger_allows) > 0.98


TRADE: list[Run] = [
    part(1 / 2),
    Gaussian(largest_mu(EPSILON, DELTA) * math.sqrt(0.499)),
    Failure(0.99 * DELTA),
]
"""Runs of which two, or a single failure after one of them, use up delta."""


def test_a_filter_that_composes_whole_curves_is_caught() -> None:
    """Each sequence alone is within the total, and a choice between them is not."""
    with pytest.raises(AssertionError, match=MUCH_MORE):
        require_valid(TRADE, curves_allow)
    require_valid(TRADE, ledger_allows)


def test_a_delta_that_either_may_take_is_caught() -> None:
    with pytest.raises(AssertionError, match=MUCH_MORE):
        require_valid(TRADE, either_allows)


def test_curves_that_cross_are_caught_where_nothing_can_fail() -> None:
    """After a first Gaussian run, another one or randomized responses.

    Each of these sequences costs delta, and the choice twice as much: where the loss is
    low by now only the Gaussian one can still get beyond epsilon, where it is high the
    responses surely do.
    """
    rest = Gaussian(largest_mu(EPSILON, DELTA) * math.sqrt(0.699))
    menu: list[Run] = [part(0.3), rest, Response(1.49), Response(0.77)]
    for runs in ([part(0.3), rest], [part(0.3), Response(1.49)]):
        assert 0.9 * DELTA < composed_delta(runs, EPSILON) <= DELTA
    with pytest.raises(AssertionError, match=MUCH_MORE):
        require_valid(menu, curves_allow)
    require_valid(menu, ledger_allows)


def test_a_ledger_that_forgets_is_caught() -> None:
    """Of all runs only the last two count."""

    def allows(history: tuple[Run, ...], run: Run) -> bool:
        return len(history) < 5 and ledger_allows(history[-2:], run)

    with pytest.raises(AssertionError, match="times the total delta"):
        require_valid([part(1 / 3)], allows)


def test_a_conversion_of_pure_runs_that_is_too_cheap_is_caught() -> None:
    """Many responses are nearly Gaussian noise of 0.8 times their mu."""

    def allows(history: tuple[Run, ...], run: Run) -> bool:
        square = math.fsum(cost_of(item).mu ** 2 for item in (*history, run))
        return 0.65**2 * square <= WHOLE.mu**2

    menu: list[Run] = [Response(WHOLE.mu / 6.0)]
    with pytest.raises(AssertionError, match="times the total delta"):
        require_valid(menu, allows)
    require_valid(menu, ledger_allows)


@pytest.mark.parametrize("square", [0.2, 0.9])
def test_the_oracle_agrees_with_the_closed_form(square: float) -> None:
    mu = part(square).mu
    expected = gaussian_cost(GaussianCost(mu).epsilon(DELTA), DELTA).mu
    assert expected == pytest.approx(mu)
    at = GaussianCost(mu).epsilon(DELTA)
    assert composed_delta([Gaussian(mu)], at) == pytest.approx(DELTA, rel=1e-3)
    two = [Gaussian(mu * math.sqrt(0.5))] * 2
    assert composed_delta(two, at) == pytest.approx(DELTA, rel=1e-3)
