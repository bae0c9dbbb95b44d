"""Steps of centroids from noisy sums and counts by empirical Bayes: post-processing, at no privacy cost.

A quotient of a noisy sum and a noisy count is a poor step where a cluster is small: noise moves the centroid as far as
the radius lets it. Here the length of the steps is a parameter tau of a prior, learnt from all clusters' sums at once,
and every step is the posterior mean.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kmeans.assignment import FloatArray
from flwr_dpkmeans.kmeans.update import clip_steps

_FARTHEST = 1e3
"""Counts are that many standard deviations of their noise below zero at most."""
_TAUS = 2.0 ** np.arange(-20, 3)
"""Variances of a step, in variances of the data along an axis, from a thousandth to four."""


def likely_counts(noisy_counts: npt.ArrayLike, noise: float) -> FloatArray:
    """Estimate counts, which are not negative, from noisy ones: posterior means under a flat prior, at least 1.

    Parameters
    ----------
    noisy_counts : array of shape (n_clusters,)
    noise : float
        Standard deviation, above 0.

    Returns
    -------
    float64 array of shape (n_clusters,)

    Examples
    --------
    >>> likely_counts([100.0, -30.0], 10.0).round(1).tolist()
    [100.0, 2.8]
    """
    from scipy.special import log_ndtr

    counts = np.asarray(noisy_counts, dtype=np.float64)
    # Beyond that no noise goes, and the two exponents below would cancel.
    z = np.clip(counts / noise, -_FARTHEST, _FARTHEST)
    # The mean of a normal variable that is known to be positive exceeds its location by the inverse Mills ratio.
    mills = np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_ndtr(z))
    likely: FloatArray = np.maximum(1.0, np.maximum(counts, -_FARTHEST * noise) + noise * mills)
    return likely


def shrunk_steps(
    sums: FloatArray,
    noisy_counts: npt.ArrayLike,
    *,
    sums_noise: float,
    counts_noise: float,
    axis_variance: float,
    least_tau: float,
    radius: float,
) -> FloatArray:
    """Posterior mean of every centroid's step.

    Model: the step of cluster j is N(0, tau v I) with v the variance of the data along an axis; the released sum is its
    count times the step plus N(0, s^2 I). The prior of tau on a grid of powers of two is proportional to tau.

    Parameters
    ----------
    sums : array of shape (n_clusters, n_features)
        Noisy relative sums, in data units.
    noisy_counts : array of shape (n_clusters,)
    sums_noise, counts_noise : float
        Standard deviations of the noise.
    axis_variance : float
        v, in squared data units.
    least_tau : float
        Smallest tau that is considered: large in early rounds, when centroids still have far to go.
    radius : float
        Longest step, in data units.

    Returns
    -------
    float64 array of shape (n_clusters, n_features)
        In data units.

    Examples
    --------
    >>> options = dict(counts_noise=1.0, axis_variance=1.0, least_tau=0.25, radius=5.0)
    >>> shrunk_steps(np.array([[50.0]]), [100.0], sums_noise=0.001, **options).round(3).tolist()
    [[0.5]]
    >>> shrunk_steps(np.array([[50.0]]), [100.0], sums_noise=10_000.0, **options).round(3).tolist()
    [[0.0]]
    """
    counts = likely_counts(noisy_counts, counts_noise)
    n_features = sums.shape[1]
    taus = _TAUS[min(least_tau, _TAUS[-1]) <= _TAUS]
    # (n_taus, n_clusters): variance of a sum's entry, and the factor that turns a sum into a posterior mean.
    variances = counts**2 * (taus[:, None] * axis_variance) + sums_noise**2
    gains = taus[:, None] * axis_variance * counts / variances
    squares = np.einsum("ij,ij->i", sums, sums)
    evidence = np.log(taus) - 0.5 * (n_features * np.log(variances) + squares / variances).sum(axis=1)
    weights = np.exp(evidence - evidence.max())
    gain = (weights[:, None] * gains).sum(axis=0) / weights.sum()
    return clip_steps(sums * gain[:, None], radius)
