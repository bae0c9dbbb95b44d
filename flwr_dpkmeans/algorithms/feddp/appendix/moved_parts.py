"""Rows and centroids where their parts were moved to, and back."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.feddp.appendix.parting import PARTS, SHIFTS, ZOOM
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import Array, State


def moved_rows(rows: Array, state: State) -> Array:
    """Rows, relative to the centre, where Lemma 17 has them.

    With the nearest of the server's points that were kept.
    """
    if PARTS not in state.arrays:
        return rows
    labels = nearest_projected(rows, None, state[PARTS])
    return np.asarray((rows + state[SHIFTS][labels]) * state[ZOOM][0])


def moved_centroids(
    centroids: Array,
    state: State,
    facts: ServerFacts,
) -> Array:
    """The same of centroids, which a server may place anywhere.

    But no farther than its rows can be.
    """
    return (
        clip_rows(moved_rows(centroids, state), facts.data_radius)
        if PARTS in state.arrays
        else centroids
    )


def moved_back(rows: Array, state: State) -> Array:
    """Undo `moved_rows`, by the nearest of the points where they were moved to."""
    if PARTS not in state.arrays:
        return rows
    zoom = state[ZOOM][0]
    labels = nearest_projected(
        round_to_grid(rows), None, (state[PARTS] + state[SHIFTS]) * zoom
    )
    return np.asarray(rows / zoom - state[SHIFTS][labels])
