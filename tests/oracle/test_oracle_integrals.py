"""The oracle against the definition of privacy, and the house's prices of the noise
that is really drawn.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.deltas import compose_delta
from support.integration import (
    beside_gaussian,
    discrete_gaussian,
    discrete_gaussian_delta,
    discrete_laplace_losses,
    divergence,
    integrated_gaussian_delta,
    laplace_losses,
    plane_delta,
    sampled_delta,
    sampled_deltas,
    shared_gaussian,
    shifts,
)
from support.pricing import (
    bracket,
    gdp_delta,
    gdp_epsilon,
    mixture_delta,
    mixture_epsilon,
)

from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.release import (
    Block,
    Event,
    GaussianRelease,
    NoiseShape,
    Norm,
    PrivacyUnit,
    PureRelease,
    Sensitivity,
)

DELTAS = (1e-2, 1e-5, 1e-9)
ROUNDING = 1e-9


def block(noise: NoiseShape, std: float, sensitivity: float, n_entries: int) -> Block:
    """An array on the grid of whole numbers."""
    norm = Norm.L2 if noise is NoiseShape.GAUSSIAN else Norm.L1
    bound = Sensitivity(norm, sensitivity, PrivacyUnit.RECORD)
    return Block("array", (n_entries,), bound, noise, std / sensitivity, sensitivity)


# -- the oracle itself -----------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_oracle_of_gaussians_is_the_integral(mu: float) -> None:
    for delta in DELTAS:
        epsilon = gdp_epsilon(mu, delta)
        if epsilon > 0.0:
            assert float(gdp_delta(epsilon, mu)) == pytest.approx(
                delta, rel=1e-12, abs=0.0
            )
            assert integrated_gaussian_delta(epsilon, mu) == pytest.approx(
                delta, rel=1e-9, abs=0.0
            )


@pytest.mark.sample(1)
@pytest.mark.parametrize(("mu", "rate"), [(0.4, 0.1), (2.0, 0.02), (1.0, 0.7)])
def test_oracle_of_samples_is_the_integral(mu: float, rate: float) -> None:
    """One, two and three releases, by nested integrals."""
    for count in (1, 2, 3):
        for epsilon in (0.2, 1.0):
            exact = sampled_deltas(epsilon, [(mu, rate)] * count)
            if exact < 1e-10:
                continue
            found = [
                bracket([(mu, rate)] * count, [], exact, epsilon, removing=removing)
                for removing in (False, True)
            ]
            error = 1e-4 if count == 3 else 1e-6
            assert max(one.low(epsilon) for one in found) <= exact * (1 + error)
            assert max(one.high(epsilon) for one in found) >= exact * (1 - error)
            assert max(one.low(epsilon) for one in found) >= 0.98 * exact


def test_both_directions_of_a_sample_by_a_plain_sum() -> None:
    x = np.linspace(-14.0, 16.0, 600_001)
    absent, shifted = (
        np.exp(-0.5 * (x - at) ** 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
        for at in (0.0, 1.5)
    )
    present = 0.8 * absent + 0.2 * shifted
    for epsilon in (0.0, 0.15, 1.0):
        removing, adding = (
            sampled_delta(np.array(epsilon), 1.5, 0.2, removing=way)
            for way in (True, False)
        )
        assert divergence(present, absent, epsilon) == pytest.approx(
            float(removing), rel=1e-6, abs=1e-12
        )
        assert divergence(absent, present, epsilon) == pytest.approx(
            max(0.0, float(adding)), rel=1e-6, abs=1e-12
        )


@pytest.mark.parametrize(("mu", "laplace"), [(0.5, 0.3), (1.0, 2.0)])
def test_laplace_and_gaussian_together_are_the_integral_over_the_plane(
    mu: float, laplace: float
) -> None:
    for epsilon in (0.1, 1.0, 2.5):
        nested = beside_gaussian(epsilon, mu, [laplace_losses(laplace)])
        assert plane_delta(epsilon, mu, laplace) == pytest.approx(
            nested, rel=2e-3, abs=1e-9
        )


@pytest.mark.parametrize("epsilons", [[0.3], [1.0, 1.0], [0.2, 0.2, 0.7]])
@pytest.mark.parametrize("mu", [0.0, 0.4, 2.0])
def test_oracle_of_mixtures_is_randomized_response_to_the_letter(
    epsilons: list[float], mu: float
) -> None:
    parts = [
        (np.array([e, -e]), np.array([1.0, math.exp(-e)]) / (1.0 + math.exp(-e)))
        for e in epsilons
    ]
    for epsilon in (0.0, 0.1, 0.9):
        assert mixture_delta(epsilon, mu, epsilons) == pytest.approx(
            beside_gaussian(epsilon, mu, parts), rel=1e-9
        )


# -- prices of continuous noise --------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "rate"), [(0.2, 0.05), (0.8, 0.3), (1.6, 0.02), (0.5, 0.9), (3.0, 0.1)]
)
@pytest.mark.parametrize("count", [1, 2])
def test_price_of_samples_is_just_above_the_integral(
    mu: float, rate: float, count: int
) -> None:
    events: list[Event] = [
        GaussianRelease("round", 1.0 / mu, sampling_rate=rate)
    ] * count
    for delta in (1e-3, 1e-6):
        epsilon = compose_epsilon(events, delta)
        if epsilon > 0.0:
            assert sampled_deltas(epsilon, [(mu, rate)] * count) <= delta * (1 + 1e-7)
            assert sampled_deltas(epsilon / 1.03, [(mu, rate)] * count) > delta


@pytest.mark.parametrize("laplaces", [[0.5], [0.2, 0.2], [0.1, 0.4, 1.5]])
@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_price_of_mixtures_is_above_the_integral_of_continuous_laplace_noise(
    laplaces: list[float], mu: float
) -> None:
    events: list[Event] = [
        GaussianRelease("sums", 1.0 / mu),
        *(PureRelease("counts", e) for e in laplaces),
    ]
    for delta in DELTAS:
        epsilon = compose_epsilon(events, delta)
        assert beside_gaussian(
            epsilon, mu, [laplace_losses(e) for e in laplaces]
        ) <= delta * (1 + ROUNDING)
        assert epsilon <= 1.03 * mixture_epsilon(mu, laplaces, delta)
        if min(laplaces) >= 0.1 and max(laplaces) <= 0.5:
            # How much randomized response is above continuous Laplace noise, which
            # nobody draws: little.
            assert (
                beside_gaussian(
                    epsilon / 1.05, mu, [laplace_losses(e) for e in laplaces]
                )
                > delta
            )


# -- prices of the discrete noise that is drawn ----------------------------------------


@pytest.mark.parametrize("std", [1.0, 1.5, 2.0, 3.0, 5.0])
@pytest.mark.parametrize("sensitivity", [1.0, 2.0, 3.0, 5.0])
def test_price_covers_the_discrete_gaussian_for_every_shift(
    std: float, sensitivity: float
) -> None:
    """All whole shifts of 1 to 3 entries within the sensitivity, every outcome."""
    table = discrete_gaussian(std, math.ceil(11 * std))
    for n_entries in (1, 2, 3):
        event = block(NoiseShape.GAUSSIAN, std, sensitivity, n_entries).event(0)
        for shift in shifts(n_entries, sensitivity, 2):
            if n_entries == 3 and shift[-1] > 0 and std > 3.0:
                # a million outcomes each; two entries and smaller noise are harder to
                # cover
                continue
            for epsilon in (0.1, 1.0, 4.0, 10.0):
                exact = discrete_gaussian_delta(epsilon, table, shift)
                assert exact <= compose_delta([event], epsilon) * (1 + ROUNDING) + 1e-15


@pytest.mark.parametrize("std", [1.0, 1.5, 2.0, 5.0])
@pytest.mark.parametrize("n_entries", [4, 9, 25, 100])
def test_price_covers_the_discrete_gaussian_moved_by_one_step_on_many_entries(
    std: float, n_entries: int
) -> None:
    """The loss is a convolution."""
    sensitivity = math.sqrt(n_entries)
    event = block(NoiseShape.GAUSSIAN, std, sensitivity, n_entries).event(0)
    reach = math.ceil(11 * std)
    table, total = discrete_gaussian(std, reach), np.ones(1)
    for _ in range(n_entries):
        total = np.convolve(total, table)
    sums = np.arange(len(total)) - n_entries * reach
    losses = (2.0 * sums + n_entries) / (
        2.0 * std**2
    )  # log p(k) - log p(k + 1) = (2 k + 1) / (2 std^2), added up
    for epsilon in (0.1, 1.0, 4.0, 10.0):
        beyond = losses > epsilon
        exact = float(-(total[beyond] @ np.expm1(epsilon - losses[beyond])))
        assert exact <= compose_delta([event], epsilon) * (1 + ROUNDING) + 1e-13


@pytest.mark.parametrize("shares", [2, 3, 5])
@pytest.mark.parametrize(
    ("share_std", "sensitivity"), [(1.0, 1.0), (1.0, 3.0), (1.2, 2.0), (2.0, 5.0)]
)
def test_price_covers_a_sum_of_discrete_shares(
    share_std: float, sensitivity: float, shares: int
) -> None:
    std = share_std * math.sqrt(shares)
    table = shared_gaussian(std, shares)
    for n_entries in (1, 2):
        event = block(NoiseShape.GAUSSIAN, std, sensitivity, n_entries).event(0, shares)
        for shift in shifts(n_entries, sensitivity, 2):
            for epsilon in (0.1, 1.0, 4.0, 8.0):
                exact = discrete_gaussian_delta(epsilon, table, shift)
                assert exact <= compose_delta([event], epsilon) * (1 + ROUNDING) + 1e-15


@pytest.mark.parametrize("n_rounds", [2, 3])
def test_price_covers_several_discrete_releases(n_rounds: int) -> None:
    """Composition."""
    for std, sensitivity in ((1.0, 1), (1.5, 1), (2.0, 2)):
        table = discrete_gaussian(std, math.ceil(11 * std))
        events = [block(NoiseShape.GAUSSIAN, std, sensitivity, 1).event(0)] * n_rounds
        for delta in (1e-3, 1e-6, 1e-10):
            epsilon = compose_epsilon(events, delta)
            assert discrete_gaussian_delta(
                epsilon, table, [sensitivity] * n_rounds
            ) <= delta * (1 + ROUNDING)


def test_price_without_discreteness_would_not_cover_it() -> None:
    """What the log-ratios pay for is there."""
    unsound = 0
    for std, shift in ((1.0, 1), (1.5, 2), (2.0, 1), (2.0, 3)):
        table = discrete_gaussian(std, math.ceil(11 * std))
        for epsilon in np.linspace(0.05, 8.0, 60).tolist():
            exact = discrete_gaussian_delta(epsilon, table, [shift])
            unsound += (
                exact
                > compose_delta([GaussianRelease("array", std / shift, SAME)], epsilon)
                * (1 + 1e-6)
                + 1e-15
            )
    assert unsound > 20


@pytest.mark.parametrize("scale", [1.0, 2.5, 5.0])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_price_covers_discrete_laplace_noise_for_every_shift(
    scale: float, sensitivity: int, mu: float
) -> None:
    """Alone and beside Gaussian noise, spread over 1 to 5 entries."""
    laplace = block(NoiseShape.LAPLACE, scale, sensitivity, 5).event(0)
    for n_releases in (1, 2):
        events = [laplace] * n_releases + (
            [GaussianRelease("sums", 1.0 / mu)] if mu else []
        )
        for shift in shifts(min(sensitivity, 3), sensitivity, 1):
            parts = [discrete_laplace_losses(scale, shift)] * n_releases
            for epsilon in (0.0, 0.2, 1.0, 2.0):
                assert (
                    beside_gaussian(epsilon, mu, parts)
                    <= compose_delta(events, epsilon) * (1 + ROUNDING) + 1e-15
                )


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_price_of_laplace_noise_of_one_step_is_exact(mu: float) -> None:
    """Randomized response is not only a bound."""
    gaussian: Event = GaussianRelease("sums", 1.0 / mu)
    events = [PureRelease("count", 0.5), PureRelease("count", 0.5), gaussian]
    parts = [discrete_laplace_losses(2.0, [1])] * 2
    for delta in DELTAS:
        epsilon = compose_epsilon(events, delta)
        exact = beside_gaussian(epsilon, mu, parts)
        assert 0.999 * delta <= exact <= delta * (1 + ROUNDING)
