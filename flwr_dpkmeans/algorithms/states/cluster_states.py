"""States of a clustering: centroids, seeds and server points."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.sums.round import Array, State

SERVER_POINTS = "server_points"
PROJECTED_POINTS = "projected_points"
PROJECTED_CENTERS = "projected_centers"
SEED = "seed"


def cluster_state(
    centroids: Array,
    counts: Array,
    movements: tuple[float, ...] = (),
    extras: Mapping[str, Array] | None = None,
) -> State:
    """The state of a clustering.

    Centroids, (k, d) on the grid in [-1, 1]^d, and noisy counts, (k,), released last.

    Both are zeros before there are any. `movements` are the largest steps of a centroid
    so far; `extras` what an algorithm's own steps carry on, such as a projection: on
    the grid, of one or two dimensions.
    """
    return State(
        {"centroids": centroids, "counts": counts, **(extras or {})}, movements
    )


def seeded_state(
    centroids: Array,
    seed: int,
    server_points: Array | None = None,
) -> State:
    """The state before the first round, without centroids yet: zeros.

    Of an algorithm that draws public randomness later.
    """
    extras = {SEED: np.array([float(seed % 2**31)])}
    if server_points is not None:
        extras[SERVER_POINTS] = np.array(server_points)
    return cluster_state(
        centroids,
        np.zeros(len(centroids)),
        (),
        extras,
    )


def seed_of(state: State) -> int:
    """The run's public seed."""
    return int(state[SEED][0])
