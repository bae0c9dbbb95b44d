"""Proxies: toys by hand, samples with the right moments, and the same proxies whatever order sums are added up in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans import proxies as module
from flwr_dpkmeans.kmeans.proxies import box_samples, normal_samples, proxy_weights, samples_around, tessellation

Floats = NDArray[np.float64]
GRID = 2.0**16


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def is_on_grid(values: Floats) -> bool:
    return bool((np.rint(values * GRID) == values * GRID).all())


# -- tessellation -------------------------------------------------------------------------------------------------


def test_proxies_of_separate_heaps_are_their_means() -> None:
    heaps = np.array([[0.0, 0.0], [0.0, 0.25], [4.0, 4.0], [4.0, 4.5], [-4.0, 3.0]])
    found = tessellation(heaps, 3, generator())
    assert sorted(map(tuple, found.tolist())) == [(-4.0, 3.0), (0.0, 0.125), (4.0, 4.25)]


def test_as_many_proxies_as_samples_are_the_samples() -> None:
    samples = np.array([[0.5], [-0.25], [0.75], [0.0]])
    assert sorted(tessellation(samples, 4, generator()).ravel().tolist()) == [-0.25, 0.0, 0.5, 0.75]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError, match="there are 2 samples, but 3 proxies need at least as many: draw more"):
        tessellation(np.zeros((2, 1)), 3, generator())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), d=st.integers(1, 12), spread=st.sampled_from((0, 1, 3)))
def test_proxies_are_on_the_grid_and_among_the_samples(seed: int, n: int, d: int, spread: int) -> None:
    """Also where many samples are equal, all of them even."""
    draw = generator(seed)
    samples = draw.integers(-spread, spread + 1, (40, d)) * 0.1
    found = tessellation(samples, n, draw)
    assert found.shape == (n, d)
    assert is_on_grid(found)
    assert found.min() >= samples.min() - 1 / GRID
    assert found.max() <= samples.max() + 1 / GRID


def test_proxies_cover_the_samples_evenly() -> None:
    samples = generator().uniform(-1.0, 1.0, (4000, 2))
    found = tessellation(samples, 100, generator(1))
    distances = np.sqrt(np.square(samples[:, None] - found[None]).sum(axis=2)).min(axis=1)
    # Cells of side 0.2: hexagons have a root mean square distance of 0.40 sides.
    assert math.sqrt(float(np.square(distances).mean())) < 0.2 * 0.46
    assert distances.max() < 0.3


def test_the_first_proxy_follows_the_generator_and_the_next_are_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """k-means++: with one far sample, it is chosen nearly always."""
    monkeypatch.setattr(module, "_LLOYD_STEPS", 0)
    samples = np.concatenate([generator().normal(0.0, 0.01, (50, 1)), [[9.0]]])
    for seed in range(10):
        assert tessellation(samples, 2, generator(seed)).max() == 9.0


@pytest.mark.parametrize("d", [1, 2, 8, 12])
def test_another_order_of_summation_changes_no_bit(monkeypatch: pytest.MonkeyPatch, d: int) -> None:
    """All clients draw their own proxies, and must agree: sums are exact, so their order does not matter."""
    samples = normal_samples(np.linspace(1.0, 0.1, d), 50, generator())
    found = tessellation(samples, 50, generator(1))
    # Last digits of the samples (another logarithm, another product) are rounded away.
    assert np.array_equal(found, tessellation(samples * (1.0 + 2.0**-52), 50, generator(1)))
    # The same features in another order: matrix products and norms add up in another order.
    order = generator(2).permutation(d)
    assert np.array_equal(found[:, order], tessellation(np.ascontiguousarray(samples[:, order]), 50, generator(1)))
    # Another layout in memory, and sums that are made one by one.
    assert np.array_equal(found, tessellation(np.asfortranarray(samples), 50, generator(1)))

    def slow(points: Floats, labels: Any, n_rows: int) -> Floats:
        sums = np.zeros((n_rows, points.shape[1]))
        np.add.at(sums, labels[::-1], points[::-1])
        return sums

    monkeypatch.setattr(module, "sum_by_label", slow)
    assert np.array_equal(found, tessellation(samples, 50, generator(1)))


def test_arguments_stay_as_they_are() -> None:
    samples = generator().normal(size=(30, 2))
    before = samples.copy()
    tessellation(samples, 5, generator())
    samples_around(samples, np.ones(30), 0.1, generator())
    assert np.array_equal(samples, before)


# -- samples ------------------------------------------------------------------------------------------------------


def test_box_samples_have_the_covariance_of_the_ellipsoid() -> None:
    turn = np.rint(np.array([[0.8, -0.6], [0.6, 0.8]]) * GRID) / GRID
    variances = np.array([0.04, 0.01])
    found = box_samples(np.array([0.25, -0.125]), variances, turn, 2000, generator(), cover_box=False)
    assert found.shape == (20_000, 2)
    assert found.mean(axis=0) == pytest.approx(np.array([0.25, -0.125]), abs=0.005)
    assert np.cov(found.T) == pytest.approx(turn @ np.diag(variances) @ turn.T, abs=0.001)
    # A parallelepiped: its farthest points are at sqrt(3) deviations of each axis.
    along = (found - [0.25, -0.125]) @ turn
    assert np.abs(along).max(axis=0) == pytest.approx(np.sqrt(3 * variances), rel=0.01)


@pytest.mark.parametrize("cover", [False, True])
def test_box_samples_stay_in_the_box_and_cover_it_if_asked(cover: bool) -> None:
    found = box_samples(np.array([0.9, 0.9]), np.array([0.01, 0.01]), np.eye(2), 10, generator(), cover_box=cover)
    assert found.shape == (2000, 2)
    assert np.abs(found).max() <= 1.0
    assert bool((found < 0.0).any(axis=1).mean() > 0.2) is cover
    assert int((np.abs(found - 0.9).max(axis=1) < 0.18).sum()) >= 1400


def test_box_samples_take_the_leading_axes_of_a_wide_table() -> None:
    axes = np.eye(5)[:, :2]
    found = box_samples(np.zeros(5), np.full(5, 0.01), axes, 10, generator(), cover_box=False)
    assert found.std(axis=0) == pytest.approx(np.array([0.1, 0.1, 0.0, 0.0, 0.0]), abs=0.01)


def test_normal_samples_by_moments() -> None:
    found = normal_samples(np.array([1.0, 0.04, 0.0]), 1000, generator())
    assert found.shape == (10_000, 3)
    assert found.std(axis=0) == pytest.approx(np.array([1.0, 0.2, 0.0]), rel=0.03)
    assert np.abs(found[:, 2]).max() == 0.0
    assert normal_samples(np.ones(1), 1, generator()).shape == (2000, 1)


def test_new_samples_lie_around_the_heavy_proxies() -> None:
    old = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    found = samples_around(old, [3.0, 1.0, 0.0], 0.1, generator())
    assert found.shape == (30, 2)
    found = samples_around(np.repeat(old, 100, axis=0), np.repeat([3.0, 1.0, 0.0], 100), 0.1, generator())
    near = (np.abs(found[:, None] - old[None]).max(axis=2) < 1.0).mean(axis=0)
    assert near == pytest.approx(np.array([0.75, 0.25, 0.0]), abs=0.05)
    assert (found[found[:, 0] > 2.5] - old[1]).std(axis=0) == pytest.approx(np.full(2, 0.1), rel=0.1)


def test_without_weights_new_samples_lie_around_all_proxies() -> None:
    old = np.arange(4.0)[:, None] * 10.0
    found = samples_around(old, np.zeros(4), 0.0, generator())
    assert set(found.ravel().tolist()) == {0.0, 10.0, 20.0, 30.0}


# -- weights ------------------------------------------------------------------------------------------------------


def test_weights_by_hand() -> None:
    # Two counts: sqrt(2 ln 2) = 1.177; times 0.5 and noise 10: 5.887.
    found = proxy_weights([100.0, 5.88], 10.0, 0.5)
    assert found.tolist() == [100.0, 0.5]
    assert proxy_weights([100.0, 5.89], 10.0, 0.5).tolist() == [100.0, 5.89]


def test_the_threshold_grows_with_the_number_of_proxies() -> None:
    counts = np.full(1000, 25.0)
    assert (proxy_weights(counts, 10.0, 0.8) == 0.5).all()
    assert (proxy_weights(counts[:2], 10.0, 0.8) == 25.0).all()
    assert proxy_weights([25.0], 10.0, 0.8).tolist() == [25.0]


@pytest.mark.parametrize("counts", [[-5.0, -1e12], [0.0, 0.0], [2.0**47, -(2.0**47)]])
@pytest.mark.parametrize("noise", [1e-9, 1.0, 1e12])
def test_weights_are_positive_and_finite_whatever_was_released(counts: list[float], noise: float) -> None:
    found = proxy_weights(counts, noise, 0.8)
    assert np.isfinite(found).all()
    assert found.min() > 0.0


def test_counts_of_noise_alone_are_hardly_ever_weights() -> None:
    counts = generator().normal(0.0, 10.0, 1000)
    assert (proxy_weights(counts, 10.0, 0.8) > 0.5).mean() < 0.01
