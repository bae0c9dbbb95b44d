"""Proxies and clusters that no neighbour speaks for."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels import blocks
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, Mask
from flwr_dpkmeans.kmeans.ranges.thresholds import exceeded_among

LEAST_CLUSTER = 2.0
"""Rows, or clients, of a cluster: the center of a single one would be that row."""
_HEARD_FALSELY = 0.002
_NEIGHBOUR = 2.5
"""Radii within which a neighbour lies."""


def heard_among(n: int) -> float:
    """Deviations of the noise that any of n counts hardly ever exceeds.

    With a chance of 0.002 at most; 0 for no counts.
    """
    if n == 0:
        return 0.0
    return exceeded_among(n, _HEARD_FALSELY)


def are_lone(
    proxies: FloatArray,
    scores: FloatArray,
    radii: FloatArray,
    threshold: float,
) -> Mask:
    """Which proxies (n, c), on the grid, have no neighbour whose count stands out.

    Noise has none, and rows mostly do.

    `scores`, (n,), are noisy counts in standard deviations of their noise, and stand
    out above the threshold; neighbours of a proxy lie within 2.5 of its `radii`, (n,),
    where its cell and those beside it end.
    """
    from scipy.spatial.distance import cdist

    n_proxies = len(proxies)
    standing = np.flatnonzero(scores > threshold)
    each = np.arange(n_proxies)
    is_lone = np.ones(n_proxies, np.bool_)
    for rows in blocks.row_blocks(n_proxies, n_proxies):
        squares = cdist(proxies[rows], proxies[standing], "sqeuclidean")
        reach = _NEIGHBOUR * radii[rows, None]
        is_beside = squares <= reach**2
        is_beside &= each[rows, None] != standing
        is_lone[rows] = ~is_beside.any(axis=1)
    return is_lone


def without_lone_rows(weights: FloatArray, labels: LabelArray) -> FloatArray:
    """Drop the weights of clusters of proxies with fewer than two rows (or clients).

    a center would be that row.
    """
    cluster_weights = np.bincount(labels, weights=weights)
    is_lone = cluster_weights[labels] < LEAST_CLUSTER
    return np.where(is_lone, 0.0, weights)
