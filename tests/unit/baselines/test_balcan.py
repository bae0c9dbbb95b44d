"""Balcan et al.'s clustering: what one row moves, what each draw costs, and what is
found.
"""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.watching import calls_of

from flwr_dpkmeans.baselines import MaxCoverResult, balcan
from flwr_dpkmeans.baselines.balcan import (
    draft_search,
    draw,
    exact_distances,
    local_search,
    scores,
    swap_costs,
    tree_centres,
)
from flwr_dpkmeans.baselines.cover_points import Draws
from flwr_dpkmeans.baselines.selection import CoverageSampler
from flwr_dpkmeans.errors import DataError, LocalMisuseError, PlanError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.noise import SecureNoise, SeededNoise
from flwr_dpkmeans.privacy.release import GaussianRelease, PureRelease

FloatArray = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
ALL = 10**9


def run(
    points: Any, n_clusters: int, seed: int = 0, epsilon: float = 1.0, **more: Any
) -> MaxCoverResult:
    generator = np.random.default_rng(seed)
    source = more.pop("source", SeededNoise(generator))
    draws = Draws(source, more.pop("generator", generator))
    arguments = {"delta": 1e-6, "draws": draws, **more}
    return balcan(points, n_clusters, epsilon=epsilon, **arguments)


def clusters(n: int = 9000, width: int = 3) -> FloatArray:
    generator = np.random.default_rng(1)
    centres = np.array([[-0.6] * width, [0.6] * width, [0.6, *[-0.6] * (width - 1)]])
    return np.asarray(
        centres[generator.integers(0, 3, n)]
        + 0.05 * generator.standard_normal((n, width))
    )


class Script(SeededNoise):
    """Constant "noise" on each level; it remembers what was asked for."""

    def __init__(self, levels: list[int]) -> None:
        super().__init__(np.random.default_rng(0))
        self.levels = iter(levels)
        self.asked: list[tuple[str, float, int]] = []

    def discrete_laplace(self, scale: float, size: int) -> Integers:
        self.asked.append(("laplace", scale, size))
        return np.full(size, next(self.levels, -ALL), dtype=np.int64)


class Recorded(SeededNoise):
    """Seeded noise that remembers what was asked for."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))
        self.asked: list[tuple[str, float, int]] = []

    def _draw(self, family: str, scale: float, size: int) -> Integers:
        self.asked.append((family, scale, size))
        return super()._draw(family, scale, size)


def level_counts(
    points: FloatArray, level: int, n_levels: int, shift: FloatArray
) -> dict[tuple[float, ...], int]:
    """Rows in each cell of a level, told from outside."""
    found: dict[tuple[float, ...], int] = {}
    for least in range(1, len(points) + 1):
        # With one declared row the threshold is 0; all cells above the level are full.
        script = Script([ALL] * (level - 1) + [1 - least])
        centres = tree_centres(points, n_levels, 7.0, 1, shift, script)
        above = sum(2 ** (upper * points.shape[1]) for upper in range(level))
        for cell in centres[above:]:
            found[tuple(cell)] = least
    return found


@pytest.mark.parametrize("width", [1, 2])
def test_one_row_is_in_one_cell_of_each_level_and_counts_show_it(width: int) -> None:
    generator = np.random.default_rng(width)
    points = round_to_grid(generator.uniform(-1.0, 1.0, (5, width)))
    points[0], points[1] = 1.0, -1.0  # corners
    shift = round_to_grid(generator.uniform(-1.0, 1.0, width))
    for level in (1, 2, 3):
        everybody = level_counts(points, level, 3, shift)
        assert sum(everybody.values()) == 5
        for centre, n in everybody.items():
            inside = (np.abs(points - np.array(centre)) <= 2.0 ** (1 - level)).all(
                axis=1
            )
            assert inside.sum() >= n
        for left_out in range(5):
            others = level_counts(np.delete(points, left_out, axis=0), level, 3, shift)
            moved = [
                abs(everybody.get(cell, 0) - others.get(cell, 0))
                for cell in {*everybody, *others}
            ]
            assert sum(moved) == 1


def test_empty_cells_are_counted_like_others() -> None:
    script = Script([ALL, ALL])
    assert (
        len(tree_centres(np.zeros((0, 2)), 2, 1.0, 100, np.zeros(2), script))
        == 1 + 4 + 16
    )
    assert [size for _, _, size in script.asked] == [4, 16]


def test_a_cell_is_full_above_two_log_n_scales() -> None:
    points = np.repeat([[0.25], [-0.75]], [30, 29], axis=0)
    threshold = 2.0 * math.log(50) * 3.77
    assert 29 < threshold < 30
    assert tree_centres(
        points, 2, 3.77, 50, np.zeros(1), Script([0, 0])
    ).ravel().tolist() == [0.0, 1.0, 0.5]


def sequences(
    points: FloatArray, candidates: FloatArray, start: Integers, rate: float
) -> dict[tuple[int, ...], float]:
    """Probability of every sequence of swaps and chosen state."""
    distances = exact_distances(points, candidates)
    found: dict[tuple[int, ...], float] = {}

    def walk(
        history: tuple[int, ...],
        chosen: Integers,
        costs: tuple[int, ...],
        probability: float,
    ) -> None:
        last = len(costs) == len(start)
        found_costs = np.array(costs) if last else swap_costs(distances, chosen).ravel()
        drawn = scores(found_costs, points.shape[1])
        weights = np.exp(-rate * (drawn - drawn.min()))
        for index, share in enumerate(weights / weights.sum()):
            if last:
                found[*history, index] = probability * share
                continue
            place, candidate = divmod(index, len(candidates))
            following = chosen.copy()
            following[place] = candidate
            cost = int(swap_costs(distances, chosen)[place, candidate])
            walk((*history, index), following, (*costs, cost), probability * share)

    walk((), start, (), 1.0)
    return found


@pytest.mark.parametrize(("rate", "width"), [(0.02, 1), (0.3, 1), (0.3, 2)])
def test_no_draw_costs_more_than_its_price_between_neighbours(
    rate: float, width: int
) -> None:
    candidates = np.array(list(itertools.product((-1.0, 0.25, 1.0), repeat=width)))[:5]
    start = np.array([1, 2])
    price, worst = 4.0 * rate * (len(start) + 1), 0.0
    generator = np.random.default_rng(0)
    for _ in range(6):
        points = np.concatenate(
            [
                np.full((1, width), 1.0),
                round_to_grid(generator.uniform(-1, 1, (3, width))),
            ]
        )
        more = sequences(points, candidates, start, rate)
        less = sequences(points[1:], candidates, start, rate)
        assert more.keys() == less.keys()
        worst = max(worst, *(abs(math.log(more[one] / less[one])) for one in more))
    assert 0.3 * price < worst <= price * (1.0 + 1e-9)


def test_one_more_row_raises_every_score_by_no_more_than_four() -> None:
    generator = np.random.default_rng(3)
    for width in (1, 3, 5):
        candidates = round_to_grid(generator.choice([-1.0, -0.3, 1.0], (12, width)))
        points = round_to_grid(generator.uniform(-1.0, 1.0, (40, width)))
        points[:8] = generator.choice([-1.0, 1.0], (8, width))
        chosen = generator.integers(0, 12, 4)
        whole = scores(swap_costs(exact_distances(points, candidates), chosen), width)
        largest = 0
        for one in range(len(points)):
            others = exact_distances(np.delete(points, one, axis=0), candidates)
            moved = whole - scores(swap_costs(others, chosen), width)
            assert moved.min() >= 0
            largest = max(largest, int(moved.max()))
        assert largest <= 4
        assert width > 1 or largest == 4


def test_costs_of_swaps_are_those_of_each_set_of_centres() -> None:
    generator = np.random.default_rng(2)
    points, candidates = (
        round_to_grid(generator.uniform(-1.0, 1.0, (n, 3))) for n in (50, 7)
    )
    distances = exact_distances(points, candidates)
    exact = np.square(points[:, None] - candidates).sum(axis=2)
    assert distances == pytest.approx(exact * 2.0**20, abs=1.0)
    assert (distances <= exact * 2.0**20).all()
    for chosen in (np.array([3]), np.array([0, 5, 5, 2])):
        found = swap_costs(distances, chosen)
        for place, candidate in itertools.product(range(len(chosen)), range(7)):
            swapped = chosen.copy()
            swapped[place] = candidate
            assert found[place, candidate] == distances[:, swapped].min(axis=1).sum()


def test_likely_scores_are_the_low_ones() -> None:
    sampler = CoverageSampler(math.log(2.0), np.random.default_rng(1).bytes)
    draws = [draw(np.array([7, 5, 6, 5, 600]), sampler) for _ in range(8000)]
    # Weights 1/4, 1, 1/2, 1 and next to nothing.
    assert np.bincount(draws, minlength=5) / 8000.0 == pytest.approx(
        np.array([1, 4, 2, 4, 0]) / 11.0, abs=0.02
    )


def test_a_search_at_no_noise_finds_the_best_swaps() -> None:
    points = np.repeat([[-0.75], [0.5], [0.75]], [40, 30, 10], axis=0)
    candidates = np.array([[-0.75], [-0.5], [0.0], [0.5], [1.0]])
    sampler = CoverageSampler(20.0, np.random.default_rng(1).bytes)
    found = local_search(
        exact_distances(points, candidates), np.array([1, 2]), 1, sampler
    )
    assert sorted(found.tolist()) == [0, 3]


def test_all_lines_together_cost_the_request_and_say_how() -> None:
    lines = draft_search(
        1.0, 1e-6, radius=10.0, n_clusters=30, n_features=100, n_levels=7
    )
    events = [line.event for line in lines]
    assert 0.999 < compose_epsilon(events, 1e-6) <= 1.0
    for line, (bound, row) in zip(lines, [(21.0, "S32"), (84.0, "S33")], strict=False):
        assert isinstance(line.event, PureRelease)
        assert line.sensitivity == bound
        assert line.noise_scale * line.event.epsilon >= bound
        assert f"[{row}, " in line.theorem
    assert [line.noise for line in lines] == ["laplace", "exponential mechanism"] + [
        "gaussian"
    ] * 4
    for line in lines[2:]:
        assert isinstance(line.event, GaussianRelease)
        assert line.noise_scale >= line.event.noise_multiplier * line.sensitivity
    assert sum(event.closeness.additive for event in events) >= 21 * 2.0**-100


def test_the_noise_that_is_drawn_is_the_noise_that_is_declared() -> None:
    source = Recorded()
    with (
        calls_of(CoverageSampler.__init__) as made,
        calls_of(CoverageSampler.draw_coverage) as draws,
    ):
        result = run(clusters(), 3, source=source)
    cells, search, *noisy = result.lines
    laplace = [scale for family, scale, _ in source.asked if family == "laplace"]
    gaussian = [scale for family, scale, _ in source.asked if family == "gaussian"]
    assert set(laplace) == {cells.noise_scale}
    # No more levels than are priced, in no more trees.
    assert len(laplace) <= cells.sensitivity
    assert [call.arguments["rate"] for call in made] == [1.0 / search.noise_scale]
    assert 4 * len(draws) == search.sensitivity
    assert gaussian == pytest.approx([line.noise_scale * 2.0**24 for line in noisy])


def test_clear_clusters_are_found_and_seeds_repeat() -> None:
    points = clusters()
    centres = np.array(
        [
            points[np.abs(points - one).max(axis=1) < 0.4].mean(axis=0)
            for one in points[:40]
        ]
    )
    first, again, other = (
        run(points, 3, epsilon=4.0),
        run(points, 3, epsilon=4.0),
        run(points, 3, 1, epsilon=4.0),
    )
    assert (
        np.linalg.norm(first.centroids[:, None] - centres, axis=2).min(axis=0).max()
        < 0.1
    )
    assert first.counts.sum() == pytest.approx(9000, rel=0.05)
    assert np.array_equal(first.centroids, again.centroids)
    assert not np.array_equal(first.centroids, other.centroids)
    secure = [run(points, 3, source=SecureNoise()).counts for _ in range(2)]
    assert not np.array_equal(*secure)


def test_few_full_cells_and_little_budget_end_well() -> None:
    # Noise this large fills no cell: candidates are the three roots and uniform points.
    result = run(np.full((20, 4), 0.5), 9, epsilon=0.3)
    assert result.centroids.shape == (9, 4)
    assert np.abs(result.centroids).max() <= 1.0
    unasked = Script([])
    with pytest.raises(PlanError, match="the rate of the selections is"):
        run(clusters(50), 3, epsilon=1e-3, source=unasked)
    assert unasked.asked == []  # nothing was released before
    # Noise of less than a step is not drawn.
    assert run(clusters(300), 3, epsilon=50.0).lines[0].noise_scale == 1.0


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"n_clusters": 41}, DataError, "but it must be at least n_clusters = 41"),
        ({"epsilon": -1.0}, LocalMisuseError, "epsilon is -1.0"),
        ({"generator": 3, "source": SecureNoise()}, LocalMisuseError,
         "generator is of type 'int'"),
        ({"points": [[np.nan, 0.0, 0.0]] * 40}, DataError, "of 40 rows are not finite"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(
    change: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    arguments: dict[str, Any] = {"points": np.zeros((40, 3)), "n_clusters": 2, **change}
    with pytest.raises(error, match=sentence):
        run(**arguments)


def test_seven_levels_are_those_of_the_public_code() -> None:
    assert inspect.signature(balcan).parameters["n_levels"].default == 7
