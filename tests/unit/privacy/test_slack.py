"""The closeness of discrete to continuous noise against true probabilities in high
precision.
"""

from __future__ import annotations

import itertools
import math
from functools import cache, partial
from typing import Any

import mpmath
import numpy as np
import pytest
from support.deltas import compose_delta

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import (
    SAME,
    Closeness,
    discrete_gaussian_closeness,
    discrete_gaussian_sum_log_ratio,
    joint_closeness,
    slack_cost,
)
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon
from flwr_dpkmeans.privacy.release import GaussianRelease

DIGITS = 70
TAIL = 100
STDS = [1.0, 1.5, 2.0, 5.0, 12.0]


def discrete_gaussian(std: float, reach: int) -> dict[int, mpmath.mpf]:
    """Exact probabilities on [-reach, reach], beyond which they are negligible."""
    weights = {
        k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(std) ** 2))
        for k in range(-reach, reach + 1)
    }
    total = mpmath.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def rounded_gaussian(std: float, k: int) -> mpmath.mpf:
    """Probability that a Gaussian rounds to k, without cancellation in tails."""
    low, high = (
        mpmath.mpf(abs(k)) + half for half in (-mpmath.mpf(1) / 2, mpmath.mpf(1) / 2)
    )
    return (
        mpmath.erfc(low / (std * mpmath.sqrt(2)))
        - mpmath.erfc(high / (std * mpmath.sqrt(2)))
    ) / 2


@cache
def drawn_and_analysed(std: float) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """q and p at 0 to 25 standard deviations, which is all but exp(-300)."""
    with mpmath.workdps(DIGITS):
        q = discrete_gaussian(std, math.ceil(25 * std))
        return [q[k] for k in range(max(q) + 1)], [
            rounded_gaussian(std, k) for k in range(max(q) + 1)
        ]


def excess(larger: list[Any], smaller: list[Any], log_ratio: float) -> mpmath.mpf:
    """The additive part that is needed at a log-ratio."""
    factor = mpmath.exp(log_ratio)
    parts = [
        max(mpmath.mpf(0), a - factor * b) for a, b in zip(larger, smaller, strict=True)
    ]
    return parts[0] + 2 * mpmath.fsum(parts[1:])


# -- one entry, every outcome ----------------------------------------------------------


@pytest.mark.parametrize("std", STDS)
def test_drawn_noise_is_nowhere_more_likely_than_the_ratio_above(std: float) -> None:
    q, p = drawn_and_analysed(std)
    with mpmath.workdps(DIGITS):
        above = discrete_gaussian_closeness(std, 1).log_ratio_above
        largest = max(
            mpmath.log(drawn / analysed) for drawn, analysed in zip(q, p, strict=True)
        )
        assert 0.98 * above < largest <= above
        assert above == pytest.approx(1 / (24 * std**2), rel=1e-12)
        assert excess(q, p, above) == 0
        assert excess(q, p, above / 2) > 1e-5


@pytest.mark.parametrize("std", STDS)
def test_analysed_noise_is_nowhere_more_likely_than_the_proof_says(std: float) -> None:
    q, p = drawn_and_analysed(std)
    with mpmath.workdps(DIGITS):
        square = mpmath.mpf(std) ** 2
        poisson = 2.1 * mpmath.exp(-2 * mpmath.pi**2 * square)
        slopes = []
        for k, (drawn, analysed) in enumerate(zip(q, p, strict=True)):
            log_ratio = mpmath.log(analysed / drawn)
            assert log_ratio <= poisson + (k * k - square) / (24 * square**2) + 1 / (
                640 * square**2
            )
            slopes.append(
                log_ratio / ((k * k - square) / (24 * square**2)) if k > 2 * std else 0
            )
        assert max(slopes) > 0.85


@pytest.mark.parametrize("std", STDS)
def test_closeness_of_one_entry_holds_and_half_of_it_does_not(std: float) -> None:
    q, p = drawn_and_analysed(std)
    closeness = discrete_gaussian_closeness(std, 1)
    with mpmath.workdps(DIGITS):
        assert closeness.additive == pytest.approx(math.exp(-TAIL), rel=1e-12)
        assert excess(q, p, closeness.log_ratio_above) <= closeness.additive
        assert excess(p, q, closeness.log_ratio_below) <= closeness.additive
        if std > 1.0:  # at 1 there is little beyond the grid's nearest points
            assert (
                excess(p, q, closeness.log_ratio_below / 2) > 1e3 * closeness.additive
            )


@pytest.mark.parametrize("std", [100.0, 1e4, 1e7])
def test_log_ratios_of_wide_noise(std: float) -> None:
    """Too many outcomes to list: the density's own constant, and some outcomes."""
    with mpmath.workdps(DIGITS):
        square = mpmath.mpf(std) ** 2
        above = discrete_gaussian_closeness(std, 1).log_ratio_above
        for deviations in (0, 0.5, 1, 2, 5, 10, 14, 25):
            k = round(deviations * std)
            # The normalizing sum is s sqrt(2 pi) to far more digits than are used here.
            drawn = mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * square)) / (
                std * mpmath.sqrt(2 * mpmath.pi)
            )
            log_ratio = mpmath.log(drawn / rounded_gaussian(std, k))
            assert log_ratio <= above
            assert -log_ratio <= (k * k - square) / (24 * square**2) + 1 / (
                640 * square**2
            )
            assert float(log_ratio) == pytest.approx(
                float((square - k * k) / (24 * square**2)), rel=0.01, abs=0.002 / std**4
            )


# -- many entries ----------------------------------------------------------------------


@pytest.mark.parametrize("std", [1.0, 1.5, 2.0])
def test_closeness_of_two_entries_by_listing_all_pairs(std: float) -> None:
    q, p = drawn_and_analysed(std)
    closeness = discrete_gaussian_closeness(std, 2)
    with mpmath.workdps(50):
        for larger, smaller, log_ratio in (
            (q, p, closeness.log_ratio_above),
            (p, q, closeness.log_ratio_below),
        ):
            factor, needed = mpmath.exp(log_ratio), mpmath.mpf(0)
            for i, j in itertools.product(range(len(q)), repeat=2):
                copies = (1 if i == 0 else 2) * (1 if j == 0 else 2)
                needed += copies * max(
                    mpmath.mpf(0),
                    larger[i] * larger[j] - factor * smaller[i] * smaller[j],
                )
            assert needed <= closeness.additive


def least_log_ratio(
    larger: list[Any], smaller: list[Any], n_entries: int, scale: float
) -> float:
    """The least bound on n log-ratios up to exp(-100), by Markov's inequality."""
    logs = [mpmath.log(a / b) for a, b in zip(larger, smaller, strict=True)]

    def bound(step: int) -> mpmath.mpf:
        power = mpmath.exp(step / mpmath.mpf(4)) * scale
        terms = [
            a * mpmath.exp(power * log) for a, log in zip(larger, logs, strict=True)
        ]
        return (
            TAIL + n_entries * mpmath.log(terms[0] + 2 * mpmath.fsum(terms[1:]))
        ) / power

    best = min(range(-36, 25, 4), key=bound)
    return float(min(bound(step) for step in range(best - 4, best + 5)))


@pytest.mark.sample(5)
@pytest.mark.parametrize("std", [1.0, 2.0, 5.0, 12.0])
@pytest.mark.parametrize("n_entries", [1000, 100_000, 10_000_000])
def test_closeness_of_many_entries_holds_and_is_not_loose(
    std: float, n_entries: int
) -> None:
    """A bound of half the size is below what exact moments give, or near it."""
    q, p = drawn_and_analysed(std)
    closeness = discrete_gaussian_closeness(std, n_entries)
    with mpmath.workdps(30):
        above, below = (
            least_log_ratio(q, p, n_entries, std**2),
            least_log_ratio(p, q, n_entries, std**2),
        )
    assert above <= closeness.log_ratio_above
    assert below <= closeness.log_ratio_below
    if n_entries <= 1000 * std**4:  # beyond, terms in 1/s^4 outgrow the root of n
        assert closeness.log_ratio_above <= 1.7 * above
        assert closeness.log_ratio_below <= 1.4 * below


def test_closeness_grows_like_the_root_of_the_number_of_entries() -> None:
    few, many = (discrete_gaussian_closeness(1e4, n) for n in (10**4, 10**6))
    assert many.log_ratio_above == pytest.approx(10 * few.log_ratio_above, rel=1e-3)
    assert many.log_ratio_below < 10 * few.log_ratio_below
    assert many.log_ratio < 0.1 * 2 * 10**6 / (
        24 * 1e8
    )  # the sum of the largest log-ratios


# -- sums of shares --------------------------------------------------------------------


@pytest.mark.sample(8)
@pytest.mark.parametrize("std", [0.5, 0.6, 0.75, 1.0, 1.25, 1.5])
@pytest.mark.parametrize("shares", [2, 3, 6])
def test_sum_bound_holds_and_is_not_loose_for_two(std: float, shares: int) -> None:
    with mpmath.workdps(40):
        one = discrete_gaussian(std, math.ceil(16 * std))
        total = one
        for _ in range(shares - 1):
            parts: dict[int, mpmath.mpf] = {}
            for a, p in total.items():
                for b, q in one.items():
                    parts[a + b] = parts.get(a + b, mpmath.mpf(0)) + p * q
            total = parts
        single = discrete_gaussian(math.sqrt(shares) * std, max(total))
        near = range(
            -math.ceil(6 * std), math.ceil(6 * std) + 1
        )  # farther out, the shares' reach would be missed
        truth = float(max(abs(mpmath.log(total[z] / single[z])) for z in near))
    bound = discrete_gaussian_sum_log_ratio(std, shares, 1)
    assert truth <= bound
    if shares == 2:
        # later shares smooth the errors of the earlier ones, which the bound does not
        # count on
        assert bound <= 3 * truth


def test_closeness_of_a_sum_of_shares() -> None:
    """Three shares of std 1.2 to one rounded Gaussian, in both directions."""
    std = 1.2 * math.sqrt(3)
    with mpmath.workdps(DIGITS):
        one = discrete_gaussian(1.2, 45)
        two: dict[int, mpmath.mpf] = {}
        for a, b in itertools.product(range(-20, 21), repeat=2):
            two[a + b] = two.get(a + b, mpmath.mpf(0)) + one[a] * one[b]
        q = [
            mpmath.fsum(one[c] * two.get(k - c, 0) for c in range(-20, 21))
            for k in range(25)
        ]
        p = [rounded_gaussian(std, k) for k in range(25)]
        closeness = discrete_gaussian_closeness(std, 1).widened(
            discrete_gaussian_sum_log_ratio(1.2, 3, 1)
        )
        largest = max(
            mpmath.log(drawn / analysed) for drawn, analysed in zip(q, p, strict=True)
        )
        assert largest <= closeness.log_ratio_above
        assert excess(p, q, closeness.log_ratio_below) <= closeness.additive


# -- what closeness costs --------------------------------------------------------------


def hockey_stick(p: Any, q: Any, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def test_cost_of_closeness_is_as_proved_and_no_part_of_it_can_be_left_out() -> None:
    """Distributions on six points, as far apart as the closeness allows."""
    generator = np.random.default_rng(5)
    a, b, tau, epsilon = 0.2, 0.3, 0.01, 0.5
    without_a = without_b = without_tau = without_factor = 0
    for _ in range(3000):
        analysed = generator.dirichlet(np.full(6, 0.7), 2)
        tilted = analysed * np.exp(generator.choice([-b, a], (2, 6)))
        drawn = tilted / tilted.sum(axis=1, keepdims=True)
        moved = generator.integers(6, size=2)
        drawn[[0, 1], moved] += tau
        drawn /= drawn.sum(axis=1, keepdims=True)
        close = all(
            hockey_stick(drawn[i], analysed[i], a) <= tau
            and hockey_stick(analysed[i], drawn[i], b) <= tau
            for i in (0, 1)
        )
        if not close:
            continue
        delta = hockey_stick(*analysed, epsilon)
        paid = (1 + math.exp(epsilon)) * tau
        assert (
            hockey_stick(*drawn, epsilon + a + b)
            <= math.exp(a) * (delta + paid) + 1e-12
        )
        without_a += hockey_stick(*drawn, epsilon + b) > math.exp(a) * delta
        without_b += hockey_stick(*drawn, epsilon + a) > math.exp(a) * delta
        without_tau += hockey_stick(*drawn, epsilon + a + b) > math.exp(a) * delta
        without_factor += hockey_stick(*drawn, epsilon + a + b) > delta
    assert min(without_a, without_b, without_tau, without_factor) > 0


def test_price_is_that_of_continuous_noise_plus_the_log_ratios() -> None:
    closeness = discrete_gaussian_closeness(20.0, 5050)
    assert closeness.log_ratio_above > 0.1
    events = [GaussianRelease("sums", 0.7, closeness), GaussianRelease("counts", 2.0)]
    continuous = gaussian_epsilon(
        math.hypot(1 / 0.7, 0.5), 1e-6 * math.exp(-closeness.log_ratio_above)
    )
    assert compose_epsilon(events, 1e-6) == pytest.approx(
        continuous + closeness.log_ratio, rel=1e-12
    )
    assert compose_delta(events, compose_epsilon(events, 1e-6)) == pytest.approx(
        1e-6, rel=1e-9
    )
    # At a smaller epsilon than the log-ratios alone, delta goes on without a jump, up
    # to 1 - (1 - delta) as it must.
    at, below = (
        compose_delta(events, closeness.log_ratio * share)
        for share in (1.0, 1.0 - 1e-9)
    )
    assert at <= below <= at * (1 + 1e-6)
    assert at < compose_delta(events, 0.0) <= 1.0


def test_a_budget_that_total_variation_had_no_room_for() -> None:
    """5050 entries at epsilon 8 and delta 1e-6."""
    std = 3000.0
    event = GaussianRelease(
        "outer product", 0.6, discrete_gaussian_closeness(std, 5050)
    )
    distance = math.sqrt(5050) / (24 * std**2)
    assert math.exp(8.0) * distance > 1e-4
    assert compose_epsilon([event], 1e-6) == pytest.approx(
        gaussian_epsilon(1 / 0.6, 1e-6), rel=1e-5
    )


# -- arithmetic and arguments ----------------------------------------------------------


def test_closeness_adds_up_and_widens() -> None:
    parts = [Closeness(0.1, 0.2, 1e-9), Closeness(0.3, 0.5, 2e-9), SAME]
    total = joint_closeness(parts)
    assert (total.log_ratio_above, total.log_ratio_below) == (
        pytest.approx(0.4),
        pytest.approx(0.7),
    )
    assert total.additive == pytest.approx(3e-9, rel=1e-12, abs=0.0)
    assert total.log_ratio == pytest.approx(1.1)
    assert joint_closeness([]) == SAME
    assert joint_closeness([Closeness(additive=0.7)] * 2).additive == 1.0
    wide = parts[0].widened(2.0)
    assert (wide.log_ratio_above, wide.log_ratio_below) == (
        pytest.approx(2.1),
        pytest.approx(2.2),
    )
    assert wide.additive == pytest.approx(math.exp(2.0) * 1e-9, rel=1e-12, abs=0.0)
    assert parts[0].widened(1e6).additive == 1.0
    assert SAME.widened(0.0) == SAME


def test_values() -> None:
    assert discrete_gaussian_closeness(10.0, 0) == SAME
    assert discrete_gaussian_closeness(10.0, 576).log_ratio_above == pytest.approx(
        0.24, rel=1e-14
    )
    root, square = math.sqrt(6.00002 * 100 * 10**6) / 2400, 10**6 / 319e4
    assert discrete_gaussian_closeness(10.0, 10**6).log_ratio_above == pytest.approx(
        root + square, rel=1e-12
    )
    assert discrete_gaussian_closeness(1e3, 1).log_ratio_below == pytest.approx(
        110 / 12e6, rel=1e-6
    )
    for std in (1e15, 1e160, 1e300):
        assert discrete_gaussian_closeness(std, 10**6).log_ratio < 1e-24
    two_shares = 5 * math.exp(-(math.pi**2))
    assert discrete_gaussian_sum_log_ratio(1.0, 2, 3) == pytest.approx(
        3 * two_shares, rel=1e-12
    )
    assert discrete_gaussian_sum_log_ratio(1.0, 1, 5) == 0.0
    assert discrete_gaussian_sum_log_ratio(100.0, 1000, 10**6) == 0.0


@pytest.mark.parametrize(
    ("std", "n", "above", "below"),
    [
        # 1/24; (sqrt(100.0034483) + 100.0034483)/11 + 1/186, and 2.1 exp(-2 pi^2) =
        # 5.62e-9 in both of its terms.
        (1.0, 1, 0.041666666666666667, 10.005705503710297),
        # 290/24; y = 101 + 290 h.
        (1.0, 290, 12.083333333333333, 26.299433949759770),
        # sqrt(6.00002 * 5000 * 100)/96 + 5000/5104; h is 1e-34 and cannot be seen.
        (2.0, 5000, 19.021849806928678, 18.956362873899057),
    ],
)
def test_log_ratios_by_hand(std: float, n: int, above: float, below: float) -> None:
    closeness = discrete_gaussian_closeness(std, n)
    assert closeness.log_ratio_above == pytest.approx(above, rel=1e-13, abs=0.0)
    assert closeness.log_ratio_below == pytest.approx(below, rel=1e-13, abs=0.0)
    assert closeness.additive == math.exp(-100.0)


def test_sum_log_ratio_grows_with_shares_and_falls_with_noise() -> None:
    assert discrete_gaussian_sum_log_ratio(1.0, 3, 1) > discrete_gaussian_sum_log_ratio(
        1.0, 2, 1
    )
    assert discrete_gaussian_sum_log_ratio(1.1, 3, 1) < discrete_gaussian_sum_log_ratio(
        1.0, 3, 1
    )


def test_arguments_out_of_range_are_refused() -> None:
    for std in (0.99, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(LocalMisuseError, match="std"):
            discrete_gaussian_closeness(std, 1)
    for share in (0.49, 0.0, math.nan):
        with pytest.raises(LocalMisuseError, match="std_share"):
            discrete_gaussian_sum_log_ratio(share, 2, 1)
    for count in (-1, 1.5, True):
        with pytest.raises(LocalMisuseError, match="n_entries"):
            discrete_gaussian_closeness(2.0, count)  # type: ignore[arg-type]
    with pytest.raises(LocalMisuseError, match="n_shares"):
        discrete_gaussian_sum_log_ratio(2.0, 0, 1)
    for values in (
        (-1e-9, 0.0, 0.0),
        (0.0, math.nan, 0.0),
        (0.0, math.inf, 0.0),
        (0.0, 0.0, -0.1),
        (0.0, 0.0, 1.1),
    ):
        with pytest.raises(LocalMisuseError, match=r"log_ratio|additive"):
            Closeness(*values)


@pytest.mark.parametrize(
    ("std", "n"), [(1.0, 1), (1.0, 1_000), (2.5, 40), (10.0, 10**6)]
)
def test_closeness_is_the_stated_formula(std: float, n: int) -> None:
    s, x = mpmath.mpf(std), mpmath.mpf(TAIL)
    h = mpmath.mpf("2.1") * mpmath.exp(-2 * mpmath.pi**2 * s**2)
    y = x + n * (1 / (290 * s**4) + h)
    above = min(
        n / (24 * s**2),
        mpmath.sqrt(mpmath.mpf("6.00002") * n * x) / (24 * s**2) + n / (319 * s**4),
    )
    below = (mpmath.sqrt(n * y) + y) / (12 * s**2 - 1) + n * (1 / (186 * s**4) + h)
    found = discrete_gaussian_closeness(std, n)
    assert (found.log_ratio_above, found.log_ratio_below) == pytest.approx(
        (float(above), float(below)), rel=1e-14
    )
    assert found.additive == pytest.approx(float(mpmath.exp(-x)), rel=1e-14, abs=0.0)
    share = std / 2.0
    parts = [
        mpmath.exp(-2 * mpmath.pi**2 * mpmath.mpf(share) ** 2 * k / (k + 1))
        for k in range(1, 4)
    ]
    assert discrete_gaussian_sum_log_ratio(share, 4, n) == pytest.approx(
        float(5 * n * sum(parts)), rel=1e-11, abs=0.0
    )


def test_bounds_of_arguments_are_in_their_range() -> None:
    assert Closeness(0.0, 0.0, 1.0).additive == 1.0
    for values in (
        (-1e-300, 0.0, 0.0),
        (0.0, -1e-300, 0.0),
        (0.0, 0.0, 1.0 + 1e-15),
        (math.inf, 0.0, 0.0),
    ):
        with pytest.raises(LocalMisuseError):
            Closeness(*values)
    assert Closeness(1, 0, 0).log_ratio == 1  # a whole number is a number
    for value in ("0.1", True, None):
        with pytest.raises(LocalMisuseError, match="log_ratio_below"):
            Closeness(0.0, value, 0.0)  # type: ignore[arg-type]
    for std in (1.0, 0.5):
        assert (
            discrete_gaussian_closeness
            if std == 1.0
            else partial(discrete_gaussian_sum_log_ratio, n_shares=2)
        )(std, n_entries=1)
    for refused in (
        lambda: discrete_gaussian_closeness(math.nextafter(1.0, 0.0), 1),
        lambda: discrete_gaussian_sum_log_ratio(math.nextafter(0.5, 0.0), 2, 1),
        lambda: discrete_gaussian_sum_log_ratio(0.5, 0, 1),
        lambda: discrete_gaussian_sum_log_ratio(0.5, 2, -1),
        lambda: discrete_gaussian_closeness(1.0, -1),
    ):
        with pytest.raises(LocalMisuseError):
            refused()
    assert discrete_gaussian_sum_log_ratio(0.5, 2, 0) == 0.0


def test_the_delta_of_a_closeness_at_an_epsilon() -> None:
    """(1 + e^epsilon) tau, and infinity where the product is beyond floating point."""
    assert slack_cost(0.0, math.inf) == 0.0
    assert slack_cost(0.25, 0.0) == 0.5
    assert slack_cost(1e-40, 3.0) == pytest.approx(
        (1.0 + math.exp(3.0)) * 1e-40, rel=1e-13, abs=0.0
    )
    assert slack_cost(1.0, 699.5) == pytest.approx(math.exp(699.5), rel=1e-13)
    assert slack_cost(1.0, 700.0) == math.inf
    assert SAME.widened(800.0).additive == 0.0
    assert Closeness(additive=1e-305).widened(800.0).additive == 1.0
    assert Closeness(additive=1e-305).widened(699.5).additive == pytest.approx(
        1e-305 * math.exp(699.5), rel=1e-12
    )
