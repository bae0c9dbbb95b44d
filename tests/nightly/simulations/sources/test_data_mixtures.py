"""Synthetic mixtures: the papers' parameters, shapes and sources of randomness."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.sources.mixture import draw_gaussian_mixture


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_defaults_are_those_of_the_paper() -> None:
    mixture = draw_gaussian_mixture(rng())
    assert len(mixture.clients) == len(mixture.labels) == 100
    assert {points.shape for points in mixture.clients} == {(1000, 100)}
    assert {labels.shape for labels in mixture.labels} == {(1000,)}
    assert mixture.server_points.shape == (300, 100)
    assert mixture.means.shape == (10, 100)
    assert mixture.means.min() >= 0.0
    assert mixture.means.max() <= 1.0
    points, labels = np.concatenate(mixture.clients), np.concatenate(mixture.labels)
    # Of 100,000 draws with chance 1/10, the deviation of a count is 95.
    assert np.abs(np.bincount(labels, minlength=10) - 10_000).max() < 500
    residuals = points - mixture.means[labels]
    assert abs(residuals.mean()) < 0.002
    assert residuals.var() == pytest.approx(0.5, rel=0.005)
    assert np.abs(residuals.var(axis=0) - 0.5).max() < 0.02
    # Independent coordinates: off the diagonal, the covariance has deviation 0.5 /
    # sqrt(100,000) = 0.0016.
    covariance = residuals.T @ residuals / len(residuals)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 0.01


def test_server_points_are_two_thirds_components_and_one_third_uniform() -> None:
    mixture = draw_gaussian_mixture(
        rng(1), n_clients=1, points_per_client=0, n_features=400
    )
    for component in range(10):
        group = mixture.server_points[20 * component : 20 * (component + 1)]
        nearest = ((group.mean(axis=0) - mixture.means) ** 2).sum(axis=1).argmin()
        assert nearest == component
    uniform = mixture.server_points[200:]
    assert uniform.min() >= 0.0
    assert uniform.max() <= 1.0
    assert uniform.var() == pytest.approx(1 / 12, rel=0.05)


@pytest.mark.parametrize("missing", [0, 1, 2, 5, 10])
def test_missing_components_have_no_point_at_the_server(missing: int) -> None:
    mixture = draw_gaussian_mixture(
        rng(2),
        n_clients=50,
        points_per_client=20,
        n_features=400,
        n_uniform=0,
        missing_components=missing,
    )
    assert len(mixture.server_points) == 20 * (10 - missing)
    distances = ((mixture.server_points[:, None, :] - mixture.means) ** 2).sum(axis=2)
    assert set(distances.argmin(axis=1).tolist()) == set(range(10 - missing))
    assert set(np.concatenate(mixture.labels).tolist()) == set(range(10))


def test_sizes_per_client_and_views_of_one_array() -> None:
    mixture = draw_gaussian_mixture(
        rng(), n_clients=4, points_per_client=[100, 0, 50, 7], n_features=3
    )
    assert [points.shape for points in mixture.clients] == [
        (100, 3),
        (0, 3),
        (50, 3),
        (7, 3),
    ]
    assert [len(labels) for labels in mixture.labels] == [100, 0, 50, 7]
    assert len({id(points.base) for points in mixture.clients}) == 1
    assert mixture.clients[0].dtype == np.float64


def test_equal_generators_draw_alike_and_the_server_does_not_depend_on_clients() -> (
    None
):
    first, again = (
        draw_gaussian_mixture(rng(3), n_clients=2, points_per_client=5)
        for _ in range(2)
    )
    assert np.array_equal(np.concatenate(first.clients), np.concatenate(again.clients))
    other = draw_gaussian_mixture(rng(3), n_clients=7, points_per_client=3)
    assert np.array_equal(first.server_points, other.server_points)
    assert np.array_equal(first.means, other.means)
    assert not np.array_equal(
        first.means,
        draw_gaussian_mixture(rng(4), n_clients=1, points_per_client=1).means,
    )


def test_rows_beyond_one_block_have_their_mean() -> None:
    mixture = draw_gaussian_mixture(
        rng(),
        n_clients=1,
        points_per_client=70_000,
        n_features=2,
        variance=1e-12,
        server_points_per_component=0,
    )
    assert np.abs(mixture.clients[0] - mixture.means[mixture.labels[0]]).max() < 1e-4
