"""Radii of the next round, from private mean squares of residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import TINY, as_floats

# Part of a mean square of residuals that steps take off at most.
_MOST_EXPLAINED = 0.9
# Mean square, in squared radii, from which on it says only that rows lie beyond.
_MOSTLY_CLIPPED = 0.75
# Growth of a radius from one round to the next.
_MOST_GROWTH = 4.0


@dataclass(frozen=True)
class RadiusRule:
    """What radii are to be, and how surely they are so already."""

    width: float
    """Radius over root mean square that is aimed at, at least 1."""
    prior_variance: float
    """Relative variance of the prior that radii are right already."""
    floor: float
    """Smallest part of a radius that is left."""


def next_radii(
    radii: FloatArray,
    squares: FloatArray,
    counts: FloatArray,
    explained: FloatArray,
    *,
    noise: float,
    counts_noise: float,
    rule: RadiusRule,
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
    rule : RadiusRule
        What is aimed at.

    The mean over all rows is averaged, by precision, with the prior, and that of a
    cluster, where it is more, with that over all rows, by how far clusters scatter.
    Residuals beyond a radius are not seen: it grows only where its cluster is told from
    the others.
    """
    areas = np.square(radii)
    means = squares / counts
    most_explained = _MOST_EXPLAINED * np.maximum(means, 0.0)
    taken_off = np.minimum(explained / areas, most_explained)
    remaining = (means - taken_off) * areas
    pooled = _pooled_square(
        counts,
        areas,
        remaining,
        noise,
        rule,
    )
    # Variances of a quotient: by the noise of the sum, and by that of the count.
    of_counts = np.clip(means, 0.0, 1.0) * counts_noise
    deviations = np.hypot(noise, of_counts) / counts * areas
    errors = np.square(deviations)
    scatter = 0.0
    if len(radii) > 1:
        differences = np.square(remaining - pooled) - errors
        scatter = max(0.0, float(differences.mean()))
    variances = np.maximum(scatter + errors, TINY)
    weights = scatter / variances
    # Tighter clusters keep the common one: their cells may have far rows, too.
    surplus = np.maximum(remaining - pooled, 0.0)
    estimates = pooled + surplus * weights
    is_distinct = scatter > errors
    ratios = rule.width * np.sqrt(estimates) / radii
    is_clipped = is_distinct & (means > _MOSTLY_CLIPPED)
    ratios = np.where(is_clipped, _MOST_GROWTH, ratios)
    most_growth = np.where(is_distinct, _MOST_GROWTH, 1.0)
    growth = np.clip(ratios, rule.floor, most_growth)
    return as_floats(radii * growth)


def _pooled_square(
    counts: FloatArray,
    areas: FloatArray,
    remaining: FloatArray,
    noise: float,
    rule: RadiusRule,
) -> float:
    """Mean square over all rows, averaged with the prior that radii are right."""
    total = math.fsum(counts)
    usual = float(counts @ areas) / total
    squared_areas = float(areas @ areas)
    error = noise**2 * squared_areas / total**2
    prior = rule.prior_variance * usual**2
    mean = float(counts @ remaining) / total
    pooled = max(mean, 0.0)
    expected = usual / rule.width**2
    weighted = pooled * prior + expected * error
    return weighted / (prior + error)
