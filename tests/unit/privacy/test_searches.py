"""Steps of the searches for noise and for prices, against numbers worked out here."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import (
    accounting,
    calibration,
    gaussian,
    mixtures,
    searches,
)
from flwr_dpkmeans.privacy.closeness import SAME, Closeness
from flwr_dpkmeans.privacy.release import GaussianRelease, dominating_release


def test_a_round_of_a_sampled_release_and_another_one_is_not_joined() -> None:
    sampled, other = (
        GaussianRelease("rows", 2.0, sampling_rate=0.5),
        GaussianRelease("sums", 2.0),
    )
    with pytest.raises(LocalMisuseError, match="a sampled round has several releases"):
        dominating_release([[sampled, other]])


def test_losses_of_twelve_responses_are_all_listed_and_of_thirteen_on_a_grid() -> None:
    """2^12 = 4096 sums are kept one by one, 8192 are rounded to half as many."""
    epsilons = [0.1 * 2.0**place for place in range(13)]
    assert len(mixtures.mixture_of(1.0, epsilons[:12]).losses) == 4096
    # Of 4096 steps, and for each response up to one more on either side.
    assert 4096 < len(mixtures.mixture_of(1.0, epsilons).losses) <= 4097 + 2 * 13


def test_an_epsilon_of_a_cost_with_steps_or_zeros_is_that_of_the_bisection() -> None:
    """Secants end anywhere on a step."""

    def stairs(epsilon: float) -> float:
        return 1.0 if epsilon < 0.3 else 0.25 if epsilon < 0.6 else 0.0

    for delta in (0.5, 0.25, 0.1, 1e-300):
        plain = searches.smallest_true(
            lambda epsilon, d=delta: stairs(epsilon) <= d, 0.0, 1.0
        )  # type: ignore[misc]
        assert searches.smallest_at_most(stairs, delta, 1.0) == plain
    assert searches.smallest_at_most(stairs, 1.0, 1.0) == 0.0
    # So near to 0 that a hundred secants do not reach it.
    assert searches.smallest_at_most(
        lambda epsilon: float(epsilon < 1e-200), 0.5, 1.0
    ) == pytest.approx(1e-200, rel=1e-12, abs=0.0)
    # A level that is met over a whole range, and a cost that trembles by more than the
    # narrow range.
    assert searches.smallest_at_most(
        lambda epsilon: max(0.5, 1.0 - epsilon), 0.5, 1.0
    ) == pytest.approx(0.5, rel=1e-12)

    def trembling(epsilon: float) -> float:
        return 1.0 - epsilon + 1e-9 * (int(epsilon * 1e12) % 2)

    found = searches.smallest_at_most(trembling, 0.4, 1.0)
    assert trembling(found) <= 0.4
    assert found == pytest.approx(0.6, abs=1e-8)
    for high in (math.inf, 0.2):
        with pytest.raises(PlanError, match=f"no value up to {high} meets"):
            searches.smallest_at_most(stairs, 0.5, high)


def test_a_multiplier_is_calibrated_to_a_little_less_of_both() -> None:
    """By a part in 2^41, which a search to 2^-43 tells where delta is large."""
    shade = 1.0 - 2.0**-41
    for epsilon, delta in ((0.1, 0.3), (1e-3, 0.5)):
        for sigma in (
            calibration.calibrate_gaussian(epsilon, delta, lambda sigma: SAME),
            calibration.gaussian_noise_multiplier(epsilon, delta),
        ):
            room = delta * shade
            assert gaussian.gaussian_delta_bound(epsilon * shade, 1.0 / sigma) <= room
            assert (
                gaussian.gaussian_delta_bound(
                    epsilon * shade, 1.0 / (sigma * (1.0 - 2.0**-42))
                )
                > room
            )


def test_log_ratios_of_the_whole_epsilon_leave_no_room() -> None:
    for log_ratio, found in ((calibration.CALIBRATION_SHADE, False), (0.9, True)):
        if found:
            assert (
                calibration.calibrate_gaussian(
                    1.0,
                    1e-3,
                    lambda sigma: Closeness(0.0, log_ratio),  # noqa: B023
                )
                > 0.0
            )
        else:
            with pytest.raises(PlanError, match="no noise multiplier up to 1e100"):
                calibration.calibrate_gaussian(
                    1.0,
                    1e-3,
                    lambda sigma: Closeness(0.0, log_ratio),  # noqa: B023
                )


# -- what a list adds up to, and its prices with slack ---------------------------------


def test_rates_are_priced_within_their_range() -> None:
    """Below 1e-9 as 1e-9, above 1 - 1e-6 as everybody."""
    for rate, priced in (
        (1e-12, 1e-9),
        (1e-9, 1e-9),
        (0.5, 0.5),
        (1.0 - 1e-6, 1.0 - 1e-6),
    ):
        totals = accounting.add_up([GaussianRelease("rows", 2.0, sampling_rate=rate)])
        assert (
            [event.sampling_rate for event in totals.sampled],
            totals.multipliers,
        ) == ([priced], ())
    totals = accounting.add_up([GaussianRelease("rows", 2.0, sampling_rate=1.0 - 5e-7)])
    assert (totals.sampled, totals.multipliers, totals.mu) == ((), (2.0,), 0.5)


def test_delta_of_noise_as_drawn() -> None:
    """exp(a) times that of the analysed noise at epsilon - a - b."""
    totals = accounting.Totals(1.0, Closeness(0.25, 0.5))
    assert accounting.delta_as_drawn(
        totals, 1.0, lambda given, at: at
    ) == pytest.approx(0.25 * math.exp(0.25))
    assert accounting.delta_as_drawn(
        totals, 0.75, lambda given, at: 0.5 + at
    ) == pytest.approx(0.5 * math.exp(0.25))
    left = 1.0 - math.exp(-0.5) + math.exp(-0.5) * 0.125 * math.exp(0.25)
    assert accounting.delta_as_drawn(
        totals, 0.25, lambda given, at: 0.125 + at
    ) == pytest.approx(left)
    assert accounting.delta_as_drawn(totals, 1.0, lambda given, at: 0.9) == 1.0
    near, far = (
        accounting.Totals(1.0, Closeness(above))
        for above in (math.nextafter(700.0, 0.0), 700.0)
    )
    assert accounting.delta_as_drawn(
        near, 1000.0, lambda *given: 1e-306
    ) == pytest.approx(1e-306 * math.exp(700.0))
    # exp(705) * 1e-306 is above 1, and how much a price of 0 is, nobody knows.
    for price in (1e-306, 1e-308, 0.0):
        assert accounting.delta_as_drawn(far, 1000.0, lambda *given: price) == 1.0  # noqa: B023
    assert accounting.epsilon_as_drawn(
        totals, 0.5, lambda given, at: at
    ) == pytest.approx(0.5 * math.exp(-0.25) + 0.75)
    assert accounting.epsilon_as_drawn(far, 5e-324, lambda given, at: at) == math.inf


@pytest.mark.parametrize(
    ("above", "found"), [(699.0, True), (705.0, False), (1000.0, False)]
)
def test_noise_is_calibrated_to_no_more_than_its_price_however_coarse_it_is(
    above: float, found: bool
) -> None:
    """Also at an epsilon far above such log-ratios."""
    if found:
        sigma = calibration.calibrate_gaussian(
            2000.0, 1e-6, lambda sigma: Closeness(above)
        )
        assert (
            accounting.compose_epsilon(
                [GaussianRelease("sums", sigma, Closeness(above))], 1e-6
            )
            <= 2000.0
        )
    else:
        with pytest.raises(PlanError, match="no noise multiplier up to 1e100"):
            calibration.calibrate_gaussian(2000.0, 1e-6, lambda sigma: Closeness(above))


@pytest.mark.parametrize(
    ("tau", "first", "expected", "asked", "steep"),
    [
        (0.0, 2.25, 2.25, 0, 1.0),
        (1e-3, math.inf, math.inf, 0, 1.0),
        (1e-3, 3.0, 3.0, 1, 1.0),  # 0.0498 + 0.0211 is at most 0.1 there
        (
            1e-3,
            math.log(10.0),
            2.4352,
            None,
            1.0,
        ),  # 1/u + 1e-3 + 1e-3 u = 0.1 at u = 11.418
        (1e-3, 4.6, math.inf, 1, 1.0),  # beyond log(99) slack alone is more than 0.1
        (0.05, 0.5, math.inf, 1, 1.0),
        (0.01, 2.0, math.inf, None, 1.0),  # nowhere is 1/u + 0.01 + 0.01 u below 0.21
        (
            0.04,
            math.log(10.0) / 20.0,
            0.232725,
            None,
            20.0,
        ),  # exp(-4.6545) + 0.04 (1 + exp(0.232725)) = 0.1
    ],
)
def test_a_numerical_price_with_slack_by_hand(
    tau: float, first: float, expected: float, asked: int | None, steep: float
) -> None:
    """Of losses whose delta is exp(-steep epsilon), at a delta of 0.1."""
    trials: list[float] = []
    losses: Any = SimpleNamespace(
        epsilon=lambda delta: first,
        delta=lambda trial: trials.append(trial) or math.exp(-steep * trial),
    )
    totals = accounting.Totals(1.0, Closeness(additive=tau))
    assert accounting.numerical_epsilon(totals, 0.1, lambda _: losses) == pytest.approx(
        expected, rel=1e-4
    )
    assert asked is None or len(trials) == asked
    assert accounting.numerical_epsilon(totals, 1e-13, lambda _: losses) == math.inf


# -- losses ----------------------------------------------------------------------------


def test_the_absent_tail_of_a_mixture_by_hand() -> None:
    mixture = mixtures.Mixture(0.01, np.array([0.5]), np.array([1.0]))
    assert mixture.absent_tail(0.51) == pytest.approx(
        0.5 * math.erfc((1.0 + 0.005) / math.sqrt(2.0))
    )
