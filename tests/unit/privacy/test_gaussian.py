"""The Gaussian formulas against 60-digit arithmetic, quadrature, and dp_accounting."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import gaussian
from flwr_dpkmeans.privacy.calibration import (
    gaussian_noise_multiplier,
    smallest_multiplier,
)
from flwr_dpkmeans.privacy.gaussian import (
    gaussian_delta,
    gaussian_delta_bound,
    gaussian_epsilon,
)
from flwr_dpkmeans.privacy.searches import smallest_true

EPSILONS = (1e-4, 1e-2, 0.3, 1.0, 8.0, 30.0, 100.0)
DELTAS = (1e-30, 1e-20, 1e-12, 1e-6, 1e-3, 0.1)


def true_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """The formula as it stands in the paper, in enough digits that nothing cancels."""
    with mpmath.workdps(400 if epsilon > 300 else 80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)

        def phi(z: mpmath.mpf) -> mpmath.mpf:
            return mpmath.erfc(-z / mpmath.sqrt(2)) / 2

        return phi(-e / m + m / 2) - mpmath.exp(e) * phi(-e / m - m / 2)


@pytest.mark.parametrize("epsilon", [0.0, *EPSILONS, 700.0])
@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.2, 0.4999, 0.5, 1.0, 3.0, 12.0, 40.0])
def test_delta_agrees_with_high_precision(epsilon: float, mu: float) -> None:
    truth = true_delta(epsilon, mu)
    computed = gaussian_delta(epsilon, mu)
    if truth < 1e-300:
        assert computed <= 1e-299
    else:
        assert abs(computed / truth - 1) < 1e-12
        assert truth <= gaussian_delta_bound(epsilon, mu) <= truth * (1 + 1e-11)


@pytest.mark.parametrize("t", [-0.9, 0.0, 0.7, 2.4999, 2.5, 3.3, 8.0, 25.0, 38.0])
def test_the_mills_ratio_and_its_slope_lose_no_digit(t: float) -> None:
    """Far out the slope 1 - t R(t) as a difference would lose three digits."""
    with mpmath.workdps(40):
        ratio = (
            mpmath.sqrt(mpmath.pi / 2)
            * mpmath.exp(mpmath.mpf(t) ** 2 / 2)
            * mpmath.erfc(t / mpmath.sqrt(2))
        )
        assert gaussian.mills_ratio(t) == pytest.approx(
            float(ratio), rel=3e-15, abs=0.0
        )
        assert gaussian.mills_slope(t) == pytest.approx(
            float(1 - t * ratio), rel=3e-14 if t < 2.5 else 2e-15, abs=0.0
        )


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(700.0, 30.0), (150.0, 10.0), (1.0, 1.0), (0.0, 20.0)]
)
def test_the_allowance_for_rounding_by_hand(epsilon: float, mu: float) -> None:
    """2e-13, and 8 roundoffs each for the distance y and the slope x + 2."""
    x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    allowance = 2e-13 + 8 * 2.0**-53 * y * (max(x, 0.0) + 2)
    grown = gaussian_delta_bound(epsilon, mu) / gaussian_delta(epsilon, mu) - 1.0
    assert grown == pytest.approx(allowance, abs=5e-16)


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.5, 0.7), (1.0, 1.0), (3.0, 0.8), (0.1, 2.0)]
)
def test_delta_agrees_with_quadrature_of_the_hockey_stick(
    epsilon: float, mu: float
) -> None:
    from scipy.integrate import quad
    from scipy.stats import norm

    crossing = (
        epsilon / mu + mu / 2
    )  # the likelihood ratio of N(mu, 1) to N(0, 1) is exp(epsilon) there
    value, _ = quad(
        lambda z: norm.pdf(z, mu) - math.exp(epsilon) * norm.pdf(z), crossing,
        crossing + 40, epsabs=1e-14, limit=200,
    )  # fmt: skip
    assert gaussian_delta(epsilon, mu) == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_multiplier_is_private_and_smallest(epsilon: float, delta: float) -> None:
    sigma = gaussian_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, 1 / sigma) <= delta
    assert true_delta(epsilon, 1 / sigma) <= delta
    assert true_delta(epsilon, 1 / (sigma * (1 - 3e-12))) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-9)])
def test_multiplier_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    from dp_accounting.pld import common, privacy_loss_mechanism

    theirs = privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(
        common.DifferentialPrivacyParameters(epsilon, delta)
    ).standard_deviation
    assert gaussian_noise_multiplier(epsilon, delta) == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.3, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_is_enough_and_smallest(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert true_delta(epsilon, mu) <= delta
    if epsilon == 0.0:
        assert true_delta(0.0, mu) <= delta
    else:
        assert true_delta(max(0.0, epsilon - 3e-12 * (epsilon + mu)), mu) > delta


@settings(max_examples=60)
@given(st.floats(-4, 2), st.floats(-30, -1))
def test_multiplier_and_epsilon_are_inverse(
    log_epsilon: float, log_delta: float
) -> None:
    epsilon, delta = 10**log_epsilon, 10**log_delta
    sigma = gaussian_noise_multiplier(epsilon, delta)
    back = gaussian_epsilon(1 / sigma, delta)
    assert back <= epsilon
    assert back >= epsilon - 1e-10 * (epsilon + 1 / sigma)


@settings(max_examples=60)
@given(st.floats(-4, 2), st.floats(-30, -1), st.floats(1.001, 3.0))
def test_more_privacy_needs_more_noise(
    log_epsilon: float, log_delta: float, factor: float
) -> None:
    epsilon, delta = 10**log_epsilon, 10**log_delta
    sigma = gaussian_noise_multiplier(epsilon, delta)
    assert gaussian_noise_multiplier(epsilon / factor, delta) > sigma
    assert gaussian_noise_multiplier(epsilon, delta / factor) > sigma
    assert gaussian_epsilon(factor / sigma, delta) > gaussian_epsilon(1 / sigma, delta)


@settings(max_examples=100)
@given(st.floats(1e-300, 1e6), st.floats(1e-300, 1 - 1e-12))
def test_extreme_requests_are_private_or_an_error(epsilon: float, delta: float) -> None:
    try:
        sigma = gaussian_noise_multiplier(epsilon, delta)
    except (PlanError, LocalMisuseError):
        return
    assert 0 < sigma < math.inf
    assert gaussian_delta(epsilon, 1 / sigma) <= delta


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", True, None])
def test_arguments_out_of_range_are_refused(bad: float) -> None:
    for call in (
        lambda: gaussian_delta(1.0, bad),
        lambda: gaussian_epsilon(bad, 1e-6),
        lambda: gaussian_epsilon(1.0, bad),
        lambda: gaussian_noise_multiplier(bad, 1e-6),
        lambda: gaussian_noise_multiplier(1.0, bad),
    ):
        with pytest.raises(LocalMisuseError):
            call()
    if bad != 0.0:
        with pytest.raises(LocalMisuseError):
            gaussian_delta(bad, 1.0)


@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [(-5e-324, 1.0), (-0.5, 1.0), (1e200, 1e-200), (2e154, 1.0), (0.0, 1e155)],
)
def test_delta_is_refused_where_its_formula_is_not_defined(
    epsilon: float, mu: float
) -> None:
    with pytest.raises(LocalMisuseError, match=r"^epsilon is .* must be"):
        gaussian_delta(epsilon, mu)


def test_overflow_is_an_error_not_a_zero() -> None:
    with pytest.raises(LocalMisuseError, match="less extreme"):
        gaussian_delta(1e200, 1e-200)
    with pytest.raises(LocalMisuseError):
        gaussian_epsilon(1e200, 1e-6)
    with pytest.raises(LocalMisuseError, match="less than 1"):
        gaussian_epsilon(1.0, 1.0)


def test_a_search_without_an_answer_is_an_error() -> None:
    with pytest.raises(PlanError, match="1e100"):
        smallest_multiplier(lambda sigma: False, 1.0)
    with pytest.raises(PlanError, match="1e-100"):
        smallest_multiplier(lambda sigma: True, 1.0)
    with pytest.raises(PlanError, match="no value"):
        smallest_true(lambda value: False, 0.0, 1.0)
    with pytest.raises(PlanError, match="no value"):
        smallest_true(lambda value: value > 5.0, 0.0, math.nan)


@pytest.mark.parametrize("answer", [1e-90, 0.3, 1.0, 7e50])
def test_search_lands_on_the_private_side(answer: float) -> None:
    found = smallest_multiplier(lambda sigma: sigma >= answer, 1.0)
    assert answer <= found <= answer * (1 + 1e-12)


@pytest.mark.parametrize("group", [2, 3, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (3.0, 1e-9)])
def test_a_group_of_rows_costs_no_more_than_is_said(
    group: int, epsilon: float, delta: float
) -> None:
    """g mu is within (g epsilon, g exp((g - 1) epsilon) delta)."""
    mu = 1.0 / gaussian_noise_multiplier(epsilon, delta)
    assert (
        gaussian_delta(group * epsilon, group * mu)
        <= group * math.exp((group - 1) * epsilon) * delta
    )
    # Replacing a row is a group of two, in which one row leaves and another comes.
    assert gaussian_delta(2.0 * epsilon, 2.0 * mu) <= (1.0 + math.exp(epsilon)) * delta
