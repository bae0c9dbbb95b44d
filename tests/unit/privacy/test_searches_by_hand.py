"""Steps of the searches for noise and for prices, against numbers worked out here."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import (
    accounting,
    calibration,
    gaussian,
    losses,
    mixtures,
    searches,
)
from flwr_dpkmeans.privacy.closeness import SAME, Closeness
from flwr_dpkmeans.privacy.release import GaussianRelease, dominating_release

OCTAVE = 2**20


def test_scales_lie_in_equal_steps_within_each_octave() -> None:
    """3 is half way from 2 to 4, the octave that begins at 2^1.

    0.75 half way from 1/2 to 1.
    """
    for scale, octaves in ((1.0, 0.0), (3.0, 1.5), (0.75, -0.5), (5.0, 2.25)):
        index = int(octaves * OCTAVE)
        assert calibration._index_of(scale) == index
        assert calibration._scale_at(index) == scale


@pytest.mark.parametrize(
    ("octave", "found"),
    [(332.0, True), (332.75, True), (333.25, False), (334.5, False)],
)
def test_scales_end_at_two_to_the_333(octave: float, found: bool) -> None:
    """About 1.7e100.

    The price halves with each octave, and is the budget at the wanted one.
    """
    budget = 1.0

    def price(scale: float) -> float:
        return 2.0 ** (octave - math.log2(scale))

    if found:
        scale = calibration.first_private(price, budget, 1.0)
        assert math.log2(scale) == pytest.approx(octave, abs=1e-5)
    else:
        with pytest.raises(PlanError, match="no noise scale up to 1e100"):
            calibration.first_private(price, budget, 1.0)


@pytest.mark.parametrize("beyond", [math.inf, 1e9])
def test_a_cost_that_is_flat_far_beyond_its_lowest_point_is_searched_before_it(
    beyond: float,
) -> None:
    def cost(x: float) -> float:
        return (x - 0.2) ** 2 if x < 0.3 else beyond

    assert accounting._lowest_point(cost, 0.0, 1.0) == pytest.approx(0.2, abs=1e-3)


def test_the_step_of_a_grid_of_losses_is_that_of_its_reach() -> None:
    """A release of mu reaches 10 mu + mu^2 / 2 to either side, and log(100) further,
    with 2^16 points for all of it.

    2 (10 mu + mu^2 / 2) + log(100) = 2^16 * 2^7 has the root below, at which the step
    doubles.
    """
    root = math.sqrt(2.0**23 + 100.0 - math.log(100.0)) - 10.0
    for mu, step in ((root - 0.1, 2.0**6), (root + 0.1, 2.0**7)):
        assert losses.grid_step({(1.0 / mu, 1.0): 1}, ()) == step


def test_a_round_of_a_sampled_release_and_another_one_is_not_joined() -> None:
    sampled, other = (
        GaussianRelease("rows", 2.0, sampling_rate=0.5),
        GaussianRelease("sums", 2.0),
    )
    with pytest.raises(LocalMisuseError, match="a sampled round has several releases"):
        dominating_release([[sampled, other]])


def test_losses_of_twelve_different_responses_are_all_listed_and_of_thirteen_on_a_grid() -> (
    None
):
    """Each has two losses: 2^12 = 4096 sums are kept one by one, 8192 are rounded to a
    grid of half as many steps.
    """
    epsilons = [0.1 * 2.0**place for place in range(13)]
    assert len(mixtures.mixture_of(1.0, epsilons[:12]).losses) == 4096
    # Of 4096 steps, and for each response up to one more on either side.
    assert 4096 < len(mixtures.mixture_of(1.0, epsilons).losses) <= 4097 + 2 * 13


def path_of(
    price: Callable[[float], float], start: float
) -> tuple[float | None, list[int]]:
    """What is found for a third, and the scales of the lattice that were priced on the
    way.
    """
    asked: list[int] = []

    def noted(scale: float) -> float:
        asked.append(calibration._index_of(scale))
        return price(scale)

    try:
        return calibration.first_private(noted, 1.0 / 3.0, start), asked
    except PlanError:
        return None, asked


@pytest.mark.parametrize(
    ("price", "start", "found", "most"),
    [
        (lambda s: 1.0 / s, 1.0, 3.0, 8),
        (lambda s: s**-2.0, 1.0, 3.0**0.5, 9),
        # Halves of the bracket where the price has no slope.
        (lambda s: math.inf if s < 10.0 else 0.0, 1.0, 10.0, 40),
        # A flat price: 8, 64, ... times as far as the octaves that 1/s would take, up
        # to both ends.
        (lambda s: 0.6, 1.0, None, 8),
        (lambda s: 0.05, 1.0, None, 8),
        # Whatever the start, the ends of the lattice are where it begins.
        (lambda s: 1.0 / s, 1e-200, 3.0, 12),
        (lambda s: 1.0 / s, 1e200, 3.0, 12),
    ],
)
def test_a_search_for_a_scale_asks_for_few_prices(
    price: Callable[[float], float], start: float, found: float | None, most: int
) -> None:
    scale, asked = path_of(price, start)
    assert asked[0] == max(
        -333 * OCTAVE, min(333 * OCTAVE, calibration._index_of(start))
    )
    assert len(asked) == len(set(asked)) <= most
    assert scale is found is None or scale == pytest.approx(found, rel=2.0**-20)


@pytest.mark.parametrize(
    ("price", "steps"),
    [
        # At first as far as if the price were 1/s, and a point more; then eight times
        # as far, but an octave at least.
        (0.6, [math.ceil(math.log2(1.8) * OCTAVE) + 1]),
        (0.05, [-math.ceil(-math.log2(0.15) * OCTAVE) - 1]),
        ((1.0 + 1e-9) / 3.0, [2, OCTAVE]),
        ((1.0 - 1e-9) / 3.0, [-2, -OCTAVE]),
        # Sixteen octaves at most, however far the price is.
        (math.inf, [16 * OCTAVE + 1]),
        (0.0, [-16 * OCTAVE - 1]),
    ],
)
def test_the_path_along_a_flat_price(price: float, steps: list[int]) -> None:
    while abs(sum(steps)) < 333 * OCTAVE:
        steps = [*steps, 8 * steps[-1]]
    scale, asked = path_of(lambda _: price, 1.0)
    assert scale is None
    end = 333 * OCTAVE if steps[0] > 0 else -333 * OCTAVE
    assert asked == [0, *(sum(steps[:n]) for n in range(1, len(steps))), end]


@pytest.mark.parametrize("first", range(-6, 7))
@pytest.mark.parametrize(
    "price",
    [
        lambda ahead: 2.0 ** (-ahead / OCTAVE),
        lambda ahead: math.inf if ahead < 0 else 0.0,
        lambda ahead: 2.0 - 1e-9 * ahead if ahead < 0 else 0.999999,
        lambda ahead: math.exp(min(700.0, -((ahead + 0.5) ** 3) / 10.0)),
        lambda ahead: 1.0 + 1e-9 if ahead < 0 else 2.0 ** (-ahead - 1.0),
        lambda ahead: 2.0 ** (-(ahead - 100.0 if ahead < 0 else ahead + 1.0) / OCTAVE),
    ],
)
def test_the_first_private_point_of_the_lattice_is_found(
    price: Callable[[int], float], first: int
) -> None:
    """Not the second, wherever secants end.

    `ahead` counts points from the first one whose price is at most 1.
    """
    asked: list[int] = []

    def noted(scale: float) -> float:
        asked.append(calibration._index_of(scale))
        return price(asked[-1] - first)

    assert calibration._index_of(calibration.first_private(noted, 1.0, 1.0)) == first
    assert {first - 1, first} <= set(asked)


def test_the_path_of_a_search_for_a_multiplier() -> None:
    """Upwards by 2^-43, nine times as much, and so on, each step eight times the one
    before; downwards likewise.
    """
    unit = 2.0**-43
    for least, path in (
        (
            1.0 + 60.0 * unit,
            [1.0, 1.0 + unit, 1.0 + 9.0 * unit, 1.0 + 73.0 * unit, 1.0 + 9.0 * unit],
        ),
        (
            1.0 - 60.0 * unit,
            [
                1.0,
                1.0,
                1.0 - unit,
                1.0 - 9.0 * unit,
                1.0 - 73.0 * unit,
                1.0 - 73.0 * unit,
            ],
        ),
    ):
        asked: list[float] = []
        found = calibration.smallest_multiplier(
            lambda sigma: asked.append(sigma) or sigma >= least,  # noqa: B023
            1.0,
        )
        assert asked[: len(path)] == pytest.approx(path, rel=1e-15)
        assert 0.0 <= found - least <= unit
        assert len(asked) == (13 if least > 1.0 else 14)


@pytest.mark.parametrize(
    ("start", "reachable"),
    [(1e99, True), (1e-99, True), (1e100, False), (1e-100, False)],
)
def test_multipliers_end_at_a_hundred_powers_of_ten(
    start: float, reachable: bool
) -> None:
    """A step to either side is taken before the end is seen."""
    for private in (
        lambda sigma: sigma >= start * (1.0 + 1e-9),
        lambda sigma: sigma >= start * (1.0 - 1e-9),
    ):
        outward = private(start) == (start < 1.0)
        if reachable or not outward:
            assert calibration.smallest_multiplier(private, start) == pytest.approx(
                start, rel=1e-8
            )
        else:
            with pytest.raises(PlanError, match="meets the privacy condition"):
                calibration.smallest_multiplier(private, start)


def test_newton_steps_are_at_most_a_factor_of_e_and_end_where_they_no_longer_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    delta_of = calibration.gaussian_delta
    monkeypatch.setattr(
        calibration, "gaussian_delta", lambda *at: asked.append(at[1]) or delta_of(*at)
    )
    assert delta_of(0.01, calibration._refine_mu(0.01, 0.3, 5.0)) == pytest.approx(
        0.3, rel=1e-14
    )
    assert asked[:4] == pytest.approx(
        [5.0, 5.0 / math.e, 5.0 / math.e**2, 0.7792351146977798]
    )
    assert len(asked) == 6
    asked.clear()
    assert delta_of(5.0, calibration._refine_mu(5.0, 1e-10, 0.5)) == pytest.approx(
        1e-10, rel=1e-13
    )
    assert asked[:4] == pytest.approx(
        [0.5, 0.6741819852792378, 0.7663007320192358, 0.7805203859856794]
    )
    assert len(asked) == 6
    # Where delta or its slope is 0, there is nothing to go by: far below, just below,
    # and far above.
    for epsilon, mu in ((1.0, 0.001), (39.0, 1.0), (1.0, 100.0)):
        assert calibration._refine_mu(epsilon, 1e-5, mu) == mu
    # Upwards a step is a factor of e at most as well, and twelve are enough.
    assert calibration._refine_mu(1e-12, 0.3, 1e-8) == pytest.approx(
        1e-8 * math.exp(12.0), rel=1e-13, abs=0.0
    )


def test_a_bisection_asks_at_both_ends_and_then_in_the_middle() -> None:
    asked: list[float] = []
    found = searches.smallest_true(lambda x: asked.append(x) or x >= 0.3, 0.0, 1.0)
    assert asked[:6] == [0.0, 1.0, 0.5, 0.25, 0.375, 0.3125]
    assert (len(asked), 0.0 < found - 0.3 <= 2.0**-43 * 0.3) == (47, True)
    assert searches.smallest_true(lambda x: x >= 0.3, 0.5, math.inf) == 0.5
    # It ends at 2^-43 of the upper end, or where there is no number between the ends.
    asked.clear()
    assert (
        searches.smallest_true(lambda x: asked.append(x) or x >= 1.0, 0.5, 1.0) == 1.0
    )
    assert asked == [0.5, 1.0, *(1.0 - 2.0**-n for n in range(2, 44))]
    assert searches.smallest_true(lambda x: x > 0.0, 0.0, 1.0) == 5e-324
    for low, high in ((1.0, math.inf), (1.0, 1.0), (1.0, 2.0)):
        with pytest.raises(PlanError, match=f"no value up to {high} meets"):
            searches.smallest_true(lambda x: x > 2.0, low, high)


def test_an_epsilon_is_that_of_the_plain_bisection_in_half_of_the_steps() -> None:
    generator = random.Random(3)
    n_searched, asked = 0, {"plain": 0, "quick": 0}
    for _ in range(300):
        mu, delta, tau = (
            10.0 ** generator.uniform(*exponents)
            for exponents in ((-3, 1), (-14, -0.1), (-40, -16))
        )
        enough = mu * (math.sqrt(-2.0 * math.log(delta)) + 0.5 * mu)

        def cost(kind: str, mu: float, tau: float, epsilon: float) -> float:
            asked[kind] += 1
            return gaussian.gaussian_delta_bound(epsilon, mu) + tau * (
                1.0 + math.exp(epsilon)
            )

        plain, quick = partial(cost, "plain", mu, tau), partial(cost, "quick", mu, tau)
        if plain(enough) <= delta < plain(0.0):
            n_searched += 1
            expected = searches.smallest_true(
                lambda epsilon, of=plain, at=delta: of(epsilon) <= at, 0.0, enough
            )  # type: ignore[misc]
            assert searches.smallest_at_most(quick, delta, enough) == expected
    assert n_searched > 200
    assert 2 * asked["quick"] < asked["plain"]


def test_an_epsilon_of_a_cost_with_steps_or_zeros_is_that_of_the_bisection() -> None:
    """Secants end anywhere on a step.

    What is not seen on both sides of the place is bisected as a whole.
    """

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


def test_golden_sections_ask_once_for_each_step() -> None:
    """Each step keeps 0.618 of the range: of 1 down to 1e-7 of the larger end, 0.2,
    that is 37 steps.
    """
    asked: list[float] = []
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    found = accounting._lowest_point(
        lambda x: asked.append(x) or (x - 0.2) ** 2, 0.0, 1.0
    )
    assert asked[:4] == pytest.approx(
        [1.0 - golden, golden, golden - golden**2, 1.0 - golden - golden**3]
    )
    assert found == pytest.approx(0.2, abs=1e-7)
    assert len(asked) == 2 + math.ceil(math.log(0.2e-7) / math.log(golden))
    for place, low, high in (
        (0.2, 0.125, 1.0),
        (0.2, 0.125, 0.25),
        (0.15, 0.125, 0.25),
        (0.22, 0.1, 0.25),
    ):
        asked.clear()
        found = accounting._lowest_point(
            lambda x, at=place: asked.append(x) or abs(x - at), low, high
        )  # type: ignore[misc]
        assert found == min(asked, key=lambda x, at=place: abs(x - at))  # type: ignore[misc]
        assert asked[:2] == pytest.approx(
            [high - golden * (high - low), low + golden * (high - low)]
        )


def test_a_price_beside_the_budget_has_the_sign_of_the_comparison() -> None:
    above = math.nextafter(1000.0, math.inf)
    assert 0.0 < calibration._log_excess(above, 1000.0) < 1e-12
    assert -1e-12 < calibration._log_excess(1000.0, 1000.0) < 0.0
    assert -1e-12 < calibration._log_excess(math.nextafter(1000.0, 0.0), 1000.0) < 0.0
    assert calibration._log_excess(math.e, 1.0) == 1.0
    assert [calibration._log_excess(price, 2.0) for price in (0.0, -1.0, math.inf)] == [
        -700.0,
        -700.0,
        700.0,
    ]


def test_where_the_search_for_a_multiplier_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the better of two values of mu that are surely private."""
    asked: list[tuple[float, ...]] = []
    refine = calibration._refine_mu
    monkeypatch.setattr(
        calibration, "_refine_mu", lambda *at: asked.append(at) or refine(*at)
    )
    shade = 1.0 - 2.0**-41
    calibration.gaussian_noise_multiplier(2.0, math.exp(-8.0))  # the tail is 4
    assert asked.pop() == (
        2.0 * shade,
        math.exp(-8.0) * shade,
        pytest.approx(4.0 / (4.0 + math.sqrt(20.0))),
    )
    calibration.gaussian_noise_multiplier(1e-9, 0.1)
    assert asked.pop()[2] == pytest.approx(0.1 * math.sqrt(2.0 * math.pi))
    # And from where Newton's steps end, a few units of 2^-43 beside it.
    tried: list[float] = []
    bound = calibration.gaussian_delta_bound
    monkeypatch.setattr(
        calibration,
        "gaussian_delta_bound",
        lambda *at: tried.append(at[1]) or bound(*at),
    )
    for epsilon, delta in ((2.0, math.exp(-8.0)), (0.1, 0.3), (10.0, 1e-9)):
        found = calibration.gaussian_noise_multiplier(epsilon, delta)
        assert tried == pytest.approx([1.0 / found] * len(tried), rel=2.0**-36)
        tried.clear()


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
    """exp(a) times that of the analysed noise at epsilon - a - b.

    Below 0, 1 - exp(e) + exp(e) delta at e = -1/2.
    """
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
    """Also at an epsilon far above such log-ratios.

    exp(above) times a delta beyond floating point is not known.
    """
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


def test_gaussian_prices_with_slack_by_hand() -> None:
    """At a Gaussian part of 1 and a pure 1/2, tau = 1e-3 costs (1 + e^1.5) 1e-3.

    It is cheapest at mu (y - mu/2).
    """
    totals = accounting.Totals(1.0, Closeness(additive=1e-3), (0.25, 0.25))
    delta = gaussian.gaussian_delta_bound(1.0, 1.0) + (1.0 + math.exp(1.5)) * 1e-3
    assert accounting.gdp_delta(totals, 1.0) == pytest.approx(delta, rel=1e-14)
    assert accounting.gdp_epsilon(totals, delta) == pytest.approx(1.5, rel=1e-11)
    turning = accounting._turning_epsilon(1.0, 0.5, 1e-3)
    assert 0.5 * math.erfc((turning + 0.5) / math.sqrt(2.0)) == pytest.approx(
        1e-3 * math.exp(0.5)
    )
    assert accounting.gdp_delta(totals, 50.0) == accounting.gdp_delta(totals, turning)
    assert accounting._turning_epsilon(2.0, 0.0, 0.1) == pytest.approx(
        2.0 * (1.2815515655446 - 1.0)
    )
    assert accounting._turning_epsilon(0.5, 0.0, 0.1) == pytest.approx(
        0.5 * (1.2815515655446 - 0.25)
    )
    assert [accounting._turning_epsilon(1.0, 0.0, tau) for tau in (0.0, 0.45, 0.6)] == [
        math.inf,
        0.0,
        0.0,
    ]
    assert accounting.gdp_epsilon(totals, 1e-3) == math.inf


def test_the_range_in_which_a_price_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to the sum of the pure epsilons and mu (sqrt(-2 log delta) + mu/2).

    Down to 0 from where slack turns.
    """
    ranges: list[tuple[float, float]] = []
    bisected = searches.smallest_true

    def noted(holds: Callable[[float], bool], low: float, high: float) -> float:
        ranges.append((low, high))
        return bisected(holds, low, high)

    for module in (accounting, searches):
        monkeypatch.setattr(module, "smallest_true", noted)
    gaussian.gaussian_epsilon(0.5, math.exp(-8.0))
    assert ranges.pop() == (0.0, pytest.approx(0.5 * (4.0 + 0.25)))
    accounting._mixture_epsilon(
        accounting.Totals(0.5, SAME, (0.25, 0.5)), math.exp(-8.0)
    )
    assert ranges == [(0.0, pytest.approx(0.75 + 0.5 * (4.0 + 0.25)))]
    fake: Any = SimpleNamespace(
        absent_tail=lambda epsilon: 1.0 if epsilon < 0.5 else 0.0
    )
    assert accounting._mixture_turning_epsilon(fake, 0.0, 3.0) == 3.0
    assert accounting._mixture_turning_epsilon(fake, 0.25, 3.0) == pytest.approx(0.5)
    assert accounting._mixture_turning_epsilon(fake, 0.25, 0.4) == 0.4
    assert accounting._mixture_turning_epsilon(fake, 1.5, 3.0) == 0.0


def test_the_price_of_a_mixture_pays_its_slack() -> None:
    totals = accounting.Totals(0.5, Closeness(additive=1e-4), (0.25, 0.5))
    mixture = mixtures.mixture_of(0.5, (0.25, 0.5))
    delta = mixture.delta(1.0) + (1.0 + math.e) * 1e-4
    assert accounting._mixture_epsilon(totals, delta) == pytest.approx(1.0, rel=1e-11)
    # Four sums of losses: -0.75, -0.25, 0.25 and 0.75.
    assert mixture.losses.tolist() == [-0.75, -0.25, 0.25, 0.75]
    plus, minus = (1.0 / (1.0 + math.exp(-sign * 0.25)) for sign in (1.0, -1.0))
    more, less = (1.0 / (1.0 + math.exp(-sign * 0.5)) for sign in (1.0, -1.0))
    assert mixture.probabilities == pytest.approx(
        [minus * less, plus * less, minus * more, plus * more]
    )


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
    tau: float,
    first: float,
    expected: float,
    asked: int | None,
    steep: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of losses whose delta is exp(-steep epsilon), at a delta of 0.1."""
    trials: list[float] = []
    fake = SimpleNamespace(
        epsilon=lambda delta: first,
        delta=lambda trial: trials.append(trial) or math.exp(-steep * trial),
    )
    monkeypatch.setattr(accounting, "_losses_of", lambda totals: fake)
    totals = accounting.Totals(1.0, Closeness(additive=tau))
    assert accounting.numerical_epsilon(totals, 0.1) == pytest.approx(
        expected, rel=1e-4
    )
    assert asked is None or len(trials) == asked
    assert accounting.numerical_epsilon(totals, 1e-13) == math.inf


def test_losses_beyond_a_mu_of_a_hundred_have_no_numerical_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        accounting, "numerical_losses", lambda *groups: asked.append(groups)
    )
    one, two = (GaussianRelease("a", scale, sampling_rate=0.5) for scale in (2.0, 3.0))
    accounting._losses_of(
        accounting.Totals(100.0, SAME, (0.5,), (one, one, two), (3.0, 4.0))
    )
    (groups, pure), *_ = asked
    # Those that are not sampled are one: (1/3)^2 + (1/4)^2 = (1/2.4)^2.
    assert list(groups.values()) == [2, 1, 1]
    assert list(groups) == [(2.0, 0.5), (3.0, 0.5), (pytest.approx(2.4), 1.0)]
    assert pure == (0.5,)
    assert accounting._losses_of(accounting.Totals(100.5, SAME, (), (one,))) is None
    assert len(asked) == 1
    accounting._losses_of(accounting.Totals(100.5, SAME, (), (), (4.0,)))
    assert len(asked) == 2


# -- losses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "loss", "mu", "size", "depth"),
    [
        (0.6, 0.5, 0.01, 110.01, 12.0),
        (0.6, -0.5, 0.01, 110.01, 42.0),
        # Where the loss is beyond epsilon, as if it were there.
        (0.5, 0.6, 0.01, 110.01, 2.0),
        (319.2, 0.0, 8.0, 47.9, 41.9),
        (0.5, 0.25, 4.0, 4.1875, 2.0625),
    ],
)
def test_the_allowance_of_a_mixture_by_hand(
    epsilon: float, loss: float, mu: float, size: float, depth: float
) -> None:
    """One loss of 1/2 at epsilon 0.6 with mu = 0.01.

    Ten deviations deep, and two more, and of a size of 110.01.
    """
    plain = float(gaussian.gaussian_deltas(np.array([epsilon - loss]), mu)[0])
    for n_losses in (1, 4096):
        mixture = mixtures.Mixture(
            mu, np.full(n_losses, loss), np.full(n_losses, 1.0 / n_losses)
        )
        allowance = 4e-12 + 2.0**-53 * (8.0 * size * depth + 2.0 * n_losses)
        found = mixture.delta(epsilon)
        # In which order a sum of 4,096 is taken, and so its last digits, the machine
        # decides.
        last_digits = 3e-15 + 2.0**-53 * n_losses / 50
        assert found == plain == 0.0 or found / plain - 1.0 == pytest.approx(
            allowance, rel=0.0, abs=last_digits
        )


def test_the_absent_tail_of_a_mixture_by_hand() -> None:
    mixture = mixtures.Mixture(0.01, np.array([0.5]), np.array([1.0]))
    assert mixture.absent_tail(0.51) == pytest.approx(
        0.5 * math.erfc((1.0 + 0.005) / math.sqrt(2.0))
    )


def test_atoms_are_split_over_two_points_of_a_grid() -> None:
    """1.5 steps of 1 become one and two steps, with shares that keep the mean of
    exp(-loss).
    """
    share = math.expm1(-0.5) / math.expm1(-1.0)
    found = mixtures.on_grid(np.array([-1.5, 1.5]), np.array([0.25, 0.75]), 1.0)
    expected = [
        0.25 * (1.0 - share),
        0.25 * share,
        0.0,
        0.75 * (1.0 - share),
        0.75 * share,
    ]
    assert found == pytest.approx(expected)
    assert mixtures.on_grid(
        np.array([-2.0, 2.0]), np.array([0.25, 0.75]), 1.0
    ) == pytest.approx([0.0, 0.25, 0.0, 0.0, 0.0, 0.75, 0.0])


def test_what_transforms_round_off_is_on_top() -> None:
    whole = SimpleNamespace(
        get_delta_for_epsilon=lambda epsilon: 0.25,
        get_epsilon_for_delta=lambda delta: delta,
    )
    numerical = losses.NumericalLosses(whole)
    assert (numerical.delta(1.0), numerical.epsilon(0.5)) == (0.25 + 1e-13, 0.5 - 1e-13)


def test_equal_releases_to_everybody_are_one_of_a_smaller_multiplier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    made: list[tuple[float, float]] = []
    real = pld.from_gaussian_mechanism

    def noted(multiplier: float, *, sampling_prob: float, **step: float) -> Any:
        made.append((multiplier, sampling_prob))
        return real(multiplier, sampling_prob=sampling_prob, **step)

    monkeypatch.setattr(pld, "from_gaussian_mechanism", noted)
    whole = losses.numerical_losses({(10.0, 1.0): 1}, ())
    assert whole.delta(0.2) == pytest.approx(
        gaussian.gaussian_delta(0.2, 0.1), rel=1e-3
    )
    losses.numerical_losses({(20.0, 0.5): 4}, ())
    assert made[1:] == [(20.0, 0.5)]


@pytest.mark.parametrize(
    ("gaussians", "pures", "power"),
    [
        # 0.04 deviations of one loss, rounded down to a power of two: of mu = 1, 2^-5;
        # never below 1e-15.
        ({(1.0, 1.0): 1}, (), -5),
        ({(1.0, 1.0): 9}, (), -5),
        ({}, (1.0, 1.0), -5),
        ({(1e30, 1.0): 1}, (), -50),
        # mu = 1.5 has 0.06, however much more its loss may vary; four losses of
        # variances 1, 4, 4, 4 have 0.072.
        ({(2.0 / 3.0, 1.0): 1}, (), -5),
        ({(1.0, 1.0): 1, (0.5, 1.0): 3}, (), -4),
        ({(1.0, 1.0): 1}, (1.0, 1.0), -5),
        # The variance of a sampled one is rate^2 (e^(mu^2) - 1): 0.01 * 1.718 and 0.01
        # * 8.488.
        ({(1.0, 0.1): 1}, (), -8),
        ({(2.0 / 3.0, 0.1): 1}, (), -7),
        # Or its points at 2^16 for all: 2 * 1e-4 (e^10.5 - 1) + 1e-4 = 7.26, and two
        # times the sum of 3000 near 1/2.
        ({(1.0, 1e-4): 1}, (), -14),
        ({}, tuple(0.5 + n * 2.0**-30 for n in range(3000)), -5),
        ({}, (0.5,) * 3000, -6),
    ],
)
def test_steps_of_grids_of_losses_by_hand(
    gaussians: dict[tuple[float, float], int], pures: tuple[float, ...], power: int
) -> None:
    assert losses.grid_step(gaussians, pures) == 2.0**power


def test_a_response_of_a_huge_epsilon_never_denies() -> None:
    plus = losses.randomized_response(720.0, 1.0)
    assert [
        plus.get_delta_for_epsilon(epsilon) for epsilon in (0.0, -730.0)
    ] == pytest.approx([1.0, 1.0])
    small = losses.randomized_response(1.5, 1.0)
    # At most what the response itself has: it is rounded to the private side.
    exact = (math.exp(1.5) - math.exp(0.5)) / (1.0 + math.exp(1.5))
    assert exact <= small.get_delta_for_epsilon(0.5) + 1e-15 <= exact + 0.2


@pytest.mark.parametrize(
    ("rate", "denied"),
    [(0.5, math.log(2.0)), (0.25, math.log(4.0 / 3.0)), (1.0, math.log(100.0))],
)
def test_the_reach_of_sampled_losses_to_the_other_side(
    rate: float, denied: float
) -> None:
    """A loss of a unit that is not there is at least log(1 - rate), of everybody log(1
    / 100): see the grid's step.
    """
    root = math.sqrt(2.0**23 + 100.0 - denied) - 10.0
    for mu, step in ((root - 2e-5, 2.0**6), (root + 2e-5, 2.0**7)):
        assert losses.grid_step({(1.0 / mu, rate): 1}, ()) == step
