"""Residuals of rows as parts of a radius: clipped, not dropped, and never longer than 1.

The radius may come from earlier releases, so every residual is divided by it before it is sent (DESIGN, section 6): the
sensitivity is 1 whatever the radius is, and a false radius costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.assignment import FloatArray, LabelArray
from flwr_dpkmeans.kmeans.blocks import row_blocks
from flwr_dpkmeans.kmeans.clipping import SHADE, toward_zero
from flwr_dpkmeans.kmeans.statistics import add_by_label

_SMALLEST_RADIUS = 2.0**-16


@dataclass(frozen=True)
class ResidualSums:
    """What one client sums over its rows.

    Parameters
    ----------
    sums : float64 array of shape (n_clusters, n_features)
        Of clipped residuals, in radii; one row adds a vector of Euclidean norm at most 1 to one row of it.
    counts : float64 array of shape (n_clusters,)
        Of all rows of each cluster, clipped or not.
    squares : float64 array of shape (1,)
        Of the clipped residuals, in squared radii; one row adds at most 1.
    """

    sums: FloatArray = field(repr=False)
    counts: FloatArray = field(repr=False)
    squares: FloatArray = field(repr=False)


def unit_residuals(residuals: FloatArray, radius: float) -> FloatArray:
    """Divide residuals by the radius and pull those beyond it back to length 1, on the grid, rounding toward zero.

    Parameters
    ----------
    residuals : array of shape (n_points, n_features)
        In data units.
    radius : float
        In data units; anything that is not above 2^-16 counts as that.

    Returns
    -------
    float64 array of shape (n_points, n_features)
        On the 2^-16 grid; every row has a norm of at most 1.

    Examples
    --------
    >>> unit_residuals(np.array([[3.0, 4.0], [0.5, 0.0]]), radius=1.0).round(3).tolist()
    [[0.6, 0.8], [0.5, 0.0]]
    """
    at_least = radius if radius > _SMALLEST_RADIUS else _SMALLEST_RADIUS
    norms = np.sqrt(np.einsum("ij,ij->i", residuals, residuals))
    # Maximum, so that a norm that is not a number gives a row that is refused later rather than a long one.
    factors = SHADE / np.maximum(norms, at_least)
    return toward_zero(residuals * factors[:, None])


def residual_sums(
    points: FloatArray, labels: LabelArray, centers: FloatArray, radius: float, n: int, *, drop: bool = False
) -> ResidualSums:
    """Sum the clipped residuals, count the rows and sum the squares, cluster by cluster.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        On the 2^-16 grid.
    labels : int array of shape (n_points,)
        Of centers; a larger one counts as the last: an error would depend on the rows.
    centers : array of shape (n_centers, n_features)
        On the 2^-16 grid, at most `n` of them.
    radius : float
        In data units.
    n : int
        Rows of the result; those beyond the centers are 0.
    drop : bool
        Leave rows beyond the radius out of all three sums, as FastLloyd does, instead of pulling them back.

    Returns
    -------
    ResidualSums

    Raises
    ------
    DataError
        If there is no center, or there are more than `n`.

    Examples
    --------
    >>> points, labels = np.array([[0.5], [0.25], [1.0]]), np.array([0, 0, 1], dtype=np.int32)
    >>> found = residual_sums(points, labels, np.array([[0.0], [1.0]]), radius=0.25, n=2)
    >>> found.sums.round(3).tolist(), found.counts.tolist(), found.squares.round(3).tolist()
    ([[2.0], [0.0]], [2.0, 1.0], [2.0])
    """
    n_features = points.shape[1]
    if not 1 <= len(centers) <= n:
        raise DataError(f"there are {len(centers)} centers, but there must be from 1 to {n}: give as many as planned.")
    sums, counts, squares = np.zeros((n, n_features)), np.zeros(n), 0.0
    for rows in row_blocks(len(points), n_features):
        own = np.minimum(labels[rows], len(centers) - 1)
        residuals = points[rows] - centers[own]
        if drop:
            kept = np.einsum("ij,ij->i", residuals, residuals) <= radius**2
            residuals, own = residuals[kept], own[kept]
        units = unit_residuals(residuals, radius)
        add_by_label(sums, units, own)
        counts += np.bincount(own, minlength=n)
        # Row by row on the grid, so that one row's part does not depend on the others.
        squares += float(toward_zero(np.einsum("ij,ij->i", units, units)).sum())
    return ResidualSums(sums, counts, np.array([squares]))


def next_radius(
    radius: float, mean_square: float, noise: float, *, width: float, prior_variance: float, floor: float
) -> float:
    """Choose a radius for the next round from the private mean square of the last one's clipped residuals.

    Post-processing. The estimate is averaged, by precision, with the prior that the radius is right already; a radius
    never grows, because residuals beyond it are not seen.

    Parameters
    ----------
    radius : float
        Of the last round.
    mean_square : float
        Of the residuals, in squared radii, with noise.
    noise : float
        Standard deviation of that noise.
    width : float
        Radius over root mean square that is aimed at, at least 1.
    prior_variance : float
        Of the mean square, in squared radii.
    floor : float
        Smallest part of the radius that is returned.

    Returns
    -------
    float

    Examples
    --------
    >>> next_radius(1.0, 0.25, 0.0, width=1.3, prior_variance=0.06, floor=0.05)
    0.65
    """
    prior = 1.0 / width**2
    estimate = (max(mean_square, 0.0) * prior_variance + prior * noise**2) / (prior_variance + noise**2)
    return radius * min(1.0, max(width * math.sqrt(estimate), floor))
