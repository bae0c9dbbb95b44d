"""Client sums against a point-by-point reference.

The sensitivity bound that the noise relies on.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.on_the_grid import grid_points

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics, relative_statistics


def reference(
    points: np.ndarray, centroids: np.ndarray, radius: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Relative sums and counts, one point at a time."""
    sums, counts = np.zeros_like(centroids), np.zeros(len(centroids))
    for point in points:
        squares = ((point - centroids) ** 2).sum(axis=1)
        nearest = int(squares.argmin())
        if (
            radius is None
            or math.isinf(radius)
            or Fraction(float(squares[nearest])) <= Fraction(radius) ** 2
        ):
            sums[nearest] += point - centroids[nearest]
            counts[nearest] += 1
    return sums, counts


@pytest.mark.parametrize(
    ("rows", "features", "clusters"),
    [(1500, 2, 15), (800, 5, 3), (300, 40, 6), (1200, 1, 40)],
)
@pytest.mark.parametrize("radius", [None, 0.0, 0.25, 1.0, 100.0, math.inf])
def test_equals_point_by_point_sum(
    rows: int, features: int, clusters: int, radius: float | None
) -> None:
    generator = np.random.default_rng(rows)
    points, centroids = (
        grid_points(generator, rows, features),
        grid_points(generator, clusters, features),
    )
    sums, counts = relative_statistics(points, centroids, radius)
    expected_sums, expected_counts = reference(points, centroids, radius)
    assert np.array_equal(sums, expected_sums)
    assert np.array_equal(counts, expected_counts)
    assert sums.dtype == counts.dtype == np.float64


def test_several_blocks_sum_like_their_parts() -> None:
    generator = np.random.default_rng(0)
    points, centroids = grid_points(generator, 70_001, 6), grid_points(generator, 4, 6)
    parts = [
        relative_statistics(part, centroids, 1.0) for part in np.array_split(points, 9)
    ]
    sums, counts = relative_statistics(points[::-1], centroids, 1.0)
    assert np.array_equal(sums, sum(part[0] for part in parts))
    assert np.array_equal(counts, sum(part[1] for part in parts))


def test_absolute_sums_are_relative_sums_plus_centroids() -> None:
    generator = np.random.default_rng(1)
    points, centroids = grid_points(generator, 2000, 7), grid_points(generator, 9, 7)
    sums, counts = absolute_statistics(points, centroids)
    relative, relative_counts = relative_statistics(points, centroids, None)
    assert np.array_equal(counts, relative_counts)
    assert np.array_equal(sums, relative + counts[:, None] * centroids)
    assert np.array_equal(sums.sum(axis=0), points.sum(axis=0))


def test_point_at_the_radius_stays_and_one_step_further_is_dropped() -> None:
    centroids = np.array([[0.0, 0.0], [1.0, 1.0]])
    # 3-4-5: the distance is 0.3125 exactly.
    points = np.array([[0.1875, 0.25], [0.1875, 0.25 + 2.0**-16]])
    sums, counts = relative_statistics(points, centroids, 0.3125)
    assert counts.tolist() == [1.0, 0.0]
    assert sums.tolist() == [[0.1875, 0.25], [0.0, 0.0]]


def test_rounding_of_the_squared_radius_keeps_no_point_beyond_it() -> None:
    # The squared distance is 11/16; the square of this radius is smaller and is rounded
    # up to it.
    radius = math.sqrt(11 / 16)
    assert Fraction(radius) ** 2 < Fraction(11, 16) == Fraction(radius * radius)
    assert relative_statistics([[0.75, 0.25, 0.25]], [[0.0, 0.0, 0.0]], radius)[
        1
    ].tolist() == [0.0]


def test_squared_radius_is_rounded_down() -> None:
    from flwr_dpkmeans.kernels.clipping import largest_square_within

    for radius in np.random.default_rng(2).uniform(0.01, 9.0, 500).tolist():
        square = largest_square_within(radius)
        assert (
            Fraction(square)
            <= Fraction(radius) ** 2
            < Fraction(math.nextafter(square, math.inf))
        )


def test_empty_clusters_and_no_points() -> None:
    sums, counts = relative_statistics([[0.5]], [[0.0], [-1.0]], None)
    assert sums.tolist() == [[0.5], [0.0]]
    assert counts.tolist() == [1.0, 0.0]
    for features in (2, 9):
        sums, counts = relative_statistics(
            np.empty((0, features)), np.zeros((3, features)), 0.5
        )
        assert sums.shape == (3, features)
        assert not sums.any()
        assert counts.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_point_that_is_not_a_number_is_dropped() -> None:
    points = np.array([[0.5, 0.0], [math.nan, 0.0], [math.inf, 0.0]])
    sums, counts = relative_statistics(points, [[0.0, 0.0]], 10.0)
    assert sums.tolist() == [[0.5, 0.0]]
    assert counts.tolist() == [1.0]


@settings(max_examples=60)
@given(st.data())
def test_one_point_changes_the_sums_by_at_most_the_radius(data: st.DataObject) -> None:
    features = data.draw(st.integers(1, 5))
    cell = st.integers(-65536, 65536).map(lambda value: value / 65536)
    rows = st.lists(
        st.lists(cell, min_size=features, max_size=features), min_size=1, max_size=12
    )
    points, centroids = np.array(data.draw(rows)), np.array(data.draw(rows))
    radius = data.draw(st.floats(0.0, 2.0))
    sums, counts = relative_statistics(points, centroids, radius)
    fewer_sums, fewer_counts = relative_statistics(points[1:], centroids, radius)
    change = [Fraction(value) for value in (sums - fewer_sums).ravel().tolist()]
    assert sum(value**2 for value in change) <= Fraction(radius) ** 2
    assert np.abs(counts - fewer_counts).sum() <= 1


@pytest.mark.parametrize("radius", [-0.1, math.nan])
def test_wrong_radius(radius: float) -> None:
    with pytest.raises(ConfigurationError, match="at least 0"):
        relative_statistics([[0.0]], [[0.0]], radius)


def test_wrong_shapes() -> None:
    with pytest.raises(DataError, match="2 features, but the centroids have 3"):
        absolute_statistics(np.zeros((4, 2)), np.zeros((2, 3)))
