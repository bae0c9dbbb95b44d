"""How far a mean is off as rows beyond a radius are pulled back or left out."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.grid import GRID, FloatArray
from flwr_dpkmeans.kernels.vectors import as_column, as_floats
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST

BoolArray = NDArray[np.bool_]

# Cut rows.
# what pulling residuals back moves a mean by, in radii, where nothing of it is released
_UNHEARD_CUT = 0.5
# mean of pulled residuals, in radii, where most rows lie beyond their radius, and how
# often its square must hold that of the noise to be believed
_SATURATED = 0.5
_BELIEVED = 4.0
_HIDDEN_ROWS = 0.5  # of rows that were left out, in deviations of their number's noise
_BEYOND = 1.5  # distance of rows that were left out, in radii
_LIKELY_PULLED = 0.75  # part of what is cut that one of several clusters has
_SIDEWAYS = 0.5  # of what is cut, along axes that a cluster does not lie on


def unheard_cut(radii: FloatArray, n_features: int) -> FloatArray:
    """Say how far pulling residuals back to their radius may move a mean, (k, 1).

    Where nothing of it is released.
    """
    # Columns share what is cut of a residual.
    part = _UNHEARD_CUT / math.sqrt(n_features)
    return as_column(part * radii)


def are_saturated(
    sums: FloatArray,
    counts: FloatArray,
    radii: FloatArray,
    noise: FloatArray,
) -> BoolArray:
    """Say of which clusters, (k,), most rows lie beyond their radius on one side.

    Their centres still move as far as a radius lets them, and nobody knows how far off
    the rows are.

    Parameters
    ----------
    sums : ndarray, (k, d)
        Released sums of pulled residuals.
    counts : ndarray, (k,)
        Rows.
    radii : ndarray, (k,)
    noise : ndarray, (k,)
        Standard deviations of the noise on each entry of the sums.
    """
    longest = np.square(np.maximum(counts, 1.0) * radii)
    squares = np.square(sums).sum(axis=1) / longest
    noise_squares = sums.shape[1] * np.square(noise) / longest
    is_long = squares - noise_squares >= _SATURATED**2
    is_believed = squares >= _BELIEVED * noise_squares
    return np.asarray(is_long & is_believed)


def dropped_rows(
    counts: FloatArray,
    counts_noise: float,
    n_rows: float,
    radius: float,
) -> float:
    """Estimate how far rows beyond the radius would move a mean.

    They are in no sum and no count.

    They are what the counts lack of all rows.
    """
    n_clusters = len(counts)
    noise = counts_noise * math.sqrt(n_clusters)
    missing = n_rows - math.fsum(counts)
    # Noise hides some that are missing.
    likely_missing = math.hypot(max(0.0, missing), _HIDDEN_ROWS * noise)
    share = likely_missing / max(n_rows, 1.0)
    return _BEYOND * radius * min(share, 1.0)


def pulled_rows(
    offsets: FloatArray,
    counts: FloatArray,
    mean_beyond: float,
) -> FloatArray:
    """Say how far pulling rows back to a ball may move the means of clusters, (k, d).

    The ball is around a common point, and nothing of it is released.

    Rows beyond it are in few clusters, nobody knows in which, and lie mostly where a
    cluster's centre lies from the ball's.

    Parameters
    ----------
    offsets : ndarray, (k, d)
        Centres, from the ball's.
    counts : ndarray, (k,)
        Noisy counts of rows.
    mean_beyond : float
        What rows, or points like them, have beyond the ball on average.

    Returns
    -------
    ndarray, (k, d)
    """
    rows = np.maximum(counts, 1.0)
    part = _LIKELY_PULLED if len(offsets) > 1 else 1.0
    n_features = offsets.shape[1]
    of_all = part * mean_beyond * math.fsum(rows)
    of_cluster = np.minimum(of_all / rows, WIDEST)
    lengths = np.linalg.norm(offsets, axis=1, keepdims=True)
    at_least = np.maximum(lengths, 1.0 / GRID)
    directions = np.abs(offsets) / at_least
    sideways = _SIDEWAYS / math.sqrt(n_features)
    directions = np.maximum(directions, sideways)
    return as_floats(as_column(of_cluster) * directions)
