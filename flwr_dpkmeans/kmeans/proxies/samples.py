"""Points of a private ellipsoid, cut to the box."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray, Mask, round_to_grid
from flwr_dpkmeans.kmeans.proxies.draws import points_in_cubes, sample_size

_CUBE_SHARE = 0.3
_CELLS_PER_AXIS = 4


def box_samples(
    centre: FloatArray,
    variances: FloatArray,
    axes: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
    *,
    cover: float | None,
) -> FloatArray:
    """Draw points from the parallelepiped of the private covariance.

    It is cut to the box [-1, 1]^d.

    `variances` (d,) and `axes` (d, n_axes) are those of an `Ellipsoid`. `cover` draws
    three tenths uniformly from the part of the box so far from the centre along every
    column: what the ellipsoid misses, above all in corners.
    """
    n_samples = sample_size(n_proxies, len(centre))
    n_axes = axes.shape[1]
    uniform = generator.uniform(-1.0, 1.0, (n_samples, n_axes))
    # A uniform variable on [-1, 1] has the variance 1/3. Products of grid values add up
    # exactly.
    extents = np.sqrt(3.0 * variances[:n_axes])
    along = round_to_grid(uniform * extents)
    points = centre + along @ axes.T
    samples = np.clip(points, -1.0, 1.0)
    if cover is not None:
        n_cover = int(_CUBE_SHARE * n_samples)
        halves = np.full((n_cover, 1), cover)
        anywhere = points_in_cubes(centre, halves, generator)
        leaves = _leaves_ellipsoid(
            n_proxies,
            n_cover,
            len(centre),
            generator,
        )
        inside = samples[:n_cover]
        samples[:n_cover] = np.where(leaves, anywhere, inside)
    return samples


def _leaves_ellipsoid(
    n_proxies: int,
    n_samples: int,
    n_features: int,
    generator: np.random.Generator,
) -> Mask:
    """In which columns (n, d) samples of the box leave the ellipsoid.

    In all, or in one, and each further by a coin.

    Proxies are too few to cover a box of many dimensions, but rows with one rare value
    lie along an axis.
    """
    if n_proxies >= _CELLS_PER_AXIS**n_features:
        return np.ones((n_samples, n_features), np.bool_)
    n_columns = generator.geometric(0.5, (n_samples, 1))
    keys = generator.random((n_samples, n_features))
    ranks = np.argsort(keys, axis=1)
    return ranks < n_columns
