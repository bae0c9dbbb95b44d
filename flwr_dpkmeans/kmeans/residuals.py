"""Steps and radii that are made of noisy residual sums, by empirical Bayes.

A quotient of noisy sum and count is a poor step where a cluster is small. So steps are
posterior means under a prior whose parameter tau, their length, all clusters' sums
tell: post-processing, which costs nothing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import FloatArray

# Counts are that many standard deviations of their noise below zero at most.
_FARTHEST = 1e3
# Part of a mean square of residuals that steps take off at most.
_MOST_EXPLAINED = 0.9
# Mean square, in squared radii, from which on it says only that rows lie beyond.
_MOSTLY_CLIPPED = 0.75
# Growth of a radius from one round to the next.
_MOST_GROWTH = 4.0
# Noise, in parts of all rows, from which on steps of a split are finer than it.
_FINEST_SPLIT = 0.002
_CUBE_ROOTS = (np.arange(4096) + 0.5) / 4096
_SPLITS = _CUBE_ROOTS**3
"""Parts of a total that one of its counts may be."""
_SPLIT_STEPS = 3.0 * _CUBE_ROOTS**2
"""How far apart these parts are, up to a factor."""
_TAUS = 2.0 ** np.arange(-20, 3)
"""Variances of a step, in variances of the data along an axis.

From a thousandth to four.
"""
_TINY = 1e-300


def next_radii(
    radii: FloatArray,
    squares: FloatArray,
    counts: FloatArray,
    explained: FloatArray,
    *,
    noise: float,
    counts_noise: float,
    width: float,
    prior_variance: float,
    floor: float,
) -> FloatArray:
    """Choose radii for the next round from the private mean squares of residuals.

    Parameters
    ----------
    radii : array (k,) of the clusters, or (1,) of all
        Radii of the round before.
    squares : array of the same shape
        Sums over `counts` rows, in squared radii, with `noise`.
    counts : array of the same shape
        Numbers of rows, with `counts_noise`.
    explained : array of the same shape
        What steps take off the means.
    width : float
        Radius over root mean square that is aimed at, at least 1.
    prior_variance : float
        Relative variance of the prior that radii are right already.
    floor : float
        Smallest part of a radius that is returned.

    The mean over all rows is averaged, by precision, with the prior, and that of a
    cluster, where it is more, with that over all rows, by how far clusters scatter.
    Residuals beyond a radius are not seen: it grows only where its cluster is told from
    the others.
    """
    areas = np.square(radii)
    means = squares / counts
    most_explained = _MOST_EXPLAINED * np.maximum(means, 0.0)
    remaining = (means - np.minimum(explained / areas, most_explained)) * areas
    pooled = _pooled_square(
        counts,
        areas,
        remaining,
        noise=noise,
        width=width,
        prior_variance=prior_variance,
    )
    # Variances of a quotient: by the noise of the sum, and by that of the count.
    of_counts = np.clip(means, 0.0, 1.0) * counts_noise
    errors = np.square(np.hypot(noise, of_counts) / counts * areas)
    scatter = 0.0
    if len(radii) > 1:
        differences = np.square(remaining - pooled) - errors
        scatter = max(0.0, float(differences.mean()))
    # Tighter clusters keep the common one: their cells may have far rows, too.
    weights = scatter / np.maximum(scatter + errors, _TINY)
    estimates = pooled + np.maximum(remaining - pooled, 0.0) * weights
    is_distinct = scatter > errors
    ratios = width * np.sqrt(estimates) / radii
    is_clipped = is_distinct & (means > _MOSTLY_CLIPPED)
    ratios = np.where(is_clipped, _MOST_GROWTH, ratios)
    most_growth = np.where(is_distinct, _MOST_GROWTH, 1.0)
    following = radii * np.clip(ratios, floor, most_growth)
    return np.asarray(following, dtype=np.float64)


def _pooled_square(
    counts: FloatArray,
    areas: FloatArray,
    remaining: FloatArray,
    *,
    noise: float,
    width: float,
    prior_variance: float,
) -> float:
    """Mean square over all rows, averaged with the prior that radii are right."""
    total = math.fsum(counts)
    usual = float(counts @ areas) / total
    error = noise**2 * float(areas @ areas) / total**2
    prior = prior_variance * usual**2
    pooled = max(float(counts @ remaining) / total, 0.0)
    return (pooled * prior + usual / width**2 * error) / (prior + error)


def pulled_together(noisy_counts: FloatArray, noise: float) -> tuple[FloatArray, float]:
    """Pull noisy counts (k,) toward their mean; and the noise that is left.

    By how much of their scatter noise explains: Lindley's estimator, positive part
    (Efron and Morris 1973). For k > 3 its error is less than the noise whatever the
    counts are, and up to three counts stay as they are. The mean itself is known to
    noise / sqrt(k).
    """
    k = len(noisy_counts)
    mean = math.fsum(noisy_counts) / k
    scatter = math.fsum(np.square(noisy_counts - mean))
    explained = min(1.0, max(0, k - 3) * noise**2 / max(scatter, _TINY))
    pulled = noisy_counts + explained * (mean - noisy_counts)
    return pulled, noise * math.sqrt(1.0 - explained + explained / k)


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
    return noisy_counts + missing / k, noise * math.sqrt(1.0 - 1.0 / k)


def likely_counts(
    noisy_counts: npt.ArrayLike,
    noise: float,
    total: float | None = None,
) -> FloatArray:
    """Estimate counts, which are not negative, from noisy ones.

    Posterior means, at least 1, under a flat prior. If their `total` is public, it is
    flat on all ways to split it: a count alone has the density (1 - n / total)^(k - 2)
    then, and where noise is large, it comes to total / k.
    """
    values = np.atleast_1d(np.asarray(noisy_counts, dtype=np.float64))
    if total is None or total <= 0.0 or noise < _FINEST_SPLIT * total:
        # Hardly any count is cut off, or shared out, by so little noise.
        if noise > 0.0:
            values = likely_positive(values, noise)[0]
        return np.maximum(1.0, values)
    # Steps are shorter toward 0, where most of k counts are; (k, n_steps) are log
    # likelihoods.
    logs = -0.5 * np.square((values[:, None] - total * _SPLITS) / noise)
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances = likelihoods * _SPLIT_STEPS * (1.0 - _SPLITS) ** (len(values) - 2)
    means = total * (chances @ _SPLITS) / chances.sum(axis=1)
    return np.asarray(np.maximum(1.0, means), dtype=np.float64)


def likely_positive(
    noisy: npt.ArrayLike, noise: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Estimate numbers that are not negative from noisy ones.

    Posterior means under a flat prior. And the logarithm of the chance that a normal
    variable around each noisy number is positive.
    """
    from scipy.special import log_ndtr

    values = np.asarray(noisy, dtype=np.float64)
    # Beyond that no noise goes, and the two exponents below would cancel.
    z = np.clip(values / noise, -_FARTHEST, _FARTHEST)
    # The mean of a normal variable that is known to be positive exceeds its location by
    # the inverse Mills ratio.
    chances = np.asarray(log_ndtr(z))
    mills = np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - chances)
    means = np.maximum(values, -_FARTHEST * noise) + noise * mills
    return np.asarray(means, dtype=np.float64), chances


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
    gain = (weights[:, None] * gains).sum(axis=0) / weights.sum()
    return clip_steps(sums * gain[:, None], radius)


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
    taus = _TAUS[min(least_tau, _TAUS[-1]) <= _TAUS]
    # (n_taus, n_clusters): variance of a sum's entry, and the factor that turns a sum
    # into a posterior mean.
    variances = counts**2 * (taus[:, None] * axis_variance) + sums_noise**2
    gains = taus[:, None] * axis_variance * counts / variances
    squares = np.einsum("ij,ij->i", sums, sums)
    log_densities = n_features * np.log(variances) + squares / variances
    evidence = np.log(taus) - 0.5 * log_densities.sum(axis=1)
    return gains, np.exp(evidence - evidence.max())


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
    shares = (weights / weights.sum())[:, None]
    gain = (shares * gains).sum(axis=0)
    scatter = (shares * np.square(gains - gain)).sum(axis=0)
    of_noise = gain * np.square(sums_noise) / counts
    of_steps = scatter + np.square(gain * counts_noise / counts)
    variances = of_noise[:, None] + of_steps[:, None] * np.square(sums)
    return np.asarray(np.sqrt(variances))
