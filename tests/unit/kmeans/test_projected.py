"""What a FedDP-KMeans client sums, on toys that can be checked by hand and by slow
code.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.limits import SetLimits
from support.on_the_grid import on_grid

from flwr_dpkmeans.kernels import grid, outer_products
from flwr_dpkmeans.kernels.outer_products import outer_product_triangle, triangle_size
from flwr_dpkmeans.kernels.projected_labels import clear_labels, nearest_projected
from flwr_dpkmeans.kernels.projected_sums import (
    clipped_together,
    means_and_indicators,
    sums_and_counts,
)
from flwr_dpkmeans.kernels.triangles import (
    rounded_triangle,
    symmetric_from_triangle,
    triangle_of,
)
from flwr_dpkmeans.kmeans import projected
from flwr_dpkmeans.kmeans.eigenvectors import with_positive_peaks
from flwr_dpkmeans.kmeans.projected import (
    leading_eigenvectors,
    shrink_to_server,
    standing_out,
)

Floats = NDArray[np.float64]
GRID = 2.0**16
STEP = 1.0 / GRID


# -- outer products --------------------------------------------------------------------


def test_outer_products_by_hand() -> None:
    rows = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 4.0]])
    # Sums of squares 1.25, 5, 16; of products 1.5, 2, -4.
    root = math.sqrt(2.0)
    expected = [1.25, 1.5 * root, 2.0 * root, 5.0, -4.0 * root, 16.0]
    assert outer_product_triangle(rows) == pytest.approx(np.array(expected), rel=1e-15)
    assert [triangle_size(d) for d in (1, 2, 3, 100)] == [1, 3, 6, 5050]
    assert outer_product_triangle(np.empty((0, 2))).tolist() == [0.0, 0.0, 0.0]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 20), d=st.integers(1, 9))
def test_triangles_and_matrices_are_the_same_thing(seed: int, n: int, d: int) -> None:
    rows = on_grid(np.random.default_rng(seed).uniform(-1.0, 1.0, (n, d)))
    triangle = outer_product_triangle(rows)
    matrix = symmetric_from_triangle(triangle, d)
    assert triangle.shape == (triangle_size(d),)
    assert np.array_equal(matrix, matrix.T)
    assert matrix == pytest.approx(
        sum((np.outer(row, row) for row in rows), np.zeros((d, d))), abs=1e-12
    )
    # The vector's Euclidean norm is the matrix's Frobenius norm; of one row it is its
    # squared length.
    assert np.linalg.norm(triangle) == pytest.approx(
        np.linalg.norm(matrix), rel=1e-12, abs=1e-12
    )
    for row in rows[:1]:
        assert np.linalg.norm(outer_product_triangle(row[None])) == pytest.approx(
            float(row @ row), rel=1e-12
        )


@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_any_triangle_becomes_a_symmetric_matrix_of_its_norm(d: int) -> None:
    """Noise is not an outer product: an isometry must hold for all vectors."""
    generator = np.random.default_rng(d)
    for _ in range(5):
        triangle = generator.normal(size=triangle_size(d))
        matrix = symmetric_from_triangle(triangle, d)
        assert np.array_equal(matrix, matrix.T)
        assert np.linalg.norm(matrix) == pytest.approx(
            np.linalg.norm(triangle), rel=1e-12
        )
    unit = np.zeros(triangle_size(d))
    unit[0] = 1.0
    assert symmetric_from_triangle(unit, d)[0, 0] == 1.0
    if d > 1:
        unit = np.roll(unit, 1)
        assert symmetric_from_triangle(unit, d)[0, 1] == pytest.approx(1 / math.sqrt(2))


# -- eigenvectors ----------------------------------------------------------------------


def test_eigenvectors_by_hand() -> None:
    matrix = np.diag([2.0, 5.0, -7.0])
    # Largest, not of largest magnitude: noise makes eigenvalues negative.
    assert leading_eigenvectors(matrix, 2).tolist() == [
        [0.0, 1.0],
        [1.0, 0.0],
        [0.0, 0.0],
    ]
    # What is rounded to zero from below is the same zero.
    assert not np.signbit(
        leading_eigenvectors(np.array([[1.0, -1e-7], [-1e-7, 0.0]]), 1)
    ).any()
    half = on_grid(np.array([math.sqrt(0.5)]))[0]
    assert leading_eigenvectors(np.array([[0.0, 3.0], [3.0, 0.0]]), 1).tolist() == [
        [half],
        [half],
    ]
    # Here the two entries of the leading eigenvector have opposite signs, and either
    # may be the larger one.
    assert np.abs(
        leading_eigenvectors(np.array([[0.0, -3.0], [-3.0, 0.0]]), 1)
    ).tolist() == [[half], [half]]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 8))
def test_the_largest_entry_of_an_eigenvector_is_positive(seed: int, d: int) -> None:
    generator = np.random.default_rng(seed)
    frame = np.linalg.qr(generator.normal(size=(d, d)))[0]
    values = np.arange(d, 0.0, -1.0) * 3.0
    n_components = int(generator.integers(1, d + 1))
    found = leading_eigenvectors((frame * values) @ frame.T, n_components)
    assert found.shape == (d, n_components)
    assert np.array_equal(np.rint(found * GRID), found * GRID)
    assert not np.signbit(found[found == 0.0]).any()
    for column, true in zip(found.T, frame.T, strict=False):
        largest = np.abs(column).argmax()
        assert column[largest] > 0.0
        assert abs(column @ true) == pytest.approx(1.0, abs=d * STEP)
    assert found.T @ found == pytest.approx(np.eye(n_components), abs=2 * d * STEP)


def test_signs_do_not_depend_on_the_machine() -> None:
    """LAPACK may return v or -v: what is used must be the same."""
    matrix = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.5]])
    vectors = leading_eigenvectors(matrix, 3)
    peaks = np.abs(vectors).argmax(axis=0)
    assert (vectors[peaks, range(3)] > 0.0).all()
    for signs in itertools.product([1.0, -1.0], repeat=3):
        turned = with_positive_peaks(vectors * np.array(signs)) + 0.0
        assert np.array_equal(vectors, turned)


# -- labels ----------------------------------------------------------------------------


def slow_labels(points: Floats, projection: Floats, centers: Floats) -> list[int]:
    """In exact fractions; ties to the first."""
    labels = []
    for point in points:
        place = [
            sum(Fraction(x) * Fraction(p) for x, p in zip(point, column, strict=True))
            for column in projection.T
        ]
        distances = [
            sum((a - Fraction(c)) ** 2 for a, c in zip(place, center, strict=True))
            for center in centers
        ]
        labels.append(distances.index(min(distances)))
    return labels


def test_labels_by_hand() -> None:
    points = np.array([[0.0, 0.9], [0.6, -0.9], [0.5, 0.0], [-1.0, 1.0]])
    first = np.array([[1.0], [0.0]])
    # Only the first coordinate counts; 0.5 is as far from 0 as from 1 and goes to the
    # first centre.
    assert nearest_projected(points, first, np.array([[0.0], [1.0]])).tolist() == [
        0, 1, 0, 0,
    ]  # fmt: skip
    assert nearest_projected(
        points, np.eye(2), np.array([[0.0, 1.0], [1.0, -0.5]])
    ).tolist() == [0, 1, 1, 0]
    assert nearest_projected(np.empty((0, 2)), first, np.array([[0.0]])).tolist() == []


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 4),
    c=st.integers(1, 6),
    coarse=st.booleans(),
)
def test_labels_are_those_of_exact_arithmetic(
    seed: int, d: int, c: int, coarse: bool
) -> None:
    """All is on the grid, so nothing is rounded; ties go to the first."""
    generator = np.random.default_rng(seed)
    cut = (lambda x: np.rint(x * 4) / 4) if coarse else on_grid
    columns = int(generator.integers(1, d + 1))
    points = cut(generator.uniform(-1, 1, (12, d)))
    projection = cut(generator.uniform(-1, 1, (d, columns)))
    centers = cut(generator.uniform(-1, 1, (c, columns)))
    labels = nearest_projected(points, projection, centers)
    assert labels.tolist() == slow_labels(points, projection, centers)
    assert labels.dtype == np.int32


def test_a_search_in_blocks_finds_the_same(set_limits: SetLimits) -> None:
    generator = np.random.default_rng(4)
    points, projection = (
        on_grid(generator.uniform(-1, 1, (500, 5))),
        on_grid(generator.uniform(-1, 1, (5, 3))),
    )
    centers = on_grid(generator.uniform(-1, 1, (40, 3)))
    whole = nearest_projected(points, projection, centers)
    set_limits(block_bytes=8 * 50)
    assert np.array_equal(nearest_projected(points, projection, centers), whole)


def test_clear_labels_by_hand() -> None:
    line, centers = np.array([[1.0]]), np.array([[0.0], [1.0], [3.0]])
    points = np.array([[0.25], [0.375], [0.5], [0.75], [2.0], [9.0]])
    # Ratios of the nearest to the second nearest distance: 1/3, 3/5, 1, 1/3, 1, 6/8.
    assert clear_labels(points, line, centers, 1.0).tolist() == [0, 0, 0, 1, 1, 2]
    assert clear_labels(points, line, centers, 0.5).tolist() == [0, 3, 3, 1, 3, 3]
    assert clear_labels(points, line, centers, 0.75).tolist() == [0, 0, 3, 1, 3, 2]
    assert clear_labels(points, line, centers, 1e-9).tolist() == [3] * 6
    assert clear_labels(points, line, centers[:2], 0.5).tolist() == [0, 2, 2, 1, 1, 2]
    # One centre has no second one.
    assert clear_labels(points, line, centers[:1], 0.5).tolist() == [0] * 6


def test_clear_labels_in_blocks(set_limits: SetLimits) -> None:
    generator = np.random.default_rng(5)
    points, centers = (
        on_grid(generator.uniform(-1, 1, (100, 2))),
        on_grid(generator.uniform(-1, 1, (7, 2))),
    )
    whole = clear_labels(points, np.eye(2), centers, 0.6)
    assert 0 < (whole == 7).sum() < 100
    set_limits(block_bytes=8 * 50)
    assert np.array_equal(clear_labels(points, np.eye(2), centers, 0.6), whole)


# -- sums, means, indicators -----------------------------------------------------------


def test_sums_and_counts_by_hand() -> None:
    points = np.array([[0.5, 1.0], [0.25, -1.0], [1.0, 1.0], [0.125, 0.0]])
    sums, counts = sums_and_counts(points, np.array([0, 2, 0, 3], dtype=np.int32), 3)
    assert sums.tolist() == [[1.5, 2.0], [0.0, 0.0], [0.25, -1.0]]
    assert counts.tolist() == [2.0, 0.0, 1.0]
    sums, counts = sums_and_counts(np.empty((0, 2)), np.empty(0, dtype=np.int32), 2)
    assert sums.tolist() == [[0.0, 0.0]] * 2
    assert counts.tolist() == [0.0, 0.0]


def test_means_and_indicators_by_hand() -> None:
    sums, counts = (
        np.array([[2.0, 0.0], [0.0, 0.0], [0.0, -3.0]]),
        np.array([4.0, 0.0, 3.0]),
    )
    means, indicators = means_and_indicators(sums, counts)
    assert means.tolist() == [[0.5, 0.0], [0.0, 0.0], [0.0, -1.0]]
    assert indicators.tolist() == [1.0, 0.0, 1.0]
    # Both norms are halved by whichever bound is the tighter one, and by the same
    # factor.
    for bounds, order in (
        ((math.sqrt(1.25) / 2, 9.0), 2),
        ((9.0, math.sqrt(0.5)), 2),
        ((9.0, 1.0), 1),
    ):
        means, indicators = clipped_together(
            *means_and_indicators(sums, counts), *bounds, order=order
        )
        assert means == pytest.approx(
            np.array([[0.25, 0.0], [0.0, 0.0], [0.0, -0.5]]), abs=2 * STEP
        )
        assert indicators == pytest.approx(np.array([0.5, 0.0, 0.5]), abs=2 * STEP)
        assert means[2, 1] / indicators[2] == pytest.approx(-1.0, abs=8 * STEP)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 6),
    d=st.integers(1, 4),
    means_bound=st.floats(1e-4, 5.0),
    indicators_bound=st.floats(1e-3, 5.0),
    order=st.sampled_from((1, 2)),
)
def test_what_is_clipped_together_never_leaves_its_bounds(
    seed: int, k: int, d: int, means_bound: float, indicators_bound: float, order: int
) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 4, k).astype(np.float64)
    sums = on_grid(generator.uniform(-1, 1, (k, d))) * counts[:, None]
    own = means_and_indicators(sums, counts)
    means, indicators = clipped_together(
        *own, means_bound, indicators_bound, order=order
    )
    assert sum(Fraction(v) ** 2 for v in means.ravel()) <= Fraction(means_bound) ** 2
    total = sum(Fraction(v) if order == 1 else Fraction(v) ** 2 for v in indicators)
    assert total <= (
        Fraction(indicators_bound) if order == 1 else Fraction(indicators_bound) ** 2
    )
    assert np.array_equal(np.rint(means * GRID), means * GRID)
    assert np.array_equal(np.rint(indicators * GRID), indicators * GRID)
    # An empty cluster says nothing; every other one says the same.
    assert not means[counts == 0.0].any()
    assert not indicators[counts == 0.0].any()
    assert len(set(indicators[counts > 0.0])) <= 1


# -- support from the server's own points ----------------------------------------------


def spiked(n: int, seed: int, direction: int) -> Floats:
    """Rows with one strong direction."""
    generator = np.random.default_rng(seed)
    rows = 0.3 * generator.standard_normal((n, 20))
    rows[:, direction] += generator.choice([-1.0, 1.0], n)
    return np.asarray(rows)


def symmetric_noise(seed: int, std: float) -> Floats:
    noise = np.random.default_rng(seed).standard_normal((20, 20)) * std
    return np.asarray((noise + noise.T) / 2.0)


def alignment(matrix: Floats, direction: int) -> float:
    """How much of a direction the leading eigenvector holds."""
    return abs(float(leading_eigenvectors(matrix, 1)[direction, 0]))


def test_without_noise_the_servers_points_do_not_count() -> None:
    matrix = spiked(500, 0, 3).T @ spiked(500, 0, 3)
    assert np.array_equal(shrink_to_server(matrix, spiked(50, 1, 7), 0.0)[0], matrix)


def test_resembling_server_points_help_against_noise() -> None:
    rows = spiked(2000, 0, 3)
    helped, alone = [], []
    for seed in range(20):
        noisy = rows.T @ rows + symmetric_noise(seed, 900.0)
        alone.append(alignment(noisy, 3))
        helped.append(
            alignment(shrink_to_server(noisy, spiked(300, 50 + seed, 3), 900.0)[0], 3)
        )
    assert np.mean(helped) > np.mean(alone) + 0.05


def test_misleading_server_points_lose_their_weight() -> None:
    rows = spiked(2000, 0, 3)
    for seed in range(5):
        noisy = rows.T @ rows + symmetric_noise(seed, 100.0)
        blended, _ = shrink_to_server(noisy, spiked(300, 50 + seed, 7), 100.0)
        assert alignment(blended, 3) > 0.95
        assert np.array_equal(blended, blended.T)
        assert np.trace(blended) == pytest.approx(np.trace(noisy))


@pytest.mark.parametrize("n_strong", [1, 2, 5])
def test_directions_that_stand_out_are_counted_under_noise(n_strong: int) -> None:
    diagonal = np.diag([5000.0] * n_strong + [100.0] * (20 - n_strong))
    for seed in range(10):
        assert (
            standing_out(diagonal + symmetric_noise(seed, 200.0), 200.0, 12) == n_strong
        )
    assert standing_out(diagonal, 0.0, 1) == 1
    # Noise alone never leaves nothing.
    assert standing_out(symmetric_noise(1, 200.0), 200.0, 12) == 1


def test_a_servers_matrix_is_averaged_by_hand() -> None:
    """Sampling has a variance of 1/64, the noise of 0.1 one of 0.0075."""
    matrix, rows = np.diag([0.3, 0.2]), np.array([[0.5, 0.0], [0.0, 0.5]])
    found, left = projected.shrink_to_server(matrix, rows, 0.1)
    weight = 0.0075 / (0.0075 + 4.0 / 64.0)
    assert found == pytest.approx(np.diag([0.3 - 0.05 * weight, 0.2 + 0.05 * weight]))
    assert left == pytest.approx(0.1 * (1.0 - weight))
    # Ten times as far apart: 0.125 of mismatch, less what both variances explain.
    far, left = projected.shrink_to_server(np.diag([1.0, -0.5]), rows, 0.1)
    mismatch = (0.75**2 + 0.75**2) / 4.0 - 1.0 / 64.0 - 0.0075
    weight = 0.0075 / (0.0075 + 4.0 * (1.0 / 64.0 + mismatch))
    assert far == pytest.approx(np.diag([1.0 - 0.75 * weight, -0.5 + 0.75 * weight]))
    # Twice the trace: the server's matrix and its deviations are doubled.
    twice, left = projected.shrink_to_server(np.diag([0.6, 0.4]), rows, 0.1)
    weight = 0.0075 / (0.0075 + 4.0 * 4.0 / 64.0)
    assert twice == pytest.approx(np.diag([0.6 - 0.1 * weight, 0.4 + 0.1 * weight]))
    assert left == pytest.approx(0.1 * (1.0 - weight))
    for other, server in (
        (np.diag([0.3, -0.3]), rows),
        (matrix, 0.0 * rows),
        (np.array([[1.0]]), rows[:, :1]),
    ):
        kept, noise = projected.shrink_to_server(other, server, 0.1)
        assert (kept.tolist(), noise) == (other.tolist(), 0.1)
        assert kept is not other


def test_sums_of_products_of_long_rows_are_exact() -> None:
    """Of rows 1,000 long, three added at once: rounded once, at the end."""
    integers = np.random.default_rng(1).integers(30_000_000, 60_000_000, (300, 2))
    integers[0] = 0
    found = outer_product_triangle(integers / GRID)
    exact = [
        Fraction(int((integers[:, place].astype(object) ** 2).sum()), 2**32)
        for place in range(2)
    ]
    assert [found[0], found[2]] == [float(one) for one in exact]


def test_what_is_at_the_edge_of_the_noise_does_not_stand_out() -> None:
    """Of eight values a deviation of 1 spreads some by sqrt(16) around the median."""
    assert standing_out(np.diag([5.0, 4.5, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 1.0, 8) == 2
    assert standing_out(np.diag([5.0, 4.5, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 1.0, 1) == 1


def test_sums_of_blocks_make_the_triangle_of_all_rows_to_the_last_bit() -> None:
    """A cluster adds them up."""
    rows = np.ones((100_001, 2))
    rows[-1] = np.array([26180.0, 54365.0]) / GRID
    parts = [
        outer_products.outer_product_sums(part, lambda own: own)
        for part in (rows[:50_000], rows[50_000:])
    ]
    expected = grid.round_to_grid(outer_product_triangle(rows)).tolist()
    assert rounded_triangle(sum(parts).ravel()).tolist() == expected  # type: ignore[union-attr]
    assert grid.round_to_grid(sum(map(triangle_of, parts))).tolist() != expected
