"""Half-widths of 95% intervals that follow from noise alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array

Z = 1.96
"""Deviations of noise that 95% of draws are within."""


def noise_of(plan: Plan) -> Mapping[str, float]:
    """Noise on each array of a plan's first round, by name: standard deviations."""
    planned = plan.rounds[0]
    deviations = {}
    for block in planned.blocks:
        deviations[block.name] = plan.released_std(planned, block)
    return deviations


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
    others = 1.0 - shares
    by_count = np.square(others)
    by_others = n_others * np.square(shares)
    deviation = noise * np.sqrt(by_count + by_others)
    rows = np.maximum(total, 1.0)
    half_widths = Z * deviation / rows
    return np.asarray(np.minimum(half_widths, 1.0))


def of_roots(roots: Array, errors: Array) -> Array:
    """Of square roots, by the errors of their squares."""
    squares = np.square(roots)
    highest = np.sqrt(squares + errors)
    least_squares = np.maximum(squares - errors, 0.0)
    lowest = np.sqrt(least_squares)
    above = highest - roots
    below = roots - lowest
    return np.maximum(above, below)
