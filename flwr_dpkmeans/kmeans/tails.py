"""What a round of residuals cuts.

Its sums by cluster and shell, and how much of them is to be believed.

A residual beyond its radius is pulled back to it, so a mean of skewed rows is short of
its tail. What is beyond the radius, the excess, is summed apart, in shells of growing
length: each sum is divided by its shell's length before it is sent, so that the
sensitivity is 1, and noise is as long as the shell. Which shells count is decided
afterwards.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.residual_sums import SMALLEST_RADIUS
from flwr_dpkmeans.kernels.vectors import as_column, as_floats

# width of the box in one column: a flag's rows lie so far apart, so a shell ends there
_COLUMN = 2.0
# what the first shell adds to a mean where it is to be added, in radii, shared by
# columns
_SURE_CUT = 0.1
# the same where it is only unsure, for a cluster that reaches far beyond its radius
_LIKELY_CUT = 0.5
_LIKELY_TAIL = 1.5  # of that, over what an exponential tail leaves beyond a radius
_UNHEARD = 0.1  # the same at most, in variances of the noise, where nothing is heard
_FALLING = 0.6  # what a shell adds over what the one before adds
# a shell's square over that of the one before: of what was heard, and of what was not
_HEARD_SQUARE = 1.5
_UNHEARD_SQUARE = 0.5
_LIKELY_DOUBT = 1.25
# what a shell may hide below its noise, in radii, and how fast that falls in clusters
# that end within their radius: in one column, and by a power of their number
_HIDDEN = 1.5
_HIDDEN_STEEPNESS = 2.0
_BY_COLUMNS = 1.7
_LEAST_FULL = 0.1


def shell_lengths(
    radii: FloatArray,
    n_shells: int,
    farthest: float,
) -> FloatArray:
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
        From the radius on, growing by factors; one ends at a column's width.
    """
    clipped = np.clip(radii, SMALLEST_RADIUS, farthest)
    first = as_column(clipped)
    n_steps = max(1, n_shells - 1)
    steps = np.arange(n_shells)
    lengths: FloatArray
    if farthest <= _COLUMN or n_shells < 3:
        exponents = steps / n_steps
        lengths = first * (farthest / first) ** exponents
    else:
        # In logarithms, shells up to a column's width are about as long as those beyond
        # it, and there is at least one of each.
        near = np.minimum(first, _COLUMN)
        share = np.log(_COLUMN / near) / np.log(farthest / near)
        n_near = np.clip(np.round(n_steps * share), 1, n_steps - 1)
        up_to_column = np.minimum(steps / n_near, 1.0)
        beyond_column = np.maximum(steps - n_near, 0.0) / (n_steps - n_near)
        lengths = near * (_COLUMN / near) ** up_to_column
        lengths = lengths * (farthest / _COLUMN) ** beyond_column
        lengths = np.maximum(lengths, first)
    lengths[:, -1] = farthest
    return lengths


def beyond_radius(
    sums: FloatArray,
    lengths: FloatArray,
    counts: FloatArray,
    noise: float,
    fullness: FloatArray | float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Estimate what means of pulled residuals lack, and how unsure that is.

    From released sums of the excess.

    Shell by shell, what it adds to a mean is a normal variable around a part of what
    the shell before adds. Noise is as long as the shell, so that one far out counts
    only as far as nearer ones, or its own sums, say that rows are there. That is asked
    twice: what is surely there is added, and what may be there makes the rest unsure.
    Rows that noise hides in far shells make it unsure, too, in clusters which are so
    full up to their radius that they hardly end there.

    Parameters
    ----------
    sums : ndarray, (k, n_shells, d)
        Released, over the shells' lengths.
    lengths : ndarray, (k, n_shells)
    counts : ndarray, (k,)
        Rows of each cluster, at least 1.
    noise : float
        Standard deviation on each entry of the sums.
    fullness : ndarray, (k,), or float
        Root mean square of the pulled residuals, in radii.

    Returns
    -------
    tuple of ndarray, (k, d) and (k, d)
        What to add to the means, and its standard deviation.
    """
    n_clusters, n_shells, n_features = sums.shape
    shape = n_clusters, n_features
    clipped = np.clip(fullness, _LEAST_FULL, 1.0)
    full = as_column(np.broadcast_to(clipped, (n_clusters,)))
    first_lengths = lengths[:, :1]
    # Columns share the length of what is cut.
    first = np.square(first_lengths) / n_features
    # No more than all entries of the first shell together have beyond their noise: in
    # many columns that is nothing.
    first_scores = np.square(sums[:, 0] / noise)
    heard_squares = max(0.0, float(first_scores.mean()) - 1.0)
    of_noise = np.square(noise * first_lengths / as_column(counts))
    sure_cut = _SURE_CUT**2 * first
    sure_square = np.minimum(sure_cut, heard_squares * of_noise)
    sure = np.broadcast_to(sure_square, shape)
    tail = np.minimum(_LIKELY_TAIL * _tail(full, 1.0), 1.0)
    likely_cut = np.square(_LIKELY_CUT * tail) * first
    likely_square = np.minimum(
        likely_cut,
        (_UNHEARD + heard_squares) * of_noise,
    )
    likely = np.broadcast_to(likely_square, shape)
    # Lengths of residuals scatter less in many columns.
    steepness = _HIDDEN_STEEPNESS * n_features**_BY_COLUMNS
    hidden_tail = _tail(full, steepness)
    hidden = np.square(_HIDDEN * first_lengths * hidden_tail)
    more = np.zeros(shape)
    squares = np.zeros(shape)
    expected: FloatArray = np.zeros(shape)
    faint_scores = np.zeros(shape)
    doubt = math.log(sums.size)
    for shell in range(n_shells):
        scale = as_column(lengths[:, shell] / counts)
        estimate = sums[:, shell] * scale
        unsure = np.square(noise * scale)
        scores = sums[:, shell] / noise
        is_faint = np.square(scores) <= _reached(doubt)
        faint_scores = faint_scores + np.where(is_faint, scores, 0.0)
        n_shells_to_here = shell + 1
        joint = np.square(faint_scores) / n_shells_to_here
        sure_evidence = _evidence(
            scores,
            joint,
            shell,
            doubt,
        )
        likely_evidence = _evidence(
            scores,
            joint,
            shell,
            _LIKELY_DOUBT,
        )
        sure = np.maximum(sure, unsure * sure_evidence)
        likely = np.maximum(likely, unsure * likely_evidence)
        likely = np.maximum(likely, sure)
        gain = sure / (sure + unsure)
        likely_gain = likely / (likely + unsure)
        added = expected + gain * (estimate - expected)
        likelier = expected + likely_gain * (estimate - expected)
        more += added
        left = likely_gain * unsure
        below_noise = hidden * unsure / (hidden + unsure)
        disagreement = np.square(likelier - added)
        squares += np.maximum(left + disagreement, below_noise)
        # What the next shell adds, as far as this one was heard.
        expected = _FALLING * gain * added
        sure = gain * np.square(added)
        heard_square = np.square(likelier)
        likely = _HEARD_SQUARE * heard_square + _UNHEARD_SQUARE * left
    return more, np.sqrt(squares)


def _tail(fullness: FloatArray, steepness: float) -> FloatArray:
    """What an exponential tail, for a steepness of 1, leaves of a mean beyond a radius.

    In radii, by the root mean square in radii.

    1 where rows are as long as their radius.
    """
    beyond = 1.0 - 1.0 / fullness
    chances = np.exp(steepness * beyond)
    return np.asarray(fullness * chances)


def _evidence(
    scores: FloatArray,
    joint: FloatArray,
    shell: int,
    doubt: float,
) -> FloatArray:
    """Say how large squares are beyond what noise reaches, in its variances.

    The largest of four estimates: that of each entry, of an entry with those of nearer
    shells, of a column's mean square over all clusters, and of its mean. Noise alone
    reaches farther with a chance of about exp(-doubt) (Laurent and Massart 2000, on
    chi-squared variables).

    Parameters
    ----------
    scores : ndarray, (k, d)
        In standard deviations of the noise.
    joint : ndarray, (k, d)
        Square of the sum of scores up to this shell, over their number.
    shell : int
        From 0.
    doubt : float

    Returns
    -------
    ndarray, (k, d)
        Negative where there is none.
    """
    n_clusters = len(scores)
    reached = _reached(doubt)
    squares = np.square(scores)
    entries = squares - reached
    # A tail lies on one side, so faint shells add up.
    together = (joint - reached) / (shell + 1)
    entries = np.maximum(entries, together)
    mean_squares = squares.mean(axis=0) - _reached(doubt / n_clusters)
    squared_means = np.square(scores.mean(axis=0))
    means = squared_means - reached / n_clusters
    of_columns = np.maximum(mean_squares, means)
    return as_floats(np.maximum(entries, of_columns))


def _reached(doubt: float) -> float:
    """What a mean of squares of standard normal variables reaches.

    They share `doubt`.
    """
    scatter = 2.0 * math.sqrt(doubt)
    return 1.0 + scatter + 2.0 * doubt
