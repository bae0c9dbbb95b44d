"""Empirical Bayes steps: toys by hand, limits, and released values that must not break
a run.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts
from flwr_dpkmeans.kmeans.residuals.noisy_counts import adding_up, pulled_together
from flwr_dpkmeans.kmeans.residuals.shrinkage import StepPosterior

WIDE = {"counts_noise": 1.0, "axis_variance": 1.0, "radius": 100.0}


def shrunk_steps(
    sums: Any, noisy_counts: Any, *, counts_noise: float, radius: Any, **values: Any
) -> Any:
    """Posterior means of steps, from noisy counts whose total nobody knows."""
    counts = likely_counts(noisy_counts, counts_noise)
    posterior = StepPosterior.of(sums, counts, counts_noise=counts_noise, **values)
    return posterior.means(radius)


@pytest.mark.parametrize(
    ("count", "noise"),
    [(100.0, 10.0), (5.0, 10.0), (0.0, 10.0), (-20.0, 10.0), (-50.0, 10.0)],
)
def test_a_likely_count_is_the_mean_of_what_is_positive(
    count: float, noise: float
) -> None:
    """By quadrature: a normal density around the noisy count, cut off at zero."""
    density = stats.norm(count, noise).pdf
    mass = integrate.quad(density, 0.0, 400.0, points=[max(count, 1.0)], epsabs=1e-14)[
        0
    ]
    mean = (
        integrate.quad(
            lambda x: x * density(x), 0.0, 400.0, points=[max(count, 1.0)], epsabs=1e-14
        )[0]
        / mass
    )
    assert likely_counts([count], noise)[0] == pytest.approx(max(1.0, mean), rel=1e-4)


def test_likely_counts_rise_and_never_fall_below_one_or_the_noisy_count() -> None:
    counts = np.linspace(-200.0, 200.0, 401)
    found = likely_counts(counts, 10.0)
    assert (np.diff(found) >= 0.0).all()
    assert (found >= np.maximum(counts, 1.0)).all()
    assert found[-1] == pytest.approx(200.0)


@pytest.mark.parametrize("noise", [1e-9, 1e-3, 1.0, 1e6, 1e12])
def test_no_released_count_breaks_anything(noise: float) -> None:
    with np.errstate(all="raise", under="ignore"):
        found = likely_counts([-(2.0**47), -1e6, -37.0, -1.0, 0.0, 1.0, 2.0**47], noise)
    assert np.isfinite(found).all()
    assert found.min() >= 1.0
    # What is far below zero is not many rows after all.
    assert found[0] <= max(1.0, noise)
    assert (np.diff(found) >= 0.0).all()


@pytest.mark.parametrize("k", [2, 3, 5, 64])
@pytest.mark.parametrize("noise", [0.0021, 0.01, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("part", [-0.3, 0.0, 0.002, 0.02, 0.3, 0.9, 1.4])
def test_of_a_known_total_a_likely_count_is_the_mean_over_all_ways_to_split_it(
    k: int, noise: float, part: float
) -> None:
    """By quadrature: a part of k uniform ones has the density of Beta(1, k - 1)."""
    total, peak = 3000.0, min(max(part, 0.0), 1.0)

    def likelihood(t: float) -> float:
        return math.exp(((peak - part) ** 2 - (t - part) ** 2) / (2.0 * noise**2)) * (
            1.0 - t
        ) ** (k - 2)

    edges = sorted(
        {
            0.0,
            1.0,
            peak,
            *(min(max(peak + x * noise, 0.0), 1.0) for x in (-9, -3, 3, 9)),
            min(1.0, 9.0 / k),
        }
    )
    options = {"points": edges, "epsabs": 0.0, "epsrel": 1e-9, "limit": 500}
    mass = integrate.quad(likelihood, 0.0, 1.0, **options)[0]
    mean = (
        total
        * integrate.quad(lambda t: t * likelihood(t), 0.0, 1.0, **options)[0]
        / mass
    )
    # As many counts as there are clusters, of which only the first one is looked at.
    counts = np.full(k, 100.0)
    counts[0] = part * total
    found = likely_counts(counts, noise * total, total)[0]
    assert found == pytest.approx(max(1.0, mean), rel=2e-3, abs=0.02)
    if noise == 100.0:
        assert found == pytest.approx(total / k, rel=0.02)


def test_known_totals_make_no_jump_where_noise_is_small() -> None:
    counts = np.array([-20.0, 3.0, 40.0, 977.0])
    above, below = (likely_counts(counts, noise, 1000.0) for noise in (2.001, 1.999))
    assert above == pytest.approx(below, rel=0.02)
    # One cluster has all rows.
    assert likely_counts(
        *adding_up(np.array([-5.0]), 10.0, 1000.0), 1000.0
    ).tolist() == [1000.0]


def test_counts_add_up_by_hand() -> None:
    counts, noise = adding_up(np.array([10.0, 20.0, 60.0]), 3.0, 120.0)
    assert counts.tolist() == [20.0, 30.0, 70.0]
    assert noise == pytest.approx(3.0 * math.sqrt(2.0 / 3.0))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "true", [[50.0, 50.0, 50.0], [10.0, 40.0, 100.0], [1.0, 1.0, 148.0]]
)
@pytest.mark.parametrize("noise", [5.0, 30.0, 200.0])
def test_counts_that_add_up_are_nearer_than_noisy_ones(
    true: list[float], noise: float
) -> None:
    generator = np.random.default_rng(0)
    noisy = true + noise * generator.standard_normal((2000, 3))
    apart = np.array([likely_counts(row, noise) for row in noisy])
    both = np.array(
        [likely_counts(*adding_up(row, noise, 150.0), 150.0) for row in noisy]
    )
    errors = [
        float(((found - true) ** 2).sum(axis=1).mean()) for found in (apart, both)
    ]
    assert errors[1] < 0.85 * errors[0]


@pytest.mark.parametrize("size", [1.0, 2.0**-10])
def test_counts_are_pulled_together_by_hand(size: float) -> None:
    """Five counts around 20, squares 100 + 25 + 0 + 25 + 100 = 250."""
    counts, left = pulled_together(
        size * np.array([10.0, 15.0, 20.0, 25.0, 30.0]), 5.0 * size
    )
    assert counts == pytest.approx(size * np.array([12.0, 16.0, 20.0, 24.0, 28.0]))
    assert left == pytest.approx(5.0 * size * math.sqrt(0.8 + 0.2 / 5))


def test_where_noise_explains_all_counts_are_their_mean() -> None:
    counts, left = pulled_together(np.array([9.0, 10.0, 11.0, 10.0]), 50.0)
    assert counts == pytest.approx(np.full(4, 10.0))
    assert left == pytest.approx(25.0)
    assert pulled_together(np.full(4, 7.0), 1.0)[0] == pytest.approx(np.full(4, 7.0))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_up_to_three_counts_stay_as_they_are(k: int) -> None:
    noisy = np.arange(float(k))
    counts, left = pulled_together(noisy, 100.0)
    assert np.array_equal(counts, noisy)
    assert left == 100.0


@pytest.mark.parametrize("spread", [0.0, 20.0, 1e4])
def test_pulled_counts_are_nearer_than_noisy_ones_whatever_the_true_ones_are(
    spread: float,
) -> None:
    """And the noise left is the error that remains."""
    generator = np.random.default_rng(0)
    errors, own, said = [], [], []
    for _ in range(400):
        true = 300.0 + spread * generator.standard_normal(16)
        noisy = true + 50.0 * generator.standard_normal(16)
        counts, left = pulled_together(noisy, 50.0)
        errors.append(np.square(counts - true).mean())
        own.append(np.square(noisy - true).mean())
        said.append(left**2)
    assert np.mean(errors) <= 1.001 * np.mean(own)
    assert np.mean(said) >= 0.75 * np.mean(errors)
    assert spread == 0.0 or np.mean(said) == pytest.approx(np.mean(errors), rel=0.25)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 2.0**47])
def test_pulled_counts_are_finite_whatever_was_released(size: float) -> None:
    noisy = size * np.array([-1.0, 1.0, 0.0, 0.5, 1.0])
    for noise in (1e-9, 1.0, 1e12):
        counts, left = pulled_together(noisy, noise)
        assert np.isfinite(counts).all()
        assert 0.0 < left <= noise


def test_a_sum_without_noise_gives_the_plain_step() -> None:
    steps = shrunk_steps(
        np.array([[50.0, -20.0]]), [100.0], sums_noise=1e-6, least_tau=0.25, **WIDE
    )
    assert steps == pytest.approx(np.array([[0.5, -0.2]]), rel=1e-6)


def test_a_sum_of_noise_gives_no_step() -> None:
    steps = shrunk_steps(
        np.array([[50.0, -20.0]]), [100.0], sums_noise=1e6, least_tau=2.0**-10, **WIDE
    )
    assert np.abs(steps).max() < 1e-6


def test_one_tau_left_is_the_textbook_posterior_mean() -> None:
    """With the largest tau alone: gain tau v n / (n^2 tau v + s^2)."""
    n, s, v, tau = 80.0, 30.0, 0.04, 4.0
    sums = np.array([[6.0, 1.0], [-3.0, 2.0]])
    options = {"counts_noise": 1e-3, "axis_variance": v, "radius": 100.0}
    steps = shrunk_steps(sums, [n, n], sums_noise=s, least_tau=4.0, **options)
    assert steps == pytest.approx(
        sums * (tau * v * n / (n**2 * tau * v + s**2)), rel=1e-9
    )
    # A larger one than there is counts as the largest.
    assert np.array_equal(
        steps, shrunk_steps(sums, [n, n], sums_noise=s, least_tau=1e9, **options)
    )


def test_taus_are_weighed_by_what_all_clusters_show() -> None:
    """A sum moves a centroid farther where other clusters' steps are long."""
    generator = np.random.default_rng(0)
    own, noise = np.array([[10.0, 0.0]]), 10.0
    found = {}
    for name, scale in (("short", 0.0), ("long", 100.0)):
        others = generator.normal(0.0, math.hypot(noise, scale), (40, 2))
        sums = np.concatenate([own, others])
        found[name] = shrunk_steps(
            sums, [50.0] * 41, sums_noise=noise, least_tau=2.0**-10, **WIDE
        )[0, 0]
    assert 0.0 < found["short"] < 0.5 * found["long"]
    assert found["long"] < 10.0 / 50.0


def test_weights_over_taus_by_hand() -> None:
    """Two taus: evidence is tau times the density of the sum."""
    n, s, total = 10.0, 5.0, 8.0
    taus = np.array([2.0, 4.0])
    variances = n**2 * taus + s**2
    evidence = taus * stats.norm.pdf(total, 0.0, np.sqrt(variances))
    gain = float((evidence * taus * n / variances).sum() / evidence.sum())
    options = {"counts_noise": 1e-6, "axis_variance": 1.0, "radius": 100.0}
    found = shrunk_steps(
        np.array([[total]]), [n], sums_noise=s, least_tau=2.0, **options
    )
    assert found[0, 0] == pytest.approx(total * gain, rel=1e-9)


def naive_steps(
    sums: list[list[float]], counts: list[float], noises: list[float], v: float,
    least: float,
) -> Any:  # fmt: skip
    """Every tau's posterior mean of each centroid's step, averaged."""
    taus = [2.0**power for power in range(-20, 3) if 2.0**power >= least]
    weights, means = [], []
    for tau in taus:
        deviations = [
            math.sqrt(n**2 * tau * v + noise**2)
            for n, noise in zip(counts, noises, strict=True)
        ]
        parts = [
            stats.norm.logpdf(x, 0.0, s)
            for row, s in zip(sums, deviations, strict=True)
            for x in row
        ]
        weights.append(math.log(tau) + math.fsum(parts))
        gains = [tau * v * n / s**2 for n, s in zip(counts, deviations, strict=True)]
        means.append(
            [[gain * x for x in row] for gain, row in zip(gains, sums, strict=True)]
        )
    return np.average(means, axis=0, weights=np.exp(np.array(weights) - max(weights)))


@pytest.mark.parametrize("least", [2.0**-20, 2.0**-20 * 1.01, 0.25, 4.0])
def test_steps_of_several_clusters_in_other_dimensions_are_averages_over_all_taus(
    least: float,
) -> None:
    sums, counts, noise, v = (
        [[40.0, -3.0], [2.0, 1.0], [-25.0, 60.0]],
        [90.0, 200.0, 50.0],
        12.0,
        0.3,
    )
    found = shrunk_steps(
        np.array(sums), counts, sums_noise=noise, counts_noise=1e-6, axis_variance=v,
        least_tau=least, radius=100.0,
    )  # fmt: skip
    assert found == pytest.approx(
        naive_steps(sums, counts, [noise] * 3, v, least), rel=1e-9
    )
    # Each with a noise and a radius of its own, of which only the first step is beyond.
    noises, radii = np.array([4.0, 20.0, 12.0]), np.array([0.01, 1.0, 100.0])
    found = shrunk_steps(
        np.array(sums), counts, sums_noise=noises, counts_noise=1e-6, axis_variance=v,
        least_tau=least, radius=radii,
    )  # fmt: skip
    expected = naive_steps(sums, counts, noises.tolist(), v, least)
    assert found[1:] == pytest.approx(expected[1:], rel=1e-9)
    assert found[0] == pytest.approx(
        0.01 * expected[0] / np.linalg.norm(expected[0]), rel=1e-9
    )


def test_early_rounds_shrink_less() -> None:
    steps = [
        shrunk_steps(
            np.array([[3.0]]), [20.0], sums_noise=10.0, least_tau=least, **WIDE
        )[0, 0]
        for least in (0.25, 0.01, 2.0**-10)
    ]
    assert steps[0] > steps[1] > steps[2] > 0.0


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 20),
    d=st.integers(1, 12),
    size=st.sampled_from((0.0, 1.0, 1e3, 2.0**47)),
    noises=st.sampled_from(list(itertools.product((1e-7, 1.0, 1e9), repeat=2))),
    variance=st.sampled_from((2.0**-24 / 784, 1e-4, 1.0)),
    radius=st.sampled_from((2.0**-12, 0.3, 28.0)),
)
def test_steps_are_finite_and_within_the_radius_whatever_was_released(
    seed: int, k: int, d: int, size: float, noises: tuple[float, float],
    variance: float, radius: float,
) -> None:  # fmt: skip
    generator = np.random.default_rng(seed)
    sums, counts = (
        generator.normal(0.0, 1.0, (k, d)) * size,
        generator.normal(0.0, 1.0, k) * size,
    )
    options = {
        "sums_noise": noises[0],
        "counts_noise": noises[1],
        "axis_variance": variance,
        "radius": radius,
    }
    steps = shrunk_steps(sums, counts, least_tau=2.0**-8, **options)
    assert np.isfinite(steps).all()
    assert np.sqrt(np.square(steps).sum(axis=1)).max() <= radius * (1 + 1e-12)
    # Never against the sum.
    assert (steps * sums >= 0.0).all()
    assert np.array_equal(
        steps, shrunk_steps(sums, counts, least_tau=2.0**-8, **options)
    )
