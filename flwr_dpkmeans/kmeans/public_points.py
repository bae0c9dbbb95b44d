"""Centroids that no private row decides.

By sphere packing, and by k-means of public, weighted points.

Sphere packing (Su et al. 2016; FastLloyd, section 5.3.1): random centroids are at least
`a` away from the walls of the box [-1, 1]^d and 2a from each other; a radius `a` is
infeasible after 100 candidates in a row were rejected. Equally seeded generators give
equal centroids everywhere: candidates are on the 2^-16 grid before they are tested, so
that squared distances are exact.

A candidate is uniform in the inner box [-1 + a, 1 - a]^d, as in the FastLloyd code.
Drawing from the whole box would fit the text as well, but in many dimensions nearly
every candidate is near a wall, which forces `a` toward 0. FedDP-KMeans (appendix G.3)
keeps away from the corners instead: candidates are uniform in the box, at least `a`
away from its corners and 2a from each other, and `a` is infeasible after 1,000
rejections in a row.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import GRID, FloatArray, round_to_grid
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.threads import one_thread

_ATTEMPTS_PER_CENTROID = 100
_ATTEMPTS_FROM_CORNERS = 1000
# Candidates drawn and compared at once; more would make OpenBLAS start threads for a
# tiny matrix product.
_POOL_SIZE = 64
_BISECTION_STEPS = 6
# Below half a grid step a radius has no meaning on the grid.
_SMALLEST_RADIUS = 2.0**-17


class PackingMethod(enum.Enum):
    """How the packing radius is searched."""

    BISECT = "bisect"
    HALVE = "halve"
    CORNERS = "corners"

    @property
    def attempts(self) -> int:
        """Candidates for one centroid, after which a radius is infeasible."""
        return (
            _ATTEMPTS_FROM_CORNERS
            if self is PackingMethod.CORNERS
            else _ATTEMPTS_PER_CENTROID
        )


def sphere_packing(
    n_clusters: int,
    n_features: int,
    generator: np.random.Generator,
    method: PackingMethod,
) -> FloatArray:
    """Draw well-separated centroids (k, d) in [-1, 1]^d, on the 2^-16 grid, without
    looking at data.

    `HALVE` starts with the radius 1 and halves it until all centroids can be placed;
    the FastLloyd code does this. `BISECT` goes on with 6 bisection steps between that
    radius and its double, keeping the largest radius found, never below that of `HALVE`
    with an equal generator. `CORNERS` does the same from the radius sqrt(d) on, with
    distances from the corners of the box instead of its walls (FedDP-KMeans, appendix
    G.3). When even radii below half a grid step fail (more centroids than grid cells),
    the radius becomes 0 and centroids may coincide.
    """
    for name, value in (("n_clusters", n_clusters), ("n_features", n_features)):
        if value < 1:
            raise ConfigurationError(
                f"{name} is {value}, but it must be at least 1: give a positive whole"
                " number."
            )
    radius = largest = (
        float(n_features) ** 0.5 if method is PackingMethod.CORNERS else 1.0
    )
    centroids = _packed(
        n_clusters,
        n_features,
        radius,
        generator,
        method,
    )
    while centroids is None:
        radius = radius / 2.0 if radius > _SMALLEST_RADIUS else 0.0
        centroids = _packed(
            n_clusters,
            n_features,
            radius,
            generator,
            method,
        )
    if method is PackingMethod.HALVE or radius in (0.0, largest):
        return centroids
    return _bisect(
        centroids,
        radius,
        generator,
        method,
    )


def _bisect(
    centroids: FloatArray,
    radius: float,
    generator: np.random.Generator,
    method: PackingMethod,
) -> FloatArray:
    """Search between a feasible radius and its infeasible double."""
    n_clusters, n_features = centroids.shape
    feasible, infeasible = radius, 2.0 * radius
    for _ in range(_BISECTION_STEPS):
        middle = (feasible + infeasible) / 2.0
        packed = _packed(
            n_clusters,
            n_features,
            middle,
            generator,
            method,
        )
        if packed is None:
            infeasible = middle
        else:
            feasible, centroids = middle, packed
    return centroids


def _packed(
    n_clusters: int,
    n_features: int,
    radius: float,
    generator: np.random.Generator,
    method: PackingMethod,
) -> FloatArray | None:
    """Place all centroids at this radius, or return None after so many rejections in a
    row.

    Equivalent to drawing one candidate at a time; only the drawing and the distances
    are done pool by pool.
    """
    wall = 0.0 if method is PackingMethod.CORNERS else radius
    if n_clusters > 1 and radius**2 > (1.0 - wall) ** 2 * n_features:
        return None  # No two points of the inner box are 2 * radius apart.
    chosen = np.empty((n_clusters, n_features))
    n_chosen = rejections = 0
    smallest_square = (2.0 * radius) ** 2
    while True:
        pool = _candidates(n_features, wall, generator)
        blocked = np.asarray(
            _are_nearer(pool, chosen[:n_chosen], smallest_square).any(axis=1)
        )
        if method is PackingMethod.CORNERS:
            blocked |= np.square(1.0 - np.abs(pool)).sum(axis=1) < radius**2
        conflicts = _are_nearer(pool, pool, smallest_square)
        for place, candidate in enumerate(pool):
            if blocked[place]:
                rejections += 1
                if rejections == method.attempts:
                    return None
                continue
            chosen[n_chosen] = candidate
            n_chosen, rejections = n_chosen + 1, 0
            if n_chosen == n_clusters:
                return chosen
            blocked |= conflicts[place]


def _candidates(
    n_features: int,
    wall: float,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw a pool of grid points at least `wall` away from the walls."""
    reach = (1.0 - wall) * GRID
    # Rounding toward zero keeps the distance to the walls.
    return np.asarray(
        np.trunc((2.0 * generator.random((_POOL_SIZE, n_features)) - 1.0) * reach)
        / GRID
    )


def _are_nearer(
    candidates: FloatArray,
    others: FloatArray,
    smallest_square: float,
) -> npt.NDArray[np.bool_]:
    """Say for each pair whether it is nearer than allowed; exact on the grid."""
    squares = candidates @ others.T
    squares *= -2.0
    squares += np.einsum("ij,ij->i", candidates, candidates)[:, None]
    squares += np.einsum("ij,ij->i", others, others)
    return np.asarray(squares < smallest_square)


# -- k-means of weighted points: restarts, the cost curve over k, and its elbow --------

# Weight of a point that nobody counted, relative to the mean, where there are too few
# others to make k clusters.
_FAINT = 1e-9
# Steps end where they move centers, all together, by no more than this part of an
# average column's variance.
_CLOSE, _MOST_STEPS = 1e-4, 300


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
    kept, generator = usable > 0.0, np.random.default_rng(seed)
    rows, usable = np.ascontiguousarray(rows[kept]), usable[kept]
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
    """One start by k-means++, and Lloyd steps to centers on the grid.

    Sums of grid points are the same everywhere.
    """
    places = plus_plus(
        points,
        weights,
        n_clusters,
        generator,
        is_greedy=True,
    )
    centers, weighted = round_to_grid(points[places]), points * weights[:, None]
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


@one_thread()
def plus_plus(
    points: FloatArray,
    weights: FloatArray,
    n_chosen: int,
    generator: np.random.Generator,
    *,
    is_greedy: bool = False,
) -> list[int]:
    """Choose places of points by k-means++ (Arthur and Vassilvitskii 2007).

    Greedy ones are the best of some trials.
    """
    n_trials = 2 + int(math.log(n_chosen)) if is_greedy else 1
    lengths = np.einsum("ij,ij->i", points, points)
    chosen, squares = (
        [_drawn(weights, generator.random(1))[0]],
        np.full(len(points), np.inf),
    )
    for uniforms in generator.random((n_chosen, n_trials)):
        np.minimum(squares, squares_to(points, lengths, chosen[-1:])[0], out=squares)
        if len(chosen) == n_chosen:
            break
        trials = _drawn(weights * squares, uniforms)
        if is_greedy:
            left = np.cumsum(
                weights * np.minimum(squares, squares_to(points, lengths, trials)),
                axis=1,
            )[:, -1]
            trials = trials[int(left.argmin()) :]
        chosen.append(trials[0])
    return chosen


def _drawn(weights: FloatArray, uniforms: FloatArray) -> list[int]:
    """Places in proportion to weights (n,); the last one where all are 0."""
    sums = np.cumsum(weights)
    return [
        min(int(i), len(weights) - 1)
        for i in np.searchsorted(sums, uniforms * sums[-1], side="right")
    ]


def squares_to(
    points: FloatArray,
    lengths: FloatArray,
    places: Sequence[int],
) -> FloatArray:
    """Squared distances (m, n) of points, of the squared lengths (n,), from m of them."""
    squares: FloatArray = lengths + (
        lengths[places][:, None] - 2.0 * (points[places] @ points.T)
    )
    np.maximum(squares, 0.0, out=squares)
    squares[range(len(places)), places] = 0.0
    return squares


def usable_weights(weights: npt.ArrayLike, n_clusters: int) -> FloatArray:
    """Return weights of which at least `n_clusters` are positive, where there are so
    many.
    """
    values = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    if int((values > 0.0).sum()) >= n_clusters:
        return values
    total = float(values.sum())
    if total == 0.0:
        return np.ones_like(values)
    return np.maximum(values, _FAINT * (total / len(values)))


def cost_curve(
    points: npt.ArrayLike,
    weights: npt.ArrayLike,
    largest: int,
    *,
    n_init: int,
    seed: int,
) -> tuple[FloatArray, list[FloatArray]]:
    """Weighted k-means cost, per unit of weight and never rising, and centers for k = 1
    to `largest`.

    FedDP-KMeans, appendix H.3: weighted server points stand for the clients' data, so
    the curve costs no privacy.
    """
    costs: list[float] = []
    centers: list[FloatArray] = []
    for k in range(1, largest + 1):
        found, cost = weighted_kmeans(
            points,
            weights,
            k,
            n_init=n_init,
            seed=seed,
        )
        # A restart that ended badly must not look like an elbow.
        costs.append(min(cost, costs[-1]) if costs else cost)
        centers.append(found)
    total = float(usable_weights(weights, largest).sum())
    return np.asarray(costs) / total, centers


# By so much of its logarithm a cost falls below that of one cluster where there are
# several.
_SEVERAL = 0.2


def elbow(
    costs: Sequence[float] | FloatArray,
    *,
    n_features: int | None = None,
    n_points: float = math.inf,
) -> int:
    """Number of clusters at the bend of a cost curve over k = 1, 2, ....

    The point farthest below its chord.

    1 for a curve that does not fall or has fewer than three points, and where there are
    no points. Given the rows' number of columns d, it looks at how far the cost has
    fallen, on a logarithmic scale, below that of one cluster cut into k pieces,
    k^(-2/d) (Zador 1982): such pieces are no clusters, and their curve, which bends as
    well, would hide them; of n points, which cost nothing as n pieces, k^(-2/d) -
    n^(-2/d). 1 where that is next to nothing. Satopaa, Albrecht, Irwin and Raghavan
    2011, "Finding a 'kneedle' in a haystack".

    Examples
    --------
    >>> costs = [8.0, 3.0, 1.6, 1.0, 0.1, 0.095, 0.09, 0.085]
    >>> elbow(costs), elbow(costs, n_features=2), elbow([8.0, 4.0, 2.7, 2.0, 1.6], n_features=2)
    (3, 5, 1)
    """
    values = np.asarray(costs, dtype=np.float64)
    least = 0.0
    if n_points < 1:
        return 1
    if n_features is not None:
        pieces = np.arange(1, len(values) + 1) ** (-2.0 / n_features) - n_points ** (
            -2.0 / n_features
        )
        values = np.log(
            np.maximum(values, 1e-6 * values.max(initial=0.0)) + 1e-300
        ) - np.log(np.maximum(pieces, 1e-6))
        values, least = np.minimum.accumulate(values), _SEVERAL
    if len(values) < 3 or not values[0] - values[-1] > least:
        return 1
    heights = (values - values[-1]) / (values[0] - values[-1])
    steps = np.linspace(0.0, 1.0, len(values))
    return int(np.argmax(1.0 - steps - heights)) + 1
