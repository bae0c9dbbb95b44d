"""Points that are drawn, in as many numbers as memory allows."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import as_floats

SAMPLES_PER_PROXY = 10
_LEAST_SAMPLES = 2000
_MOST_SAMPLED_VALUES = 1 << 24


def normal_samples(
    variances: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw points (n, c) from the normal distribution of the private covariance.

    In the space of its leading c axes.
    """
    width = len(variances)
    shape = sample_size(n_proxies, width), width
    standard = generator.standard_normal(shape)
    return standard * np.sqrt(variances)


def sample_size(
    n_proxies: int,
    width: int,
    least: int = _LEAST_SAMPLES,
) -> int:
    """Ten for each proxy, or as many as memory allows.

    a plan may come from a hostile server.
    """
    enough = max(least, SAMPLES_PER_PROXY * n_proxies)
    most = _MOST_SAMPLED_VALUES // width
    return max(n_proxies, min(enough, most))


def points_in_cubes(
    centre: FloatArray,
    halves: FloatArray,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw a point (d,) from each cube around the centre, cut to the box.

    Cubes have the half widths (n, 1).
    """
    low = np.clip(centre - halves, -1.0, 1.0)
    high = np.clip(centre + halves, -1.0, 1.0)
    points = generator.uniform(low, high)
    return as_floats(points)
