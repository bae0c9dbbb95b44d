"""The whole baseline: what it releases, what it costs, and how it fails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flwr_dpkmeans.baselines import MaxCoverResult, max_cover
from flwr_dpkmeans.baselines.cover_points import Draws, default_components
from flwr_dpkmeans.baselines.selection import LARGEST_NUMBER_OF_CANDIDATES
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    DPKMeansError,
    LocalMisuseError,
)
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.noise import SecureNoise, SeededNoise
from flwr_dpkmeans.privacy.release import Event, GaussianRelease

FloatArray = npt.NDArray[np.float64]


def events_of(result: MaxCoverResult) -> list[Event]:
    return [line.event for line in result.lines]


def run(
    points: Any, n_clusters: int, seed: int = 0, epsilon: float = 1.0,
    delta: float = 1e-6, **more: Any,
) -> MaxCoverResult:  # fmt: skip
    generator = np.random.default_rng(seed)
    source = more.pop("source", SeededNoise(generator))
    draws = Draws(source, more.pop("generator", generator))
    return max_cover(
        points, n_clusters, epsilon=epsilon, delta=delta, draws=draws, **more
    )


def mixture(n_clusters: int, n_features: int, n_each: int, seed: int = 0) -> FloatArray:
    generator = np.random.default_rng(seed)
    centres = generator.uniform(-0.9, 0.9, (n_clusters, n_features))
    points: FloatArray = centres.repeat(n_each, axis=0) + generator.normal(
        0.0, 0.02, (n_clusters * n_each, n_features)
    )
    return points


class RecordingNoise(SeededNoise):
    """Seeded noise that remembers the deviations and sizes that it drew."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))
        self.asked: list[tuple[float, int]] = []

    def discrete_gaussian(self, std: float, size: int) -> npt.NDArray[np.int64]:
        self.asked.append((std, size))
        return super().discrete_gaussian(std, size)


@pytest.mark.parametrize("n_features", [2, 40])
def test_separated_clusters_are_found(n_features: int) -> None:
    points = mixture(6, n_features, 1500)
    one_centre = cost_per_point(points, points.mean(axis=0, keepdims=True))
    result = run(points, 6, epsilon=4.0)
    assert cost_per_point(points, result.centroids) < 0.25 * one_centre
    assert result.centroids.shape == (6, n_features)
    assert result.counts.sum() == pytest.approx(len(points), rel=0.05)
    assert np.abs(result.centroids).max() <= 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "n_clusters", "n_points"),
    [(0.1, 1e-5, 3, 300), (1.0, 1e-7, 20, 2000), (8.0, 1e-4, 5, 60)],
)
def test_the_events_cost_at_most_the_request(
    epsilon: float, delta: float, n_clusters: int, n_points: int
) -> None:
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (n_points, 4))
    result = run(points, n_clusters, epsilon=epsilon, delta=delta)
    assert 0.9 * epsilon < compose_epsilon(events_of(result), delta) <= epsilon
    assert np.isfinite(result.centroids).all()
    assert result.counts.shape == (n_clusters,)


def test_the_noise_that_is_drawn_is_the_noise_that_is_declared() -> None:
    source = RecordingNoise()
    points = mixture(3, 10, 200)
    result = run(points, 3, source=source)
    gaussians = [
        event for event in events_of(result) if isinstance(event, GaussianRelease)
    ]
    sensitivities = {
        "cover counts": 1.0,
        "average sums": math.sqrt(10),
        "average counts": 1.0,
        "Lloyd sums": math.sqrt(10),
    }
    declared = [
        event.noise_multiplier * sensitivities.get(event.name, 1.0) * 2.0**24
        for event in gaussians
    ]
    assert [std for std, _ in source.asked] == pytest.approx(declared)
    assert [size for _, size in source.asked[1:]] == [30, 3, 30, 3]
    assert source.asked[0][1] <= 7 * 3
    # One draw for each event: nothing is released that is not priced.
    assert len(source.asked) == len(gaussians)


def test_points_are_clipped_to_the_box() -> None:
    far = np.array([[50.0, 0.0]]).repeat(2000, axis=0)
    boxed = run(far, 1, epsilon=8.0)
    assert boxed.centroids[0] == pytest.approx(np.array([1.0, 0.0]), abs=0.05)


def test_the_number_of_examples_is_public_and_may_be_declared() -> None:
    points = mixture(2, 6, 100)
    declared = run(points[:-1], 2, n_examples=200)
    assert events_of(declared) == events_of(run(points, 2))
    # log(n) / 2 dimensions: with the same declared number neighbours see the same
    # projection.
    assert len(run(points, 2, n_examples=10_000).centroids) == 2


def test_the_finest_grid_has_keys_for_all_its_points() -> None:
    most_components = max(
        default_components(n, 10**6) for n in (1, 10**3, 10**9, 10**18)
    )
    assert (2**7 + 1) ** most_components <= LARGEST_NUMBER_OF_CANDIDATES
    run(mixture(2, 9, 50), 2, n_components=1, n_levels=60)
    with pytest.raises(ConfigurationError, match="n_levels is 8 and n_components 8"):
        run(mixture(2, 9, 50), 2, n_components=8, n_levels=8)


def test_equal_seeds_give_equal_results_and_others_do_not() -> None:
    points = mixture(4, 8, 100)
    before = points.copy()
    first, second, third = (
        run(points, 4, seed=1),
        run(points, 4, seed=1),
        run(points, 4, seed=2),
    )
    assert np.array_equal(first.centroids, second.centroids)
    assert np.array_equal(first.counts, second.counts)
    assert not np.array_equal(first.centroids, third.centroids)
    assert np.array_equal(points, before)


def test_the_starts_of_k_means_are_repeatable_too() -> None:
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (3000, 2))
    results = [run(points, 12, seed=1, epsilon=8.0) for _ in range(3)]
    assert all(
        np.array_equal(results[0].centroids, other.centroids) for other in results[1:]
    )


def test_secure_noise_is_not_repeated() -> None:
    points = mixture(2, 3, 300)
    runs = [run(points, 2, source=SecureNoise()) for _ in range(2)]
    assert not np.array_equal(runs[0].counts, runs[1].counts)
    assert compose_epsilon(events_of(runs[0]), 1e-6) <= 1.0


def test_more_clusters_than_distinct_points() -> None:
    result = run(np.full((500, 2), 0.5), 9, epsilon=4.0)
    assert result.centroids.shape == (9, 2)
    assert np.abs(result.centroids - 0.5).max(axis=1).min() < 0.05


def test_all_clusters_lost_in_noise() -> None:
    result = run(np.full((5, 3), 0.5), 5, epsilon=0.05)
    assert np.isfinite(result.centroids).all()
    assert np.abs(result.centroids).max() <= 1.0


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"n_clusters": 41}, DataError, "but it must be at least n_clusters = 41"),
        ({"n_clusters": 8, "n_examples": 7}, DataError, "the number of points is 7"),
        ({"n_clusters": 0}, ConfigurationError, "n_clusters is 0"),
        ({"epsilon": -1.0}, LocalMisuseError, "epsilon is -1.0"),
        ({"delta": 1.0}, LocalMisuseError, "delta is 1.0"),
        ({"epsilon": 1e-6}, DPKMeansError, "the rate of the selections is"),
        ({"generator": 3}, LocalMisuseError, "generator is of type 'int'"),
        ({"points": [[np.nan, 0.0, 0.0]] * 40}, DataError, "of 40 rows are not finite"),
        ({"points": [0.0] * 40}, DataError, "points have shape"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(
    change: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    arguments: dict[str, Any] = {"points": np.zeros((40, 3)), "n_clusters": 2, **change}
    with pytest.raises(error, match=sentence) as caught:
        run(**arguments)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
