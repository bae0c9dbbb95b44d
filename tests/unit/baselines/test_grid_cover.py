"""Coverage on grids: by hand, against brute force, and on neighbouring data."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from flwr_dpkmeans.baselines.selection import CoverageSampler, CoverGrid, cover_centres

FloatArray = npt.NDArray[np.float64]


def sampler(rate: float, seed: int = 0) -> CoverageSampler:
    return CoverageSampler(rate, np.random.default_rng(seed).bytes)


def all_coverages(grid: CoverGrid) -> npt.NDArray[np.int64]:
    """How many uncovered points each grid point covers."""
    coverages = np.zeros(grid.n_candidates, dtype=np.int64)
    coverages[grid.keys] = grid.coverage
    return coverages


def brute_force_coverages(
    grid: CoverGrid, points: FloatArray, level: int
) -> npt.NDArray[np.int64]:
    """Cells are half-open boxes; a grid point covers the cells that touch it."""
    vertices = grid.coordinates(list(range(grid.n_candidates)))
    lows = (
        np.minimum(np.floor((points + 1.0) * 2.0**level), 2 ** (level + 1) - 1)
        / 2.0**level
        - 1.0
    )
    above = vertices[:, None] - lows
    inside = ((above == 0.0) | (above == 2.0**-level)).all(axis=2)
    counts: npt.NDArray[np.int64] = inside.sum(axis=1)
    return counts


def adversarial_points(n_components: int, seed: int) -> FloatArray:
    """Points inside cells, on grid points, at walls, in corners; some repeated."""
    generator = np.random.default_rng(seed)
    inside = generator.uniform(-1.0, 1.0, (20, n_components))
    on_grid = generator.integers(-4, 5, (20, n_components)) / 4.0
    corners = np.array([[-1.0] * n_components, [1.0] * n_components] * 3)
    return np.concatenate([inside, on_grid, corners])


def test_a_line_by_hand() -> None:
    grid = CoverGrid(np.array([[-0.9], [-0.1], [-0.2], [0.5], [1.0]]), level=1)
    # Grid points -1, -0.5, 0, 0.5, 1; cells hold 1, 2, 0, 2.
    assert grid.n_candidates == 5
    assert all_coverages(grid).tolist() == [1, 3, 2, 2, 2]
    assert grid.coordinates([0, 3]).tolist() == [[-1.0], [0.5]]


def test_a_chosen_cube_is_taken_out() -> None:
    points = np.array([[-0.9], [-0.1], [-0.2], [0.5], [1.0]])
    grid = CoverGrid(points, level=1)
    assert (
        grid.choose(sampler(60.0)) == 1
    )  # the largest coverage, at a rate that leaves no doubt
    assert all_coverages(grid).tolist() == [0, 0, 0, 2, 2]
    assert grid.covered_points().tolist() == [True, True, True, False, False]


@pytest.mark.parametrize(("n_components", "level"), [(1, 3), (2, 2), (3, 0), (3, 1)])
def test_coverages_equal_brute_force_before_and_after_choices(
    n_components: int, level: int
) -> None:
    points = adversarial_points(n_components, seed=level)
    grid = CoverGrid(points, level)
    assert np.array_equal(
        all_coverages(grid), brute_force_coverages(grid, points, level)
    )
    draws = sampler(0.3)
    for _ in range(4):
        grid.choose(draws)
        left = points[~grid.covered_points()]
        assert np.array_equal(
            all_coverages(grid), brute_force_coverages(grid, left, level)
        )


@pytest.mark.parametrize(("n_components", "level"), [(1, 2), (2, 1), (3, 1)])
def test_one_record_moves_each_coverage_by_at_most_one(
    n_components: int, level: int
) -> None:
    points = adversarial_points(n_components, seed=7)
    full = all_coverages(CoverGrid(points, level))
    for i in range(len(points)):
        change = full - all_coverages(CoverGrid(np.delete(points, i, axis=0), level))
        # The corners of the record's cell, wherever the other records are.
        assert set(np.unique(change)) == {0, 1}
        assert change.sum() == 2**n_components
        alone = all_coverages(CoverGrid(points[i : i + 1], level))
        assert np.array_equal(change, alone)


def test_after_the_same_choices_neighbours_differ_by_one_or_not_at_all() -> None:
    points = adversarial_points(2, seed=3)
    full, fewer = CoverGrid(points, 1), CoverGrid(points[:-1], 1)
    for key in (12, 24, 0, 6, 18):
        full._cover(key)
        fewer._cover(key)
        change = all_coverages(full) - all_coverages(fewer)
        covered = bool(full.covered_points()[-1])
        assert set(np.unique(change)) == ({0} if covered else {0, 1})


def test_candidates_without_coverage_are_counted_and_drawn_uniformly() -> None:
    points = np.array([[0.1, 0.1], [0.1, 0.2]])
    # At this rate all 25 candidates weigh nearly the same, be they covering (4) or not
    # (21).
    draws = sampler(2.0**-16)
    drawn = [CoverGrid(points, level=1).choose(draws) for _ in range(3000)]
    counts = np.bincount(drawn, minlength=25)
    assert counts.min() > 120 - 5 * 11
    assert counts.max() < 120 + 5 * 11


def test_no_candidate_is_chosen_twice_and_all_can_be_chosen() -> None:
    grid = CoverGrid(np.array([[0.3, -0.3]]), level=0)
    draws = sampler(0.5)
    assert sorted(grid.choose(draws) for _ in range(9)) == list(range(9))


class Counting(CoverageSampler):
    """Notes among how many candidates it draws."""

    n_candidates: list[int]

    def draw_coverage(self, histogram: npt.NDArray[np.int64], n_uncovering: int) -> int:
        self.n_candidates.append(int(histogram[1:].sum()) + n_uncovering)
        return super().draw_coverage(histogram, n_uncovering)


def test_the_classes_add_up_to_all_candidates() -> None:
    grid = CoverGrid(adversarial_points(2, seed=0), level=2)
    draws = Counting(1.0, np.random.default_rng(0).bytes)
    draws.n_candidates = []
    for _ in range(20):
        grid.choose(draws)
    # All grid points but those chosen before: a number that no record changes.
    assert draws.n_candidates == [81 - i for i in range(20)]


def test_a_large_grid_is_not_listed() -> None:
    grid = CoverGrid(np.zeros((3, 8)), level=6)
    assert grid.n_candidates == 129**8
    key = grid.choose(sampler(2.0**-16))
    assert 0 <= key < 129**8
    assert np.abs(grid.coordinates([key])).max() <= 1.0


def test_levels_are_one_sequence_and_centres_are_distinct() -> None:
    clusters = np.repeat([[-0.625, -0.625], [0.625, 0.625]], 500, axis=0)
    centres = cover_centres(clusters, n_choices=2, n_levels=4, sampler=sampler(1.0))
    # The finest level, spacing 1/8, covers both clusters; later levels find no
    # uncovered point.
    nearest = np.abs(clusters[:, None] - centres).max(axis=2).min(axis=1)
    assert nearest.max() <= 0.125
    assert len(np.unique(centres, axis=0)) == len(centres)


def test_points_covered_on_a_finer_level_no_longer_count_on_a_coarser_one() -> None:
    points = np.array([[-0.75]] * 500 + [[0.75]] * 300)
    centres = cover_centres(points, n_choices=1, n_levels=2, sampler=sampler(60.0))
    # Spacing 1/2 takes -1 or -0.5, the larger cluster; were it counted again, spacing 1
    # would take -1 or 0 for it.
    assert centres[0, 0] in (-1.0, -0.5)
    assert centres[1, 0] in (0.0, 1.0)
    more = [
        cover_centres(points, 1, 2, sampler(60.0, seed))[1, 0] for seed in range(20)
    ]
    assert set(more) == {0.0, 1.0}


def test_more_choices_than_candidates() -> None:
    centres = cover_centres(
        np.array([[0.2]]), n_choices=50, n_levels=2, sampler=sampler(1.0)
    )
    assert np.sort(centres[:, 0]).tolist() == list(
        itertools.accumulate([-1.0, 0.5, 0.5, 0.5, 0.5])
    )
