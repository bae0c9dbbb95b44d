"""Variances, pulled toward what was known by how much of them noise explains."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray

PRIOR_VARIANCE = 0.2
"""Of a column in the box [-1, 1], before anything is known.

Between a uniform column (1/3) and a peaked one.
"""
LEAST_VARIANCE = 2.0**-28
MOST_VARIANCE = 1.0
PRIOR_SPREAD = 0.75
"""Standard deviation of what is expected before anything is known, in its own size."""
_LEAST_PART = 0.3
"""Part of its standard deviation that a variance is at least, as it is not below 0."""


def signal_share(square: float, noise: float) -> float:
    """Part of a mean square that `noise`, a standard deviation, does not explain.

    0 if it explains all.
    """
    of_noise = noise**2
    signal = square - of_noise
    if signal > 0.0:
        return signal / (signal + of_noise)
    return 0.0


def axis_variance(
    noisy_square: float,
    noise: float,
    offset: FloatArray,
    error: float,
    prior: float,
    prior_variance: float,
) -> tuple[float, float]:
    """Variance along an axis, on average.

    From the noisy mean of |x|^2 with noise of standard deviation `noise`.

    `offset` is where x has its mean, with noise `error` on each entry. Averaged, by
    precision, with what was known before; and at least a part of its own standard
    deviation: else noise would put all clusters into one place. Also returns the square
    of that standard deviation.
    """
    n_features = len(offset)
    squares = math.fsum(np.square(offset))
    measured = (noisy_square - squares) / n_features
    # Of the square of the centre's distance, noise in the centre is a part, too.
    of_centre = 2.0 * error * math.sqrt(squares)
    deviation = math.hypot(noise, of_centre) / n_features
    averaged, remaining = by_precision(
        measured,
        deviation**2,
        prior,
        prior_variance,
    )
    least = _LEAST_PART * math.sqrt(remaining)
    variance = max(averaged, least, LEAST_VARIANCE)
    return float(min(variance, MOST_VARIANCE)), remaining


def by_precision(
    first: float,
    first_variance: float,
    second: float,
    second_variance: float,
) -> tuple[float, float]:
    """Average two estimates of one number by precision.

    Returns the average, and its variance.
    """
    both = first_variance + second_variance
    weighted = first * second_variance + second * first_variance
    variance = first_variance * second_variance / both
    return weighted / both, variance
