"""How far noise may have moved a statistic.

Half-widths of 95% intervals around what rows, clipped to bounds, have.

To first order in the noise, which is known. Each is at most what the box leaves, so
that none is infinite.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array

Z = 1.96
"""Deviations of noise that 95% of draws are within."""
_CLEAR = 3.0
"""Deviations of its noise above which a count divides."""


def noise_of(plan: Plan) -> Mapping[str, float]:
    """Standard deviation of the noise on each array of a plan's first own round, by
    name.
    """
    planned = plan.rounds[0]
    return {block.name: plan.released_std(planned, block) for block in planned.blocks}


def constant(array: Array, noise: float) -> Array:
    """Of sums that are shown as they were released."""
    return np.full(array.shape, Z * noise)


def of_means(
    means: Array,
    rows: Array,
    noise: Mapping[str, float],
) -> Array:
    """Of means in the box [-1, 1], (n_groups, width), by the groups' rows, (n_groups,)."""
    sums = np.hypot(noise["group_sums"], means * noise["group_counts"])
    return _over_rows(
        Z * sums,
        rows,
        noise["group_counts"],
        widest=2.0,
    )


def of_variances(
    means: Array,
    variances: Array,
    rows: Array,
    noise: Mapping[str, float],
) -> Array:
    """Of variances in the box, (n_groups, width)."""
    from_sums = 2.0 * means * noise["group_sums"]
    from_counts = (np.square(means) - variances + 0.5) * noise["group_counts"]
    sums = np.sqrt(
        noise["group_squares"] ** 2 + np.square(from_sums) + np.square(from_counts)
    )
    return _over_rows(
        Z * sums,
        rows,
        noise["group_counts"],
        widest=1.0,
    )


def of_roots(roots: Array, errors: Array) -> Array:
    """Of square roots, by the errors of their squares."""
    squares = np.square(roots)
    above = np.sqrt(squares + errors) - roots
    below = roots - np.sqrt(np.maximum(squares - errors, 0.0))
    return np.maximum(above, below)


def of_shares(
    shares: Array,
    total: Array | float,
    noise: float,
) -> Array:
    """Of shares of noisy counts in their total, along the last axis."""
    n_others = shares.shape[-1] - 1
    counts = noise * np.sqrt(np.square(1.0 - shares) + n_others * np.square(shares))
    return np.asarray(np.minimum(Z * counts / np.maximum(total, 1.0), 1.0))


def of_spreads(
    shares: Array,
    rows: Array,
    noise: Mapping[str, float],
) -> Array:
    """Of mean squared distances, (n_clusters,), in squared reaches."""
    sums = np.hypot(noise["spreads"], shares * noise["group_counts"])
    return _over_rows(
        Z * sums[:, None],
        rows,
        noise["group_counts"],
        widest=1.0,
    )[:, 0]


def _over_rows(
    sums: Array,
    rows: Array,
    noise: float,
    *,
    widest: float,
) -> Array:
    """Divide by rows, where these are told from noise.

    Elsewhere nothing is known but the widest.
    """
    clear = rows > _CLEAR * noise
    divided = sums / np.maximum(rows, 1.0)[:, None]
    return np.where(clear[:, None], np.minimum(divided, widest), widest)
