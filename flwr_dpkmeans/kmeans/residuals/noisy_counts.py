"""Better estimates of noisy counts, from all of them together."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import TINY


def pulled_together(
    noisy_counts: FloatArray,
    noise: float,
) -> tuple[FloatArray, float]:
    """Pull noisy counts (k,) toward their mean; and the noise that is left.

    By how much of their scatter noise explains: Lindley's estimator, positive part
    (Efron and Morris 1973). For k > 3 its error is less than the noise whatever the
    counts are, and up to three counts stay as they are. The mean itself is known to
    noise / sqrt(k).
    """
    k = len(noisy_counts)
    mean = math.fsum(noisy_counts) / k
    squares = np.square(noisy_counts - mean)
    scatter = math.fsum(squares)
    by_noise = max(0, k - 3) * noise**2
    explained = min(1.0, by_noise / max(scatter, TINY))
    pulled = noisy_counts + explained * (mean - noisy_counts)
    variance = 1.0 - explained + explained / k
    return pulled, noise * math.sqrt(variance)


def adding_up(
    noisy_counts: FloatArray,
    noise: float,
    total: float,
) -> tuple[FloatArray, float]:
    """Change noisy counts (k,) alike, so that they add up to a public total.

    Also returns the noise that is left: 0 for one count.
    """
    k = len(noisy_counts)
    missing = total - math.fsum(noisy_counts)
    changed = noisy_counts + missing / k
    variance = 1.0 - 1.0 / k
    return changed, noise * math.sqrt(variance)
