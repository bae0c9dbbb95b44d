"""Entries of the state that projected rounds leave behind."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.states.state_arrays import is_table
from flwr_dpkmeans.algorithms.states.state_geometry import is_near, is_projection
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, State

PROJECTION = "projection"
MEAN_BEYOND = "mean_beyond"


def with_mean_beyond(
    state: State,
    points: Array | None,
    facts: ServerFacts,
) -> State:
    """Add what the server's points have beyond the data radius on average.

    They are relative to their centre; rows are expected to have as much.
    """
    if points is None or not len(points):
        return state
    beyond = np.maximum(np.linalg.norm(points, axis=1) - facts.data_radius, 0.0)
    return state.changed(**{MEAN_BEYOND: round_to_grid(beyond.mean(keepdims=True))})


def has_exact_projection(
    state: State,
    name: str,
    public: PublicFacts,
    most_rows: int,
) -> bool:
    """Whether a server's projection has the plan's shape and is exact.

    And its projected points or centres, too.
    """
    projection, table = state.arrays[PROJECTION], state.arrays[name]
    d, k = public.n_features, public.config.n_clusters
    if (
        projection.ndim != 2
        or len(projection) != d
        or not 1 <= projection.shape[1] <= min(k, d)
    ):
        return False
    shaped = is_table(table, most_rows, projection.shape[1])
    return shaped and is_projection(projection) and is_near(table, d)
