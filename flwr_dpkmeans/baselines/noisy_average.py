"""Noisy averages of clusters: the last two steps of max cover."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines._inputs import FloatArray
from flwr_dpkmeans.kmeans import round_to_grid, truncate
from flwr_dpkmeans.privacy.noise import NoiseSource

NOISE_BITS = 24
"""Noise lives on multiples of 2^-24: what its discreteness costs falls with the square of the step, to nothing."""


@dataclass(frozen=True)
class NoisyAverages:
    """What was released of the clusters, and the centroids made of it.

    Parameters
    ----------
    centroids : array of shape (n_clusters, n_features)
        In [-1, 1], on the 2^-16 grid.
    counts : array of shape (n_clusters,)
        Noisy counts, which may be negative.
    """

    centroids: FloatArray
    counts: FloatArray


def add_gaussian_noise(values: FloatArray, std: float, source: NoiseSource) -> FloatArray:
    """Return exact multiples of 2^-16, such as counts or sums of points, with discrete Gaussian noise on 2^-24.

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.noise import SeededNoise
    >>> noise = SeededNoise(np.random.default_rng(0))
    >>> add_gaussian_noise(np.array([[8.0, 9.0]]), 0.001, noise).round(2).tolist()
    [[8.0, 9.0]]
    """
    scale = 2.0**NOISE_BITS
    exact = np.rint(values * scale).astype(np.int64)
    noise = source.discrete_gaussian(std * scale, exact.size).reshape(exact.shape)
    noisy: FloatArray = (exact + noise).astype(np.float64) / scale
    return noisy


def cluster_statistics(
    points: FloatArray, labels: npt.NDArray[np.int32], n_clusters: int
) -> tuple[FloatArray, FloatArray]:
    """Return the sums and the counts of the points with each label.

    Adding or removing a record whose point is no longer than R changes one row of the sums by at most R in the L2 norm,
    hence all sums jointly by at most R; and one count by 1.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        On the 2^-16 grid, so that sums are exact.
    labels : int32 array of shape (n_points,)
        Each a function of its own record and of earlier releases alone.
    n_clusters : int

    Returns
    -------
    sums : array of shape (n_clusters, n_features)
    counts : array of shape (n_clusters,)

    Examples
    --------
    >>> sums, counts = cluster_statistics(np.array([[0.5], [0.25]]), np.array([1, 1], dtype=np.int32), 2)
    >>> sums.tolist(), counts.tolist()
    ([[0.0], [0.75]], [0.0, 2.0])
    """
    columns = [np.bincount(labels, weights=column, minlength=n_clusters) for column in points.T]
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
    """Release sums and counts with Gaussian noise, and divide.

    A cluster whose noisy count is at most two standard deviations of the counts' noise keeps its previous centroid; if
    there is none, it gets the average of everything that was released, where the paper takes a random point. All of
    this happens after the release and costs nothing.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        As `clip_to_ball` returns them.
    labels : int32 array of shape (n_points,)
        See `cluster_statistics`.
    previous : array of shape (n_clusters, n_features) or None
        Earlier centroids.
    n_clusters : int
    sum_std, count_std : float
        Standard deviations of the noise, in data units and in records.
    source : NoiseSource

    Returns
    -------
    NoisyAverages

    References
    ----------
    Nissim, Stemmer and Vadhan 2016, "Locating a small cluster privately", Algorithm 5 (NoisyAVG), here with joint
    Gaussian accounting of sums and counts instead of Laplace noise on the counts.

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.noise import SeededNoise
    >>> found = noisy_averages(np.full((1000, 1), 0.5), np.zeros(1000, dtype=np.int32), previous=None, n_clusters=2,
    ...                        sum_std=0.01, count_std=0.01, source=SeededNoise(np.random.default_rng(0)))
    >>> found.centroids.round(2).tolist(), found.counts.round().astype(int).tolist()
    ([[0.5], [0.5]], [1000, 0])
    """
    sums, counts = cluster_statistics(points, labels, n_clusters)
    noisy_sums = add_gaussian_noise(sums, sum_std, source)
    noisy_counts = add_gaussian_noise(counts, count_std, source)
    floor = 2.0 * count_std
    fallback = noisy_sums.sum(axis=0) / max(float(noisy_counts.sum()), floor) if previous is None else previous
    usable = noisy_counts > floor
    quotients = noisy_sums / np.where(usable, noisy_counts, 1.0)[:, None]
    centroids = np.where(usable[:, None], quotients, fallback)
    return NoisyAverages(round_to_grid(truncate(centroids)), noisy_counts)
