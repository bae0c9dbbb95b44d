"""k-means of weighted points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import FloatArray, round_to_grid
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.kmeans.public_points.seeding import plus_plus

# Weight of a point that nobody counted, relative to the mean, where there are too few
# others to make k clusters.
_FAINT = 1e-9
# Steps end where they move centers, all together, by no more than this part of an
# average column's variance.
_CLOSE = 1e-4
_MOST_STEPS = 300


def weighted_kmeans(
    points: npt.ArrayLike,
    weights: npt.ArrayLike,
    n_clusters: int,
    *,
    n_init: int,
    seed: int,
) -> tuple[FloatArray, float]:
    """Cluster points (n, c) by weights (n,), best of `n_init` starts by k-means++.

    Centers (k, c) and weighted cost.

    Where fewer than k weights are positive, the others get a faint one; fewer points
    than clusters are a `DataError`.
    """
    rows = np.asarray(points, dtype=np.float64)
    usable = usable_weights(weights, n_clusters)
    if len(rows) < n_clusters:
        raise DataError(
            f"there are {len(rows)} server points, but {n_clusters} clusters need at"
            " least as many: give more server points or choose fewer clusters."
        )
    generator = np.random.default_rng(seed)
    is_used = usable > 0.0
    rows = np.ascontiguousarray(rows[is_used])
    usable = usable[is_used]
    # Of equal costs, which are added up exactly, the first one, also where centers are
    # in another order.
    return min(
        (
            _lloyd(
                rows,
                usable,
                n_clusters,
                generator,
            )
            for _ in range(n_init)
        ),
        key=lambda run: run[1],
    )


def _lloyd(
    points: FloatArray,
    weights: FloatArray,
    n_clusters: int,
    generator: np.random.Generator,
) -> tuple[FloatArray, float]:
    """One start by k-means++, and Lloyd steps from there."""
    positions = plus_plus(
        points,
        weights,
        n_clusters,
        generator,
        is_greedy=True,
    )
    return lloyd_from(points, weights, positions)


def lloyd_from(
    points: FloatArray,
    weights: FloatArray,
    positions: Sequence[int],
) -> tuple[FloatArray, float]:
    """Take Lloyd steps from some of the points (n, c), to centers on the grid.

    Centers (k, c) and weighted cost. Sums of grid points are the same everywhere.
    """
    n_clusters = len(positions)
    centers, weighted = round_to_grid(points[positions]), points * weights[:, None]
    close = _CLOSE * float(points.var(axis=0).mean())
    for _ in range(_MOST_STEPS):
        labels, squares = nearest_centroids(points, centers)
        totals, costs = np.bincount(labels, weights, n_clusters), weights * squares
        moved = (
            sum_by_label(weighted, labels, n_clusters)
            / np.where(totals > 0.0, totals, 1.0)[:, None]
        )
        for empty in np.flatnonzero(totals == 0.0):
            # The costliest point has a center to itself.
            moved[empty] = points[farthest := int(costs.argmax())]
            costs[farthest] = 0.0
        before, centers = centers, round_to_grid(moved)
        if np.square(centers - before).sum() <= close:
            break
    return centers, math.fsum(weights * nearest_centroids(points, centers)[1])


def usable_weights(weights: npt.ArrayLike, n_clusters: int) -> FloatArray:
    """Return weights of which at least `n_clusters` are positive.

    Where there are so many.
    """
    values = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    if int((values > 0.0).sum()) >= n_clusters:
        return values
    total = float(values.sum())
    if total == 0.0:
        return np.ones_like(values)
    return np.maximum(values, _FAINT * (total / len(values)))
