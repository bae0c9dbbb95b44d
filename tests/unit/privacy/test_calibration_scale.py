"""From a price back to a noise scale: priced again, from every start, and where no
scale exists.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.pricing import Unpriced

from flwr_dpkmeans.algorithms.lloyd_family.sulloyd import laplace_epsilon
from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy import calibration
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import (
    calibrate_scale,
    first_private,
    gaussian_noise_multiplier,
)
from flwr_dpkmeans.privacy.closeness import Closeness, discrete_gaussian_closeness
from flwr_dpkmeans.privacy.release import (
    Event,
    ExactRelease,
    GaussianRelease,
    PureRelease,
)

Plan = Callable[[float], Sequence[Event]]


def gaussian(scale: float) -> list[Event]:
    return [
        GaussianRelease("sums", 2.7 * scale),
        GaussianRelease("counts", 3.1 * scale),
    ]


def slacked(scale: float) -> list[Event]:
    closeness = Closeness(additive=min(1.0, 1e-10 / scale**2))
    return [
        GaussianRelease("sums", 2.7 * scale, closeness),
        GaussianRelease("counts", 3.1 * scale),
    ]


def drawn(scale: float) -> list[Event]:
    closeness = discrete_gaussian_closeness(max(1.0, 30.0 * scale), 5050)
    return [
        GaussianRelease("sums", 2.7 * scale, closeness),
        GaussianRelease("counts", 3.1 * scale),
    ]


def pure(scale: float) -> list[Event]:
    return [
        PureRelease("sums", 1.0 / (1.5 * scale)),
        PureRelease("choice", 0.5 / scale),
    ]


def mixed(scale: float) -> list[Event]:
    return [
        *gaussian(scale),
        PureRelease("sums", 1.0 / (1.5 * scale)),
        PureRelease("counts", 1.0 / (2.0 * scale)),
    ]


def sampled(scale: float) -> list[Event]:
    return [
        GaussianRelease(
            f"round {index}",
            (1.5 + index) * scale,
            Closeness(1e-3 / scale, 2e-3 / scale, 1e-12),
            sampling_rate=0.1,
        )
        for index in range(3)
    ]


def everything(scale: float) -> list[Event]:
    return [*sampled(scale), *mixed(scale)]


PLANS = [gaussian, slacked, drawn, pure, mixed, sampled, everything]


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("plan", "epsilon"),
    [
        *itertools.product([gaussian, slacked, drawn, pure, mixed], [0.05, 1.0, 5.0]),
        (sampled, 0.05),
        (everything, 5.0),
    ],
)
def test_calibrated_scale_is_priced_from_below(plan: Plan, epsilon: float) -> None:
    scale = calibrate_scale(plan, epsilon, 1e-6)
    assert 0.999 * epsilon <= compose_epsilon(plan(scale), 1e-6) <= epsilon
    assert compose_epsilon(plan(scale * (1 - 1e-6)), 1e-6) > epsilon


@functools.cache
def scale_of(plan: Plan, epsilon: float, delta: float) -> float:
    """What several tests compare with."""
    return calibrate_scale(plan, epsilon, delta)


@pytest.mark.sample(3)
@pytest.mark.parametrize("plan", PLANS)
def test_the_result_does_not_depend_on_the_start(plan: Plan) -> None:
    scale = scale_of(plan, 0.7, 1e-6)
    starts = {sampled: (1e-6,), everything: (1e9,)}.get(plan, (1e-6, 0.3, 17.0, 1e9))
    assert {calibrate_scale(plan, 0.7, 1e-6, start=start) for start in starts} == {
        scale
    }


@pytest.mark.parametrize("plan", [gaussian, mixed, sampled])
def test_last_digits_of_a_price_do_not_reach_the_result(plan: Plan) -> None:
    """Two machines may differ in the last digits."""
    scale = scale_of(plan, 0.7, 1e-6)
    for sign in (1, -1):
        signs = itertools.cycle([sign, -sign, -sign])

        def elsewhere(
            noise_scale: float, signs: itertools.cycle[int] = signs
        ) -> Sequence[Event]:
            return plan(noise_scale * (1 + 1e-13 * next(signs)))

        assert calibrate_scale(elsewhere, 0.7, 1e-6) == scale


def test_gaussian_scale_is_the_gaussian_multiplier() -> None:
    sigma = gaussian_noise_multiplier(0.7, 1e-6)
    scale = calibrate_scale(lambda s: [GaussianRelease("sums", s * 2.0)] * 4, 0.7, 1e-6)
    assert sigma <= scale <= sigma * (1 + 1e-6)


def test_pure_scale_is_known() -> None:
    scale = calibrate_scale(pure, 0.3, 1e-6)
    assert scale == pytest.approx((1 / 1.5 + 0.5) / 0.3, rel=1e-6)
    assert scale >= (1 / 1.5 + 0.5) / 0.3


@pytest.mark.sample(1)
@pytest.mark.parametrize("plan", [gaussian, mixed, sampled])
def test_more_budget_needs_less_noise(plan: Plan) -> None:
    epsilons = (0.7, 4.0) if plan is sampled else (0.1, 0.2, 0.7, 4.0)
    by_epsilon = [scale_of(plan, epsilon, 1e-6) for epsilon in epsilons]
    assert all(more > less for more, less in itertools.pairwise(by_epsilon))
    assert scale_of(plan, 0.7, 1e-5) < scale_of(plan, 0.7, 1e-6)


def test_sampling_needs_less_noise_than_none() -> None:
    def unsampled(scale: float) -> list[Event]:
        return [
            GaussianRelease(event.name, event.noise_multiplier)
            for event in sampled(scale)
        ]  # type: ignore[union-attr]

    assert calibrate_scale(sampled, 0.5, 1e-6) < 0.5 * calibrate_scale(
        unsampled, 0.5, 1e-6
    )


def test_what_cannot_be_calibrated_is_an_error() -> None:
    with pytest.raises(PlanError, match="no noise at all"):
        calibrate_scale(
            lambda scale: [*gaussian(scale), ExactRelease("labels")], 1.0, 1e-6
        )
    with pytest.raises(PlanError, match="no noise scale"):
        calibrate_scale(
            lambda scale: [GaussianRelease("sums", scale, Closeness(additive=1e-6))],
            1.0,
            1e-6,
        )
    with pytest.raises(PlanError, match="every noise scale"):
        calibrate_scale(lambda scale: [], 1.0, 1e-6)
    with pytest.raises(LocalMisuseError, match="'Unpriced'"):
        calibrate_scale(
            lambda scale: [*gaussian(scale), Unpriced("shuffle")], 1.0, 1e-6
        )  # type: ignore[list-item]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_arguments_are_checked(bad: float) -> None:
    with pytest.raises(LocalMisuseError, match="epsilon"):
        calibrate_scale(gaussian, bad, 1e-6)
    with pytest.raises(LocalMisuseError, match="delta"):
        calibrate_scale(gaussian, 1.0, bad)
    with pytest.raises(LocalMisuseError, match="start"):
        calibrate_scale(gaussian, 1.0, 1e-6, start=bad)


@pytest.mark.parametrize(
    "price",
    [
        lambda scale: 3.0 / scale,
        lambda scale: math.inf if scale < 3.0 else 0.0,
        lambda scale: 5.0 if scale < 3.0 else 1.0,
        lambda scale: math.exp(min(700.0, 3.0 * (3.0 - scale))),
        lambda scale: 1.0 + 1e-3 * (3.0 - scale) if scale < 1000.0 else 0.0,
        lambda scale: (3.0 / scale) ** 40 if scale > 2.9 else math.inf,
        lambda scale: max(0.0, 4.0 - scale),
    ],
)
@pytest.mark.parametrize("start", [1e-90, 2.0, 3.0, 1e90])
def test_search_finds_the_first_private_scale(
    price: Callable[[float], float], start: float
) -> None:
    tried: list[float] = []

    def counted(scale: float) -> float:
        tried.append(scale)
        return price(scale)

    scale = first_private(counted, 1.0, start)
    assert 3.0 <= scale <= 3.0 * (1 + 1e-6)
    assert len(tried) < 100


def test_search_is_quick_on_smooth_prices() -> None:
    tried: list[float] = []

    def price(scale: float) -> float:
        tried.append(scale)
        return 7.0 / scale + 3.0 / scale**2

    first_private(price, 0.31, 1.0)
    assert len(tried) <= 10


def test_search_refuses_what_is_not_a_number() -> None:
    with pytest.raises(PlanError, match="not a number"):
        first_private(lambda scale: math.nan, 1.0, 1.0)


@pytest.mark.parametrize("counted", [True, False])
def test_iterations_get_what_a_count_left_of_epsilon(counted: bool) -> None:
    """All of it, not only the share that was set aside for them."""
    public: Any = SimpleNamespace(
        released_events=lambda: [PureRelease("count", 0.2)],
        counted=counted,
        settings=SimpleNamespace(epsilon=1.0),
        delta=1e-6,
    )
    assert laplace_epsilon(public, 0.5, [0.25] * 4) == pytest.approx(0.8, rel=1e-3)
    public.released_events = list
    assert laplace_epsilon(public, 0.5, [0.25] * 4) == 0.5


def test_a_start_that_is_right_is_confirmed_by_looking_just_below() -> None:
    """Is 3 enough, is 3 less 2^-43 of it, and both once more where the search ends."""
    asked: list[float] = []

    def private(multiplier: float) -> bool:
        asked.append(multiplier)
        return multiplier >= 3.0

    assert calibration.smallest_multiplier(private, 3.0) == 3.0
    below = 3.0 / (1.0 + 2.0**-43)
    assert asked == [3.0, 3.0, below, below, 3.0]
