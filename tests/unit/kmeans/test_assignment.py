"""Nearest centroids against an integer reference, on the grid and off it."""

from __future__ import annotations

import numpy as np
import pytest
from support.on_the_grid import grid_points

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids, nearest_labels


def integer_reference(
    points: np.ndarray, centroids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nearest centroids in integers; argmin gives ties to the lowest index."""
    x = (points * 65536).astype(np.int64)
    c = (centroids * 65536).astype(np.int64)
    squares = ((x[:, None, :] - c) ** 2).sum(axis=2)
    return squares.argmin(axis=1), squares.min(axis=1) * 2.0**-32


@pytest.mark.parametrize(
    ("rows", "features", "clusters"),
    [
        (1, 1, 1), (7, 3, 1), (1000, 2, 2), (5000, 2, 15), (3000, 2, 130),
        (700, 100, 10), (40_000, 3, 5), (300, 700, 4),
    ],
)  # fmt: skip
def test_equals_integer_reference(rows: int, features: int, clusters: int) -> None:
    generator = np.random.default_rng(rows + features)
    points, centroids = (
        grid_points(generator, rows, features),
        grid_points(generator, clusters, features),
    )
    labels, squares = nearest_centroids(points, centroids)
    expected_labels, expected_squares = integer_reference(points, centroids)
    assert np.array_equal(labels, expected_labels)
    assert np.array_equal(squares, expected_squares)


@pytest.mark.parametrize(("features", "clusters"), [(1, 9), (2, 60), (3, 5), (6, 4)])
def test_ties_go_to_the_lowest_index(features: int, clusters: int) -> None:
    generator = np.random.default_rng(1)
    # A coarse grid and repeated centroids make most points tie.
    points = grid_points(generator, 4000, features, cells=2)
    centroids = np.vstack([grid_points(generator, clusters, features, cells=2)] * 2)
    labels, squares = nearest_centroids(points, centroids)
    expected_labels, expected_squares = integer_reference(points, centroids)
    assert np.array_equal(labels, expected_labels)
    assert np.array_equal(squares, expected_squares)


@pytest.mark.parametrize("scale", [0.9, 3.0, 1e6])
@pytest.mark.parametrize(("features", "clusters"), [(2, 50), (20, 7)])
def test_data_off_the_grid_and_outside_the_box(
    scale: float, features: int, clusters: int
) -> None:
    generator = np.random.default_rng(2)
    points = scale * generator.normal(size=(3000, features))
    centroids = scale * generator.normal(size=(clusters, features))
    labels, squares = nearest_centroids(points, centroids)
    expected = ((points[:, None] - centroids) ** 2).sum(axis=2)
    assert np.array_equal(labels, expected.argmin(axis=1))
    np.testing.assert_allclose(
        squares, expected.min(axis=1), rtol=1e-6, atol=1e-9 * scale**2
    )


def test_points_outside_the_box_of_centroids_inside_it() -> None:
    generator = np.random.default_rng(3)
    points = np.round(generator.uniform(-4000, 4000, (2000, 3)))
    centroids = grid_points(generator, 12, 3)
    labels, squares = nearest_centroids(points, centroids)
    expected_labels, expected_squares = integer_reference(points, centroids)
    assert np.array_equal(labels, expected_labels)
    assert np.array_equal(squares, expected_squares)


@pytest.mark.parametrize("farthest", [1.0, 4.0, 5.0, 2.0**17])
def test_labels_of_rows_on_the_grid_wherever_they_are(farthest: float) -> None:
    """Parts of a score that cancel may be so large that labels have no room."""
    generator = np.random.default_rng(3)
    near = grid_points(generator, 64, 1)
    centroids = np.hstack([near, near + generator.integers(0, 2, near.shape) / 65536])
    x = generator.uniform(-1.0, 1.0, (500, 1)) * farthest
    points = np.hstack([np.rint(x * 65536), -np.rint(x * 65536)]) / 65536
    points[0] = farthest, -farthest
    c = (centroids * 65536).astype(np.int64)
    scores = 2 * (points * 65536).astype(np.int64) @ c.T - (c**2).sum(axis=1)
    assert np.array_equal(nearest_labels(points, centroids), scores.argmax(axis=1))


def test_points_finer_than_the_grid_with_centroids_on_it() -> None:
    generator = np.random.default_rng(4)
    points, centroids = (
        generator.integers(-(2**21), 2**21, (5000, 2)) / 2**21,
        grid_points(generator, 100, 2),
    )
    labels, squares = nearest_centroids(points, centroids)
    expected = ((points[:, None] - centroids) ** 2).sum(axis=2)
    assert np.all(expected[np.arange(5000), labels] - expected.min(axis=1) < 2.0**-31)
    np.testing.assert_allclose(squares, expected.min(axis=1), atol=2.0**-31)


def test_huge_and_near_centroids_together() -> None:
    points = grid_points(np.random.default_rng(5), 50, 2)
    centroids = np.array([[2.0**31, -(2.0**31)], [0.25, 0.5], [-0.5, 0.0]])
    labels, squares = nearest_centroids(points, centroids)
    expected_labels, expected_squares = integer_reference(points, centroids[1:])
    assert np.array_equal(labels, expected_labels + 1)
    assert np.array_equal(squares, expected_squares)


def test_neighbours_on_the_grid_beside_a_far_centroid() -> None:
    points = np.arange(-4, 12)[:, None] * 2.0**-16
    centroids = np.append(np.arange(8) * 2.0**-16, 900.0)[:, None]
    labels, squares = nearest_centroids(points, centroids)
    expected_labels, expected_squares = integer_reference(points, centroids)
    assert np.array_equal(labels, expected_labels)
    assert np.array_equal(squares, expected_squares)


@pytest.mark.parametrize("n_centroids", [1, 3, 20, 128])
@pytest.mark.parametrize("value", [2.0**10, 2.0**30])
def test_points_far_from_all_centroids(n_centroids: int, value: float) -> None:
    centroids, far = (
        grid_points(np.random.default_rng(6), n_centroids, 2, cells=8),
        np.full((1, 2), value),
    )
    expected = (far @ centroids.T - 0.5 * (centroids**2).sum(1)).argmax()
    assert (
        nearest_centroids(far, centroids)[0]
        == nearest_labels(far, centroids)
        == expected
    )


def test_any_memory_layout_and_type() -> None:
    generator = np.random.default_rng(7)
    points, centroids = (
        grid_points(generator, 400, 4, cells=64),
        grid_points(generator, 5, 4, cells=64),
    )
    expected = nearest_centroids(points, centroids)
    for variant in (
        np.asfortranarray(points),
        points.astype(np.float32),
        np.repeat(points, 2, axis=0)[::2],
    ):
        labels, squares = nearest_centroids(variant, np.asfortranarray(centroids))
        assert np.array_equal(labels, expected[0])
        assert np.array_equal(squares, expected[1])


def test_no_points() -> None:
    labels, squares = nearest_centroids(np.empty((0, 3)), np.zeros((2, 3)))
    assert labels.shape == squares.shape == (0,)


def test_arguments_are_not_changed() -> None:
    generator = np.random.default_rng(8)
    points, centroids = grid_points(generator, 100, 2), grid_points(generator, 9, 2)
    copies = points.copy(), centroids.copy()
    nearest_centroids(points, centroids)
    assert np.array_equal(points, copies[0])
    assert np.array_equal(centroids, copies[1])


@pytest.mark.parametrize(
    ("points", "centroids", "message"),
    [
        (np.zeros(3), np.zeros((2, 3)), "points has 1 dimensions"),
        (np.zeros((3, 2)), np.zeros(2), "centroids has 1 dimensions"),
        (np.zeros((3, 2)), np.zeros((2, 3)), "2 features, but the centroids have 3"),
        (np.zeros((0, 2)), np.zeros((2, 3)), "2 features, but the centroids have 3"),
        (np.zeros((3, 2)), np.zeros((0, 2)), "at least one centroid"),
    ],
)  # fmt: skip
def test_wrong_shapes(points: np.ndarray, centroids: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        nearest_centroids(points, centroids)


def test_no_squared_distance_is_negative() -> None:
    """Of a point that is a centroid, square and score differ by rounding alone."""
    points = np.random.default_rng(9).normal(size=(2000, 3))
    labels, squares = nearest_centroids(points, points[:50])
    assert (labels[:50] == np.arange(50)).all()
    assert squares.min() >= 0.0
