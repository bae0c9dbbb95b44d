"""Lower bounds from one run with many canaries.

Small cases by hand, and mechanisms whose epsilon is known.
"""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, norm

from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon
from simulations.audit import one_run
from simulations.audit.one_run import (
    Guesses,
    OneRunMethod,
    binomial_p_value,
    count_guesses,
    gdp_rejected,
    one_run_bound,
)


def test_examples() -> None:
    assert doctest.testmod(one_run).failed == 0


def test_guesses_by_hand() -> None:
    scores = np.array([5.0, -3.0, 0.0, 4.0, -4.0, 1.0])
    present = np.array([True, True, False, True, False, False])
    assert count_guesses(scores, present, n_high=2, n_low=2) == Guesses(6, 4, 3)
    assert count_guesses(scores, present, n_high=3, n_low=0) == Guesses(6, 3, 2)
    assert count_guesses(scores, present, n_high=0, n_low=1) == Guesses(6, 1, 1)
    assert (
        count_guesses(
            np.array([np.inf, 0.0]), np.array([True, False]), n_high=1, n_low=1
        ).n_correct
        == 2
    )


def test_pure_privacy_is_a_binomial_tail() -> None:
    rate = math.exp(1.5) / (1.0 + math.exp(1.5))
    for correct in (0, 12, 20):
        assert binomial_p_value(Guesses(50, 20, correct), 1.5, 0.0) == pytest.approx(
            binom.sf(correct - 1, 20, rate)
        )


def test_delta_term_by_hand() -> None:
    """Two canaries, two guesses, both right, epsilon 0: W has masses 1/4, 1/2, 1/4."""
    # i = 1: mass of {1} is 1/2; i = 2: mass of {0, 1} is 3/4, halved 3/8. The larger is
    # 1/2; times 2 m delta.
    assert binomial_p_value(Guesses(2, 2, 2), 0.0, 0.01) == pytest.approx(
        0.25 + 2 * 2 * 0.01 * 0.5
    )
    # The number of canaries counts, not that of guesses.
    assert binomial_p_value(Guesses(10, 2, 2), 0.0, 0.01) == pytest.approx(
        0.25 + 2 * 10 * 0.01 * 0.5
    )
    assert binomial_p_value(Guesses(10, 2, 2), 0.0, 0.5) == 1.0
    # W is 0, 1, 2, 3 with 1/8, 3/8, 3/8, 1/8; two right: i = 1 gives 3/8, i = 2 gives
    # 4/16.
    assert binomial_p_value(Guesses(3, 3, 2), 0.0, 0.01) == pytest.approx(
        0.5 + 2 * 3 * 0.01 * 0.375
    )


def test_delta_term_covers_a_mechanism_that_fails_altogether() -> None:
    """With probability delta every coin is released, otherwise noise."""
    for delta in (0.001, 0.01, 0.1):
        for count in (5, 50, 500):
            assert binomial_p_value(Guesses(count, count, count), 0.0, delta) >= delta


def largest_possible(mu: float, guesses: int, correct: int) -> float:
    """The largest P[V >= correct] that the two relations of the theorem allow, by
    linear programming over the p_j.

    The convex region alpha_c <= 1 - f(beta_(c-1)) is replaced by tangents, which allow
    a little more.
    """
    from scipy.optimize import linprog

    points = norm.ppf(np.linspace(1e-6, 1.0 - 1e-6, 400))
    slopes, values = np.exp(-mu * points - 0.5 * mu * mu), norm.cdf(points + mu)
    index = np.arange(guesses + 1)
    rows, limits = [], []
    for c in range(1, guesses + 1):
        alpha = np.where(index >= c, index, 0) / guesses
        beta = np.where(index >= c - 1, guesses - index, 0) / guesses
        for slope, value, point in zip(slopes, values, points, strict=True):
            rows.append(alpha - slope * beta)
            limits.append(value - slope * norm.cdf(point))
    found = linprog(
        -(index >= correct).astype(float),
        A_ub=np.array(rows),
        b_ub=limits,
        A_eq=[np.ones(guesses + 1)],
        b_eq=[1.0],
    )
    return float(-found.fun)


@pytest.mark.parametrize(
    ("mu", "guesses", "correct"), [(0.5, 4, 3), (1.0, 6, 5), (2.0, 5, 5), (1.0, 8, 7)]
)
def test_recursion_agrees_with_linear_programming(
    mu: float, guesses: int, correct: int
) -> None:
    largest = largest_possible(mu, guesses, correct)
    observed = Guesses(guesses, guesses, correct)
    assert gdp_rejected(observed, mu, min(largest * 1.02, 1.0 - 1e-9))
    assert not gdp_rejected(observed, mu, largest * 0.98)


def test_abstaining_is_worth_the_same_as_fewer_canaries_where_it_should_be() -> None:
    """r of m guesses reject nothing that r of r would not have rejected."""
    for mu in (0.3, 1.0, 2.0):
        for level in (0.05, 0.3):
            for correct in (15, 18, 20):
                if gdp_rejected(Guesses(40, 20, correct), mu, level):
                    assert (
                        one_run_bound(
                            Guesses(40, 20, correct),
                            1e-5,
                            OneRunMethod.GDP,
                            1.0 - level,
                        ).mu
                        >= mu
                    )  # type: ignore[operator]
    one = one_run_bound(Guesses(1000, 100, 100), 1e-5, OneRunMethod.GDP).epsilon
    assert (
        one
        > one_run_bound(Guesses(1000, 100, 90), 1e-5, OneRunMethod.GDP).epsilon
        > 0.0
    )


def randomised_response(
    generator: np.random.Generator, coins: np.ndarray, epsilon: float
) -> np.ndarray:
    """Each coin is told truly with probability e^epsilon / (1 + e^epsilon).

    Noise only breaks ties.
    """
    true = generator.random(coins.size) < 1.0 / (1.0 + math.exp(-epsilon))
    return np.where(coins == true, 1.0, -1.0) + 1e-3 * generator.random(coins.size)


def gaussian(
    generator: np.random.Generator, coins: np.ndarray, mu: float
) -> np.ndarray:
    """Each coin is shifted by mu under unit noise of its own."""
    return mu * coins + generator.normal(size=coins.size)


def audits(
    mechanism: Callable[[np.random.Generator, np.ndarray, float], np.ndarray],
    parameter: float,
    method: OneRunMethod,
    *,
    canaries: int,
    share: float,
    repeats: int,
    confidence: float,
) -> list[float]:
    """Bounds of independent one-run audits."""
    generator, values = np.random.default_rng(11), []
    each = int(0.5 * share * canaries)
    for _ in range(repeats):
        coins = generator.random(canaries) < 0.5
        scores = mechanism(generator, coins, parameter)
        guesses = count_guesses(scores, coins, n_high=each, n_low=each)
        values.append(one_run_bound(guesses, 1e-5, method, confidence).epsilon)
    return values


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_randomised_response_is_bounded_and_nearly_reached(epsilon: float) -> None:
    values = audits(
        randomised_response,
        epsilon,
        OneRunMethod.BINOMIAL,
        canaries=2000,
        share=0.5,
        repeats=40,
        confidence=0.999,
    )
    assert max(values) <= epsilon
    if epsilon >= 1.0:
        assert np.mean(values) > 0.6 * epsilon


@pytest.mark.parametrize("mu", [0.5, 2.0, 5.0])
def test_gaussians_are_bounded_by_both_methods_and_better_by_the_second(
    mu: float,
) -> None:
    truth, means = gaussian_epsilon(mu, 1e-5), {}
    for method in OneRunMethod:
        values = audits(
            gaussian, mu, method, canaries=1000, share=0.2, repeats=12, confidence=0.95
        )
        assert max(values) <= truth
        means[method] = np.mean(values)
    if mu >= 2.0:
        assert means[OneRunMethod.GDP] > 1.1 * means[OneRunMethod.BINOMIAL] > 2.0


def test_binomial_bound_is_tight_for_randomised_response_at_low_confidence() -> None:
    """Half of the audits may exceed it."""
    values = audits(
        randomised_response,
        1.0,
        OneRunMethod.BINOMIAL,
        canaries=400,
        share=1.0,
        repeats=100,
        confidence=0.5,
    )
    assert 0.15 <= np.mean([value > 1.0 for value in values]) <= 0.5
