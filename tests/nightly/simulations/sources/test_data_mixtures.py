"""Synthetic mixtures: the papers' parameters, shapes, sources of randomness and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError
from simulations.sources.mixture import draw_gaussian_mixture


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def failure(**options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        draw_gaussian_mixture(rng(), **options)
    return str(caught.value)


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


def test_same_generator_gives_the_same_draw_and_the_server_does_not_depend_on_the_clients() -> (
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


def test_result_is_frozen() -> None:
    mixture = draw_gaussian_mixture(rng(), n_clients=1, points_per_client=1)
    with pytest.raises(AttributeError):
        mixture.clients = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"n_clients": 0},
            (
                "n_clients is 0, but it must be an integer of at least 1: give for"
                " example 1."
            ),
        ),
        (
            {"n_components": 1.5},
            "n_components is 1.5, but it must be an integer of at least 1",
        ),
        ({"n_features": 0}, "n_features is 0, but it must be an integer of at least 1"),
        ({"n_uniform": -1}, "n_uniform is -1, but it must be an integer of at least 0"),
        (
            {"server_points_per_component": True},
            "server_points_per_component is True, but it must be an integer",
        ),
        (
            {"missing_components": 11},
            "missing_components is 11, but it must be an integer from 0 to 10",
        ),
        (
            {"variance": 0.0},
            (
                "variance is 0.0, but it must be a finite number above 0: give for"
                " example 0.5."
            ),
        ),
        (
            {"variance": float("nan")},
            "variance is nan, but it must be a finite number above 0",
        ),
        (
            {"points_per_client": -1},
            "points_per_client is -1, but it must be an integer of at least 0",
        ),
        (
            {"points_per_client": "10"},
            "points_per_client is '10', but it must be an integer of at least 0",
        ),
        (
            {"n_clients": 2, "points_per_client": (1, 2, 3)},
            (
                "points_per_client has 3 sizes, but n_clients is 2: give one size per"
                " client, or a single number for all."
            ),
        ),
        (
            {"n_clients": 2, "points_per_client": (1, -2)},
            "points_per_client[1] is -2, but it must be an integer",
        ),
    ],
)
def test_parameters_out_of_range(options: dict[str, Any], message: str) -> None:
    assert message in failure(**options)


def test_a_seed_is_no_generator() -> None:
    with pytest.raises(ConfigurationError) as caught:
        draw_gaussian_mixture(7)  # type: ignore[arg-type]
    assert (
        str(caught.value)
        == "rng is of type int, but it must be a numpy generator: give"
        " numpy.random.default_rng(0)."
    )
