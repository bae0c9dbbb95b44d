"""Proxies: toys by hand, samples with the right moments, and the same proxies whatever
order sums are added up in.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm
from support.on_the_grid import is_on_grid

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.proxies.distances import (
    N_DISTANCES,
    distance_counts,
    squared_edges,
)
from flwr_dpkmeans.kmeans.proxies.draws import normal_samples
from flwr_dpkmeans.kmeans.proxies.ellipsoid import Ellipsoid
from flwr_dpkmeans.kmeans.proxies.far_samples import far_samples, outside_cube
from flwr_dpkmeans.kmeans.proxies.lone_proxies import (
    are_lone,
    heard_among,
    without_lone_rows,
)
from flwr_dpkmeans.kmeans.proxies.noisy_distances import (
    binned_square,
    farther_if_likelier,
    farthest_heard,
)
from flwr_dpkmeans.kmeans.proxies.refined_samples import samples_around, scattered
from flwr_dpkmeans.kmeans.proxies.samples import box_samples
from flwr_dpkmeans.kmeans.proxies.split_clusters import split_largest
from flwr_dpkmeans.kmeans.proxies.tessellation import at_means, tessellation
from flwr_dpkmeans.kmeans.proxies.variances import by_precision
from flwr_dpkmeans.kmeans.proxies.weights import (
    expected_rows,
    likely_weights,
    unheard_rows,
)

Floats = NDArray[np.float64]
GRID = 2.0**16


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- tessellation ----------------------------------------------------------------------


def test_proxies_of_separate_heaps_are_their_means() -> None:
    heaps = np.array([[0.0, 0.0], [0.0, 0.25], [4.0, 4.0], [4.0, 4.5], [-4.0, 3.0]])
    found = tessellation(heaps, 3, generator())
    assert sorted(map(tuple, found.tolist())) == [
        (-4.0, 3.0),
        (0.0, 0.125),
        (4.0, 4.25),
    ]


def test_as_many_proxies_as_samples_are_the_samples() -> None:
    samples = np.array([[0.5], [-0.25], [0.75], [0.0]])
    assert sorted(tessellation(samples, 4, generator()).ravel().tolist()) == [
        -0.25, 0.0, 0.5, 0.75,
    ]  # fmt: skip


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError, match="there are 2 samples, but 3 proxies need"):
        tessellation(np.zeros((2, 1)), 3, generator())


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 30),
    d=st.integers(1, 12),
    spread=st.sampled_from((0, 1, 3)),
)
def test_proxies_are_on_the_grid_and_among_the_samples(
    seed: int, n: int, d: int, spread: int
) -> None:
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
    distances = np.sqrt(np.square(samples[:, None] - found[None]).sum(axis=2)).min(
        axis=1
    )
    # Cells of side 0.2: hexagons have a root mean square distance of 0.40 sides.
    assert math.sqrt(float(np.square(distances).mean())) < 0.2 * 0.46
    assert distances.max() < 0.3


def test_too_many_distances_are_not_measured_and_no_sample_is_taken_twice() -> None:
    """Up to the limit one far sample is found at once; beyond it, chance decides."""
    samples = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5000.0])[:, None]
    for limit, always in ((12, True), (11, False)):
        found = [
            tessellation(samples, 2, generator(seed), most_distances=limit)
            for seed in range(20)
        ]
        assert all(one.max() == 5000.0 for one in found) is always
        assert all(len(np.unique(one)) == 2 for one in found)


@pytest.mark.parametrize("d", [1, 2, 8, 12])
def test_another_order_of_summation_changes_no_bit(d: int) -> None:
    """All clients draw their own proxies, and must agree."""
    samples = normal_samples(np.linspace(1.0, 0.1, d), 50, generator())
    found = tessellation(samples, 50, generator(1))
    # Last digits of the samples (another logarithm, another product) are rounded away.
    assert np.array_equal(
        found, tessellation(samples * (1.0 + 2.0**-52), 50, generator(1))
    )
    # The same features in another order: matrix products and norms add up in another
    # order.
    order = generator(2).permutation(d)
    assert np.array_equal(
        found[:, order],
        tessellation(np.ascontiguousarray(samples[:, order]), 50, generator(1)),
    )
    # Another layout in memory, and sums of rows in another order.
    assert np.array_equal(
        found, tessellation(np.asfortranarray(samples), 50, generator(1))
    )
    rounded = round_to_grid(samples)
    backwards = at_means(found, rounded[::-1])
    assert np.array_equal(at_means(found, rounded), backwards)


def test_arguments_stay_as_they_are() -> None:
    samples = generator().normal(size=(30, 2))
    before = samples.copy()
    tessellation(samples, 5, generator())
    samples_around(samples, np.ones(30), 0.1, generator())
    assert np.array_equal(samples, before)


# -- samples ---------------------------------------------------------------------------


def test_box_samples_have_the_covariance_of_the_ellipsoid() -> None:
    turn = np.rint(np.array([[0.8, -0.6], [0.6, 0.8]]) * GRID) / GRID
    variances = np.array([0.04, 0.01])
    found = box_samples(
        np.array([0.25, -0.125]), variances, turn, 2000, generator(), cover=None
    )
    assert found.shape == (20_000, 2)
    assert found.mean(axis=0) == pytest.approx(np.array([0.25, -0.125]), abs=0.005)
    assert np.cov(found.T) == pytest.approx(
        turn @ np.diag(variances) @ turn.T, abs=0.001
    )
    # A parallelepiped: its farthest points are at sqrt(3) deviations of each axis.
    along = (found - [0.25, -0.125]) @ turn
    assert np.abs(along).max(axis=0) == pytest.approx(np.sqrt(3 * variances), rel=0.01)


def test_a_box_sample_lies_along_the_axes_by_what_was_drawn() -> None:
    """Half of the way to walls that are sqrt(3) deviations away."""
    drawn: Any = SimpleNamespace(
        uniform=lambda low, high, shape: np.full(shape, low + 0.75 * (high - low))
    )
    axes, variances = (
        np.array([[0.6, 0.8], [0.8, -0.6]]),
        np.array([0.6, 0.3]) ** 2 / 3.0,
    )
    found = box_samples(np.array([0.125, -0.25]), variances, axes, 5, drawn, cover=None)
    expected = [0.125 + 0.3 * 0.6 + 0.15 * 0.8, -0.25 + 0.3 * 0.8 - 0.15 * 0.6]
    assert found == pytest.approx(np.tile(expected, (2000, 1)), abs=2 / GRID)


@pytest.mark.parametrize("corner", [0.9, -0.9])
@pytest.mark.parametrize("cover", [None, 2.0])
def test_box_samples_stay_in_the_box_and_cover_it_if_asked(
    cover: float | None, corner: float
) -> None:
    found = box_samples(
        np.full(2, corner), np.array([0.01, 0.01]), np.eye(2), 16, generator(),
        cover=cover,
    )  # fmt: skip
    assert found.shape == (2000, 2)
    assert np.abs(found).max() == 1.0
    assert bool((found * corner < 0.0).any(axis=1).mean() > 0.2) is (cover is not None)
    assert int((np.abs(found - corner).max(axis=1) < 0.18).sum()) >= 1400


def test_where_proxies_are_few_samples_leave_the_ellipsoid_in_some_columns() -> None:
    """One column in half of the samples, m in 2^-m of them, all d in the rest."""
    d = 4
    for proxies, all_columns in ((4**d - 1, 2.0 ** (1 - d)), (4**d, 1.0)):
        found = np.concatenate(
            [
                box_samples(
                    np.zeros(d), np.full(d, 1e-6), np.eye(d), proxies, generator(seed),
                    cover=1.0,
                )
                for seed in range(20)
            ]
        )  # fmt: skip
        left = np.abs(found) > 0.002
        numbers = np.bincount(left.sum(axis=1), minlength=d + 1) / (0.3 * len(found))
        expected = [0.5, 0.25, 0.125] if proxies < 4**d else [0.0] * 3
        assert numbers[1:] == pytest.approx([*expected, all_columns], abs=0.03), proxies
        assert np.ptp(left.mean(axis=0)) < 0.02


def test_box_samples_take_the_leading_axes_of_a_wide_table() -> None:
    axes = np.eye(5)[:, :2]
    found = box_samples(
        np.zeros(5), np.full(5, 0.01), axes, 10, generator(), cover=None
    )
    assert found.std(axis=0) == pytest.approx(
        np.array([0.1, 0.1, 0.0, 0.0, 0.0]), abs=0.01
    )


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
    found = samples_around(
        np.repeat(old, 100, axis=0), np.repeat([3.0, 1.0, 0.0], 100), 0.1, generator()
    )
    near = (np.abs(found[:, None] - old[None]).max(axis=2) < 1.0).mean(axis=0)
    assert near == pytest.approx(np.array([0.75, 0.25, 0.0]), abs=0.05)
    assert (found[found[:, 0] > 2.5] - old[1]).std(axis=0) == pytest.approx(
        np.full(2, 0.1), rel=0.1
    )


def test_a_sample_is_a_step_of_its_parents_width_away() -> None:
    steps = np.array([[1.0, 0.0], [-1.0, 2.0], [0.5, 0.5]])
    drawn: Any = SimpleNamespace(
        choice=lambda n, size, p: np.array([0, 1, 1]),
        standard_normal=lambda shape: steps,
    )
    found = samples_around(
        np.array([[0.0, 1.0], [5.0, 0.0]]), [1.0, 3.0], np.array([0.5, 0.25]), drawn
    )
    assert found.tolist() == [[0.5, 1.0], [4.75, 0.5], [5.125, 0.125]]


def test_where_rows_are_flat_samples_are_no_thicker_than_half_of_them() -> None:
    """Along the first axis rows reach farther than a cell, along the second not."""
    axes = np.array([[0.6, -0.8], [0.8, 0.6]])
    flat = Ellipsoid(np.array([0.25, 0.01]) ** 2, round_to_grid(axes))
    old = np.repeat([[0.0, 0.0], [5.0, 0.0]], 200, axis=0)
    widths = np.repeat([0.0625, 0.25], 200)
    found = samples_around(old, np.ones(400), widths, generator(), flat)
    free = samples_around(old, np.ones(400), widths, generator())
    near = free[:, 0] < 2.5
    along, across = (found[near] @ axes).T
    assert across.std() == pytest.approx(0.005, rel=0.1)
    assert np.abs(along - free[near] @ axes[:, 0]).max() < 1e-3
    assert along.std() == pytest.approx(0.0625, rel=0.1)
    assert np.abs(found[~near] - free[~near]).max() <= 2.0**-17
    # Where rows fill all directions alike, nothing changes to the last bit.
    for round_ in (Ellipsoid(np.full(2, 0.125**2), round_to_grid(axes)), None):
        assert np.array_equal(
            samples_around(old, np.ones(400), widths, generator(), round_), free
        )


def test_samples_of_whole_proxies_lie_on_them_and_the_others_stay_where_they_were() -> (
    None
):
    old = np.repeat([[0.0, 0.0], [5.0, 0.0]], 200, axis=0)
    free = samples_around(old, np.ones(400), 0.25, generator())
    far = free[:, 0] > 2.5
    found = samples_around(old, np.ones(400), 0.25, generator(), whole=old[:, 0] == 5.0)
    assert np.array_equal(found[~far], free[~far])
    assert (found[far] == [5.0, 0.0]).all()
    assert 1500 < far.sum() < 2500


def test_ten_samples_for_each_proxy_as_memory_allows() -> None:
    """2^24 numbers: all for 2,000 proxies in one column, 8 for each in 1,000."""
    asked: list[int] = []
    drawn: Any = SimpleNamespace(
        choice=lambda n, size, p: asked.append(size) or np.zeros(0, int),
        standard_normal=np.ones,
    )
    for n, width in ((2000, 1), (2000, 1000), (1, 1)):
        samples_around(np.zeros((n, width)), np.ones(n), 0.1, drawn)
    assert asked == [20_000, 16_777, 10]


def test_weights_below_one_are_weights_as_well() -> None:
    assert not samples_around(
        np.array([[0.0], [5.0]]), [0.25, 0.0], 0.0, generator()
    ).any()


def test_without_weights_new_samples_lie_around_all_proxies() -> None:
    old = np.arange(4.0)[:, None] * 10.0
    found = samples_around(old, np.zeros(4), 0.0, generator())
    assert set(found.ravel().tolist()) == {0.0, 10.0, 20.0, 30.0}


# -- weights ---------------------------------------------------------------------------


def naive_weights(
    counts: list[float], noise: float, n: float, least: float
) -> list[float]:
    """The page's integrals by trapezoids, one proxy after the other."""
    octaves = math.log(n / (least * noise))

    def full(count: float, power: int) -> float:
        ends = (
            max(least * noise, count - 8 * noise),
            max(least * noise, count + 8 * noise),
        )
        sizes = np.linspace(*ends, 2001)
        return float(
            np.trapezoid(
                norm.pdf((count - sizes) / noise)
                / noise
                * sizes**power
                / (sizes * octaves),
                sizes,
            )
        )

    empty = [float(norm.pdf(count / noise)) / noise for count in counts]
    with_rows, means = (
        [full(count, 0) for count in counts],
        [full(count, 1) for count in counts],
    )
    is_full, total = np.zeros(len(counts)), 0.0
    for doublings in np.arange(-6.0, 10.5, 0.5):
        share = 1.0 / (1.0 + 2.0**doublings)
        each = [
            (1.0 - share) * one + share * other
            for one, other in zip(empty, with_rows, strict=True)
        ]
        weight = math.prod(each) * share * (1.0 - share)
        is_full += weight * share * np.array(with_rows) / np.array(each)
        total += weight
    is_full /= total
    doubted = sum(counts) <= least * noise * math.sqrt(len(counts))
    shares = [0.0 if doubted and part <= 0.5 else part for part in is_full]
    return [
        part * mean / one
        for part, mean, one in zip(shares, means, with_rows, strict=True)
    ]


@pytest.mark.parametrize(
    ("counts", "least"),
    [
        ([500.0, 33.0, 25.0, 12.0, 3.0, -8.0, 0.0], 2.0),
        ([33.0, 25.0, 12.0, 3.0, -8.0, 0.0], 2.0),
        ([25.0, 33.0, -20.0, -30.0, -5.0], 2.0),
        ([33.0, 25.0, 12.0, 3.0, -8.0, 0.0], 3.0),
        ([-12.0], 2.0),
    ],
)
def test_weights_are_posterior_means_of_counts(
    counts: list[float], least: float
) -> None:
    found = likely_weights(np.array(counts), 10.0, 1000.0, least=least)
    assert found == pytest.approx(
        naive_weights(counts, 10.0, 1000.0, least), rel=0.01, abs=1e-3
    )
    assert is_on_grid(found)


def test_among_empty_proxies_a_count_has_to_be_larger() -> None:
    alone = likely_weights(np.array([25.0, 500.0, 400.0]), 10.0, 1000.0, least=2.0)
    beside = likely_weights(
        np.array([25.0, 500.0, 400.0] + [0.0] * 300), 10.0, 1000.0, least=2.0
    )
    assert beside[0] < 5.0 < 20.0 < alone[0]
    # Two counts that no noise reaches are what they are, but for the slope of the
    # prior: 400 - 10^2 / 400.
    assert beside[1:3] == pytest.approx([499.8, 399.75], abs=0.01)


def test_where_rows_are_not_heard_only_what_is_likelier_full_weighs() -> None:
    """Together 4 counts are heard above 40."""
    doubted = likely_weights(
        np.array([45.0, 12.0, -30.0, 13.0]), 10.0, 1000.0, least=2.0
    )
    believed = likely_weights(
        np.array([45.0, 12.0, -30.0, 13.01]), 10.0, 1000.0, least=2.0
    )
    assert doubted.tolist() == [pytest.approx(believed[0], abs=0.01), 0.0, 0.0, 0.0]
    assert 0.0 < believed[1] < believed[3] < 10.0


@pytest.mark.parametrize(
    "counts", [[-5.0, -1e12], [0.0, 0.0], [2.0**47, -(2.0**47)], []]
)
@pytest.mark.parametrize("noise", [1e-9, 1.0, 1e12])
def test_weights_are_never_negative_and_finite_whatever_was_released(
    counts: list[float], noise: float
) -> None:
    found = likely_weights(np.array(counts), noise, 1e6, least=2.0)
    assert found.shape == (len(counts),)
    assert np.isfinite(found).all()
    assert (found >= 0.0).all()


def test_a_proxy_is_lone_without_a_neighbour_whose_count_stands_out() -> None:
    """A neighbour is at most 1.25 away, and stands out above 3 deviations."""
    proxies = np.array(
        [[0.0, 0.0], [1.25, 0.0], [2.5, 0.25], [6.0, 0.0], [6.0, 1.5], [9.0, 0.0]]
    )
    scores = np.array([2.0, 3.5, 3.0, 50.0, 4.0, 3.5])
    # The first hears the second; that one none above 3; the third is 1.27 away; the two
    # at 6 are 1.5 apart.
    assert are_lone(proxies, scores, np.full(6, 0.5), 3.0).tolist() == [
        False, True, True, True, True, True,
    ]  # fmt: skip
    # A radius of its own reaches farther, for its owner only.
    radii = np.array([0.5, 0.5, 0.75, 0.75, 0.5, 0.5])
    assert are_lone(proxies, scores, radii, 3.0).tolist() == [
        False, True, False, False, True, True,
    ]  # fmt: skip
    assert are_lone(proxies[:1], scores[3:4], np.array([9.0]), 3.0).tolist() == [True]
    assert are_lone(proxies, np.zeros(6), np.full(6, 9.0), 3.0).all()


def test_without_noise_weights_are_the_counts() -> None:
    counts = np.array([0.0, 1.0, 2.0, 1000.0])
    assert likely_weights(counts, 1e-6, 1003.0, least=2.0) == pytest.approx(
        counts, abs=1e-4
    )


def test_counts_that_are_just_heard_together_are_doubted() -> None:
    """Two counts of two deviations and two of none are heard above four."""
    sure, doubted = (
        likely_weights(np.array([20.0, 20.0 + more, 0.0, 0.0]), 10.0, 1e9, least=2.0)[0]
        for more in (0.01, 0.0)
    )
    assert doubted == 0.0 < 0.1 < sure


@pytest.mark.parametrize(("n", "octaves"), [(50.0, 2.5), (35.0, 2.0), (3.0, 2.0)])
def test_few_rows_are_spread_over_at_least_one_octave_of_counts(
    n: float, octaves: float
) -> None:
    """The chance of a count from 20 to `n`, or to 40."""
    found = likely_weights(np.array([38.0, 3.0]), 10.0, n, least=2.0)
    assert found == pytest.approx(
        naive_weights([38.0, 3.0], 10.0, 20.0 * octaves, 2.0), rel=0.01
    )


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_noise_alone_weigh_next_to_nothing(seed: int) -> None:
    counts = generator(seed).normal(0.0, 10.0, 1000)
    found = likely_weights(np.append(counts, 5000.0), 10.0, 5000.0, least=2.0)
    assert found[:-1].sum() < 100.0 < 200.0 < counts[counts > 20.0].sum()
    assert likely_weights(counts, 10.0, 5000.0, least=2.0).sum() < 100.0


def test_a_cluster_of_a_single_row_is_dropped_however_sure_it_is() -> None:
    weights, labels = (
        np.array([500.0, 1.9, 1.0, 1.0]),
        np.array([0, 1, 2, 2], dtype=np.int32),
    )
    assert without_lone_rows(weights, labels).tolist() == [500.0, 0.0, 1.0, 1.0]


# -- distances -------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 9])
def test_each_point_is_in_the_one_bin_of_its_distance(d: int) -> None:
    """From the logarithm of its distance."""
    points = (
        np.rint(
            generator(d).normal(0.0, 1.0, (400, d))
            * 10.0 ** generator(1).uniform(-4, 0, (400, 1))
            * GRID
        )
        / GRID
    )
    points = np.clip(
        np.concatenate([points, np.zeros((1, d)), np.ones((1, d))]), -1.0, 1.0
    )
    centre = np.full(d, 0.25)
    for one in points:
        square = float(((one - centre) ** 2).sum())
        place = N_DISTANCES - 1
        if square > 0.0:
            place = min(place, max(0, math.floor(-math.log2(square / (4.0 * d)))))
        expected = np.zeros(N_DISTANCES)
        expected[place] = 1.0
        assert distance_counts(one[None], centre).tolist() == expected.tolist()
    assert distance_counts(points, centre).sum() == len(points)
    assert distance_counts(np.empty((0, d)), centre).tolist() == [0.0] * N_DISTANCES


def test_edges_and_what_lies_on_and_beyond_them() -> None:
    """One column: squared edges 4, 2, 1, 1/2, ...."""
    assert squared_edges(1)[:4].tolist() == [4.0, 2.0, 1.0, 0.5]
    assert squared_edges(3)[-1] == 12.0 * 2.0**-27
    assert distance_counts(np.array([[1.0]]), np.zeros(1)).argmax() == 2
    assert distance_counts(np.array([[1.0 + 1 / GRID]]), np.zeros(1)).argmax() == 1
    assert distance_counts(np.array([[-1.0]]), np.array([1e6])).argmax() == 0


@pytest.mark.parametrize(
    ("scores", "place"),
    [
        ([0.0, 0.0, 3.1, 0.0, 9.0], 2),
        ([0.0, 2.9, 0.0, 0.0, 9.0], 4),
        # Two neighbours of 2.2 add up to 4.4 > 3 sqrt(2), outside of the one that is
        # heard alone.
        ([0.0, 2.2, 2.2, 0.0, 9.0], 1),
        # Four of 1.6 add up to 6.4 > 3 sqrt(4).
        ([1.6, 1.6, 1.6, 1.6, 9.0], 0),
        # A window never reaches into what was heard before.
        ([0.0, 0.0, 0.0, 2.9, 9.0], 4),
        # The first is heard by itself, or not.
        ([3.5, 0.0, 0.0, 0.0, 9.0], 0),
        ([2.5, 0.0, 0.0, 0.0, 9.0], 4),
        ([0.0] * 5, 0),
        ([-9.0] * 5, 0),
    ],
)
def test_the_farthest_bin_that_is_heard(scores: list[float], place: int) -> None:
    assert farthest_heard(np.array(scores), 3.0) == place


def test_mean_square_of_a_histogram_by_hand() -> None:
    square, noise = binned_square(
        np.array([10.0, 20.0]), np.array([3.0, 4.0]), np.array([2.0, 1.0]), 40.0
    )
    middle = math.sqrt(0.5)
    assert square == pytest.approx((10 * 2 + 20 * 1) * middle / 40)
    assert noise == pytest.approx(
        math.hypot(math.hypot(3 * 2, 4 * 1) * middle / 40, 0.15 * square)
    )


def test_rows_at_all_distances_have_the_mean_square_that_their_histogram_tells() -> (
    None
):
    rows = generator().normal(0.0, 0.1, (20_000, 2))
    counts = distance_counts(np.rint(rows * GRID) / GRID, np.zeros(2))
    square, noise = binned_square(
        counts, np.zeros(N_DISTANCES), squared_edges(2), 20_000
    )
    assert square == pytest.approx(float((rows**2).sum(axis=1).mean()), rel=0.15)
    assert noise == pytest.approx(0.15 * square)


def test_averages_by_precision() -> None:
    assert by_precision(1.0, 4.0, 6.0, 1.0) == pytest.approx((5.0, 0.8))


def test_far_samples_fill_the_box_in_octaves_around_the_centre() -> None:
    centre = np.array([0.5, -0.25])
    found = far_samples(centre, 0.01, 2000, generator())
    assert np.abs(found).max() <= 1.0
    # Half widths are even on a logarithmic scale: ln 2 / ln 200 of the cubes between
    # 0.01 and 0.02,
    reach = np.abs(found - centre).max(axis=1)
    shares = [float((reach < bound).mean()) for bound in (0.02, 0.08, 0.32)]
    total = math.log(200.0)

    def below(bound: float) -> float:
        """A cube of half width h > b has (b / h)^2 of its points within b."""
        return (math.log(bound / 0.01) + 0.5 * (1.0 - (bound / 0.5) ** 2)) / total

    # Of 20,000, those within 0.01 are left out.
    inside = below(0.01)
    assert len(found) == pytest.approx(20_000 * (1.0 - inside), rel=0.02)
    assert (reach.min() > 0.01, reach.max() > 1.4) == (True, True)
    assert shares == pytest.approx(
        [(below(b) - inside) / (1.0 - inside) for b in (0.02, 0.08, 0.32)], abs=0.06
    )


def test_far_samples_lie_anywhere_where_the_smallest_cube_leaves_nothing_out() -> None:
    found = far_samples(np.zeros(2), 1.0, 100, generator())
    assert (len(found), np.abs(found).max() <= 1.0) == (2000, True)


def test_samples_inside_of_the_smallest_cube_are_left_out_where_others_are_left() -> (
    None
):
    """As many samples are drawn for up to 200 proxies."""
    centre = np.zeros(2)
    outside = far_samples(centre, 0.98, 1, generator())
    n = len(outside)
    assert 2 < n < 200
    assert np.abs(outside).max(axis=1).min() > 0.98
    assert np.array_equal(far_samples(centre, 0.98, n, generator()), outside)
    assert len(far_samples(centre, 0.98, n + 1, generator())) == 2000


def test_a_proxy_inside_of_the_cube_goes_to_the_nearest_far_sample() -> None:
    """The mean of samples all around the cube would lie amid the rows."""
    centre, samples = (
        np.array([0.25, 0.0]),
        np.array([[0.75, 0.0], [-0.5, 0.0], [0.25, 0.5 + 1.0 / 3.0]]),
    )
    proxies = np.array([[0.5, 0.125], [0.25, 0.25], [0.53125, 0.0], [0.25, -0.28125]])
    found = outside_cube(proxies, samples, centre, 0.25)
    assert found.tolist() == [
        [0.75, 0.0],
        [0.75, 0.0],
        [0.53125, 0.0],
        [0.25, -0.28125],
    ]
    (up,) = outside_cube(np.array([[0.25, 0.25]]), samples[1:], centre, 0.25)
    assert up == pytest.approx([0.25, round((0.5 + 1.0 / 3.0) * GRID) / GRID], abs=0.0)


@pytest.mark.parametrize(
    ("n", "deviations"), [(0, 0.0), (1, 2.87816), (8, 3.48076), (200, 4.26489)]
)
def test_noise_alone_exceeds_what_is_heard_among_counts_once_in_five_hundred(
    n: int, deviations: float
) -> None:
    found = heard_among(n)
    assert found == pytest.approx(deviations, abs=2e-5)
    if n:
        assert n * norm.sf(found) == pytest.approx(0.002, rel=1e-4)


def test_what_just_equals_the_threshold_is_not_heard() -> None:
    assert farthest_heard(np.array([0.0, 3.0, 0.0, 0.0]), 3.0) == 0
    assert farthest_heard(np.array([0.0, 3.5, 0.0, 0.0]), 3.0) == 1
    # Two together stand out that none alone does; four are not looked at inside of what
    # one has shown.
    assert farthest_heard(np.array([0.0, 2.5, 2.5, 0.0]), 3.0) == 1
    assert farthest_heard(np.array([0.0, 0.0, 2.5, 5.0]), 3.0) == 3
    assert farthest_heard(np.array([0.0, 2.5, 2.5, 5.0]), 3.0) == 1


# -- empty clusters --------------------------------------------------------------------


def expected_rows_naively(count: float, noise: float, n: float) -> tuple[float, float]:
    sizes = [
        2.0 * 2.0 ** (step / 8.0)
        for step in range(1000)
        if 2.0 * 2.0 ** (step / 8.0) <= n * 2.0**0.0625
    ]
    chances = [norm.pdf(count, size, noise) for size in sizes]
    none = len(sizes) * norm.pdf(count, 0.0, noise)
    whole = none + math.fsum(chances)
    return (
        math.fsum(size * chance for size, chance in zip(sizes, chances, strict=True))
        / whole,
        none / whole,
    )


@pytest.mark.parametrize("noise", [3.0, 20.0, 60.0])
@pytest.mark.parametrize("n", [64.0, 1000.0])
def test_expected_rows_are_what_a_naive_sum_says(noise: float, n: float) -> None:
    counts = np.array([-3.0, 0.0, 0.5, 1.0, 2.0]) * noise
    found, none = expected_rows(counts, noise, n)
    naive = [expected_rows_naively(count, noise, n) for count in counts.tolist()]
    assert found == pytest.approx([one[0] for one in naive], rel=1e-9)
    assert none == pytest.approx([one[1] for one in naive], rel=1e-9)
    assert (np.diff(found) > 0.0).all()
    assert 0.0 < found[0] < noise


def test_expected_rows_where_noise_is_next_to_nothing() -> None:
    found, none = expected_rows(np.array([-1e9, 0.0, 0.4, 2.0, 64.0]), 1e-3, 64.0)
    assert found == pytest.approx([0.0, 0.0, 0.0, 2.0, 64.0], abs=1e-9)
    assert none == pytest.approx([1.0, 1.0, 1.0, 0.0, 0.0], abs=1e-9)


CENTERS = np.array([[0.0, 0.0], [0.5, 0.0], [-0.5, 0.5]])
NONE = np.array([0.0, 1.0, 0.0])


def test_the_largest_cluster_is_split_by_an_empty_one_by_hand() -> None:
    """Loss 4 * 0.25; gain (0.02 / 2) (2 / pi) / 2 * 300 * (300 * 3 / 400) = 2.15."""
    split = split_largest(
        CENTERS, np.array([96.0, 4.0, 300.0]), NONE, np.full(3, 0.02), 8.0, generator()
    )
    assert split is not None
    moved, empty, largest = split
    assert (empty, largest) == (1, 2)
    assert moved[0].tolist() == [0.0, 0.0]
    # Opposite each other, beside where the largest was, as far as the mean of half a
    # normal distribution is.
    assert 0.5 * (moved[1] + moved[2]) == pytest.approx(CENTERS[2])
    assert np.linalg.norm(moved[1] - CENTERS[2]) == pytest.approx(
        math.sqrt(0.01 * 2.0 / math.pi)
    )
    assert CENTERS[2].tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("chance", [0.69, 0.71])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_it_is_split_just_where_the_gain_exceeds_the_loss(
    factor: float, chance: float
) -> None:
    """The largest cluster may be several only where a center is surely without rows."""
    gain = (
        0.01
        * (2.0 / math.pi)
        / 2.0
        * 300.0
        * (300.0 * 3.0 / 400.0 if chance > 0.7 else 1.0)
    )
    likely, none = (
        np.array([100.0, factor * gain / 0.25, 300.0]),
        np.array([1.0 - chance, chance, 1.0 - chance]),
    )
    assert (
        split_largest(CENTERS, likely, none, np.full(3, 0.02), 8.0, generator())
        is not None
    ) == (factor < 1.0)


def test_no_cluster_is_split_by_one_of_more_than_half_its_rows_or_by_itself() -> None:
    centers = np.array([[0.0, 0.0], [1e-3, 0.0]])
    assert (
        split_largest(
            centers, np.array([151.0, 300.0]), NONE[:2], np.ones(2), 400.0, generator()
        )
        is None
    )
    assert (
        split_largest(
            centers, np.array([149.0, 300.0]), NONE[:2], np.ones(2), 400.0, generator()
        )
        is not None
    )
    for likely in (300.0, 0.0):
        assert (
            split_largest(
                centers[:1],
                np.array([likely]),
                NONE[1:2],
                np.ones(1),
                400.0,
                generator(),
            )
            is None
        )
    assert (
        split_largest(centers, np.zeros(2), np.ones(2), np.ones(2), 400.0, generator())
        is None
    )


def test_it_is_the_cluster_that_costs_most_that_is_split() -> None:
    """300 rows cost 0.3, 96 cost 9.6: a gain of 4.4, a loss of 4 * 0.25."""
    means, likely = np.array([0.1, 9.0, 0.001]), np.array([96.0, 0.1, 300.0])
    for missing, most in ((NONE, 4.4), (np.zeros(3), 1.53)):
        for loss, splits in ((0.99, True), (1.01, False)):
            counts = np.array([96.0, loss * most / 0.25, 300.0])
            split = split_largest(
                CENTERS, counts, missing, np.array([0.1, 0.0, 0.001]), 10.0, generator()
            )
            assert (split is not None) is splits
    found = split_largest(CENTERS, likely, NONE, means, 10.0, generator())
    assert found is not None
    moved, empty, largest = found
    assert (empty, largest) == (1, 0)
    assert moved[2].tolist() == CENTERS[2].tolist()
    assert np.linalg.norm(moved[1] - CENTERS[0]) == pytest.approx(
        math.sqrt(0.1 / math.pi)
    )


def test_expected_rows_of_a_single_row_are_none_or_two() -> None:
    assert expected_rows(np.array([-5.0, 2.0, 9.0]), 1e-3, 1.0)[0].tolist() == [
        0.0,
        2.0,
        2.0,
    ]


# -- few rows, of which noise is heard -------------------------------------------------


def farther_naively(
    first: int, counts: list[float], noise: list[float], n: float
) -> int:
    def log_density(value: float, mean: float, own: float) -> float:
        return (
            -math.log(own * math.sqrt(2.0 * math.pi))
            - 0.5 * ((value - mean) / own) ** 2
        )

    def log_likelihood(start: int) -> float:
        parts = zip(
            (0.25, 0.5, 0.25),
            counts[start : start + 3],
            noise[start : start + 3],
            strict=True,
        )
        return sum(
            log_density(count, share * n, own) - log_density(count, 0.0, own)
            for share, count, own in parts
        )

    values = [log_likelihood(start) for start in range(len(counts) - 2)]
    best = values.index(max(values))
    return best if best < first - 2 else first


@pytest.mark.parametrize("seed", range(20))
def test_bins_that_are_likelier_than_the_one_heard_by_a_naive_version(
    seed: int,
) -> None:
    own = generator(seed)
    noise = own.uniform(20.0, 120.0, N_DISTANCES)
    true = np.zeros(N_DISTANCES)
    true[4:7] = (100.0, 190.0, 110.0)
    counts = true + own.normal(0.0, noise)
    found = [
        farther_if_likelier(first, counts, noise, 400.0) for first in range(N_DISTANCES)
    ]
    assert found == [
        farther_naively(first, counts.tolist(), noise.tolist(), 400.0)
        for first in range(N_DISTANCES)
    ]


def test_rows_that_lie_where_they_were_heard_stay_there() -> None:
    counts, noise = np.zeros(N_DISTANCES), np.full(N_DISTANCES, 10.0)
    counts[8:11] = (100.0, 200.0, 100.0)
    assert [
        farther_if_likelier(first, counts, noise, 400.0) for first in (0, 5, 8, 9, 10)
    ] == [0, 5, 8, 9, 10]
    # Heard nearer than three bins behind.
    assert [
        farther_if_likelier(first, counts, noise, 400.0) for first in (11, 20, 27)
    ] == [8, 8, 8]


@pytest.mark.parametrize("n_proxies", [3, 14, 119])
def test_weights_are_shared_out_around_proxies_whose_means_stay(n_proxies: int) -> None:
    proxies, widths = (
        round_to_grid(generator().uniform(-1.0, 1.0, (n_proxies, 3))),
        np.linspace(0.1, 0.5, n_proxies),
    )
    weights = np.arange(n_proxies, dtype=np.float64)
    points, shares = scattered(proxies, weights, widths, generator())
    each = len(points) // n_proxies
    assert 2000 <= len(points) < 2000 + 2 * n_proxies
    assert (points == round_to_grid(points)).all()
    apart = points.reshape(n_proxies, each, 3)
    assert shares.reshape(n_proxies, each).sum(axis=1) == pytest.approx(weights)
    assert apart.mean(axis=1) == pytest.approx(proxies, abs=2 / GRID)
    # Of 17 points a deviation is known to a tenth, and the mean of many to less.
    deviations = np.sqrt(np.square(apart - proxies[:, None]).mean(axis=(1, 2)))
    assert (deviations / widths).mean() == pytest.approx(1.0, abs=0.07)
    assert (deviations / widths) == pytest.approx(1.0, abs=0.45)


# -- rows that are heard far away together, and at no proxy ----------------------------


STANDS_OUT = float(-norm.ppf(0.002 / N_DISTANCES))
"""What the noise of none of so many bins exceeds, in 499 of 500 runs."""


def unheard_by_hand(
    proxies: dict[int, list[tuple[float, float]]],
    noise: float,
    histogram: Any,
    n: float,
) -> Any:
    """`unheard_rows`, bin by bin; `proxies` are (count, weight) by bin."""
    rows, own = histogram
    place, missing = -1, 0.0
    for j in range(N_DISTANCES):
        there = [
            one
            for b, ones in proxies.items()
            if b <= min(j + 1, N_DISTANCES - 1)
            for one in ones
        ]
        others = [
            one
            for b, ones in proxies.items()
            if b > min(j + 1, N_DISTANCES - 1)
            for one in ones
        ]
        precisions = [1 / sum(own[i] ** 2 for i in range(j + 1))]
        precisions += [1 / (noise**2 * (len(some) or 0.5)) for some in (there, others)]
        estimates = [
            sum(rows[: j + 1]),
            sum(c for c, _ in there),
            n - sum(c for c, _ in others),
        ]
        total = sum(e * p for e, p in zip(estimates, precisions, strict=True)) / sum(
            precisions
        )
        more = total - sum(w for _, w in there)
        if (
            there
            and total < n / 2
            and more > total / 2
            and more > STANDS_OUT / math.sqrt(sum(precisions))
        ):
            place, missing = j, more
    lacking = {
        b: max(0.0, rows[b] - sum(w for _, w in ones))
        for b, ones in proxies.items()
        if b <= place
    }
    scale = missing / max(sum(lacking.values()), 1.0)
    return [
        lacking.get(b, 0.0) * scale / len(ones)
        for b, ones in proxies.items()
        for _ in ones
    ]


def found_unheard(
    proxies: dict[int, list[tuple[float, float]]],
    noise: float,
    histogram: Any,
    n: float,
) -> Any:
    bins = np.array([b for b, ones in proxies.items() for _ in ones])
    counts, weights = (
        np.array([one[i] for ones in proxies.values() for one in ones])
        for i in range(2)
    )
    return unheard_rows(bins, counts, weights, noise, histogram, n)


def test_rows_that_no_proxy_hears_are_shared_out_as_in_the_histogram() -> None:
    """400 of 10,000 rows in the bins 3 and 4, at 40 proxies that hear none."""
    proxies = {3: [(2.0, 0.0)] * 10, 4: [(12.0, 0.0)] * 30, 9: [(4800.0, 4800.0)] * 2}
    rows = np.zeros(N_DISTANCES)
    rows[[3, 4, 9]] = 100.0, 300.0, 9600.0
    found = found_unheard(proxies, 20.0, (rows, np.full(N_DISTANCES, 30.0)), 10_000.0)
    # All that others leave is known best: their two counts have less noise than 40
    # have.
    assert found[:40].sum() == pytest.approx(400.0, abs=5.0)
    assert found[:10].tolist() == [found[0]] * 10
    assert found[10:40].tolist() == [found[10]] * 30
    assert found[10] == pytest.approx(found[0])
    assert found[40:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("deviations", "is_heard"), [(3.4, False), (4.2, True)])
def test_noise_of_one_of_many_bins_gets_no_centre(
    deviations: float, is_heard: bool
) -> None:
    """At three deviations one run in 40 lost two centres to it."""
    far = deviations / math.sqrt(
        1 / (4 * 30.0**2) + 1 / (20.0**2 * 40) + 1 / (20.0**2 * 2)
    )
    rows = np.zeros(N_DISTANCES)
    rows[[3, 9]] = far, 10_000.0 - far
    proxies = {3: [(far / 40, 0.0)] * 40, 9: [(5000.0 - far / 2, 4800.0)] * 2}
    assert (
        found_unheard(proxies, 20.0, (rows, np.full(N_DISTANCES, 30.0)), 10_000.0).any()
        == is_heard
    )


@pytest.mark.parametrize(
    "case", ["heard", "noise", "most rows", "no proxies there", "next bin"]
)
def test_what_is_heard_or_is_noise_is_not_missing(case: str) -> None:
    far, n, mass = [(10.0, 0.0)] * 40, 10_000.0, [(4800.0, 4800.0)] * 2
    rows = np.zeros(N_DISTANCES)
    rows[[3, 9]] = 400.0, 9600.0
    proxies = {3: far, 9: mass}
    assert (
        found_unheard(proxies, 20.0, (rows, np.full(N_DISTANCES, 30.0)), n)[:40].sum()
        > 390.0
    )
    noise = 20.0
    if case == "heard":
        proxies = {3: [(210.0, 210.0), *[(5.0, 0.0)] * 38], 9: mass}
    elif case == "noise":
        noise, rows[3], proxies = (
            20.0,
            40.0,
            {3: [(1.0, 0.0)] * 40, 9: [(4980.0, 4980.0)] * 2},
        )
    elif case == "most rows":
        rows[[3, 9]], proxies = (
            (6000.0, 4000.0),
            {3: [(150.0, 0.0)] * 40, 9: [(2000.0, 2000.0)] * 2},
        )
    elif case == "no proxies there":
        proxies = {9: [(4800.0, 4800.0)] * 2}
    else:
        # Its proxies lie in the next bin, and have heard them.
        proxies = {4: [(200.0, 200.0)] * 2, 9: mass}
    assert not found_unheard(
        proxies, noise, (rows, np.full(N_DISTANCES, 30.0)), n
    ).any()


def test_unheard_rows_are_those_of_a_version_by_hand() -> None:
    own, fired = generator(11), 0
    for _ in range(300):
        bins = sorted(own.choice(N_DISTANCES, size=6, replace=False).tolist())
        rows = np.zeros(N_DISTANCES)
        rows[bins] = own.choice([0.0, 50.0, 200.0, 3000.0], size=6)
        proxies = {b: [] for b in bins}
        for b in bins:
            for _ in range(int(own.integers(1, 12))):
                count = float(np.rint(own.normal(rows[b] / 6, 15.0)))
                proxies[b].append(
                    (count, max(count, 0.0) if own.random() < 0.4 else 0.0)
                )
        noise = np.rint(own.uniform(5.0, 40.0, N_DISTANCES))
        histogram = (rows + np.rint(noise * own.normal(size=N_DISTANCES)), noise)
        expected = unheard_by_hand(proxies, 15.0, histogram, float(rows.sum()) + 500.0)
        found = found_unheard(proxies, 15.0, histogram, float(rows.sum()) + 500.0)
        assert found == pytest.approx(np.array(expected), rel=1e-9, abs=2**-16)
        fired += bool(found.any())
    assert 30 < fired < 270
