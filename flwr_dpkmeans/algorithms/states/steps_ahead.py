"""Centroids and the state that follows them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.sums.round import Array, State


def stepped(
    state: State,
    centroids: Array,
    counts: Array,
) -> State:
    """The state after a Lloyd step.

    New centroids, their noisy counts, and the largest step among the movements.
    """
    longest = math.sqrt(
        max(map(math.fsum, np.square(centroids - state.centroids).tolist()))
    )
    return replace(
        state.changed(centroids=centroids, counts=counts),
        movements=(*state.movements, longest),
    )
