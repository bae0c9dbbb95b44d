"""What a noisy histogram of squared distances says."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray

MIDDLE_OF_BIN = math.sqrt(0.5)
"""Squared distance in the middle of a bin, in that of its edge."""
_BIN_SHARES = (0.25, 0.5, 0.25)
BIN_ERROR = 0.15
"""Relative standard deviation of a mean square that a histogram of such bins tells."""


def farthest_heard(scores: FloatArray, threshold: float) -> int:
    """Index of the farthest bin that stands out of the noise; 0 if none does.

    Alone or together with its neighbours.

    `scores` are noisy counts in standard deviations of their noise, the farthest first.
    A few rows in several bins are heard together: 2, and 4, are looked at outside of
    what fewer have shown.
    """
    n_bins = len(scores)
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    farthest = n_bins
    for width in (1, 2, 4):
        windows = sums[width:] - sums[:-width]
        n_outside = max(0, farthest - width + 1)
        least = threshold * math.sqrt(width)
        standing_out = np.flatnonzero(windows[:n_outside] > least)
        if standing_out.size:
            farthest = int(standing_out[0])
    return 0 if farthest == n_bins else farthest


def farther_if_likelier(
    first: int,
    counts: FloatArray,
    noise: FloatArray,
    n: float,
) -> int:
    """The bin `first`, or a farther one where n rows likely begin.

    They are likelier to begin there than anywhere from about there on.

    Rows are taken to lie in three bins, a quarter, a half and a quarter of them. Few
    rows may not be heard where they are, and noise is then heard in some bin near the
    centre.
    """
    n_beside = len(_BIN_SHARES) - 1
    n_starts = len(counts) - n_beside
    logs = np.zeros(n_starts)
    for offset, share in enumerate(_BIN_SHARES):
        bins = slice(offset, offset + n_starts)
        rows = share * n
        variances = np.square(noise[bins])
        # Log likelihood of so many rows over that of none.
        logs += (counts[bins] - 0.5 * rows) * rows / variances
    likeliest = int(logs.argmax())
    is_farther = likeliest < first - n_beside
    return likeliest if is_farther else first


def binned_square(
    counts: FloatArray,
    noise: FloatArray,
    edges: FloatArray,
    n: float,
) -> tuple[float, float]:
    """Mean squared distance of n points, and its standard deviation.

    From noisy counts by squared distance.
    """
    middles = edges * MIDDLE_OF_BIN
    square = math.fsum(counts * middles) / n
    variances = np.square(noise * middles)
    of_noise = math.sqrt(math.fsum(variances)) / n
    of_bins = BIN_ERROR * square
    return square, math.hypot(of_noise, of_bins)
