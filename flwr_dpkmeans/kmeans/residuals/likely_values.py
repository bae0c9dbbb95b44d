"""Posterior means of what cannot be negative."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import as_column, as_floats

# Counts are that many standard deviations of their noise below zero at most.
_FARTHEST = 1e3
# Noise, in parts of all rows, from which on steps of a split are finer than it.
_FINEST_SPLIT = 0.002
_N_SPLITS = 4096
_MIDDLES = np.arange(_N_SPLITS) + 0.5
_CUBE_ROOTS = _MIDDLES / _N_SPLITS
_SPLITS = _CUBE_ROOTS**3
"""Parts of a total that one of its counts may be."""
_SPLIT_STEPS = 3.0 * _CUBE_ROOTS**2
"""How far apart these parts are, up to a factor."""
_LOG_NORMALISER = math.log(2.0 * math.pi) / 2.0
"""Of the normal distribution's density."""


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
    values = np.atleast_1d(as_floats(noisy_counts))
    if total is None or total <= 0.0 or noise < _FINEST_SPLIT * total:
        # Hardly any count is cut off, or shared out, by so little noise.
        if noise > 0.0:
            values, _ = likely_positive(values, noise)
        return np.maximum(1.0, values)
    # Steps are shorter toward 0, where most of k counts are; (k, n_steps) are log
    # likelihoods.
    scores = (as_column(values) - total * _SPLITS) / noise
    logs = -0.5 * np.square(scores)
    largest = logs.max(axis=1, keepdims=True)
    likelihoods = np.exp(logs - largest)
    n_others = len(values) - 2
    rest = (1.0 - _SPLITS) ** n_others
    chances = likelihoods * _SPLIT_STEPS * rest
    weighted = total * (chances @ _SPLITS)
    means = weighted / chances.sum(axis=1)
    return as_floats(np.maximum(1.0, means))


def likely_positive(
    noisy: npt.ArrayLike,
    noise: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Estimate numbers that are not negative from noisy ones.

    Posterior means under a flat prior. And the logarithm of the chance that a normal
    variable around each noisy number is positive.
    """
    from scipy.special import log_ndtr

    values = as_floats(noisy)
    # Beyond that no noise goes, and the two exponents below would cancel.
    scores = np.clip(values / noise, -_FARTHEST, _FARTHEST)
    # The mean of a normal variable that is known to be positive exceeds its location by
    # the inverse Mills ratio.
    chances = np.asarray(log_ndtr(scores))
    exponents = -0.5 * scores * scores
    log_densities = exponents - _LOG_NORMALISER
    mills = np.exp(log_densities - chances)
    at_least = np.maximum(values, -_FARTHEST * noise)
    means = at_least + noise * mills
    return as_floats(means), chances
