"""Lower bounds on epsilon from scores: hand-computed cases, coverage where the truth is
known, and degenerate input.
"""

from __future__ import annotations

import doctest
import math
import time

import numpy as np
import pytest
from scipy.stats import binom, norm

from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon
from simulations.audit import bounds
from simulations.audit.bounds import (
    LowerBound,
    Method,
    Rule,
    Scores,
    choose_rule,
    clopper_pearson,
    lower_bound,
)

ABOVE = Rule(1.0, present_above=True)


def coins(false_positives: int, true_positives: int, trials: int = 1000) -> Scores:
    """Scores 0 and 1 with given counts of 1."""
    return Scores(
        np.repeat([0.0, 1.0], [trials - false_positives, false_positives]),
        np.repeat([0.0, 1.0], [trials - true_positives, true_positives]),
    )


def test_examples() -> None:
    assert doctest.testmod(bounds).failed == 0


def test_clopper_pearson_limits_are_where_the_binomial_tails_have_the_miss() -> None:
    low, high = clopper_pearson(7, 40, 0.01)
    assert binom.sf(6, 40, low) == pytest.approx(0.01)
    assert binom.cdf(7, 40, high) == pytest.approx(0.01)
    assert clopper_pearson(0, 5, 0.1) == (0.0, pytest.approx(1.0 - 0.1**0.2))
    assert clopper_pearson(5, 5, 0.1) == (pytest.approx(0.1**0.2), 1.0)


def test_clopper_pearson_covers() -> None:
    """Exactly."""
    limits = [clopper_pearson(count, 30, 0.05) for count in range(31)]
    for rate in (0.001, 0.03, 0.2, 0.5, 0.77, 0.99):
        weights = binom.pmf(np.arange(31), 30, rate)
        assert (
            sum(w for w, (low, _) in zip(weights, limits, strict=True) if low > rate)
            <= 0.05
        )
        assert (
            sum(w for w, (_, high) in zip(weights, limits, strict=True) if high < rate)
            <= 0.05
        )


def test_bound_by_hand() -> None:
    fpr_high, tpr_low = (
        clopper_pearson(100, 1000, 0.025)[1],
        clopper_pearson(500, 1000, 0.025)[0],
    )
    bound = lower_bound(coins(100, 500), ABOVE, 1e-3, Method.CLOPPER_PEARSON)
    assert bound.epsilon == pytest.approx(
        math.log((tpr_low - 1e-3) / fpr_high), rel=1e-12
    )
    assert (
        bound.false_positives,
        bound.true_positives,
        bound.n_absent,
        bound.n_present,
    ) == (100, 500, 1000, 1000)
    assert (bound.mu, bound.delta, bound.confidence, bound.rule) == (
        None,
        1e-3,
        0.95,
        ABOVE,
    )


def test_the_other_direction_counts_as_well() -> None:
    """Where TNR is much larger than FNR."""
    fpr_high, tpr_low = (
        clopper_pearson(500, 1000, 0.025)[1],
        clopper_pearson(990, 1000, 0.025)[0],
    )
    bound = lower_bound(coins(500, 990), ABOVE, 1e-3, Method.CLOPPER_PEARSON)
    assert bound.epsilon == pytest.approx(
        math.log((1.0 - fpr_high - 1e-3) / (1.0 - tpr_low)), rel=1e-12
    )
    assert bound.epsilon > 3.0


def test_gdp_bound_by_hand() -> None:
    fpr_high, tpr_low = (
        clopper_pearson(100, 1000, 0.025)[1],
        clopper_pearson(500, 1000, 0.025)[0],
    )
    bound = lower_bound(coins(100, 500), ABOVE, 1e-6, Method.GDP)
    assert bound.mu == pytest.approx(norm.ppf(tpr_low) - norm.ppf(fpr_high), rel=1e-9)
    assert bound.mu is not None
    assert bound.epsilon == pytest.approx(gaussian_epsilon(bound.mu, 1e-6), rel=1e-9)
    assert bound.epsilon < gaussian_epsilon(bound.mu, 1e-6)


def test_more_confidence_says_less() -> None:
    for method in Method:
        values = [
            lower_bound(coins(100, 500), ABOVE, 1e-6, method, c).epsilon
            for c in (0.5, 0.95, 0.999)
        ]
        assert values[0] > values[1] > values[2] > 0.0


@pytest.mark.parametrize(("mu", "runs"), [(0.5, 1000), (1.0, 400), (3.0, 300)])
@pytest.mark.parametrize("method", list(Method))
def test_bounds_of_gaussians_exceed_the_truth_no_more_often_than_allowed(
    method: Method, mu: float, runs: int
) -> None:
    """Rules are chosen and judged in 200 audits of N(0, 1) against N(mu, 1)."""
    generator, delta = np.random.default_rng(7), 1e-3
    truth = gaussian_epsilon(mu, delta)
    exceeded, values = 0, []
    for _ in range(200):
        training, test = (
            Scores(generator.normal(0.0, 1.0, runs), generator.normal(mu, 1.0, runs))
            for _ in range(2)
        )
        bound = lower_bound(
            test, choose_rule(training, delta, method), delta, method, confidence=0.8
        )
        exceeded += bound.epsilon > truth
        values.append(bound.epsilon)
    assert exceeded <= 40
    # It says something: a clear part of the truth for the GDP bound, above nothing for
    # the other one.
    assert np.mean(values) > (0.6 if method is Method.GDP else 0.2) * truth


def test_limits_are_not_loose_either() -> None:
    """It misses nearly as often as two limits may."""
    generator, mu = np.random.default_rng(8), 1.0
    rule = Rule(0.5, present_above=True)
    exceeded = sum(
        (lower_bound(scores, rule, 1e-3, Method.GDP, confidence=0.5).mu or 0.0) > mu
        for scores in (
            Scores(generator.normal(0.0, 1.0, 2000), generator.normal(mu, 1.0, 2000))
            for _ in range(400)
        )
    )
    # Both limits err at a quarter; the difference of two equal normals at sqrt(2) times
    # that quantile: 17%.
    assert 40 <= exceeded <= 96


def test_rule_finds_the_direction() -> None:
    generator = np.random.default_rng(3)
    low, high = generator.normal(0.0, 1.0, 500), generator.normal(2.0, 1.0, 500)
    for method in Method:
        assert choose_rule(Scores(low, high), 1e-6, method).present_above
        turned = choose_rule(Scores(high, low), 1e-6, method)
        assert not turned.present_above
        assert lower_bound(Scores(high, low), turned, 1e-6, method).epsilon > 1.0


def test_rule_is_the_best_by_brute_force() -> None:
    generator = np.random.default_rng(5)
    scores = Scores(
        np.round(generator.normal(0.0, 1.0, 60), 1),
        np.round(generator.normal(1.5, 1.0, 90), 1),
    )
    for method in Method:

        def promised(rule: Rule, method: Method = method) -> float:
            bound = lower_bound(scores, rule, 1e-3, method, confidence=0.95)
            return bound.epsilon

        every = [
            Rule(t, above)
            for t in np.concatenate([scores.absent, scores.present])
            for above in (True, False)
        ]
        assert promised(choose_rule(scores, 1e-3, method)) == max(
            promised(rule) for rule in every
        )


def test_rule_of_two_hundred_thousand_scores_is_quick() -> None:
    generator = np.random.default_rng(1)
    scores = Scores(
        generator.normal(0.0, 1.0, 100_000), generator.normal(1.0, 1.0, 100_000)
    )
    before = time.process_time()
    choose_rule(scores, 1e-6, Method.GDP)
    assert (
        time.process_time() - before < 10.0
    )  # 0.6 s measured; a quadratic search would take minutes


def empty_handed(scores: Scores) -> list[LowerBound]:
    """Bounds by both methods, with the rule chosen on the same scores."""
    return [
        lower_bound(scores, choose_rule(scores, 1e-6, method), 1e-6, method)
        for method in Method
    ]


def test_scores_that_say_nothing_give_zero() -> None:
    for scores in (
        Scores(np.zeros(50), np.zeros(70)),
        coins(300, 300),
        Scores(np.array([0.0]), np.array([1.0])),
    ):
        clopper, gdp = empty_handed(scores)
        assert clopper.epsilon == gdp.epsilon == gdp.mu == 0.0
        assert clopper.mu is None


def test_infinite_scores_are_in_order() -> None:
    scores = Scores(
        np.full(200, -np.inf),
        np.concatenate([np.full(150, np.inf), np.full(50, -np.inf)]),
    )
    for bound in empty_handed(scores):
        assert bound.rule == Rule(math.inf, present_above=True)
        assert (bound.false_positives, bound.true_positives) == (0, 150)
        assert 3.0 < bound.epsilon < math.inf


def test_perfect_separation_stays_finite() -> None:
    clopper, gdp = empty_handed(Scores(np.zeros(1000), np.ones(1000)))
    assert clopper.epsilon == pytest.approx(
        math.log((0.025**0.001 - 1e-6) / (1.0 - 0.025**0.001))
    )
    assert gdp.mu == pytest.approx(-2.0 * norm.ppf(1.0 - 0.025**0.001), rel=1e-6)
