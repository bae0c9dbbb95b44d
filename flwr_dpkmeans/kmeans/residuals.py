"""What a client sums in a round of refinement, and the steps that are made of it.

Residuals are clipped, not dropped: the radius may come from earlier releases, so each
is divided by it before it is sent, the sensitivity is 1 whatever the radius is, and a
false radius costs nothing.

A quotient of noisy sum and count is a poor step where a cluster is small. So steps are
found by empirical Bayes, as post-processing: each is a posterior mean under a prior
whose parameter tau, their length, all clusters' sums tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels import blocks
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.clipping import SHADE, clip_steps
from flwr_dpkmeans.kernels.grid import GRID, FloatArray, LabelArray
from flwr_dpkmeans.kernels.label_sums import add_by_label

_SMALLEST_RADIUS = 2.0**-16
_FARTHEST = (
    1e3  # counts are that many standard deviations of their noise below zero at most
)
_MOST_EXPLAINED = 0.9  # part of a mean square of residuals that steps take off at most
# mean square, in squared radii, from which on it says only that rows lie beyond
_MOSTLY_CLIPPED = 0.75
_MOST_GROWTH = 4.0  # of a radius, from one round to the next
# noise, in parts of all rows, from which on steps of a split are finer than it
_FINEST_SPLIT = 0.002
_CUBE_ROOTS = (np.arange(4096) + 0.5) / 4096
_SPLITS, _SPLIT_STEPS = _CUBE_ROOTS**3, 3.0 * _CUBE_ROOTS**2
"""Parts of a total that one of its counts may be, and how far apart these are, up to a
factor.
"""
_TAUS = 2.0 ** np.arange(-20, 3)
"""Variances of a step, in variances of the data along an axis, from a thousandth to
four.
"""


@dataclass(frozen=True)
class ResidualSums:
    """What one client sums over its rows."""

    sums: FloatArray = field(repr=False)
    """(k, d), of clipped residuals, in radii.

    One row adds a vector of Euclidean norm at most 1 to one row of it.
    """
    counts: FloatArray = field(repr=False)
    """(k,), of all rows of each cluster, clipped or not."""
    squares: FloatArray = field(repr=False)
    """(k,), of the clipped residuals, in squared radii.

    One row adds at most 1 to one entry.
    """


def unit_residuals(residuals: FloatArray, radius: float) -> FloatArray:
    """Divide residuals (n, d) by the radius, at least 2^-16, and pull those beyond it
    back to length 1, on the grid.

    Rounding is toward zero: every row that is returned has a norm of at most 1,
    whatever the radius is.
    """
    units = residuals.copy()
    _divide(units, radius, np.empty(units.shape))
    return (
        units / GRID + 0.0
    )  # A negative zero would be a different bit pattern of the same number.


def _divide(
    residuals: FloatArray, radius: float | FloatArray, scratch: FloatArray
) -> FloatArray:
    """Turn residuals (n, d) into unit residuals in whole steps of the grid, in place.

    Return their squared lengths.
    """
    squares: FloatArray = np.square(residuals, out=scratch) @ np.ones(
        residuals.shape[1]
    )
    at_least = np.fmax(radius, _SMALLEST_RADIUS)
    # Maximum, so that a norm that is not a number gives a row that is refused later
    # rather than a long one; a power of two changes no digit of the product.
    factors, common = (
        SHADE / np.maximum(np.sqrt(squares), at_least) * GRID,
        SHADE / at_least * GRID,
    )
    far = np.flatnonzero(factors != common)
    if np.ndim(radius) or 4 * len(far) > len(factors):
        residuals *= factors[:, None]
    else:  # One number for all is twice as fast as one for each row.
        pulled = residuals[far] * factors[far, None]
        residuals *= common
        residuals[far] = pulled
    np.trunc(residuals, out=residuals)
    return squares


def residual_sums(
    rows: FloatArray,
    labels: LabelArray,
    centers: FloatArray,
    radius: float | FloatArray,
    n: int,
    *,
    drop: bool = False,
) -> ResidualSums:
    """Sum the clipped residuals of points on the grid, count them and sum their
    squares, cluster by cluster.

    The result has `n` rows, those beyond the 1 to `n` centers (else `DataError`) being
    0. A label beyond the centers counts as the last: an error would depend on the rows.
    There is one radius, or one for each center. `drop` leaves rows beyond the radius
    out of all three sums, as FastLloyd does, instead of pulling them back.
    """
    n_features = rows.shape[1]
    if not 1 <= len(centers) <= n:
        raise DataError(
            f"there are {len(centers)} centers, but there must be from 1 to {n}: give"
            " as many as planned."
        )
    sums, counts, squares = np.zeros((n, n_features)), np.zeros(n), np.zeros(n)
    if isinstance(radius, np.ndarray) and (radius == radius[0]).all():
        radius = float(radius[0])
    # Written again by each block: fresh pages cost as much as a step.
    height = min(len(rows), blocks.block_length(4 * n_features))
    all_steps, all_scratch = (
        np.empty((height, n_features)),
        np.empty((height, n_features)),
    )
    for part in row_blocks(len(rows), 4 * n_features):
        own = np.minimum(labels[part], len(centers) - 1)
        steps, scratch = all_steps[: len(own)], all_scratch[: len(own)]
        np.take(centers, own, axis=0, out=steps, mode="clip")
        np.subtract(rows[part], steps, out=steps)
        bound = radius[own] if isinstance(radius, np.ndarray) else radius
        lengths = _divide(steps, bound, scratch)
        if drop:
            kept = lengths <= bound**2
            steps, own = steps[kept], own[kept]
        add_by_label(sums, steps, own)
        counts += np.bincount(own, minlength=n)
        # Row by row on the grid, so that one row's part does not depend on the others.
        lengths = np.square(steps, out=scratch[: len(steps)]) @ np.ones(n_features)
        squares += np.bincount(own, weights=np.trunc(lengths / GRID), minlength=n)
    return ResidualSums(sums / GRID, counts, squares / GRID)


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
    """Choose radii for the next round, (k,) of the clusters or one of all, from the
    private mean squares of residuals.

    `squares` are sums over `counts` rows, in squared radii, with `noise`; `explained`
    is what steps take off their means. The mean over all rows is averaged, by
    precision, with the prior that radii are right already, and that of a cluster, where
    it is more, with that over all rows, by how far clusters scatter. Residuals beyond a
    radius are not seen: it grows only where its cluster is told from the others.
    `width`, at least 1, is the radius over root mean square that is aimed at; `floor`
    is the smallest part of a radius that is returned.
    """
    areas, means, total = np.square(radii), squares / counts, math.fsum(counts)
    left = (
        means - np.minimum(explained / areas, _MOST_EXPLAINED * np.maximum(means, 0.0))
    ) * areas
    usual, error = (
        float(counts @ areas) / total,
        noise**2 * float(areas @ areas) / total**2,
    )
    prior = prior_variance * usual**2
    pooled = max(float(counts @ left) / total, 0.0)
    pooled = (pooled * prior + usual / width**2 * error) / (prior + error)
    # Variances of a quotient: by the noise of the sum, and by that of the count.
    errors = np.square(
        np.hypot(noise, np.clip(means, 0.0, 1.0) * counts_noise) / counts * areas
    )
    scatter = (
        max(0.0, float((np.square(left - pooled) - errors).mean()))
        if len(radii) > 1
        else 0.0
    )
    # Tighter clusters keep the common one: their cells may have far rows, too.
    estimates = pooled + np.maximum(left - pooled, 0.0) * (
        scatter / np.maximum(scatter + errors, 1e-300)
    )
    told = scatter > errors
    ratios = np.where(
        told & (means > _MOSTLY_CLIPPED),
        _MOST_GROWTH,
        width * np.sqrt(estimates) / radii,
    )
    return np.asarray(
        radii * np.clip(ratios, floor, np.where(told, _MOST_GROWTH, 1.0)),
        dtype=np.float64,
    )


def pulled_together(noisy_counts: FloatArray, noise: float) -> tuple[FloatArray, float]:
    """Pull noisy counts (k,) toward their mean by how much of their scatter noise
    explains; and say the noise left.

    Lindley's estimator, positive part (Efron and Morris 1973): for k > 3 its error is
    less than the noise whatever the counts are, and up to three counts stay as they
    are. The mean itself is known to noise / sqrt(k).
    """
    k, mean = len(noisy_counts), math.fsum(noisy_counts) / len(noisy_counts)
    scatter = math.fsum(np.square(noisy_counts - mean))
    explained = min(1.0, max(0, k - 3) * noise**2 / max(scatter, 1e-300))
    return noisy_counts + explained * (mean - noisy_counts), noise * math.sqrt(
        1.0 - explained + explained / k
    )


def adding_up(
    noisy_counts: FloatArray, noise: float, total: float
) -> tuple[FloatArray, float]:
    """Change noisy counts (k,) alike, so that they add up to what is known.

    And say the noise left: 0 for one count.
    """
    k = len(noisy_counts)
    return noisy_counts + (total - math.fsum(noisy_counts)) / k, noise * math.sqrt(
        1.0 - 1.0 / k
    )


def likely_counts(
    noisy_counts: npt.ArrayLike, noise: float, total: float | None = None
) -> FloatArray:
    """Estimate counts, which are not negative, from noisy ones.

    Posterior means, at least 1, under a flat prior.

    If their `total` is known, it is flat on all ways to split it: a count alone has the
    density (1 - n / total)^(k - 2) then, and where noise is large, it comes to total /
    k.
    """
    values = np.atleast_1d(np.asarray(noisy_counts, dtype=np.float64))
    if total is None or total <= 0.0 or noise < _FINEST_SPLIT * total:
        # Hardly any count is cut off, or shared out, by so little noise.
        return np.maximum(
            1.0, likely_positive(values, noise)[0] if noise > 0.0 else values
        )
    # Steps are shorter toward 0, where most of k counts are; (k, n_steps) are log
    # likelihoods.
    logs = -0.5 * np.square((values[:, None] - total * _SPLITS) / noise)
    chances = (
        np.exp(logs - logs.max(axis=1, keepdims=True))
        * _SPLIT_STEPS
        * (1.0 - _SPLITS) ** (len(values) - 2)
    )
    return np.asarray(
        np.maximum(1.0, total * (chances @ _SPLITS) / chances.sum(axis=1)),
        dtype=np.float64,
    )


def likely_positive(
    noisy: npt.ArrayLike, noise: float | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Estimate numbers that are not negative from noisy ones.

    Posterior means under a flat prior.

    And the logarithm of the chance that a normal variable around each noisy number is
    positive.
    """
    from scipy.special import log_ndtr

    values = np.asarray(noisy, dtype=np.float64)
    # Beyond that no noise goes, and the two exponents below would cancel.
    z = np.clip(values / noise, -_FARTHEST, _FARTHEST)
    # The mean of a normal variable that is known to be positive exceeds its location by
    # the inverse Mills ratio.
    chances = np.asarray(log_ndtr(z))
    mills = np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - chances)
    return (
        np.asarray(
            np.maximum(values, -_FARTHEST * noise) + noise * mills, dtype=np.float64
        ),
        chances,
    )


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
    """Posterior mean of every centroid's step, (k, d), at most `radius` long, from
    noisy relative sums.

    Noise and radius are those of all sums, or of each; `total` is what the counts add
    up to, if that is known.

    ``PROXY_LLOYD.md``, shrunk steps, has the model; `axis_variance` is its v, and tau
    is at least `least_tau`, which is large in early rounds, when centroids still have
    far to go.
    """
    counts = likely_counts(noisy_counts, counts_noise, total)
    gains, weights = _gains(sums, counts, sums_noise, axis_variance, least_tau)
    gain = (weights[:, None] * gains).sum(axis=0) / weights.sum()
    return clip_steps(sums * gain[:, None], radius)


def _gains(
    sums: FloatArray,
    counts: FloatArray,
    sums_noise: float | FloatArray,
    axis_variance: float,
    least_tau: float,
) -> tuple[FloatArray, FloatArray]:
    """Factors that turn sums into posterior means, (n_taus, k), and the weight of each
    tau.
    """
    n_features = sums.shape[1]
    taus = _TAUS[min(least_tau, _TAUS[-1]) <= _TAUS]
    # (n_taus, n_clusters): variance of a sum's entry, and the factor that turns a sum
    # into a posterior mean.
    variances = counts**2 * (taus[:, None] * axis_variance) + sums_noise**2
    gains = taus[:, None] * axis_variance * counts / variances
    squares = np.einsum("ij,ij->i", sums, sums)
    evidence = np.log(taus) - 0.5 * (
        n_features * np.log(variances) + squares / variances
    ).sum(axis=1)
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
    """Give the posterior standard deviation of what `shrunk_steps` gives the mean of,
    (k, d): what noise leaves unsure.

    Under each tau it is known; steps differ between taus, and with the noise of the
    count, to first order.
    """
    counts = likely_counts(noisy_counts, counts_noise, total)
    gains, weights = _gains(sums, counts, sums_noise, axis_variance, least_tau)
    shares = (weights / weights.sum())[:, None]
    gain = (shares * gains).sum(axis=0)
    scatter = (shares * np.square(gains - gain)).sum(axis=0)
    of_noise = gain * np.square(sums_noise) / counts
    of_steps = scatter + np.square(gain * counts_noise / counts)
    return np.asarray(np.sqrt(of_noise[:, None] + of_steps[:, None] * np.square(sums)))
