"""Steps of centroids: posterior means, and their deviations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import as_column, squared_lengths
from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts

_TAUS = 2.0 ** np.arange(-20, 3)
"""Variances of a step, in variances of the data along an axis.

From a thousandth to four.
"""


def shrunk_steps(
    sums: FloatArray,
    noisy_counts: npt.ArrayLike,
    *,
    sums_noise: float | FloatArray,
    counts_noise: float,
    axis_variance: float,
    least_tau: float,
    radius: float | FloatArray,
    total: float | None = None,
) -> FloatArray:
    """Posterior mean of every centroid's step, (k, d), from noisy relative sums.

    Steps are at most `radius` long. Noise and radius are those of all sums, or of each;
    `total` is what the counts add up to, if that is public. ``proxy_lloyd.md``, shrunk
    steps, has the model; `axis_variance` is its v, and tau is at least `least_tau`,
    which is large in early rounds, when centroids still have far to go.
    """
    counts = likely_counts(noisy_counts, counts_noise, total)
    gains, weights = _gains(
        sums,
        counts,
        sums_noise,
        axis_variance,
        least_tau,
    )
    weighted = as_column(weights) * gains
    gain = weighted.sum(axis=0) / weights.sum()
    steps = sums * as_column(gain)
    return clip_steps(steps, radius)


def _gains(
    sums: FloatArray,
    counts: FloatArray,
    sums_noise: float | FloatArray,
    axis_variance: float,
    least_tau: float,
) -> tuple[FloatArray, FloatArray]:
    """Factors that turn sums into posterior means, and the weight of each tau.

    Factors are (n_taus, k), weights (n_taus,).
    """
    n_features = sums.shape[1]
    least = min(least_tau, _TAUS[-1])
    taus = _TAUS[least <= _TAUS]
    # (n_taus, n_clusters): variance of a sum's entry, and the factor that turns a sum
    # into a posterior mean.
    step_variances = as_column(taus) * axis_variance
    variances = counts**2 * step_variances + sums_noise**2
    gains = step_variances * counts / variances
    scores = squared_lengths(sums) / variances
    log_densities = n_features * np.log(variances) + scores
    evidence = np.log(taus) - 0.5 * log_densities.sum(axis=1)
    weights = np.exp(evidence - evidence.max())
    return gains, weights


def step_deviations(
    sums: FloatArray,
    noisy_counts: npt.ArrayLike,
    *,
    sums_noise: float | FloatArray,
    counts_noise: float,
    axis_variance: float,
    least_tau: float,
    total: float | None = None,
) -> FloatArray:
    """Posterior standard deviation of what `shrunk_steps` gives the mean of, (k, d).

    What noise leaves unsure. Under each tau it is a formula; steps differ between taus,
    and with the noise of the count, to first order.
    """
    counts = likely_counts(noisy_counts, counts_noise, total)
    gains, weights = _gains(
        sums,
        counts,
        sums_noise,
        axis_variance,
        least_tau,
    )
    shares = as_column(weights / weights.sum())
    gain = (shares * gains).sum(axis=0)
    differences = np.square(gains - gain)
    scatter = (shares * differences).sum(axis=0)
    of_noise = gain * np.square(sums_noise) / counts
    of_counts = gain * counts_noise / counts
    of_steps = scatter + np.square(of_counts)
    by_sums = as_column(of_steps) * np.square(sums)
    variances = as_column(of_noise) + by_sums
    return np.asarray(np.sqrt(variances))
