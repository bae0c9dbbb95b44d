"""What a round of residuals cuts: sums of the excess by hand, their bound by brute
force, and what is made of them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.on_the_grid import on_grid

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kmeans.residuals.excess_sums import excess_sums
from flwr_dpkmeans.kmeans.tails import beyond_radius, shell_lengths

Floats = NDArray[np.float64]
GRID = 2.0**16


def test_shells_reach_from_the_radius_to_the_farthest_by_one_factor() -> None:
    lengths = shell_lengths(np.array([0.25, 1.0]), 4, 2.0)
    assert lengths == pytest.approx(
        np.array([[0.25, 0.5, 1.0, 2.0], [1.0, 2 ** (1 / 3), 2 ** (2 / 3), 2.0]])
    )
    assert shell_lengths(np.array([0.25]), 1, 2.0).tolist() == [[2.0]]


@pytest.mark.parametrize("radius", [-1.0, 0.0, 1e-9, 5.0])
def test_shells_have_lengths_whatever_the_radius_is(radius: float) -> None:
    lengths = shell_lengths(np.array([radius]), 5, 3.0)
    assert (lengths > 0.0).all()
    assert (np.diff(lengths) >= 0.0).all()
    assert lengths[0, -1] == 3.0


def test_sums_of_the_excess_by_hand() -> None:
    """Radius 1/4, shells to 1/4, 1/2 and 2: rows within it add nothing."""
    lengths, radii = np.array([[0.25, 0.5, 2.0]] * 2), np.array([0.25, 0.25])
    centers = np.array([[-0.5, 0.0], [0.5, 0.0]])
    rows = np.array(
        [[-0.5, 0.25], [-0.5, 0.375], [0.5, -0.875], [0.5, 1.0], [0.75, 0.0]]
    )
    sums = excess_sums(
        rows, np.array([0, 0, 1, 1, 1], dtype=np.int32), centers, radii, lengths, 3
    )
    # Excesses of 1/8 up in the first shell, 5/8 down and 3/4 up in the third.
    expected = np.zeros((3, 3, 2))
    expected[0, 0, 1], expected[1, 2, 1] = 0.5, (0.75 - 0.625) / 2.0
    assert sums.reshape(3, 3, 2) == pytest.approx(expected, abs=2 / GRID)


@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 5),
    k=st.integers(1, 4),
    n_shells=st.integers(1, 6),
    radius=st.sampled_from([-1.0, 0.0, 2.0**-16, 0.01, 0.3, 2.0, 100.0]),
)
@settings(max_examples=150, deadline=None)
def test_one_row_adds_one_vector_of_length_at_most_1_whatever_was_released(
    seed: int, d: int, k: int, n_shells: int, radius: float
) -> None:
    """By brute force: with and without each row."""
    generator = np.random.default_rng(seed)
    rows = on_grid(
        generator.choice([-1.0, 1.0, 0.0], (8, d))
        * generator.random((8, d)) ** generator.integers(0, 3)
    )
    centers = on_grid(generator.uniform(-2.0, 2.0, (k, d)))
    radii = radius * generator.uniform(0.5, 1.0, k)
    lengths = shell_lengths(radii, n_shells, 2.0 * math.sqrt(d))
    labels = nearest_centroids(rows, centers)[0]
    whole = excess_sums(rows, labels, centers, radii, lengths, k + 1)
    assert np.isfinite(whole).all()
    assert (whole * GRID == np.rint(whole * GRID)).all()
    for row in range(len(rows)):
        others = np.delete(np.arange(len(rows)), row)
        moved = whole - excess_sums(
            rows[others], labels[others], centers, radii, lengths, k + 1
        )
        assert np.square(moved).sum() <= 1.0
        assert np.count_nonzero(moved.reshape(-1, d).any(axis=1)) <= 1


def test_pulled_residuals_and_their_excess_are_the_residuals() -> None:
    generator = np.random.default_rng(1)
    rows = on_grid(np.clip(generator.standard_t(2, (500, 3)) * 0.1, -1.0, 1.0))
    center, radius, farthest = np.zeros((1, 3)), np.array([0.125]), 2.0 * math.sqrt(3.0)
    lengths = shell_lengths(radius, 5, farthest)
    sums = excess_sums(
        rows, np.zeros(500, dtype=np.int32), center, radius, lengths, 1
    ).reshape(5, 3)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    pulled = rows * np.minimum(1.0, radius / np.maximum(norms, 1e-12))
    assert pulled.sum(axis=0) + lengths[0] @ sums == pytest.approx(
        rows.sum(axis=0), abs=500 * 4 / GRID
    )


def test_no_centers_are_refused() -> None:
    with pytest.raises(DataError, match="there are 0 centers"):
        excess_sums(
            np.zeros((1, 2)), np.zeros(1, dtype=np.int32), np.zeros((0, 2)),
            np.zeros(0), np.ones((0, 2)), 3,
        )  # fmt: skip


LENGTHS = shell_lengths(np.full(3, 0.25), 5, 2.0)
COUNTS = np.full(3, 1_000.0)


def test_a_tail_without_noise_is_added_whole() -> None:
    sums = np.array([100.0, 40.0, 15.0, 5.0, 1.0])[None, :, None] * np.ones((3, 1, 2))
    more, deviation = beyond_radius(sums, LENGTHS, COUNTS, 1e-6)
    assert more == pytest.approx(
        np.full((3, 2), LENGTHS[0] @ sums[0, :, 0] / 1_000.0), rel=1e-6
    )
    assert deviation.max() < 1e-6


def test_noise_of_far_shells_is_not_added_to_clusters_without_a_tail() -> None:
    """All shells together would have thirty times the noise of the first one."""
    generator = np.random.default_rng(0)
    errors, deviations = [], []
    for _ in range(200):
        more, deviation = beyond_radius(
            generator.normal(0.0, 20.0, (3, 5, 2)), LENGTHS, COUNTS, 20.0
        )
        errors.append(more)
        deviations.append(deviation)
    scatter = float(np.std(errors))
    assert scatter < 2.0 * 20.0 * 0.25 / 1_000.0
    assert scatter < float(np.median(deviations))


def test_what_is_left_unsure_holds_a_tail_that_falls() -> None:
    generator = np.random.default_rng(0)
    tail = np.array([60.0, 30.0, 12.0, 4.0, 1.0])[None, :, None] * np.ones((3, 1, 2))
    exact = LENGTHS[0] @ tail[0, :, 0] / 1_000.0
    covered = []
    for _ in range(200):
        more, deviation = beyond_radius(
            tail + generator.normal(0.0, 15.0, tail.shape), LENGTHS, COUNTS, 15.0
        )
        covered.append(np.abs(more - exact) <= 1.96 * deviation)
    assert np.mean(covered) > 0.85


def test_one_far_shell_is_heard_alone() -> None:
    """A flag that few rows have lies beyond empty shells."""
    sums = np.zeros((3, 5, 2))
    sums[:, 4, 1] = 40.0
    more, _ = beyond_radius(sums, LENGTHS, COUNTS, 5.0)
    assert more[:, 1] == pytest.approx(np.full(3, 0.08), rel=0.1)
    assert np.abs(more[:, 0]).max() == 0.0


def test_faint_shells_on_one_side_are_heard_together() -> None:
    """Each alone is below what noise reaches, and on both sides nothing is heard."""
    lengths, counts = shell_lengths(np.array([0.25]), 5, 2.0), np.array([1_000.0])
    scores = np.array([2.2, 2.2, 2.2, 2.2, 2.2])
    one_side, _ = beyond_radius(10.0 * scores[None, :, None], lengths, counts, 10.0)
    signs = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    both_sides, _ = beyond_radius(
        10.0 * (signs * scores)[None, :, None], lengths, counts, 10.0
    )
    assert one_side[0, 0] > 2.0 * abs(both_sides[0, 0])


def test_noise_hides_more_in_clusters_that_are_full_up_to_their_radius() -> None:
    sums = np.zeros((3, 5, 2))
    _, full = beyond_radius(sums, LENGTHS, COUNTS, 20.0, np.full(3, 0.95))
    _, ending = beyond_radius(sums, LENGTHS, COUNTS, 20.0, np.full(3, 0.3))
    assert (full > 3.0 * ending).all()


@pytest.mark.parametrize("fullness", [-1.0, 0.0, 1e-9, 0.5, 1.0, 50.0])
def test_any_fullness_gives_a_finite_error(fullness: float) -> None:
    sums = np.zeros((3, 5, 2))
    more, deviation = beyond_radius(sums, LENGTHS, COUNTS, 5.0, np.full(3, fullness))
    assert np.isfinite(more).all()
    assert np.isfinite(deviation).all()
