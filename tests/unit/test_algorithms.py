"""Rounds of every algorithm: toy examples worked out by hand, and sensitivities by
brute force.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.drafts import draft_of
from support.on_the_grid import grid_points

from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd_noise import (
    cluster_radius,
    split_multiplier,
)
from flwr_dpkmeans.algorithms.lloyd_family.glloyd import glloyd_split
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    ReleasedSum,
    as_released,
    vector_length,
)
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.round import Algorithm, State

Floats = NDArray[np.float64]
GRID = 2.0**16
LLOYD_FAMILY = ("fastlloyd", "glloyd", "lloyd", "sulloyd")


plan_of = partial(
    draft_of, algorithm="fastlloyd", n_examples=1000, max_iter=2, n_clients=2, seed=5
)


def built(n_features: int, **values: Any) -> Algorithm:
    return build_algorithm(plan_of(width=n_features, **values))


def without_noise(arrays: Sequence[Floats], blocks: Sequence[Block]) -> ReleasedSum:
    """A release whose noise happened to be zero."""
    flat = np.concatenate(
        [np.ravel(np.asarray(array, dtype=np.float64)) for array in arrays]
    )
    return as_released(encode(flat).values, blocks, 16)


def state_of(centroids: Any, movements: tuple[float, ...] = ()) -> State:
    array = np.asarray(centroids, dtype=np.float64)
    return cluster_state(array, np.zeros(len(array)), movements)


def on_grid(value: float) -> float:
    return round(value * GRID) / GRID


def one_round(algorithm: Algorithm, index: int, points: Any, state: State) -> State:
    """Statistic, release without noise, advance."""
    private_sum = algorithm.rounds[index - 1]
    arrays = private_sum.statistic(np.asarray(points, dtype=np.float64), state)
    return private_sum.advance(state, without_noise(arrays, private_sum.blocks))


# -- FastLloyd by hand: k = 2 on a line, beta = 2, eta = 0.8 * 2 / (2 * 2) = 0.4 -------

TOY = [[-0.75], [-0.25], [-0.5], [0.75], [1.0], [0.0625]]
START = state_of([[-0.5], [0.5]])


def test_radius_and_split_of_the_toy() -> None:
    assert cluster_radius(0.8, 2, 1) == 0.4
    assert split_multiplier(1.0, 1) == pytest.approx((math.sqrt(1.5), math.sqrt(3.0)))
    for sums, counts in (split_multiplier(1.0, 4), glloyd_split(1.0, 4)):
        assert 1.0 / sums**2 + 1.0 / counts**2 == pytest.approx(1.0)
    assert [planned.radius for planned in built(1).rounds] == [1.0, 0.4]


def test_points_outside_the_radius_are_dropped() -> None:
    sums, counts = built(1).rounds[1].statistic(np.array(TOY), START)
    # 1.0 is 0.5 and 0.0625 is 0.4375 from the centroid at 0.5: both farther than 0.4.
    assert sums.tolist() == [[0.0], [0.25]]
    assert counts.tolist() == [3.0, 1.0]


def test_the_first_radius_of_the_step_schedule_keeps_them() -> None:
    sums, counts = built(1).rounds[0].statistic(np.array(TOY), START)
    assert sums.tolist() == [[0.0], [0.25 + 0.5 - 0.4375]]
    assert counts.tolist() == [3.0, 3.0]
    assert built(1, schedule="constant").rounds[0].statistic(np.array(TOY), START)[
        1
    ].tolist() == [3.0, 1.0]


def test_centroids_move_by_relative_sum_over_count() -> None:
    after = one_round(built(1), 2, TOY, START)
    assert after.centroids.tolist() == [[-0.5], [0.75]]
    assert after.counts.tolist() == [3.0, 1.0]
    assert after.movements == (0.25,)
    first = one_round(built(1), 1, TOY, START)
    assert first.centroids.tolist() == [[-0.5], [on_grid(0.5 + 0.3125 / 3)]]
    assert START.centroids.tolist() == [[-0.5], [0.5]]


def test_two_iterations_in_the_plane() -> None:
    # beta = 2 sqrt(2), eta = 0.8 * 2 sqrt(2) / (2 sqrt(2)) = 0.8.
    algorithm = built(2)
    assert [planned.radius for planned in algorithm.rounds] == [math.sqrt(2.0), 0.8]
    points = [[0.0, 0.5], [0.0, 0.25], [1.0, 1.0], [-1.0, -1.0], [-0.5, -0.75]]
    after = one_round(algorithm, 1, points, state_of([[0.5, 0.5], [-0.5, -0.5]]))
    # All are kept (the corner is sqrt(0.5) away): means of three and of two points.
    assert after.centroids.tolist() == [
        [on_grid(1 / 3), on_grid(1.75 / 3)],
        [-0.75, -0.875],
    ]
    last = one_round(algorithm, 2, points, after)
    # (1, 1) is sqrt(4/9 + 25/144) = 0.786 < 0.8 away and stays.
    assert last.counts.tolist() == [3.0, 2.0]
    assert last.centroids == pytest.approx(after.centroids, abs=1 / GRID)
    assert last.movements[0] == pytest.approx(math.hypot(0.25, 0.375), abs=1e-4)


def test_an_empty_cluster_has_count_zero_and_stays() -> None:
    state = state_of([[-0.5], [0.5], [1.0]])
    for name, values in itertools.product(LLOYD_FAMILY, ({}, {"schedule": "constant"})):
        algorithm = built(1, n_clusters=3, algorithm=name, **values)
        arrays = algorithm.rounds[0].statistic(np.array([[-0.5], [-0.25]]), state)
        assert arrays[1].tolist() == [2.0, 0.0, 0.0]
        after = one_round(algorithm, 1, [[-0.5], [-0.25]], state)
        assert after.centroids.tolist() == [[-0.375], [0.5], [1.0]]
        nobody = algorithm.rounds[0].statistic(np.empty((0, 1)), state)
        assert [array.tolist() for array in nobody] == [[[0.0]] * 3, [0.0] * 3]


def released(
    sums: Any, counts: Any, algorithm: Algorithm, index: int = 2
) -> ReleasedSum:
    return without_noise(
        [np.asarray(sums), np.asarray(counts)], algorithm.rounds[index - 1].blocks
    )


@pytest.mark.parametrize(
    ("post_processing", "clipped", "free"),
    [
        (None, 0.85, 0.375),
        ("fold", 0.85, 0.375),
        ("truncate", 1.0, 1.0),
        ("none", 1.15, 1.625),
    ],
)
def test_steps_are_clipped_and_brought_back_into_the_box(
    post_processing: str | None, clipped: float, free: float
) -> None:
    state = state_of([[0.75], [-0.5]])
    for clipping, expected in ((True, clipped), (False, free)):
        algorithm = built(1, post_processing=post_processing, radius_clipping=clipping)
        after = algorithm.rounds[1].advance(
            state, released([[1.75], [0.25]], [2.0, 1.0], algorithm)
        )
        assert after.centroids.tolist() == [[on_grid(expected)], [-0.25]]


def test_clipping_keeps_the_direction_of_a_step() -> None:
    algorithm = built(2)
    after = algorithm.rounds[1].advance(
        state_of([[0.0, 0.0], [0.5, 0.5]]),
        released([[30.0, 40.0], [0.0, 0.0]], [10.0, 5.0], algorithm),
    )
    assert after.centroids[0] == pytest.approx([0.48, 0.64], abs=1 / GRID)
    assert after.movements == (pytest.approx(0.8, abs=2 / GRID),)


def test_noisy_counts_are_used_whatever_their_sign_and_zero_moves_nothing() -> None:
    algorithm = built(1)
    after = algorithm.rounds[1].advance(
        state_of([[0.25], [0.5]]), released([[0.5], [0.5]], [-2.0, 0.0], algorithm)
    )
    assert after.centroids.tolist() == [[0.0], [0.5]]
    assert after.counts.tolist() == [-2.0, 0.0]


# -- absolute sums by hand -------------------------------------------------------------


@pytest.mark.parametrize("name", ["glloyd", "sulloyd", "lloyd"])
def test_absolute_sums_replace_the_centroid(name: str) -> None:
    algorithm = built(1, algorithm=name)
    sums, counts = algorithm.rounds[0].statistic(np.array(TOY), START)
    assert sums.tolist() == [[-1.5], [1.8125]]
    assert counts.tolist() == [3.0, 3.0]
    after = one_round(algorithm, 1, TOY, START)
    assert after.centroids.tolist() == [[-0.5], [on_grid(1.8125 / 3)]]
    assert after.movements == (pytest.approx(1.8125 / 3 - 0.5, abs=1 / GRID),)
    assert all(planned.radius is None for planned in algorithm.rounds)


@pytest.mark.parametrize("name", ["glloyd", "sulloyd", "lloyd"])
@pytest.mark.parametrize(
    ("post_processing", "expected"),
    [(None, 1.0), ("truncate", 1.0), ("fold", 0.5), ("none", 1.5)],
)
def test_absolute_centroids_outside_the_box(
    name: str, post_processing: str | None, expected: float
) -> None:
    algorithm = built(1, algorithm=name, post_processing=post_processing)
    after = algorithm.rounds[1].advance(
        START, released([[3.0], [0.5]], [2.0, 0.0], algorithm)
    )
    assert after.centroids.tolist() == [[expected], [0.5]]


def test_lloyd_without_noise_is_lloyd() -> None:
    generator = np.random.default_rng(3)
    points = generator.integers(-1024, 1025, (400, 2)) / 1024.0
    algorithm = built(2, algorithm="lloyd", n_clusters=4, max_iter=6)
    state = algorithm.initial_state(5)
    centroids = state.centroids.copy()
    for index in range(1, 7):
        state = one_round(algorithm, index, points, state)
        labels = ((points[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
        means = [
            points[labels == j].mean(axis=0) if (labels == j).any() else centroids[j]
            for j in range(4)
        ]
        centroids = np.rint(np.array(means) * GRID) / GRID
        assert np.array_equal(state.centroids, centroids)
        assert state.counts.tolist() == np.bincount(labels, minlength=4).tolist()


# -- sensitivity by brute force --------------------------------------------------------


def exact_norm_is_within(change: Floats, block: Block) -> bool:
    """Compare in exact arithmetic: on the grid every difference is a fraction."""
    entries = [Fraction(value) for value in np.ravel(change).tolist()]
    bound = Fraction(block.sensitivity.bound)
    if block.sensitivity.norm is Norm.L1:
        return sum(map(abs, entries), Fraction(0)) <= bound
    return sum((entry**2 for entry in entries), Fraction(0)) <= bound**2


def adversarial_rows(
    centroids: Floats, radius: float | None, generator: np.random.Generator
) -> Floats:
    """Corners, walls, centroids, bisectors, points at the radius or a step off."""
    k, d = centroids.shape
    corners = [
        list(corner)
        for corner in itertools.islice(itertools.product((-1.0, 1.0), repeat=d), 16)
    ]
    rows = [*corners, [0.0] * d, *centroids.tolist(), [1.0] + [0.0] * (d - 1)]
    rows += [
        ((centroids[i] + centroids[j]) / 2).tolist() for i in range(k) for j in range(i)
    ]
    reach = radius if radius is not None else 1.0
    for centroid in centroids:
        direction = generator.normal(size=d)
        for length in (reach, reach - 1 / GRID, reach + 1 / GRID):
            rows.append(
                (centroid + direction / np.linalg.norm(direction) * length).tolist()
            )
            rows.append((centroid + np.eye(d)[0] * length).tolist())
            rows.append((centroid + np.ones(d) / math.sqrt(d) * length).tolist())
    return np.rint(np.clip(rows, -1.0, 1.0) * GRID) / GRID


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", LLOYD_FAMILY)
@pytest.mark.parametrize(("k", "d"), [(1, 1), (2, 2), (3, 3), (2, 6)])
def test_adding_or_removing_a_row_never_exceeds_a_bound(
    name: str, k: int, d: int
) -> None:
    generator = np.random.default_rng(100 * k + d)
    data_sets = [np.empty((0, d)), grid_points(generator, 12, d)]
    largest: dict[str, float] = {}
    for corners in (False, True):
        # The step schedule's two rounds have the two radii of FastLloyd; other
        # algorithms' rounds are alike.
        algorithm = built(d, algorithm=name, n_clusters=k)
        centroids = grid_points(generator, k, d)
        if corners:
            centroids = np.where(centroids < 0, -1.0, 1.0)
        state = state_of(centroids)
        for private_sum in algorithm.rounds:
            rows = adversarial_rows(centroids, private_sum.radius, generator)
            rows = np.concatenate([rows, grid_points(generator, 5, d)])
            for points in data_sets:
                base = private_sum.statistic(points, state)
                for row in rows:
                    moved = private_sum.statistic(np.vstack([row, points]), state)
                    for block, before, after in zip(
                        private_sum.blocks, base, moved, strict=True
                    ):
                        change = after - before
                        assert before.shape == block.shape
                        assert exact_norm_is_within(change, block), (
                            block.name,
                            row,
                            change,
                        )
                        assert np.abs(change).max() <= block.entry_bound
                        largest[block.name] = max(
                            largest.get(block.name, 0.0), float(np.abs(change).sum())
                        )
    # The bounds are not empty words: some row comes near each.
    assert all(value > 0.25 for value in largest.values())


@pytest.mark.parametrize("name", LLOYD_FAMILY)
def test_statistics_and_centroids_stay_on_the_grid(name: str) -> None:
    generator = np.random.default_rng(8)
    algorithm = built(3, algorithm=name, n_clusters=4)
    state = algorithm.initial_state(1)
    for private_sum in algorithm.rounds:
        arrays = private_sum.statistic(grid_points(generator, 300, 3), state)
        noise = [generator.normal(0, 20, block.shape) for block in private_sum.blocks]
        noisy = [
            np.rint((a + n) * GRID) / GRID for a, n in zip(arrays, noise, strict=True)
        ]
        state = private_sum.advance(state, without_noise(noisy, private_sum.blocks))
        assert np.array_equal(np.rint(state.centroids * GRID), state.centroids * GRID)
        assert np.abs(state.centroids).max() <= 1.0


# -- start and registry ----------------------------------------------------------------


@pytest.mark.parametrize("name", LLOYD_FAMILY)
def test_start_depends_on_the_seed_only(name: str) -> None:
    plan = plan_of(width=2, algorithm=name, n_clusters=5)
    start = build_algorithm(plan).initial_state(5)
    for other in (
        plan_of(
            width=2,
            algorithm=name,
            n_clusters=5,
            epsilon=9.0,
            noise="seeded",
            random_state=3,
        ),
        plan_of(
            width=2,
            algorithm=name,
            n_clusters=5,
            n_examples=77,
            bounds=((0.0,), (9.0,)),
            max_iter=1,
        ),
        plan_of(
            width=2,
            algorithm=name,
            n_clusters=5,
            schedule="constant",
            alpha=0.3,
            trust="central",
        ),
        replace(plan, run_id=99, n_clients=7),
    ):
        again = build_algorithm(other).initial_state(5)
        assert np.array_equal(again.centroids, start.centroids)
    assert not np.array_equal(
        build_algorithm(plan).initial_state(6).centroids, start.centroids
    )
    assert start.counts.tolist() == [0.0] * 5
    assert start.movements == ()
    assert np.abs(start.centroids).max() <= 1.0


def test_states_with_equal_values_have_equal_digests() -> None:
    state = state_of([[0.5, -0.25]])
    assert state.digest == state_of([[0.5, -0.25]]).digest
    assert state.digest != state_of([[0.5, -0.25 + 1 / GRID]]).digest
    assert state.digest != state_of([[0.5], [-0.25]]).digest
    assert state.digest != cluster_state(state.centroids, np.array([1 / GRID])).digest


def test_unknown_algorithm_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'sulloyd'"):
        algorithm_entry("suloyd")


@pytest.mark.parametrize("name", ["fastlloyd", "glloyd", "sulloyd"])
def test_private_algorithms_need_the_number_of_rows(name: str) -> None:
    plan = replace(plan_of(width=2, algorithm=name), n_examples=None)
    with pytest.raises(
        PlanError, match=f"'{name}' needs the number of rows: declare n_examples"
    ):
        build_algorithm(plan)


def test_registry_says_what_the_rounds_do() -> None:
    for name in LLOYD_FAMILY:
        entry = clusterings()[name]
        algorithm = built(2, algorithm=name)
        assert algorithm.name == name
        assert {
            block.noise for planned in algorithm.rounds for block in planned.blocks
        } == {entry.noise}
        assert [planned.name for planned in algorithm.rounds] == ["lloyd-1", "lloyd-2"]
        assert all(
            vector_length(planned.blocks) == 2 * 2 + 2 for planned in algorithm.rounds
        )
    assert clusterings()["lloyd"].noise is NoiseShape.NONE


@pytest.mark.sample(3)
@pytest.mark.parametrize("post_processing", PostProcessing)
@pytest.mark.parametrize("n_clusters", [1, 3])
def test_rows_count_for_no_more_however_far_from_the_box_centroids_are(
    n_clusters: int, post_processing: PostProcessing
) -> None:
    """Without post-processing they may be 16 times as far out as the box reaches."""
    options = {
        "alpha": 100.0,
        "radius_clipping": False,
        "post_processing": post_processing.value,
    }
    plan = plan_of(width=2, n_clusters=n_clusters, **options)
    step = build_algorithm(plan).rounds[1]
    far = 16.0 if post_processing is PostProcessing.NONE else 1.0
    state = initial_state(plan).changed(centroids=np.full((n_clusters, 2), far))
    blocks = plan.rounds[1].blocks
    shares = check_sensitivity(
        blocks, lambda rows: step.statistic(rows, state), n_features=2
    )
    assert max(shares.values()) <= 1.0
    assert blocks[0].entry_bound == min(step.radius or 0.0, 1.0 + far)
