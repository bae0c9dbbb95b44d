"""Gaussian releases over Poisson samples.

Against integrals of the definition, Renyi accounting, and themselves.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from support.deltas import compose_delta
from support.numerical import pld_epsilon
from support.pricing import Unpriced

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.closeness import SAME, Closeness
from flwr_dpkmeans.privacy.release import (
    Event,
    ExactRelease,
    GaussianRelease,
    PureRelease,
    dominating_release,
    joint_sampled_release,
)


def sampled_release(
    name: str, multiplier: float, rate: float, closeness: Closeness = SAME
) -> GaussianRelease:
    return GaussianRelease(name, multiplier, closeness, rate)


def rounds(
    multiplier: float, rate: float, count: int, slack: float = 0.0
) -> list[Event]:
    return [
        sampled_release(f"round {index}", multiplier, rate, Closeness(additive=slack))
        for index in range(count)
    ]


@functools.lru_cache(maxsize=1)
def densities(
    multiplier: float, rate: float, points: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Densities with the unit absent and present, and their spacing."""
    x = np.linspace(-11 * multiplier, 1 + 11 * multiplier, points)
    absent, shifted = (
        np.exp(-0.5 * ((x - shift) / multiplier) ** 2) for shift in (0.0, 1.0)
    )
    norm = multiplier * math.sqrt(2 * math.pi)
    return absent / norm, ((1 - rate) * absent + rate * shifted) / norm, x[1] - x[0]


def larger_divergence(
    absent: NDArray[np.float64],
    present: NDArray[np.float64],
    cell: float,
    epsilon: float,
) -> float:
    """The larger of the two integrals, of removing and of adding the unit."""
    factor = math.exp(epsilon)
    removing, adding = present - factor * absent, absent - factor * present
    return float(
        max(np.maximum(removing, 0.0).sum(), np.maximum(adding, 0.0).sum()) * cell
    )


def exact_delta(multiplier: float, rate: float, epsilon: float) -> float:
    return larger_divergence(*densities(multiplier, rate, 400_001), epsilon)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("multiplier", [0.6, 1.5, 5.0])
def test_one_round_is_priced_just_above_the_integral(
    rate: float, multiplier: float
) -> None:
    events = rounds(multiplier, rate, 1)
    distance = exact_delta(multiplier, rate, 0.0)
    assert distance * (1 - 1e-6) <= compose_delta(events, 0.0) <= distance * 1.01
    for share in (0.5, 0.05, 1e-3):
        epsilon = compose_epsilon(events, share * distance)
        exact = exact_delta(multiplier, rate, epsilon)
        assert 0.99 * share * distance <= exact <= share * distance * (1 + 1e-6)
        assert exact * (1 - 1e-6) <= compose_delta(events, epsilon) <= exact * 1.01


def test_everybody_included_is_the_gaussian_release() -> None:
    for others in ([], [GaussianRelease("sums", 3.0)], [PureRelease("counts", 0.25)]):
        sampled = [*rounds(2.0, 1.0, 3, 1e-10), *others]
        plain = [
            *(
                GaussianRelease(f"round {index}", 2.0, Closeness(additive=1e-10))
                for index in range(3)
            ),
            *others,
        ]
        assert compose_epsilon(sampled, 1e-6) == compose_epsilon(plain, 1e-6)
        assert compose_delta(sampled, 1.0) == compose_delta(plain, 1.0)
        assert pld_epsilon(sampled, 1e-6) == pld_epsilon(plain, 1e-6)


@pytest.mark.parametrize(
    "others", [[], [GaussianRelease("sums", 6.0)], [PureRelease("choice", 0.2)]]
)
def test_price_rises_with_the_rate_and_falls_with_the_noise(
    others: list[Event],
) -> None:
    by_rate = [
        compose_epsilon([*rounds(2.0, rate, 4), *others], 1e-6)
        for rate in (0.02, 0.1, 0.3, 0.7, 0.99, 1.0)
    ]
    assert all(low < high for low, high in itertools.pairwise(by_rate))
    by_noise = [
        compose_epsilon([*rounds(noise, 0.1, 4), *others], 1e-6)
        for noise in (0.5, 0.8, 1.3, 2.2, 7.0)
    ]
    assert all(high > low for high, low in itertools.pairwise(by_noise))
    near = compose_epsilon([*rounds(2.0, 1 - 1e-5, 4), *others], 1e-6)
    assert near == pytest.approx(by_rate[-1], rel=1e-3)
    assert near <= by_rate[-1]


def test_mixtures_with_sampled_releases() -> None:
    sampled, gaussian, pure = (
        rounds(1.5, 0.1, 3),
        [GaussianRelease("sums", 4.0)],
        [PureRelease("choice", 0.3)],
    )
    parts = [compose_epsilon(part, 1e-6) for part in (sampled, gaussian, pure)]
    total = compose_epsilon([*sampled, *gaussian, *pure], 1e-6)
    assert max(parts) < total < sum(parts)
    assert compose_epsilon([*pure, *sampled[::-1], *gaussian], 1e-6) == pytest.approx(
        total, rel=1e-12
    )
    assert pld_epsilon([*sampled, *gaussian, *pure], 1e-6) == pytest.approx(
        total, rel=1e-3
    )
    assert compose_delta([*sampled, *gaussian, *pure], total) == pytest.approx(
        1e-6, rel=1e-3
    )
    assert compose_epsilon([*sampled, ExactRelease("labels")], 1e-6) == math.inf


@pytest.mark.parametrize("slack", [1e-11, 1e-8, 1e-7])
def test_slack_simply_adds_up(slack: float) -> None:
    """Sampling neither amplifies nor dilutes a distance that holds for every sample."""
    clean, slacked = rounds(1.0, 0.1, 4), rounds(1.0, 0.1, 4, slack)
    cost = (1 + math.exp(0.7)) * 4 * slack
    assert compose_delta(slacked, 0.7) == pytest.approx(
        compose_delta(clean, 0.7) + cost, rel=1e-9
    )
    epsilon = compose_epsilon(slacked, 1e-5)
    assert compose_delta(slacked, epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert compose_delta(slacked, epsilon * 0.999) > 1e-5
    assert epsilon > compose_epsilon(clean, 1e-5)


def test_log_ratios_of_sampled_noise_are_paid_in_full() -> None:
    """Both the smaller delta and the log-ratios, by any rule."""
    clean = rounds(1.5, 0.1, 3)
    drawn = [
        sampled_release(f"round {index}", 1.5, 0.1, Closeness(0.01, 0.02))
        for index in range(3)
    ]
    for others in ([], [GaussianRelease("sums", 4.0)], [PureRelease("choice", 0.3)]):
        paid = compose_epsilon([*clean, *others], 1e-6 * math.exp(-0.03)) + 0.09
        assert compose_epsilon([*drawn, *others], 1e-6) == pytest.approx(
            paid, rel=1e-12
        )
        delta = math.exp(0.03) * compose_delta([*clean, *others], 1.0 - 0.09)
        assert compose_delta([*drawn, *others], 1.0) == pytest.approx(delta, rel=1e-9)
        assert pld_epsilon([*drawn, *others], 1e-6) == pytest.approx(paid, rel=1e-3)


def test_slack_that_leaves_no_room_is_an_error() -> None:
    with pytest.raises(PlanError, match="slack"):
        compose_epsilon(rounds(1.0, 0.1, 2, 1e-6), 1e-6)


def test_a_tiny_delta_is_priced_as_if_everybody_were_included() -> None:
    gaussians = [GaussianRelease(f"round {index}", 2.0) for index in range(3)]
    assert compose_epsilon(rounds(2.0, 0.1, 3), 1e-15) == compose_epsilon(
        gaussians, 1e-15
    )
    assert pld_epsilon(rounds(2.0, 0.1, 3), 1e-15) == math.inf


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 0.3, 1 - 1e-12])
@pytest.mark.parametrize("multiplier", [1e-4, 0.02, 1e3, 1e12])
def test_extreme_values_have_a_price_up_to_the_unsampled_one(
    multiplier: float, rate: float
) -> None:
    gaussians = [GaussianRelease(f"round {index}", multiplier) for index in range(3)]
    delta = 1e-6
    assert (
        0.0
        <= compose_epsilon(rounds(multiplier, rate, 3), delta)
        <= compose_epsilon(gaussians, delta)
    )
    exact = rate * compose_delta(
        gaussians[:1], 1.0
    )  # the divergence at epsilon 0 is at least that at 1
    assert exact <= compose_delta(rounds(multiplier, rate, 1), 0.0) <= 1.0


def test_arrays_under_one_draw_are_one_release() -> None:
    """Sums and counts under one coin, by an integral over the plane."""
    parts = [
        GaussianRelease("sums", 1.2, Closeness(0.1, 0.3, 1e-9)),
        GaussianRelease("counts", 1.2),
    ]
    joint = joint_sampled_release("round 1", parts, 0.1)
    assert joint.noise_multiplier == pytest.approx(1.2 / math.sqrt(2), rel=1e-12)
    assert (joint.sampling_rate, joint.closeness) == (0.1, Closeness(0.1, 0.3, 1e-9))
    joint = joint_sampled_release(
        "round 1", [GaussianRelease(part.name, 1.2) for part in parts], 0.1
    )
    absent, shifted, step = densities(1.2, 1.0, 2001)
    both = 0.9 * np.multiply.outer(absent, absent) + 0.1 * np.multiply.outer(
        shifted, shifted
    )
    exact = larger_divergence(np.multiply.outer(absent, absent), both, step**2, 1.0)
    assert exact <= compose_delta([joint], 1.0) <= 1.01 * exact
    separate = [
        sampled_release(part.name, part.noise_multiplier, 0.1) for part in parts
    ]
    assert (
        compose_delta(separate, 1.0) < 0.9 * exact
    )  # two coins would promise more than one coin keeps


def test_a_dominating_release_is_the_strongest_and_the_coarsest_of_all() -> None:
    gaussians: list[list[Event]] = [
        [
            GaussianRelease("a", 1.2, Closeness(0.1, 0.0, 1e-15)),
            GaussianRelease("b", 1.2),
        ],
        [GaussianRelease("c", 1.0, Closeness(0.05, 0.3))],
    ]
    found = dominating_release(gaussians)
    assert isinstance(found, GaussianRelease)
    assert found.noise_multiplier == pytest.approx(1.2 / math.sqrt(2), rel=1e-11)
    assert found.noise_multiplier < 1.2 / math.sqrt(2)
    assert found.closeness == Closeness(0.1, 0.3, 1e-15)
    joint = [[joint_sampled_release("round", part, 0.2)] for part in gaussians]
    sampled = dominating_release(joint)
    assert sampled.sampling_rate < 1.0
    assert (sampled.sampling_rate, sampled.closeness) == (0.2, found.closeness)
    for releases, one in ((gaussians, found), (joint, sampled)):
        for first, second in itertools.product(releases, repeat=2):
            assert compose_epsilon([*first, *second], 1e-5) <= compose_epsilon(
                [one, one], 1e-5
            )
    for bad, words in (
        ([[PureRelease("l", 1.0)]], "not Gaussian"),
        ([[]], "not Gaussian"),
        ([], "rates"),
    ):
        with pytest.raises(LocalMisuseError, match=words):
            dominating_release(bad)
    with pytest.raises(LocalMisuseError, match=r"rates \[0.1, 0.2\]"):
        dominating_release([rounds(1.0, 0.1, 1), rounds(1.0, 0.2, 1)])


def test_unsupported_parts_are_named() -> None:
    for call in (compose_epsilon, compose_delta, pld_epsilon):
        with pytest.raises(LocalMisuseError, match="'Unpriced'"):
            call([*rounds(1.0, 0.1, 2), Unpriced("shuffle")], 1e-6)  # type: ignore[list-item]


def test_a_rate_above_one_is_refused() -> None:
    with pytest.raises(LocalMisuseError, match=r"sampling_rate is 1\.5.*at most 1"):
        sampled_release("sums", 1.0, 1.5)


def test_a_failure_of_the_numerical_accountant_is_an_error_not_a_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    def broken(*arguments: object, **named: object) -> None:
        raise ValueError("deltas are not in non-increasing order")

    monkeypatch.setattr(pld, "from_gaussian_mechanism", broken)
    with pytest.raises(PlanError, match="cannot be computed"):
        compose_epsilon(rounds(1.0, 0.1, 2), 1e-6)
    monkeypatch.undo()
    monkeypatch.setattr(
        pld.PrivacyLossDistribution,
        "get_epsilon_for_delta",
        lambda self, delta: math.nan,
    )
    with pytest.raises(PlanError, match="not a number"):
        compose_epsilon(rounds(1.0, 0.1, 2), 1e-6)
