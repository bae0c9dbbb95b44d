"""Points far outside of what the ellipsoid describes."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import FloatArray, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_floats
from flwr_dpkmeans.kmeans.proxies.draws import points_in_cubes, sample_size


def far_samples(
    centre: FloatArray,
    extent: float,
    n_proxies: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw points from cubes around the centre, cut to the box.

    Of half width `extent` to 2, each octave alike.

    Those inside of the smallest cube are left out, where at least one for each proxy is
    outside.
    """
    n_samples = sample_size(n_proxies, len(centre))
    octaves = generator.random((n_samples, 1))
    halves = extent * (2.0 / extent) ** octaves
    points = points_in_cubes(centre, halves, generator)
    is_outside = _cube_distances(points, centre) > extent
    outside = points[is_outside]
    return outside if len(outside) >= n_proxies else points


def _cube_distances(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Half width, (n,), of the cube around a centre that each point lies on."""
    offsets = np.abs(points - centre)
    return as_floats(offsets.max(axis=1))


def outside_cube(
    proxies: FloatArray,
    samples: FloatArray,
    centre: FloatArray,
    extent: float,
) -> FloatArray:
    """Move proxies of far samples that lie inside of the cube to the nearest sample.

    Rows there are not theirs.

    The mean of a cell all around the cube lies amid the other proxies, and steps as far
    as its cell is wide.
    """
    is_inside = _cube_distances(proxies, centre) <= extent
    rounded = round_to_grid(samples)
    nearest, _ = nearest_centroids(proxies, rounded)
    return np.where(is_inside[:, None], rounded[nearest], proxies)
