"""The state of a clustering, and what one that a server sent must be like, so that a client's search is exact.

On the grid and inside these ranges all sums are exact: each row's label is then a function of that row alone, to the
last bit. The statistics' bounds themselves hold for every state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kmeans.assignment import is_on_grid
from flwr_dpkmeans.sums.round import Array, State

SERVER_POINTS = "server_points"
PROJECTION = "projection"
PROJECTED_POINTS = "projected_points"
PROJECTED_CENTERS = "projected_centers"
COST_CURVE = "cost_curve"
SEED = "seed"

_STRETCH = 1.01
"""Largest length of a projection's column: 1, and room for rounding."""
_LARGEST_COUNT = 2.0**47


def cluster_state(
    centroids: Array, counts: Array, movements: tuple[float, ...] = (), extras: Mapping[str, Array] | None = None
) -> State:
    """The state of a clustering: centroids, (k, d) on the grid in [-1, 1]^d, and noisy counts of the last release,
    (k,).

    Both are zeros before there are any. `movements` are the largest steps of a centroid so far; `extras` what an
    algorithm's own steps carry on, such as a projection: on the grid, of one or two dimensions.
    """
    return State({"centroids": centroids, "counts": counts, **(extras or {})}, movements)


def seeded_state(centroids: Array, seed: int, server_points: Array | None = None) -> State:
    """The state before the first round of an algorithm that draws public randomness later; zeros: no centroids yet."""
    extras = {SEED: np.array([float(seed % 2**31)])}
    if server_points is not None:
        extras[SERVER_POINTS] = np.array(server_points)
    return cluster_state(centroids, np.zeros(len(centroids)), (), extras)


def stepped(state: State, centroids: Array, counts: Array) -> State:
    """The state after a Lloyd step: new centroids, their noisy counts, and the largest step among the movements."""
    moved = state.changed(centroids=centroids, counts=counts)
    return replace(moved, movements=(*state.movements, largest_step(state.centroids, centroids)))


def largest_step(before: Array, after: Array) -> float:
    """Largest Euclidean step of a centroid, in scaled units."""
    return math.sqrt(max(map(math.fsum, np.square(after - before).tolist())))


def state_extra(state: State, name: str) -> Array:
    """An array that an earlier step, or the server, must have put into the state."""
    if name not in state.arrays:
        raise PlanError(f"the state has no {name.replace('_', ' ')}: run the step that makes it first.")
    return state.arrays[name]


def seed_of(state: State) -> int:
    """The run's public seed."""
    return int(state_extra(state, SEED)[0])


def has_exact_centroids(state: State) -> bool:
    """Whether the centroids are on the grid, in the box, and the counts small enough for it."""
    inside = np.abs(state.centroids).max(initial=0.0) <= 1.0 and np.abs(state.counts).max(initial=0.0) <= _LARGEST_COUNT
    return bool(inside) and is_on_grid(state.centroids)


def is_projection(array: Array) -> bool:
    """Whether the columns of a table are on the grid and do not stretch."""
    return is_on_grid(array) and bool(np.square(array).sum(axis=0).max(initial=0.0) <= _STRETCH**2)


def is_near(array: Array, n_features: int) -> bool:
    """Whether points are on the grid and no farther from the origin than points of the box can be from a centre."""
    # At most 2 sqrt(d) from a centre in the box.
    farthest = (2.0 * _STRETCH) ** 2 * n_features
    return is_on_grid(array) and bool(np.square(array).sum(axis=-1).max(initial=0.0) <= farthest)


def is_table(array: Array, most_rows: int, width: int) -> bool:
    """Whether an array has 1 to `most_rows` rows of the width."""
    return array.ndim == 2 and 1 <= len(array) <= most_rows and array.shape[1] == width
