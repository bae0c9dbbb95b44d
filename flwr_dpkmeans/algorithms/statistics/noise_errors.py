"""Half-widths of 95% intervals that follow from noise alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array

Z = 1.96
"""Deviations of noise that 95% of draws are within."""


def noise_of(plan: Plan) -> Mapping[str, float]:
    """Standard deviation of the noise on each array of a plan's first own round, by
    name.
    """
    planned = plan.rounds[0]
    return {block.name: plan.released_std(planned, block) for block in planned.blocks}


def constant(array: Array, noise: float) -> Array:
    """Of sums that are shown as they were released."""
    return np.full(array.shape, Z * noise)


def of_shares(
    shares: Array,
    total: Array | float,
    noise: float,
) -> Array:
    """Of shares of noisy counts in their total, along the last axis."""
    n_others = shares.shape[-1] - 1
    counts = noise * np.sqrt(np.square(1.0 - shares) + n_others * np.square(shares))
    return np.asarray(np.minimum(Z * counts / np.maximum(total, 1.0), 1.0))


def of_roots(roots: Array, errors: Array) -> Array:
    """Of square roots, by the errors of their squares."""
    squares = np.square(roots)
    above = np.sqrt(squares + errors) - roots
    below = roots - np.sqrt(np.maximum(squares - errors, 0.0))
    return np.maximum(above, below)
