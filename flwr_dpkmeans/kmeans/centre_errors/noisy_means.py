"""What noise in a last sum and count makes of their quotient."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray, Mask
from flwr_dpkmeans.kernels.vectors import as_column
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST

_FAINT = (
    2.0  # a count below so many standard deviations of its noise says nothing of a mean
)


def are_faint(counts: FloatArray, noise: float) -> Mask:
    """Say which clusters, (k,), are not told from noise by their noisy counts."""
    least = max(1.0, _FAINT * noise)
    return np.asarray(counts < least)


def quotient_deviations(
    offsets: FloatArray,
    counts: FloatArray,
    sums_noise: float,
    counts_noise: float,
) -> FloatArray:
    """Give the deviation of a noisy sum over a noisy count, to first order.

    Parameters
    ----------
    offsets : ndarray, (k, d)
        Means from the point that the sums are relative to.
    counts : ndarray, (k,)
        Noisy counts.
    sums_noise, counts_noise : float
        Standard deviations of the noise.

    Returns
    -------
    ndarray, (k, d)
        The box's width where a count is not told from its noise.
    """
    rows = np.maximum(counts, 1.0)
    of_counts = counts_noise * offsets
    of_quotients = np.hypot(sums_noise, of_counts)
    deviations = of_quotients / as_column(rows)
    deviations[are_faint(counts, counts_noise)] = WIDEST
    return deviations
