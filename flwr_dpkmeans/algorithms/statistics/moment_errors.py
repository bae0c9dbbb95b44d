"""The same of means, variances and spreads, which are over noisy counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.algorithms.statistics.noise_errors import Z
from flwr_dpkmeans.sums.round import Array

_CLEAR = 3.0
"""Deviations of its noise above which a count divides."""


def of_means(
    means: Array,
    rows: Array,
    noise: Mapping[str, float],
) -> Array:
    """Of means in the box [-1, 1], (n_groups, width), by rows, (n_groups,)."""
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
