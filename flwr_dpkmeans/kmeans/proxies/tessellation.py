"""Cells: proxies amid the points that are nearest to them."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import FloatArray, round_to_grid
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.kmeans.public_points.seeding import plus_plus

_LLOYD_STEPS = 8
_MOST_DISTANCES = 1 << 28


def tessellation(
    samples: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
    most_distances: int = _MOST_DISTANCES,
) -> FloatArray:
    """Choose proxies, on the grid, as a centroidal Voronoi tessellation of samples.

    Samples are (n, d): k-means++, then Lloyd steps.

    Above some 5,000 proxies, by chance: nobody would wait. Fewer samples than proxies
    are a `DataError`.
    """
    if len(samples) < n_proxies:
        raise DataError(
            f"there are {len(samples)} samples, but {n_proxies} proxies need at least"
            " as many: draw more."
        )
    rounded = round_to_grid(samples)
    n_samples = len(rounded)
    if n_samples * n_proxies > most_distances:
        drawn = generator.choice(n_samples, size=n_proxies, replace=False)
        return rounded[drawn]
    chosen = plus_plus(
        rounded,
        np.ones(n_samples),
        n_proxies,
        generator,
    )
    proxies = rounded[chosen]
    for _ in range(_LLOYD_STEPS):
        proxies = at_means(proxies, rounded)
    return proxies


def cell_radii(samples: FloatArray, proxies: FloatArray) -> FloatArray:
    """Distance of each proxy's farthest sample, on the grid.

    Rows of its cell lie no farther away.
    """
    labels, squares = nearest_centroids(samples, proxies)
    radii = np.zeros(len(proxies))
    np.maximum.at(radii, labels, np.sqrt(squares))
    return round_to_grid(radii)


def at_means(proxies: FloatArray, points: FloatArray) -> FloatArray:
    """Move each proxy to the mean, on the grid, of the points that it is nearest to.

    Points are (n, d); a proxy without any stays.
    """
    labels = nearest_centroids(points, proxies)[0]
    n_proxies = len(proxies)
    counts = np.bincount(labels, minlength=n_proxies)[:, None]
    sums = sum_by_label(points, labels, n_proxies)
    means = sums / np.maximum(counts, 1)
    has_points = counts > 0
    return np.where(has_points, round_to_grid(means), proxies)
