"""States that a server might have changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.sums.round import State


def with_extras(state: State, extras: Mapping[str, NDArray[np.float64]]) -> State:
    """The same clustering with other arrays besides."""
    return cluster_state(state.centroids, state.counts, state.movements, extras)
