"""The price of max-cover selections against exact enumeration, and their exact
sampling.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from flwr_dpkmeans.baselines.selection import (
    CoverageSampler,
    byte_source,
    selection_delta,
    selection_rate,
)
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.noise import SecureNoise, SeededNoise

Covers = list[frozenset[int]]  # for each candidate the records that it covers


def sequence_probabilities(
    covers: Covers, records: set[int], n_steps: int, rate: float
) -> dict[tuple[int, ...], float]:
    """Probability of every sequence of exponential choices, by enumeration."""
    found: dict[tuple[int, ...], float] = {}

    def walk(
        history: tuple[int, ...], uncovered: frozenset[int], probability: float
    ) -> None:
        if len(history) == n_steps:
            found[history] = probability
            return
        open_ = [j for j in range(len(covers)) if j not in history]
        weights = [math.exp(rate * len(covers[j] & uncovered)) for j in open_]
        for j, weight in zip(open_, weights, strict=True):
            walk(
                (*history, j),
                uncovered - covers[j],
                probability * weight / sum(weights),
            )

    walk((), frozenset(records), 1.0)
    return found


def hockey_stick(
    one: dict[tuple[int, ...], float],
    other: dict[tuple[int, ...], float],
    epsilon: float,
) -> float:
    return sum(max(0.0, one[key] - math.exp(epsilon) * other[key]) for key in one)


@pytest.mark.parametrize("seed", range(6))
def test_no_small_instance_costs_more_than_the_theorem(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rate = float(generator.uniform(0.1, 1.5))
    covers = [
        frozenset(np.flatnonzero(generator.random(4) < 0.5).tolist()) for _ in range(6)
    ]
    with_all = sequence_probabilities(covers, {0, 1, 2, 3}, 4, rate)
    without = sequence_probabilities(covers, {0, 1, 2}, 4, rate)
    assert sum(with_all.values()) == pytest.approx(1.0)
    for factor in (1.0, 1.2, 2.0, 4.0):
        epsilon = rate * factor
        assert hockey_stick(without, with_all, epsilon) <= selection_delta(
            epsilon, rate
        ) * (1.0 + 1e-9)
        assert (
            hockey_stick(with_all, without, epsilon) <= 1e-12
        )  # the other direction is pure


def test_the_theorem_is_nearly_reached() -> None:
    # One of n candidates covers the record, all others nothing: many steps, each of
    # which covers it with a small p.
    n, rate, epsilon = 20_000, 0.5, 1.0
    v = math.exp(rate)
    likelihoods = []
    for weight in (1.0, v):  # without and with the record
        alive, covered = 1.0, []
        for step in range(n - 1):
            total = (n - 1 - step) + weight
            covered.append(alive * weight / total)
            alive *= 1.0 - weight / total
        likelihoods.append(np.array([*covered, alive]))
    delta = float(
        np.maximum(0.0, likelihoods[0] - math.exp(epsilon) * likelihoods[1]).sum()
    )
    assert (
        0.99 * selection_delta(epsilon, rate) < delta <= selection_delta(epsilon, rate)
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.35, 3.5, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-8, 1e-30])
def test_rates_are_private_and_not_wasteful(epsilon: float, delta: float) -> None:
    rate = selection_rate(epsilon, delta)
    assert rate < epsilon
    assert selection_delta(epsilon, rate) <= delta
    assert rate * 1.001 > epsilon or selection_delta(epsilon, rate * 1.001) > delta


def test_weights_never_fall_faster_than_the_rate_says() -> None:
    rate = 0.03
    sampler = CoverageSampler(rate, np.random.default_rng(0).bytes)
    assert sampler.weight(0) == 2**192
    for j in (1000, 1, 10):
        assert float(Fraction(sampler.weight(j), 2**192)) == pytest.approx(
            math.exp(-rate * j), rel=1e-10
        )
    assert sampler.weight(10**9) == 0
    # The base is rounded up: the actual rate is at most the one that is paid for.
    assert Fraction(sampler.weight(1) + 1, 2**192) >= Fraction(
        math.nextafter(math.exp(-rate), 1.0)
    )


def test_coverage_classes_come_with_their_multiplicities() -> None:
    sampler = CoverageSampler(math.log(2.0), np.random.default_rng(1).bytes)
    histogram = np.array(
        [99, 2, 0, 1]
    )  # entry 0 is not used: uncovering candidates are counted apart
    draws = [sampler.draw_coverage(histogram, 6) for _ in range(9000)]
    # Weights 6 * 1, 2 * 2, 1 * 8 of 18.
    found = np.bincount(draws, minlength=4) / 9000.0
    assert found == pytest.approx(np.array([6.0, 4.0, 0.0, 8.0]) / 18.0, abs=0.025)


def test_candidates_far_below_the_largest_coverage_are_never_drawn() -> None:
    sampler = CoverageSampler(1.0, np.random.default_rng(0).bytes)
    histogram = np.bincount([5000])
    assert {sampler.draw_coverage(histogram, 2**62 - 1) for _ in range(50)} == {5000}
    assert sampler.draw_coverage(np.zeros(1, dtype=np.int64), 3) == 0


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 7])
def test_uniform_integers_are_exactly_uniform(bound: int) -> None:
    # Every value of the one random byte, in order: each accepted integer comes equally
    # often.
    feed = itertools.count()
    sampler = CoverageSampler(1.0, lambda n: (next(feed) % 256).to_bytes(n, "little"))
    n_bits = bound.bit_length()
    n_accepted = bound * 256 // 2**n_bits
    drawn = [sampler.below(bound) for _ in range(n_accepted)]
    assert np.bincount(drawn).tolist() == [n_accepted // bound] * bound


def test_large_integers_reach_their_whole_range() -> None:
    sampler = CoverageSampler(1.0, np.random.default_rng(0).bytes)
    drawn = [sampler.below(3 * 2**200) for _ in range(300)]
    assert max(drawn) < 3 * 2**200
    assert max(drawn) > 2.9 * 2**200
    assert min(drawn) < 0.1 * 2**200


def test_private_noise_goes_with_the_systems_entropy() -> None:
    generator = np.random.default_rng(0)
    assert byte_source(SeededNoise(generator), generator)(8) == np.random.default_rng(
        0
    ).bytes(8)
    secure = byte_source(SecureNoise(), np.random.default_rng(0))
    assert secure(8) != np.random.default_rng(0).bytes(8)
    assert secure(8) != secure(8)


def test_a_hopeless_rate_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^the rate of the selections is 1e-09"):
        CoverageSampler(1e-9, np.random.default_rng(0).bytes)
