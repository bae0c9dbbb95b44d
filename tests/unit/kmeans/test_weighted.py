"""Weighted k-means of a few points, cost curves and their elbows."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.grid import GRID, round_to_grid
from flwr_dpkmeans.kmeans.public_points.elbow import cost_curve, elbow
from flwr_dpkmeans.kmeans.public_points.seeding import plus_plus, squares_to
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import (
    lloyd_from,
    usable_weights,
    weighted_kmeans,
)

Floats = NDArray[np.float64]


def best_cost(points: Floats, weights: Floats, k: int) -> float:
    """The optimum, by trying every assignment."""
    best = np.inf
    for labels in itertools.product(range(k), repeat=len(points)):
        chosen = np.array(labels)
        cost = 0.0
        for j in range(k):
            rows, w = points[chosen == j], weights[chosen == j]
            if w.sum() > 0.0:
                cost += float(
                    (
                        w[:, None] * (rows - np.average(rows, axis=0, weights=w)) ** 2
                    ).sum()
                )
        best = min(best, cost)
    return best


def test_centres_by_hand() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0], [10.0, 2.0]])
    centers, cost = weighted_kmeans(points, [3.0, 1.0, 1.0, 1.0], 2, n_init=5, seed=0)
    # Means 0.25 (cost 3/16 + 9/16) and (10, 1) (cost 2).
    assert sorted(centers.tolist()) == [[0.25, 0.0], [10.0, 1.0]]
    assert cost == pytest.approx(2.75)
    centers, cost = weighted_kmeans(points, [3.0, 1.0, 1.0, 1.0], 1, n_init=1, seed=0)
    # The grid's nearest numbers to 21/6 and 2/6.
    assert centers.tolist() == [[3.5, 21845 / 65536]]
    assert cost == pytest.approx(best_cost(points, np.array([3.0, 1.0, 1.0, 1.0]), 1))


def test_weights_count_and_not_only_whether_they_are_there() -> None:
    line = np.array([[0.0], [1.0], [2.2]])
    # Alone, the pair (0, 1) is nearer; with a heavy 0, moving its centre costs more
    # than joining 1 and 2.2.
    light = weighted_kmeans(line, [1.0, 1.0, 1.0], 2, n_init=10, seed=1)[0]
    assert sorted(light.ravel()) == pytest.approx([0.5, 2.2], abs=2**-16)
    heavy = weighted_kmeans(line, [100.0, 1.0, 1.0], 2, n_init=100, seed=1)[0]
    assert sorted(heavy.ravel()) == pytest.approx([0.0, 1.6], abs=2**-16)


@pytest.mark.nightly
def test_restarts_come_near_the_optimum_and_say_what_they_cost() -> None:
    generator = np.random.default_rng(2)
    for _ in range(5):
        points, weights = (
            generator.uniform(-1, 1, (7, 2)),
            generator.uniform(0.1, 3.0, 7),
        )
        centers, cost = weighted_kmeans(points, weights, 3, n_init=40, seed=3)
        best = best_cost(points, weights, 3)
        assert best * (1 - 1e-9) <= cost <= 1.1 * best
        nearest = ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1)
        assert cost == pytest.approx(float(weights @ nearest), rel=1e-6)


def test_restarts_keep_the_best_and_more_of_them_are_no_worse() -> None:
    """Single starts may end in a worse optimum, greedy ones seldom do."""
    generator = np.random.default_rng(12)
    places = generator.uniform(-20, 20, (12, 2))
    points = np.repeat(places, 6, axis=0) + generator.normal(0, 0.3, (72, 2))
    weights = generator.uniform(0.2, 2.0, 72)
    single = [
        weighted_kmeans(points, weights, 12, n_init=1, seed=seed)[1]
        for seed in range(8)
    ]
    many = [
        weighted_kmeans(points, weights, 12, n_init=20, seed=seed)[1]
        for seed in range(3)
    ]
    assert max(single) > 1.5 * min(single)
    assert max(many) <= min(single) * 1.001


def test_equal_seeds_give_equal_bits() -> None:
    """Clients compare states bit by bit under 'oblivious'."""
    generator = np.random.default_rng(7)
    points, weights = generator.uniform(-1, 1, (60, 4)), generator.uniform(0, 1, 60)
    first = weighted_kmeans(points, weights, 5, n_init=4, seed=9)
    again = weighted_kmeans(points.copy(), weights.copy(), 5, n_init=4, seed=9)
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]


def test_all_bits_of_a_seed_count() -> None:
    points = np.random.default_rng(7).uniform(-1, 1, (60, 4))
    found = [
        weighted_kmeans(points, np.ones(60), 9, n_init=1, seed=7 + more)[0]
        for more in (0, 1, 2**31, 2**40)
    ]
    assert len({centers.tobytes() for centers in found}) == 4


def test_no_bit_depends_on_the_order_in_which_products_are_added_up() -> None:
    """Clients' linear algebra adds up columns in other orders."""
    generator = np.random.default_rng(7)
    for seed in range(20):
        points, weights = (
            generator.uniform(-1, 1, (200, 6)),
            generator.uniform(0.1, 9.0, 200),
        )
        points, weights, order = (
            round_to_grid(points),
            round_to_grid(weights),
            generator.permutation(6),
        )
        first = weighted_kmeans(points, weights, 8, n_init=3, seed=seed)
        permuted = weighted_kmeans(points[:, order], weights, 8, n_init=3, seed=seed)
        assert np.array_equal(first[0][:, order], permuted[0])
        assert first[1] == permuted[1]


def plus_plus_by_hand(
    points: Any, weights: Any, n: int, uniforms: Any, first: float
) -> list[int]:
    """Row by row, with no sum kept."""

    def place(shares: list[float], uniform: float) -> int:
        below = [sum(shares[: i + 1]) for i in range(len(shares))]
        return next(
            (i for i, top in enumerate(below) if uniform * below[-1] < top),
            len(shares) - 1,
        )

    def cost(chosen: list[int]) -> list[float]:
        rows = zip(points, weights, strict=True)
        return [
            w * min(float(np.square(x - points[i]).sum()) for i in chosen)
            for x, w in rows
        ]

    chosen = [place(list(weights), first)]
    while len(chosen) < n:
        trials = [place(cost(chosen), uniform) for uniform in uniforms[len(chosen) - 1]]
        chosen.append(min(trials, key=lambda i: sum(cost([*chosen, i]))))
    return chosen


@pytest.mark.parametrize("is_greedy", [False, True])
def test_starts_are_those_of_a_version_by_hand(is_greedy: bool) -> None:
    generator = np.random.default_rng(3)
    for seed in range(20):
        points, weights = (
            round_to_grid(generator.uniform(-1, 1, (15, 2))),
            generator.uniform(0.1, 2.0, 15),
        )
        draws = np.random.default_rng(seed)
        first, uniforms = (
            float(draws.random(1)[0]),
            draws.random((9, 4 if is_greedy else 1)),
        )
        found = plus_plus(
            points, weights, 9, np.random.default_rng(seed), is_greedy=is_greedy
        )
        assert found == plus_plus_by_hand(points, weights, 9, uniforms, first)


def test_each_next_start_is_far_from_all_before_it() -> None:
    """Three heaps that are nearly points: one start in each, whatever comes first."""
    heaps = np.concatenate(
        [place + np.array([[0.0], [1 / GRID]]) for place in (-9.0, 0.0, 8.0)]
    )
    for seed in range(10):
        found = heaps[plus_plus(heaps, np.ones(6), 3, np.random.default_rng(seed))]
        assert sorted(found.round().ravel().tolist()) == [-9.0, 0.0, 8.0]


def test_squared_distances_by_hand() -> None:
    points, lengths = (
        np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]),
        np.array([0.0, 25.0, 1.0]),
    )
    assert squares_to(points, lengths, [1]).tolist() == [[25.0, 0.0, 20.0]]
    assert squares_to(points, lengths, [0, 2]).tolist() == [
        [0.0, 25.0, 1.0],
        [1.0, 20.0, 0.0],
    ]


def test_a_center_without_points_takes_the_costliest_one() -> None:
    """Two starts in one place: the second has no point, and goes far away.

    All lie far from the origin, to which a mean of nothing would fall.
    """
    points, weights = (
        np.array([[100.0], [101.0], [108.0], [91.0]]),
        np.array([1.0, 1.0, 3.0, 1.0]),
    )
    centers, cost = lloyd_from(points, weights, [0, 0])
    assert sorted(centers.ravel().tolist()) == [
        round((100 - 8 / 3) * GRID) / GRID,
        108.0,
    ]
    assert cost == pytest.approx((8 / 3) ** 2 + (11 / 3) ** 2 + (19 / 3) ** 2, rel=1e-6)


@pytest.mark.nightly
def test_it_is_as_good_as_scikit_learns() -> None:
    """Mean cost of 40 single starts, and the best of ten, on overlapping clusters."""
    generator = np.random.default_rng(4)
    for n, d, k in ((600, 2, 9), (400, 12, 6)):
        centres = generator.uniform(-0.8, 0.8, (k, d))
        points = round_to_grid(
            centres[generator.integers(k, size=n)] + generator.normal(0.0, 0.15, (n, d))
        )
        weights = round_to_grid(generator.exponential(50.0, n)) + 1.0

        def theirs(
            n_init: int, seed: int, k: int = k, points: Any = points,
            weights: Any = weights,
        ) -> float:  # fmt: skip
            return float(
                KMeans(k, n_init=n_init, random_state=seed)
                .fit(points, sample_weight=weights)
                .inertia_
            )

        own = [
            weighted_kmeans(points, weights, k, n_init=1, seed=seed)[1]
            for seed in range(40)
        ]
        other = [theirs(1, seed) for seed in range(40)]
        spread = np.hypot(np.std(own), np.std(other)) / np.sqrt(40)
        assert np.mean(own) < np.mean(other) + 3.0 * spread
        assert weighted_kmeans(points, weights, k, n_init=10, seed=0)[
            1
        ] < 1.01 * theirs(10, 0)


def test_points_without_weight_change_no_bit() -> None:
    generator = np.random.default_rng(7)
    points, weights = generator.uniform(-1, 1, (60, 4)), generator.uniform(0, 1, 60)
    first = weighted_kmeans(points, weights, 5, n_init=1, seed=9)
    more = np.concatenate([points, np.full((3, 4), 1e6)])
    again = weighted_kmeans(more, [*weights, 0.0, -0.5, 0.0], 5, n_init=1, seed=9)
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]


def test_points_without_weight_do_not_matter() -> None:
    points = np.array([[0.0], [1.0], [5.0], [1000.0]])
    centers, cost = weighted_kmeans(points, [1.0, 1.0, 1.0, 0.0], 2, n_init=5, seed=0)
    assert sorted(centers.ravel()) == pytest.approx([0.5, 5.0])
    assert cost == pytest.approx(0.5)
    # Noise makes weights negative: less than nothing is nothing.
    centers, _ = weighted_kmeans(points, [1.0, 1.0, 1.0, -50.0], 2, n_init=5, seed=0)
    assert sorted(centers.ravel()) == pytest.approx([0.5, 5.0])


def test_faint_weights_complete_the_clusters_and_do_not_move_them() -> None:
    points = np.array([[0.0], [4.0], [9.0], [20.0]])
    centers, cost = weighted_kmeans(points, [5.0, 0.0, 3.0, 0.0], 3, n_init=10, seed=0)
    assert len(centers) == 3
    assert np.isfinite(centers).all()
    # The two points with weight have centres of their own, the third one is where
    # nobody was counted.
    near = np.abs(centers - np.array([[0.0, 9.0]])).min(axis=0)
    assert near == pytest.approx([0.0, 0.0], abs=1e-6)
    assert cost < 1e-6


def test_usable_weights_by_hand() -> None:
    assert usable_weights([1.0, -2.0, 3.0], 2).tolist() == [1.0, 0.0, 3.0]
    assert usable_weights([0.0, 0.0, 0.0], 2).tolist() == [1.0, 1.0, 1.0]
    assert usable_weights([-1.0, -1.0], 1).tolist() == [1.0, 1.0]
    # A billionth of the mean.
    assert usable_weights([4.0, 0.0], 2) == pytest.approx(
        [4.0, 2e-9], rel=1e-15, abs=0.0
    )
    assert usable_weights([1.0, 0.0, 0.0, -9.0], 2) == pytest.approx(
        [1.0, 0.25e-9, 0.25e-9, 0.25e-9], rel=1e-15, abs=0.0
    )
    # There is nothing to complete.
    assert usable_weights([4.0, 0.0], 1).tolist() == [4.0, 0.0]
    assert usable_weights([], 1).tolist() == []
    given = np.array([1.0, -1.0])
    usable_weights(given, 2)
    assert given.tolist() == [1.0, -1.0]


def test_fewer_points_than_clusters_are_refused() -> None:
    with pytest.raises(DataError, match="there are 2 server points, but 3 clusters"):
        weighted_kmeans([[0.0], [1.0]], [1.0, 1.0], 3, n_init=1, seed=0)


def test_equal_points_are_no_error() -> None:
    centers, cost = weighted_kmeans(np.ones((5, 2)), np.ones(5), 3, n_init=2, seed=0)
    assert centers == pytest.approx(np.ones((3, 2)))
    assert cost == pytest.approx(0.0, abs=1e-12)


# -- cost curves -----------------------------------------------------------------------


def test_the_curve_by_hand() -> None:
    points = np.array([[0.0], [2.0], [10.0]])
    costs, centers = cost_curve(points, [1.0, 1.0, 2.0], 3, n_init=5, seed=0)
    # k = 1: mean 5.5, squares 30.25 + 12.25 + 2 * 20.25; k = 2: the pair (0, 2); per
    # weight of 4.
    assert costs == pytest.approx([83.0 / 4.0, 2.0 / 4.0, 0.0], abs=1e-12)
    assert [len(found) for found in centers] == [1, 2, 3]


def test_the_curve_never_rises() -> None:
    """Restarts that end badly for one k must not look like an elbow."""
    points = np.random.default_rng(7).normal(size=(30, 2))
    weights = np.full(30, 0.5)
    costs = [
        weighted_kmeans(points, weights, k, n_init=1, seed=0)[1] for k in range(1, 13)
    ]
    assert (np.diff(costs) > 0.0).any()
    curve, centers = cost_curve(points, weights, 12, n_init=1, seed=0)
    assert np.array_equal(curve, np.minimum.accumulate(costs) / 15.0)
    assert [len(table) for table in centers] == list(range(1, 13))


# -- elbows ----------------------------------------------------------------------------


@pytest.mark.parametrize("bend", range(2, 12))
@pytest.mark.parametrize("flat", [0.0, -0.01, -0.2])
def test_elbows_of_two_straight_lines(bend: int, flat: float) -> None:
    ks = np.arange(1, 13)
    costs = 20.0 - np.minimum(ks, bend) + flat * np.maximum(ks - bend, 0)
    expected = bend if bend < 12 else 11
    assert elbow(costs) == expected
    assert elbow((costs * 1e-6).tolist()) == expected


@pytest.mark.parametrize("seed", range(5))
def test_elbows_survive_a_little_noise(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0.0, 0.02, 15)
    ks = np.arange(1, 16)
    for bend in (3, 6, 10):
        assert (
            elbow(10.0 - np.minimum(ks, bend) - 0.03 * np.maximum(ks - bend, 0) + noise)
            == bend
        )


@pytest.mark.parametrize(
    "costs", [[5.0], [5.0, 1.0], [3.0, 3.0, 3.0], [0.0] * 10, [1.0, 2.0, 3.0]]
)
def test_curves_without_a_bend(costs: list[float]) -> None:
    with np.errstate(all="raise"):  # nothing is divided by 0
        assert elbow(costs) == elbow(costs, n_features=2) == 1


@pytest.mark.parametrize("n_clusters", [2, 3, 5, 7])
def test_far_clusters_are_counted(n_clusters: int) -> None:
    """The curve is straight until each corner of a simplex has its own centre."""
    generator = np.random.default_rng(n_clusters)
    corners = 10.0 * np.eye(n_clusters)
    points = np.repeat(corners, 20, axis=0) + generator.normal(
        0.0, 0.1, (20 * n_clusters, n_clusters)
    )
    costs, centers = cost_curve(points, np.ones(len(points)), 12, n_init=10, seed=0)
    assert elbow(costs) == n_clusters
    nearest = np.linalg.norm(
        centers[n_clusters - 1][:, None] - corners[None], axis=2
    ).min(axis=0)
    assert nearest.max() < 0.2


@pytest.mark.parametrize(
    ("costs", "linear", "beside_pieces"),
    [
        ([8e-3, 3e-3, 1.6e-3, 1e-3, 1e-4, 9.5e-5, 9e-5, 8.5e-5], 3, 5),
        ([8.0, 1.0, 0.5], 2, 2),
        ([1.0, 5.0, 3.0], 1, 1),
        ([8.0, 2.0], 1, 1),
        ([], 1, 1),
        # The chord ends at the last cost, at which alone it is looked whether the curve
        # falls.
        ([1.0, 0.5, 0.18, 0.0], 2, 1),
        # 0.41 below the pieces of one cluster from 2 on, and never above again.
        ([3.0, 1.0, 3.0, 2.0], 2, 2),
        # Zero is a millionth of the largest: log costs plus log k are 2.08, -3.22,
        # -8.11 and -10.35.
        ([8.0, 2e-2, 1e-4, 0.0], 2, 3),
        ([8e-9, 2e-11, 1e-13, 0.0], 2, 3),
        # One cluster in k pieces bends as well.
        ([12.0, 6.0, 4.0, 3.0, 2.4, 2.0], 2, 1),
        # Two that cost 1 / 8 apart, and then their pieces: 2 clusters in k pieces each.
        ([16.0, 2.0, 4 / 3, 1.0, 0.8, 2 / 3], 2, 2),
    ],
)
def test_elbows_by_hand(costs: list[float], linear: int, beside_pieces: int) -> None:
    assert (elbow(costs), elbow(costs, n_features=2)) == (linear, beside_pieces)


@pytest.mark.parametrize(("fall", "found"), [(0.19, 1), (0.21, 2)])
@pytest.mark.parametrize("n_features", [1, 2, 4, 50])
def test_less_than_a_fifth_below_pieces_of_one_cluster_is_one_cluster(
    fall: float, found: int, n_features: int
) -> None:
    costs = [1.0, *(math.exp(-fall) * k ** (-2.0 / n_features) for k in (2, 3, 4))]
    assert elbow(costs, n_features=n_features) == found


@pytest.mark.parametrize(("n_features", "found"), [(2, 1), (4, 1), (10, 2)])
def test_pieces_cost_more_in_more_columns(n_features: int, found: int) -> None:
    # Least of log costs plus 2 / d log k: 0, -0.16 and -0.52, where the curve of 10
    # columns bends at 2.
    assert elbow([1.0, 0.6, 0.5, 0.45], n_features=n_features) == found


@pytest.mark.parametrize(("n_points", "found"), [(math.inf, 19), (60.0, 1)])
def test_few_points_run_out_of_cost_before_their_clusters_do(
    n_points: float, found: int
) -> None:
    """Sixty pieces of sixty points cost nothing: 19 are 0.36 below 1 / 19."""
    costs = [(1.0 / k - 1.0 / 60.0) * (0.9 if k == 19 else 1.0) for k in range(1, 21)]
    assert elbow(costs, n_features=2, n_points=n_points) == found
