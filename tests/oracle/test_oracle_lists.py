"""Random lists of releases: `compose_epsilon` and `calibrate_scale` against the oracles
of `pricing`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from support.plans import (
    COARSE,
    GRID,
    Verdict,
    log_uniform,
    verdict,
    within_accountants,
)
from support.pricing import Draw, Noise, gdp_epsilon, parts_of, renyi_epsilon

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import calibrate_scale
from flwr_dpkmeans.privacy.release import (
    Block,
    Event,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    round_events,
)

FULL = "FULL_ORACLE" in os.environ
N_LISTS = 1000 if FULL else 72
FRACTION_BITS = 16


def blocks_of(draw: Draw) -> list[Block]:
    """The same noise as the house describes it."""
    return [
        Block(
            "array",
            (noise.entries,),
            Sensitivity(
                Norm.L2 if noise.gaussian else Norm.L1,
                noise.sensitivity,
                PrivacyUnit.CLIENT,
            ),
            NoiseShape.GAUSSIAN if noise.gaussian else NoiseShape.LAPLACE,
            noise.scale / noise.sensitivity,
            1.0,
        )
        for noise in draw.noises
    ]


def events_of(draws: Sequence[Draw]) -> list[Event]:
    """What the house prices."""
    return [
        event
        for draw in draws
        for event in round_events(
            blocks_of(draw), FRACTION_BITS, draw.noises[0].shares, draw.rate
        )
    ]


def random_draws(
    generator: np.random.Generator, *, laplace: bool, sampled: bool
) -> list[Draw]:
    """A few rounds, some repeated, of very different noise."""
    draws: list[Draw] = []
    strength = log_uniform(generator, 0.01, 4.0)
    for _ in range(int(generator.integers(1, 7))):
        noises = []
        shares = int(log_uniform(generator, 1, 50))
        for _ in range(int(generator.integers(1, 4))):
            gaussian = sampled or not laplace or bool(generator.random() < 0.5)
            sensitivity = log_uniform(generator, 1e-3, 1e3)
            scale = sensitivity / (strength * log_uniform(generator, 0.1, 1.0))
            scale = max(scale, 40.0 * GRID)
            noises.append(
                Noise(
                    gaussian,
                    scale,
                    sensitivity,
                    int(log_uniform(generator, 1, 1e4)),
                    GRID,
                    shares,
                )
            )
        rate = (
            log_uniform(generator, 0.01, 0.95)
            if sampled and generator.random() < 0.8
            else 1.0
        )
        draws += [Draw(tuple(noises), rate)] * int(generator.choice([1, 1, 2, 5]))
    return draws


def priced(
    draws: Sequence[Draw],
    delta: float,
    price: Callable[[list[Event], float], float] = compose_epsilon,
) -> Verdict | None:
    """The verdict on one list; None where discreteness leaves no room."""
    try:
        reported = price(events_of(draws), delta)
    except PlanError:
        return None
    return verdict(draws, delta, reported).require() if reported > 0.0 else None


@pytest.mark.parametrize("seed", range(2 if FULL else 1))
def test_gaussian_lists_are_priced_exactly_and_below_renyi(seed: int) -> None:
    generator, n_coarse, found = np.random.default_rng([1, seed]), 0, 0
    for _ in range(N_LISTS):
        draws, delta = (
            random_draws(generator, laplace=False, sampled=False),
            log_uniform(generator, 1e-12, 1e-3),
        )
        one = priced(draws, delta)
        if one is None or one.reported > 40.0:
            # beyond, the additive part of discreteness is paid exp(epsilon) times:
            # dearer, not exact
            continue
        found += 1
        assert one.reported <= one.never_below * (1 + 1e-9)
        if one.kind.endswith(COARSE):
            n_coarse += 1
        else:
            assert one.reported <= renyi_epsilon(draws, delta)
    assert found > 0.7 * N_LISTS
    assert n_coarse < 0.3 * found


@pytest.mark.parametrize("seed", range(2 if FULL else 1))
def test_continuous_gaussian_lists_are_never_dearer_than_by_renyi(seed: int) -> None:
    generator = np.random.default_rng([2, seed])
    for _ in range(N_LISTS):
        mu, delta = (
            log_uniform(generator, 0.01, 1.0),
            log_uniform(generator, 1e-12, 1e-3),
        )
        draws = [Draw((Noise(True, 1.0 / mu, 1.0, 1, 2.0**-40),))] * int(
            generator.integers(1, 20)
        )
        events = [
            event for draw in draws for event in round_events(blocks_of(draw), 40)
        ]
        reported = compose_epsilon(events, delta)
        exact = gdp_epsilon(math.sqrt(len(draws)) * mu, delta)
        assert exact * (1 - 1e-10) <= reported <= exact * (1 + 1e-10) + 1e-10
        assert reported <= renyi_epsilon(draws, delta)


@pytest.mark.parametrize("seed", range(2 if FULL else 1))
def test_mixed_lists_are_priced_exactly(seed: int) -> None:
    generator, found = np.random.default_rng([3, seed]), 0
    for _ in range(N_LISTS):
        draws, delta = (
            random_draws(generator, laplace=True, sampled=False),
            log_uniform(generator, 1e-12, 1e-3),
        )
        if (
            math.prod(
                1 + list(parts_of(draws)[1]).count(e) for e in set(parts_of(draws)[1])
            )
            <= 2**14
        ):
            one = priced(draws, delta)
            found += one is not None
            if one is not None and one.kind == "mixture" and one.reported < 40.0:
                assert one.reported <= renyi_epsilon(draws, delta)
    assert found > 0.5 * N_LISTS


@pytest.mark.parametrize("seed", range(4 if FULL else 1))
def test_sampled_lists_are_priced_within_the_bracket(seed: int) -> None:
    generator, found = np.random.default_rng([4, seed]), 0
    for _ in range(N_LISTS // 18):
        draws, delta = (
            random_draws(generator, laplace=False, sampled=True),
            log_uniform(generator, 1e-9, 1e-3),
        )
        one = priced(draws, delta)
        if one is not None:
            found += 1
            if one.kind == "sampled" and one.reported < 40.0:
                assert one.reported <= renyi_epsilon(draws, delta)
    assert found > N_LISTS // 36


@pytest.mark.parametrize("delta", [1.5e-13, 1e-12])
@pytest.mark.parametrize(
    ("mu", "rate", "count"), [(0.3, 0.06, 40), (3.0, 0.2, 3), (0.6, 0.5, 10)]
)
def test_what_is_set_aside_for_fourier_transforms_is_enough(
    mu: float, rate: float, count: int, delta: float
) -> None:
    """Rounding errors are near the smallest delta."""
    draws = [Draw((Noise(True, 1.0 / mu, 1.0),), rate)] * count + [
        Draw((Noise(True, 5.0, 1.0),))
    ]
    events = [
        event
        for draw in draws
        for event in round_events(blocks_of(draw), 60, 1, draw.rate)
    ]
    verdict(draws, delta, compose_epsilon(events, delta)).require()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("laplace", "sampled"), [(False, False), (True, False), (False, True)]
)
def test_prices_are_between_the_estimates_of_dp_accounting(
    laplace: bool, sampled: bool
) -> None:
    generator = np.random.default_rng([5, laplace, sampled])
    for _ in range(30 if FULL else 3):
        draws = random_draws(generator, laplace=laplace, sampled=sampled)
        coarse = [
            Draw(
                tuple(Noise(n.gaussian, n.scale, n.sensitivity) for n in draw.noises),
                draw.rate,
            )
            for draw in draws
        ]
        events = [
            event
            for draw in draws
            for event in round_events(blocks_of(draw), 60, 1, draw.rate)
        ]
        reported = compose_epsilon(events, 1e-6)
        if parts_of(coarse)[0] and 0.05 < reported < 60.0:
            within_accountants(coarse, 1e-6, reported)


@pytest.mark.parametrize("seed", range(10 if FULL else 1))
def test_calibrated_scales_cost_what_was_asked_for_by_the_oracle_too(seed: int) -> None:
    """From epsilon to noise to the oracle's epsilon."""
    generator = np.random.default_rng([6, seed])
    for place in range(12):
        sampled = place == 11
        draws = random_draws(generator, laplace=place % 2 == 1, sampled=sampled)
        epsilon, delta = (
            log_uniform(generator, 0.05, 20.0),
            log_uniform(generator, 1e-9, 1e-4),
        )

        def scaled(scale: float, draws: list[Draw] = draws) -> list[Draw]:
            return [
                Draw(
                    tuple(
                        Noise(
                            n.gaussian,
                            max(scale * n.scale, 2 * GRID),
                            n.sensitivity,
                            n.entries,
                            GRID,
                        )
                        for n in draw.noises
                    ),
                    draw.rate,
                )
                for draw in draws
            ]

        def events_at(
            scale: float, at: Callable[[float], list[Draw]] = scaled
        ) -> list[Event]:
            return events_of(at(scale))

        scale = calibrate_scale(events_at, epsilon, delta)
        reported = compose_epsilon(events_of(scaled(scale)), delta)
        assert 0.999 * epsilon <= reported <= epsilon
        if all(
            noise.scale > 100 * GRID for draw in scaled(scale) for noise in draw.noises
        ):
            assert (
                verdict(scaled(scale), delta, reported).require().never_below <= epsilon
            )
