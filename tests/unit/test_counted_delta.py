"""delta after a private count: small enough for any table, by a rule that everybody
repeats, and free [C15].
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from support.cases import pairs

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import GaussianRelease, PureRelease
from flwr_dpkmeans.sums.checks.verify import require_next, verify_plan
from flwr_dpkmeans.sums.draft import draft_plan, redraft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.statement import build_report

COUNTING = ("proxy_lloyd", "fastlloyd", "glloyd", "sulloyd")
TABLES = (900, 87_000, 999_999, 1_000_001, 4_000_000, 10**9, 2**48)
EPSILON = 1.0


def first_plan(**values: Any) -> Plan:
    """A plan that waits for its private count."""
    defaults: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "fastlloyd",
    }
    return draft_plan(
        parse_config(**defaults | values), run_id=9, n_clients=5, seed=7, n_features=2,
        n_examples=None,
    )  # fmt: skip


def counted(plan: Plan, n: int) -> Plan:
    """The final plan after this count."""
    box: Box | None = ((-1.0, -1.0), (1.0, 1.0)) if plan.config.private_bounds else None
    return redraft_plan(plan, n_features=2, n_examples=n, box=box)


def first_lowered(plan: Plan) -> int:
    """The smallest count that lowers delta from 1e-6."""
    return bisect_left(
        range(100_000), True, lo=80_000, key=lambda n: counted(plan, n).delta < 1e-6
    )


def gdp(plan: Plan, *indices: int) -> float:
    """mu of some rounds' Gaussian releases."""
    events = plan.events(indices)
    return math.sqrt(
        math.fsum(
            e.noise_multiplier**-2 for e in events if isinstance(e, GaussianRelease)
        )
    )


# -- the plan --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "algorithm", "private_bounds"), pairs(TABLES, COUNTING, [False, True])
)
def test_a_table_of_any_size_runs_with_a_delta_below_one_over_n(
    algorithm: str, n: int, private_bounds: bool
) -> None:
    first = first_plan(algorithm=algorithm, private_bounds=private_bounds)
    final = counted(first, n)
    assert final.is_final
    assert final.delta <= min(1e-6, 1.0 / (n * math.log(n)))
    assert 0.999 * EPSILON < final.epsilon <= EPSILON * (1 + 1e-9)
    assert final.preliminary == first.preliminary
    require_next(
        first, final, Discoveries(final.n_examples, final.box), begun=True, released=0
    )
    verify_plan(final)


def test_delta_keeps_away_from_one_over_n_by_deviations_of_the_counts_noise() -> None:
    first = first_plan()
    [block] = first.preliminary[0].blocks
    std = first.released_std(first.preliminary[0], block)
    last = first_lowered(first) - 1
    assert counted(first, last).delta == 1e-6
    assert counted(first, last + 1).delta == 0.25e-6
    n = last + 6.0 * std
    assert 1e-6 <= 1.0 / (n * math.log(n)) < 1e-6 * (1.0 + 1e-4)


def test_a_given_delta_is_lowered_only_where_it_would_not_be_below_one_over_n() -> None:
    assert counted(first_plan(delta=1e-6), 500_000).delta == 1e-6
    assert counted(first_plan(delta=1e-6), 1_000_000).delta == 0.25e-6
    assert counted(first_plan(delta=0.01), 1000).delta == 0.01 / 16
    assert counted(first_plan(delta=1e-15), 10**9).delta == 1e-15


def test_large_shares_of_what_comes_first_leave_something_and_are_reported() -> None:
    values: dict[str, Any] = {
        "private_bounds": True,
        "bounds_share": 0.45,
        "evaluation": "private",
    }
    final = counted(first_plan(**values, evaluation_share=0.4), 10**12)
    assert 0.999 * EPSILON < final.epsilon <= EPSILON * (1 + 1e-9)
    assert final.delta > 1e-12
    warning = next(w for w in build_report(final, [(1, 0)]).warnings if "1/N" in w)
    assert "is not below 1/N" in warning
    assert not [
        w
        for w in build_report(counted(first_plan(), 10**12), [(1, 0)]).warnings
        if "1/N" in w
    ]


def test_a_report_says_that_a_count_has_lowered_delta() -> None:
    def sentences(n: int) -> str:
        return " ".join(
            build_report(counted(first_plan(), n), [(0, 0), (1, 0)]).assumptions
        )

    assert (
        "delta was lowered from 1e-06 to 6.25e-08, as the private count found about"
        " 1000000 rows [C15]" in (sentences(1_000_000))
    )
    assert "lowered" not in sentences(1000)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_a_run_whose_count_lowers_delta_reaches_its_end(algorithm: str) -> None:
    """Every node's ledger is charged the delta that the run began with."""
    parts = [np.random.default_rng(i).uniform(-1.0, 1.0, (2000, 2)) for i in range(2)]
    km = FederatedKMeans(
        3, algorithm=algorithm, bounds=(-1.0, 1.0), n_examples="private", delta=0.01
    ).fit(parts)
    assert km.privacy_.delta == 0.01 / 64
    assert km.privacy_.epsilon <= 1.0 + 1e-9


def test_a_plan_with_another_delta_than_the_counts_is_refused() -> None:
    first = first_plan()
    final = counted(first, 1_000_000)
    for delta in (2e-6, 1e-6, 0.25e-6, 1e-9):
        with pytest.raises(ProtocolError, match="does not follow from its own"):
            verify_plan(replace(final, delta=delta))


def test_what_no_count_can_mend_is_refused_before_it() -> None:
    config = parse_config(n_clusters=100_000, bounds=((-1.0,), (1.0,)), n_features=200)
    with pytest.raises(PlanError, match="entries, but at most"):
        draft_plan(config, run_id=9, n_clients=5, seed=7, n_features=200)
    with pytest.raises(ConfigurationError, match="n_clusters is 30000 with 2 features"):
        first_plan(n_clusters=30_000)


# -- the proof -------------------------------------------------------------------------


def normal_delta(epsilon: np.ndarray[Any, Any], mu: float) -> Any:
    """delta of a Gaussian mechanism at any real epsilon."""
    return np.maximum(
        0.0,
        ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2),
    )


def true_deltas(
    levels: dict[float, tuple[float, float, float]], std: float, n: float, other: float
) -> dict[float, float]:
    """For each reported delta the largest P[E] - exp(epsilon) P'[E] inside of it."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    found = {}
    for delta, (low, high, mu) in levels.items():
        start, end = max(low, n - 12 * std), min(high, n + 12 * std)
        if start >= end:
            continue
        x = 0.5 * (end - start) * nodes + 0.5 * (end + start)
        density = np.exp(-0.5 * ((x - n) / std) ** 2) / (std * math.sqrt(2 * math.pi))
        loss = ((x - other) ** 2 - (x - n) ** 2) / (2 * std**2)
        found[delta] = float(
            0.5 * (end - start) * weights @ (density * normal_delta(EPSILON - loss, mu))
        )
    return found


def levels_of(first: Plan) -> dict[float, tuple[float, float, float]]:
    """The first two levels, at the count that separates them."""
    cut = first_lowered(first)
    plans = [counted(first, cut - 1), counted(first, cut)]
    mus = [gdp(plan, *range(1, plan.last_round + 1)) for plan in plans]
    edge = cut - 0.5
    return {
        plans[0].delta: (-math.inf, edge, mus[0]),
        plans[1].delta: (edge, math.inf, mus[1]),
    }


@pytest.mark.parametrize("shift", [-1.0, 1.0])
@pytest.mark.parametrize("place", [-900.0, -300.0, -30.0, 0.0, 30.0, 300.0, 900.0])
def test_the_reported_delta_covers_every_event_together_with_its_report(
    place: float, shift: float
) -> None:
    """Also where the count's noise makes both reports likely."""
    first = first_plan()
    levels, std = levels_of(first), 1.0 / gdp(first, 0)
    n = next(iter(levels.values()))[1] + place
    found = true_deltas(levels, std, n, n + shift)
    assert all(true <= delta for delta, true in found.items())
    assert math.fsum(found.values()) <= 1e-6


def test_a_smaller_delta_without_its_noise_is_caught() -> None:
    first = first_plan()
    (upper, one), (lower, two) = levels_of(first).items()
    cheated = {upper: one, lower: (two[0], two[1], one[2])}
    n = one[1] + 3000.0
    assert true_deltas(cheated, 1.0 / gdp(first, 0), n, n - 1.0)[lower] > 3.0 * lower


@pytest.mark.parametrize("algorithm", COUNTING)
def test_no_level_has_less_noise_than_the_first(algorithm: str) -> None:
    """So the run is as private as at the first delta, whatever the count."""
    first = first_plan(algorithm=algorithm)
    finals = [counted(first, n) for n in (80_000, 100_000, 1_000_000, 10**9, 2**48)]
    squares = [gdp(plan, *range(plan.last_round + 1)) for plan in finals]
    pure = [
        math.fsum(e.epsilon for e in p.events() if isinstance(e, PureRelease))
        for p in finals
    ]
    assert all(later <= before * (1 + 1e-9) for before, later in pairwise(squares))
    assert all(later <= before * (1 + 1e-6) for before, later in pairwise(pure))
