"""What a round of residuals cuts: its sums by cluster and shell, and how much of them
is to be believed.

A residual beyond its radius is pulled back to it, so a mean of skewed rows is short of
its tail. What is beyond the radius, the excess, is summed apart, in shells of growing
length: each sum is divided by its shell's length before it is sent, so that the
sensitivity is 1, and noise is as long as the shell. Which shells count is decided
afterwards.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.clipping import SHADE
from flwr_dpkmeans.kernels.grid import GRID, FloatArray, LabelArray
from flwr_dpkmeans.kernels.label_sums import add_by_label

_SMALLEST_RADIUS = 2.0**-16
# what the first shell may add to a mean, in radii, before anything is heard; shared by
# columns
_LIKELY_CUT = 0.33
_SURE_CUT = 0.1  # the same where it is to be added, and its noise with it
_UNHEARD = 0.5  # the same at most, in variances of the noise, where nothing is heard
_THINNING = 0.5  # what a shell's square may be over that of the one before
_FALLING = 0.6  # what a shell adds over what the one before adds
_LIKELY_DOUBT = 1.0


def shell_lengths(radii: FloatArray, n_shells: int, farthest: float) -> FloatArray:
    """Say how far beyond its radius each shell of a cluster ends.

    Parameters
    ----------
    radii : ndarray, (k,)
        Those below 2^-16 count as 2^-16, and those above `farthest` as that.
    n_shells : int
        At least 1.
    farthest : float
        Where the last shell ends.

    Returns
    -------
    ndarray, (k, n_shells)
        From the radius on, each longer than the last by one factor.
    """
    first = np.clip(radii, _SMALLEST_RADIUS, farthest)[:, None]
    parts = np.arange(n_shells) / max(1, n_shells - 1)
    lengths: FloatArray = first * (farthest / first) ** parts
    lengths[:, -1] = farthest
    return lengths


def excess_sums(
    rows: FloatArray,
    labels: LabelArray,
    centers: FloatArray,
    radii: FloatArray,
    lengths: FloatArray,
    n: int,
) -> FloatArray:
    """Sum what residuals have beyond their radius, by cluster and shell, over the
    shell's length, on the grid.

    A row's excess is the part of its residual beyond the radius, and belongs to the
    first shell that is as long. It adds a vector of Euclidean norm at most 1 to one
    sum, whatever radii and lengths are.

    Parameters
    ----------
    rows : ndarray, (n_rows, d)
        On the grid.
    labels : ndarray, (n_rows,)
        One beyond the centers counts as the last.
    centers : ndarray, (k, d)
    radii : ndarray, (k,)
    lengths : ndarray, (k, n_shells)
        Rising, above 0.
    n : int
        Clusters that the result has, at least k; those beyond the centers are 0.

    Returns
    -------
    ndarray, (n, n_shells * d)

    Raises
    ------
    DataError
        There are no centers, or more than `n`.
    """
    if not 1 <= len(centers) <= n:
        raise DataError(
            f"there are {len(centers)} centers, but there must be from 1 to {n}: give"
            " as many as planned."
        )
    n_shells, n_features = lengths.shape[1], rows.shape[1]
    least = np.maximum(radii, _SMALLEST_RADIUS)
    sums = np.zeros((n * n_shells, n_features))
    for part in row_blocks(len(rows), 4 * n_features):
        nearest = np.minimum(labels[part], len(centers) - 1)
        residuals = rows[part] - centers[nearest]
        norms = np.sqrt(np.square(residuals) @ np.ones(n_features))
        # Few rows are.
        beyond = np.flatnonzero(norms > least[nearest])
        nearest, norms = nearest[beyond], norms[beyond]
        excess = norms - least[nearest]
        shells = (excess[:, None] > lengths[nearest]).sum(axis=1)
        shells = np.minimum(shells, n_shells - 1)
        # A row farther than the last shell is pulled back to its end.
        longest = np.maximum(lengths[nearest, shells], excess)
        factors = SHADE * GRID * excess / (norms * longest)
        units = np.trunc(residuals[beyond] * factors[:, None])
        add_by_label(sums, units, nearest * n_shells + shells)
    return sums.reshape(n, n_shells * n_features) / GRID + 0.0


def beyond_radius(
    sums: FloatArray, lengths: FloatArray, counts: FloatArray, noise: float
) -> tuple[FloatArray, FloatArray]:
    """Estimate what means of pulled residuals lack, and how unsure that is, from
    released sums of the excess.

    Shell by shell, what it adds to a mean is a normal variable around a part of what
    the shell before adds. Noise is as long as the shell, so that one far out counts
    only as far as nearer ones, or its own sums, say that rows are there. That is asked
    twice: what is surely there is added, and what may be there makes the rest unsure.

    Parameters
    ----------
    sums : ndarray, (k, n_shells, d)
        Released, over the shells' lengths.
    lengths : ndarray, (k, n_shells)
    counts : ndarray, (k,)
        Rows of each cluster, at least 1.
    noise : float
        Standard deviation on each entry of the sums.

    Returns
    -------
    tuple of ndarray, (k, d) and (k, d)
        What to add to the means, and its standard deviation.
    """
    n_clusters, n_shells, n_features = sums.shape
    shape = n_clusters, n_features
    # Columns share the length of what is cut.
    first = np.square(lengths[:, :1]) / n_features
    # No more than all entries of the first shell together have beyond their noise: in
    # many columns that is nothing.
    heard_squares = max(0.0, float(np.square(sums[:, 0] / noise).mean()) - 1.0)
    of_noise = np.square(noise * lengths[:, :1] / counts[:, None])
    sure = np.broadcast_to(
        np.minimum(_SURE_CUT**2 * first, heard_squares * of_noise), shape
    )
    likely = np.broadcast_to(
        np.minimum(_LIKELY_CUT**2 * first, (_UNHEARD + heard_squares) * of_noise), shape
    )
    more, squares, expected = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for shell in range(n_shells):
        scale = (lengths[:, shell] / counts)[:, None]
        heard, unsure = sums[:, shell] * scale, np.square(noise * scale)
        scores = sums[:, shell] / noise
        sure = np.maximum(sure, unsure * _evidence(scores, math.log(sums.size)))
        likely = np.maximum(likely, unsure * _evidence(scores, _LIKELY_DOUBT))
        likely = np.maximum(likely, sure)
        gain, likely_gain = sure / (sure + unsure), likely / (likely + unsure)
        added = expected + gain * (heard - expected)
        likelier = expected + likely_gain * (heard - expected)
        more += added
        squares += likely_gain * unsure + np.square(likelier - added)
        # What the next shell adds, as far as this one was heard.
        expected = _FALLING * gain * added
        sure = gain * np.square(added)
        likely = _THINNING * (np.square(likelier) + likely_gain * unsure)
    return more, np.sqrt(squares)


def _evidence(scores: FloatArray, doubt: float) -> FloatArray:
    """Say how large squares are beyond what noise reaches, in its variances.

    The largest of three estimates.

    That of each entry, of a column's mean square over all clusters, and of its mean.
    Noise alone reaches farther with a chance of about exp(-doubt) (Laurent and Massart
    2000, on chi-squared variables).

    Parameters
    ----------
    scores : ndarray, (k, d)
        In standard deviations of the noise.
    doubt : float

    Returns
    -------
    ndarray, (k, d)
        Negative where there is none.
    """
    n_clusters = len(scores)
    entries = np.square(scores) - _reached(doubt)
    squares = np.square(scores).mean(axis=0) - _reached(doubt / n_clusters)
    means = np.square(scores.mean(axis=0)) - _reached(doubt) / n_clusters
    return np.asarray(np.maximum(entries, np.maximum(squares, means)), dtype=np.float64)


def _reached(doubt: float) -> float:
    """What a mean of squares of standard normal variables reaches, `doubt` being shared
    by them.
    """
    return 1.0 + 2.0 * math.sqrt(doubt) + 2.0 * doubt
