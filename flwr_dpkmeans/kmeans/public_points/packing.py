"""Sphere packing: centres that no data choose."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.grid import GRID, FloatArray

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
    """Draw well-separated centroids (k, d) in [-1, 1]^d, on the 2^-16 grid.

    Without looking at data.

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
    """Place all centroids at this radius.

    Or return None after so many rejections in a row.

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
