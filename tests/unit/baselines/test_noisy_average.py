"""Sums and counts of clusters: sensitivities by brute force, noise of the declared
size, small clusters.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from flwr_dpkmeans.baselines.cover_budget import NOISE_BITS
from flwr_dpkmeans.baselines.cover_points import clip_to_ball
from flwr_dpkmeans.baselines.noisy_averages import (
    add_gaussian_noise,
    cluster_statistics,
    noisy_averages,
)
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.noise import SeededNoise


class PlannedNoise:
    """Noise of always as many grid steps, which remembers what was drawn."""

    def __init__(self, steps: int = 0) -> None:
        self.asked: list[tuple[float, int]] = []
        self._steps = steps

    def discrete_gaussian(self, std: float, size: int) -> npt.NDArray[np.int64]:
        self.asked.append((std, size))
        return np.full(size, self._steps, dtype=np.int64)

    def discrete_laplace(self, scale: float, size: int) -> npt.NDArray[np.int64]:
        raise AssertionError("only Gaussian noise is planned")


@pytest.mark.parametrize("radius", [0.25, 1.0, math.nextafter(math.sqrt(3), math.inf)])
def test_sums_and_counts_move_by_no_more_than_they_should(radius: float) -> None:
    generator = np.random.default_rng(0)
    raw = np.concatenate(
        [
            generator.normal(0.0, 2.0, (30, 3)),
            np.ones((3, 3)),
            -np.ones((3, 3)),
            np.zeros((1, 3)),
        ]
    )
    points = clip_to_ball(raw, radius)
    centroids = round_to_grid(generator.uniform(-1.0, 1.0, (4, 3)))

    def statistics(
        rows: npt.NDArray[np.float64],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return cluster_statistics(rows, nearest_centroids(rows, centroids)[0], 4)

    sums, counts = statistics(points)
    largest = 0.0
    for i in range(len(points)):
        fewer_sums, fewer_counts = statistics(np.delete(points, i, axis=0))
        moved = float(np.linalg.norm(sums - fewer_sums))
        assert moved <= radius
        largest = max(largest, moved)
        assert np.abs(counts - fewer_counts).sum() == 1.0
        assert np.count_nonzero((sums != fewer_sums).any(axis=1)) <= 1
    assert largest > 0.999 * radius - 2.0**-14  # the bound is reached


def test_averages_by_hand_without_noise() -> None:
    points = np.array([[0.5, 0.0], [0.25, 0.5], [-1.0, 0.25]])
    labels = np.array([0, 0, 2], dtype=np.int32)
    source = PlannedNoise()
    found = noisy_averages(
        points, labels, previous=None, n_clusters=3, sum_std=0.5, count_std=0.125,
        source=source,
    )  # fmt: skip
    assert found.centroids[0].tolist() == [0.375, 0.25]
    assert found.centroids[2].tolist() == [-1.0, 0.25]
    # The empty cluster gets the average of all: (-0.25, 0.75) / 3.
    assert found.centroids[1] == pytest.approx(
        np.array([-0.25, 0.75]) / 3.0, abs=2.0**-16
    )
    assert found.counts.tolist() == [2.0, 0.0, 1.0]
    assert source.asked == [(0.5 * 2.0**NOISE_BITS, 6), (0.125 * 2.0**NOISE_BITS, 3)]


def test_noise_enters_sums_and_counts() -> None:
    half = PlannedNoise(2 ** (NOISE_BITS - 1))
    found = noisy_averages(
        np.full((4, 1), 0.25), np.zeros(4, dtype=np.int32), previous=None, n_clusters=1,
        sum_std=0.1, count_std=0.1, source=half,
    )  # fmt: skip
    assert found.counts.tolist() == [4.5]
    assert found.centroids[0, 0] == pytest.approx(1.5 / 4.5, abs=2.0**-16)


def test_a_cluster_lost_in_noise_keeps_its_centroid() -> None:
    found = noisy_averages(
        np.array([[0.5], [0.5], [0.5], [1.0]]), np.array([0, 0, 0, 1], dtype=np.int32),
        previous=np.array([[-0.25], [-0.75]]), n_clusters=2, sum_std=0.5, count_std=0.5,
        source=PlannedNoise(),
    )  # fmt: skip
    # A count of 1 is not more than two standard deviations of the noise.
    assert found.centroids.tolist() == [[0.5], [-0.75]]


def test_centroids_stay_in_the_box_whatever_the_noise() -> None:
    source = SeededNoise(np.random.default_rng(0))
    for previous in (None, np.zeros((8, 5))):
        found = noisy_averages(
            np.ones((20, 5)), np.arange(20, dtype=np.int32) % 7, previous=previous,
            n_clusters=8, sum_std=100.0, count_std=10.0, source=source,
        )  # fmt: skip
        assert np.abs(found.centroids).max() <= 1.0
        assert np.array_equal(found.centroids, round_to_grid(found.centroids))


def test_noise_has_the_standard_deviation_that_was_asked_for() -> None:
    noisy = add_gaussian_noise(
        np.full((100, 100), 3.5), 2.5, SeededNoise(np.random.default_rng(0))
    )
    assert float(np.std(noisy)) == pytest.approx(2.5, rel=0.03)
    assert float(np.mean(noisy)) == pytest.approx(3.5, abs=0.1)
