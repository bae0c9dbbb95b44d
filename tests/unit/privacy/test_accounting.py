"""Composition of releases: against closed forms, numerical privacy-loss distributions,
and itself.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr
from support.deltas import compose_delta
from support.numerical import pld_epsilon
from support.pricing import Unpriced

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import (
    calibrate_gaussian,
    gaussian_noise_multiplier,
)
from flwr_dpkmeans.privacy.closeness import SAME, Closeness
from flwr_dpkmeans.privacy.gaussian import gaussian_delta, gaussian_epsilon
from flwr_dpkmeans.privacy.release import (
    Event,
    ExactRelease,
    GaussianRelease,
    Norm,
    PrivacyUnit,
    PureRelease,
    Sensitivity,
)


def gaussians(multiplier: float, count: int, slack: float = 0.0) -> list[Event]:
    return [
        GaussianRelease(f"round {index}", multiplier, Closeness(additive=slack))
        for index in range(count)
    ]


def test_gaussians_compose_by_squares() -> None:
    assert compose_epsilon(gaussians(10.0, 100), 1e-6) == pytest.approx(
        4.8865541174622, rel=1e-11
    )
    mixed = [GaussianRelease("sums", 3.0), GaussianRelease("counts", 4.0)]
    assert compose_epsilon(mixed, 1e-6) == pytest.approx(
        gaussian_epsilon(math.hypot(1 / 3, 1 / 4), 1e-6), rel=1e-12
    )


def test_laplace_epsilons_add_up() -> None:
    events = [PureRelease("counts", 0.25)] * 3 + [PureRelease("sums", 0.5)]
    assert compose_epsilon(events, 0.0) == compose_epsilon(events, 1e-6) == 1.25
    assert compose_delta(events, 1.25) == 0.0
    # Below the total, the price is that of randomized response, the worst mechanism of
    # that epsilon.
    e = math.exp
    assert compose_delta(events, 0.5) == pytest.approx(
        (e(1.25) - e(0.5)) / (e(1.25) + 1), rel=1e-12
    )


def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    assert (
        compose_epsilon([], 1e-6)
        == compose_epsilon([], 0.0)
        == pld_epsilon([], 1e-6)
        == 0.0
    )
    assert compose_delta([], 0.0) == 0.0
    events = [GaussianRelease("sums", 100.0), ExactRelease("labels")]
    assert compose_epsilon(events, 1e-6) == pld_epsilon(events, 1e-6) == math.inf
    assert compose_delta(events, 50.0) == 1.0


def exact_mixture_delta(epsilon: float, mu: float, pures: list[float]) -> Any:
    """Delta of a Gaussian release and randomized responses, in 60 digits."""
    import mpmath

    with mpmath.workdps(60):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        delta = mpmath.mpf(0)
        for signs in itertools.product((1, -1), repeat=len(pures)):
            shares = [
                1 / (1 + mpmath.exp(-sign * mpmath.mpf(pure)))
                for sign, pure in zip(signs, pures, strict=True)
            ]
            left = epsilon - sum(
                sign * mpmath.mpf(pure) for sign, pure in zip(signs, pures, strict=True)
            )
            x, y = left / mu - mu / 2, left / mu + mu / 2
            delta += mpmath.fprod(shares) * (
                mpmath.ncdf(-x) - mpmath.exp(left) * mpmath.ncdf(-y)
            )
        return delta


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-20, 1e-100])
@pytest.mark.parametrize(
    ("multiplier", "pures"),
    [
        (2.0, [0.1]),
        (0.3, [2.0, 0.5]),
        (50.0, [0.02, 0.03, 0.03]),
        (1.0, [0.2] * 6),
        (1e3, [1.0, 3.0]),
        (2.1, [4.0]),
    ],
)
def test_mixture_is_priced_exactly(
    multiplier: float, pures: list[float], delta: float
) -> None:
    events: list[Event] = [
        GaussianRelease("sums", multiplier),
        *(PureRelease("choice", pure) for pure in pures),
    ]
    epsilon = compose_epsilon(events, delta)
    assert exact_mixture_delta(epsilon, 1 / multiplier, pures) <= delta
    assert exact_mixture_delta(epsilon * (1 - 1e-9), 1 / multiplier, pures) > delta
    assert compose_delta(events, epsilon) == pytest.approx(delta, rel=1e-8, abs=0.0)
    at_zero = float(exact_mixture_delta(0.0, 1 / multiplier, pures))
    assert at_zero <= compose_delta(events, 0.0) <= at_zero * (1 + 1e-9)
    assert epsilon < compose_epsilon(events[:1], delta) + sum(pures)


def test_mixture_with_very_much_gaussian_noise_loses_no_digits() -> None:
    events: list[Event] = [GaussianRelease("sums", 1e8), PureRelease("choice", 1e-6)]
    assert compose_delta(events, 1e-6) == pytest.approx(
        expit(1e-6) * 1e-8 / math.sqrt(2 * math.pi), rel=1e-9, abs=0.0
    )


def test_a_mixture_of_many_epsilons_agrees_with_pld_and_covers_the_exact_price() -> (
    None
):
    """More sums of losses than are kept one by one."""
    pures = [0.05 + 0.01 * index for index in range(13)]
    events: list[Event] = [
        GaussianRelease("sums", 2.0),
        *(PureRelease("counts", pure) for pure in pures),
    ]
    epsilon = compose_epsilon(events, 1e-6)
    losses, probabilities = np.zeros(1), np.ones(1)
    for pure in pures:
        losses = np.concatenate([losses - pure, losses + pure])
        probabilities = np.concatenate(
            [probabilities * expit(-pure), probabilities * expit(pure)]
        )
    left = epsilon - losses
    delta = float(
        probabilities @ (ndtr(0.25 - 2 * left) - np.exp(left) * ndtr(-0.25 - 2 * left))
    )
    assert 0.999e-6 < delta <= 1e-6
    assert pld_epsilon(events, 1e-6) == pytest.approx(epsilon, rel=1e-3)


def test_pure_and_laplace_releases_of_one_epsilon_cost_the_same() -> None:
    noise = gaussians(5.0, 5)
    pure, laplace = [PureRelease("choice", 0.25)] * 2, [PureRelease("counts", 0.25)] * 2
    assert compose_epsilon(pure, 0.0) == 0.5
    assert compose_epsilon(noise + pure, 1e-6) == compose_epsilon(noise + laplace, 1e-6)
    assert pld_epsilon(noise + pure, 1e-6) == pld_epsilon(noise + laplace, 1e-6)
    assert compose_delta(noise + pure, 1.0) == compose_delta(noise + laplace, 1.0)


@pytest.mark.parametrize("slack", [1e-12, 1e-8, 5e-8])
def test_slack_enters_delta_as_it_is_proved(slack: float) -> None:
    events = gaussians(10.0, 10, slack)
    epsilon = compose_epsilon(events, 1e-5)
    mu, tau = math.sqrt(10) / 10, 10 * slack
    assert gaussian_delta(epsilon, mu) + (1 + math.exp(epsilon)) * tau <= 1e-5
    slightly_less = epsilon * (1 - 1e-9)
    assert (
        gaussian_delta(slightly_less, mu) + (1 + math.exp(slightly_less)) * tau > 1e-5
    )
    assert epsilon > compose_epsilon(gaussians(10.0, 10), 1e-5)
    assert compose_delta(events, epsilon) == pytest.approx(1e-5, rel=1e-9, abs=0.0)
    assert pld_epsilon(events, 1e-5) == pytest.approx(epsilon, rel=0.01)


def test_slack_in_a_mixture_is_paid_at_the_total_epsilon() -> None:
    noise, counts = gaussians(10.0, 10, 1e-8), [PureRelease("counts", 2.0)]
    total = compose_epsilon(noise + counts, 1e-5)
    without = compose_epsilon(gaussians(10.0, 10) + counts, 1e-5)
    room = 1e-5 - (1 + math.exp(total)) * 1e-7
    assert (
        without
        < total
        <= compose_epsilon(gaussians(10.0, 10) + counts, room) * (1 + 1e-6)
    )
    events = [GaussianRelease("sums", 1.0, Closeness(additive=1e-26)), *counts]
    total = compose_epsilon(events, 1e-20)
    cost = (1 + math.exp(total)) * 1e-26
    assert 1e-22 < cost < 1e-20
    assert float(exact_mixture_delta(total, 1.0, [2.0])) + cost == pytest.approx(
        1e-20, rel=1e-9, abs=0.0
    )
    # Beyond the epsilon at which it is smallest, delta does not rise again with the
    # cost of slack.
    smallest = min(compose_delta(events, total + 0.01 * index) for index in range(300))
    assert compose_delta(events, 60.0) == pytest.approx(smallest, rel=1e-5, abs=0.0)
    assert smallest < 0.95 * min(
        compose_delta(events, total), compose_delta(events[:1], 60.0) * math.exp(2.0)
    )


def test_slack_beyond_delta_is_an_error() -> None:
    for slack in (1e-6, 4e-7, 0.3, 1.0):
        with pytest.raises(PlanError, match="slack"):
            compose_epsilon(
                [GaussianRelease("sums", 1.0, Closeness(additive=slack))], 1e-6
            )
    with pytest.raises(PlanError, match="slack"):
        compose_epsilon([*gaussians(1.0, 1, 1e-6), PureRelease("counts", 1.0)], 1e-6)
    assert compose_delta(gaussians(1.0, 1, 1.0), 1.0) == 1.0


def test_slack_at_a_huge_epsilon_is_paid_where_it_is_cheapest() -> None:
    """(e, delta) implies (epsilon, delta) for e < epsilon."""
    events = gaussians(1.0, 1, 1e-12)
    assert compose_delta(events, 300.0) < 1e-7
    assert compose_delta(events, 300.0) <= compose_delta(events, 5.0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-12])
@pytest.mark.parametrize("relative_slack", [0.0, 1e-3, 0.05])
def test_calibrated_noise_is_priced_just_below_the_request(
    epsilon: float, delta: float, relative_slack: float
) -> None:
    def closeness_at(sigma: float) -> Closeness:
        size = relative_slack * min(1.0, 1.0 / sigma**2)
        return Closeness(
            0.3 * size * epsilon,
            0.5 * size * epsilon,
            size * delta / (1 + math.exp(epsilon)),
        )

    sigma = calibrate_gaussian(epsilon, delta, closeness_at)
    rounds, whole = 7, closeness_at(sigma)
    part = Closeness(
        whole.log_ratio_above / rounds,
        whole.log_ratio_below / rounds,
        whole.additive / rounds,
    )
    events = [
        GaussianRelease(f"round {index}", sigma * math.sqrt(rounds), part)
        for index in range(rounds)
    ]
    priced = compose_epsilon(events, delta)
    assert priced <= epsilon
    assert priced >= 0.999 * epsilon
    analysed = epsilon - whole.log_ratio
    paid = (1 + math.exp(analysed)) * whole.additive
    assert (
        math.exp(whole.log_ratio_above) * (gaussian_delta(analysed, 1 / sigma) + paid)
        <= delta
    )
    assert compose_delta(events, epsilon) <= delta
    assert (sigma > gaussian_noise_multiplier(epsilon, delta)) is (relative_slack > 0.0)


def test_calibration_without_slack_is_the_multiplier() -> None:
    assert calibrate_gaussian(1.0, 1e-6, lambda sigma: SAME) == pytest.approx(
        gaussian_noise_multiplier(1.0, 1e-6), rel=2e-12
    )
    assert calibrate_gaussian(
        1.0, 1e-6, lambda sigma: Closeness(additive=1e-7)
    ) == pytest.approx(4.31928962721754, rel=1e-10)


def test_calibration_refuses_slack_that_no_noise_can_meet() -> None:
    with pytest.raises(PlanError, match="finer grid"):
        calibrate_gaussian(1.0, 1e-6, lambda sigma: Closeness(additive=1e-6))
    with pytest.raises(PlanError, match="finer grid"):
        calibrate_gaussian(1.0, 1e-6, lambda sigma: Closeness(0.5, 0.5))


multipliers = st.floats(0.05, 1e4)
closenesses = st.builds(
    Closeness, st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 1e-12)
)
lists = st.lists(
    st.one_of(
        st.builds(GaussianRelease, st.just("g"), multipliers),
        st.builds(GaussianRelease, st.just("g"), multipliers, closenesses),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(lists, st.floats(-9, -2), multipliers)
def test_more_releases_cost_more_in_any_order(
    events: list[Event], log_delta: float, multiplier: float
) -> None:
    delta = 10**log_delta
    try:
        epsilon = compose_epsilon(events, delta)
        more = compose_epsilon(
            [*events, GaussianRelease("one more", multiplier)], delta
        )
    except PlanError:  # large slack at a large epsilon
        return
    assert epsilon <= more * (1 + 1e-11) + 1e-12
    assert compose_epsilon(events[::-1], delta) == pytest.approx(
        epsilon, rel=1e-9, abs=1e-12
    )
    assert compose_epsilon(events, delta / 2 + 0.005) <= epsilon
    assert compose_delta(events, epsilon) <= delta * (1 + 1e-9)


@settings(max_examples=60)
@given(st.floats(-3, 1), st.floats(-20, -2), st.integers(1, 300))
def test_a_split_calibration_never_exceeds_the_request(
    log_epsilon: float, log_delta: float, rounds: int
) -> None:
    epsilon, delta = 10**log_epsilon, 10**log_delta
    sigma = calibrate_gaussian(epsilon, delta, lambda sigma: SAME)
    priced = compose_epsilon(gaussians(sigma * math.sqrt(rounds), rounds), delta)
    assert 0.999 * epsilon <= priced <= epsilon


def test_an_unsupported_event_raises_and_changes_nothing() -> None:
    events = [GaussianRelease("sums", 1.0), Unpriced("shuffle"), ExactRelease("labels")]
    before = list(events)
    for call in (compose_epsilon, compose_delta, pld_epsilon):
        with pytest.raises(LocalMisuseError, match="'Unpriced'"):
            call(events, 1e-6)  # type: ignore[arg-type]
    assert events == before


@pytest.mark.parametrize("bad", [-1e-9, 1.0, 2.0, math.nan, math.inf, "x"])
def test_delta_out_of_range_is_refused(bad: float) -> None:
    for events in (
        [],
        [PureRelease("c", 1.0)],
        gaussians(1.0, 1),
        [ExactRelease("labels")],
    ):
        with pytest.raises(LocalMisuseError, match="delta"):
            compose_epsilon(events, bad)
    for multiplier in (0.5, 1.0, 100.0):
        with pytest.raises(LocalMisuseError, match=r"delta is 0\.0"):
            compose_epsilon([*gaussians(multiplier, 1), ExactRelease("labels")], 0.0)
    with pytest.raises(LocalMisuseError, match="epsilon"):
        compose_delta(gaussians(1.0, 1), -1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None])
def test_events_check_their_values(bad: float) -> None:
    with pytest.raises(LocalMisuseError, match="noise_multiplier"):
        GaussianRelease("sums", bad)
    with pytest.raises(LocalMisuseError, match="epsilon"):
        PureRelease("choice", bad)
    with pytest.raises(LocalMisuseError, match="noise_multiplier"):
        GaussianRelease("sums", bad, sampling_rate=0.5)
    with pytest.raises(LocalMisuseError, match="sampling_rate"):
        GaussianRelease("sums", 1.0, sampling_rate=bad)
    with pytest.raises(LocalMisuseError, match="bound"):
        Sensitivity(Norm.L2, bad, PrivacyUnit.RECORD)


def test_vanishing_noise_is_an_error_not_a_zero() -> None:
    with pytest.raises(LocalMisuseError, match="too small"):
        compose_epsilon([GaussianRelease("sums", 1e-310)], 1e-6)
    with pytest.raises(LocalMisuseError, match="too small"):
        compose_epsilon([PureRelease("sums", 1e308)] * 2, 1e-6)


def test_sensitivity_checks_its_enumerations_and_its_reason() -> None:
    with pytest.raises(LocalMisuseError, match="Norm"):
        Sensitivity("l2", 1.0, PrivacyUnit.CLIENT)  # type: ignore[arg-type]
    with pytest.raises(LocalMisuseError, match="PrivacyUnit"):
        Sensitivity(Norm.L1, 1.0, "record")  # type: ignore[arg-type]
    with pytest.raises(LocalMisuseError, match=r"because is 2, but .* half a sentence"):
        Sensitivity(Norm.L1, 1.0, PrivacyUnit.RECORD, 2)  # type: ignore[arg-type]
