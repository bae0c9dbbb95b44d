"""Centroids as quotients of noisy sums and counts of all rows in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.cover_budget import NOISE_BITS, CentralLine
from flwr_dpkmeans.baselines.pooled import (
    FloatArray,
)
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.privacy.noise import NoiseSource


@dataclass(frozen=True, eq=False)
class MaxCoverResult:
    """What max cover releases.

    Centroids, (n_clusters, n_features), in [-1, 1] on the 2^-16 grid.

    Counts, (n_clusters,), are noisy numbers of points in the clusters before the last
    Lloyd step, and may be negative.
    """

    centroids: FloatArray
    counts: FloatArray
    lines: tuple[CentralLine, ...]


def average_twice(
    points: FloatArray,
    projected: FloatArray,
    proxies: FloatArray,
    lines: tuple[CentralLine, ...],
    source: NoiseSource,
) -> MaxCoverResult:
    """Average the clusters of the projected centres, then those of the averages."""
    n_clusters, stds = len(proxies), {line.name: line.noise_scale for line in lines}

    def released(
        what: str,
        labels: npt.NDArray[np.int32],
        previous: FloatArray | None,
    ) -> NoisyAverages:
        noise = {"sum_std": stds[f"{what} sums"], "count_std": stds[f"{what} counts"]}
        return noisy_averages(
            points,
            labels,
            previous=previous,
            n_clusters=n_clusters,
            source=source,
            **noise,
        )

    averages = released("average", nearest_centroids(projected, proxies)[0], None)
    final = released(
        "Lloyd", nearest_centroids(points, averages.centroids)[0], averages.centroids
    )
    return MaxCoverResult(final.centroids, final.counts, lines)


class NoisyAverages(NamedTuple):
    """Centroids, (n_clusters, n_features) on the 2^-16 grid of [-1, 1].

    And noisy counts, which may be negative.
    """

    centroids: FloatArray
    counts: FloatArray


def add_gaussian_noise(
    values: FloatArray,
    std: float,
    source: NoiseSource,
) -> FloatArray:
    """Return exact multiples of 2^-16, such as counts or sums of points.

    With discrete Gaussian noise on 2^-24.
    """
    scale = 2.0**NOISE_BITS
    exact = np.rint(values * scale).astype(np.int64)
    noise = source.discrete_gaussian(std * scale, exact.size).reshape(exact.shape)
    noisy: FloatArray = (exact + noise).astype(np.float64) / scale
    return noisy


def cluster_statistics(
    points: FloatArray,
    labels: npt.NDArray[np.int32],
    n_clusters: int,
) -> tuple[FloatArray, FloatArray]:
    """Sums and counts of the points with each label.

    (n_clusters, n_features) and (n_clusters,).

    Adding or removing a record whose point is no longer than R changes one row of the
    sums by at most R in the L2 norm, hence all sums jointly by at most R; and one count
    by 1. Points lie on the 2^-16 grid, so that sums are exact, and each label must be a
    function of its own record and of earlier releases alone.
    """
    columns = [
        np.bincount(labels, weights=column, minlength=n_clusters) for column in points.T
    ]
    counts = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    return np.stack(columns, axis=1), counts


def noisy_averages(
    points: FloatArray,
    labels: npt.NDArray[np.int32],
    *,
    previous: FloatArray | None,
    n_clusters: int,
    sum_std: float,
    count_std: float,
    source: NoiseSource,
) -> NoisyAverages:
    """Release sums and counts with Gaussian noise of these deviations.

    In data units and in records, and divide.

    A cluster whose noisy count is at most two standard deviations of the counts' noise
    keeps its previous centroid; if there is none, it gets the average of everything
    that was released, where the paper takes a random point. All of this happens after
    the release and costs nothing. Points and labels are those of `cluster_statistics`.
    Source: Nissim, Stemmer and Vadhan 2016, "Locating a small cluster privately",
    Algorithm 5 (NoisyAVG), here with joint Gaussian accounting of sums and counts
    instead of Laplace noise on the counts.
    """
    sums, counts = cluster_statistics(points, labels, n_clusters)
    noisy_sums = add_gaussian_noise(sums, sum_std, source)
    noisy_counts = add_gaussian_noise(counts, count_std, source)
    floor = 2.0 * count_std
    fallback = (
        noisy_sums.sum(axis=0) / max(float(noisy_counts.sum()), floor)
        if previous is None
        else previous
    )
    usable = noisy_counts > floor
    quotients = noisy_sums / np.where(usable, noisy_counts, 1.0)[:, None]
    centroids = np.where(usable[:, None], quotients, fallback)
    return NoisyAverages(round_to_grid(truncate(centroids)), noisy_counts)
