"""Points around proxies that have rows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray, Mask, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_column, as_floats
from flwr_dpkmeans.kmeans.proxies.draws import sample_size
from flwr_dpkmeans.kmeans.proxies.ellipsoid import Ellipsoid

_DEPTH = 0.5


def samples_around(
    proxies: FloatArray,
    weights: npt.ArrayLike,
    width: float | FloatArray,
    generator: np.random.Generator,
    within: Ellipsoid | None = None,
    whole: Mask | None = None,
) -> FloatArray:
    """Draw points around proxies (n, c), in proportion to their weights.

    Where the next pass has to look more closely.

    Ten for each proxy, or as many as memory allows; `width`, of each or of all, is the
    deviation along each axis. Those of `whole` ones lie on these. Around those of the
    least width it is at most half of the rows' own along an axis of `within`: where
    these are flat, hardly a point would lie among them. Weights are at least 0; equal
    ones are taken where all are 0.
    """
    n_proxies, n_features = proxies.shape
    shares = _shares_of(as_floats(weights))
    size = sample_size(n_proxies, n_features, least=1)
    parents = generator.choice(n_proxies, size=size, p=shares)
    every_width = np.broadcast_to(width, n_proxies)
    widths = as_column(every_width[parents])
    shape = len(parents), n_features
    steps = widths * generator.standard_normal(shape)
    if within is not None:
        steps = _flattened(steps, widths, np.min(width), within)
    if whole is not None:
        steps[whole[parents]] = 0.0
    return proxies[parents] + steps


def _shares_of(weights: FloatArray) -> FloatArray:
    """Divide weights by their sum; equal shares where all are 0."""
    total = weights.sum()
    if total > 0.0:
        return as_floats(weights / total)
    n_weights = len(weights)
    return np.full(n_weights, 1.0 / n_weights)


def _flattened(
    steps: FloatArray,
    widths: FloatArray,
    usual: float,
    within: Ellipsoid,
) -> FloatArray:
    """Shorten steps along axes on which the rows' own deviation is small.

    Only those of the usual width.
    """
    depths = _DEPTH * np.sqrt(within.variances) / usual
    too_much = 1.0 - np.minimum(1.0, depths)
    # Cells that are wider than others lie far away, where rows are not those that it
    # describes.
    surplus = np.where(widths > usual, 0.0, too_much)
    if not surplus.any():
        return steps
    # On the grid products with axes are exact.
    rounded = round_to_grid(steps)
    along = rounded @ within.axes * surplus
    return rounded - round_to_grid(along) @ within.axes.T


def scattered(
    proxies: FloatArray,
    weights: FloatArray,
    widths: FloatArray,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Share each proxy's weight out among points around it, on the grid.

    Its rows are not all in one place.

    `widths`, (n,), are deviations along each axis; a proxy (n, c) is the mean of its
    points, which come in pairs.
    """
    n_proxies, n_features = proxies.shape
    n_samples = sample_size(n_proxies, n_features)
    n_pairs = math.ceil(n_samples / (2 * n_proxies))
    shape = n_proxies, n_pairs, n_features
    standard = generator.standard_normal(shape)
    steps = standard * widths[:, None, None]
    both_ways = np.concatenate([steps, -steps], axis=1)
    points = round_to_grid(proxies[:, None] + both_ways)
    n_each = 2 * n_pairs
    shares = np.repeat(weights / n_each, n_each)
    return points.reshape(-1, n_features), shares
