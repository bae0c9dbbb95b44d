"""The space that proxies live in: all of it, or a few axes."""

from __future__ import annotations

import math

from flwr_dpkmeans.algorithms.proxy.entries import AXES, CENTRE
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.tessellation import at_means
from flwr_dpkmeans.sums.round import Array, State


def at_known_points(proxies: Array, state: State) -> Array:
    """Move each proxy to the mean of the server's points that it is nearest to, where
    there are any.
    """
    if SERVER_POINTS not in state.arrays:
        return proxies
    return at_means(proxies, in_proxy_space(state[SERVER_POINTS], state))


def in_proxy_space(points: Array, state: State) -> Array:
    """Rows as the proxies see them: projected onto the private axes, or as they are."""
    if AXES not in state.arrays:
        return points
    # Exact, so that the centre can be taken off what has fewer columns.
    axes = state[AXES]
    return round_to_grid(points @ axes - state[CENTRE] @ axes)


def inside_box(points: Array, state: State) -> Array:
    """Cut points to where rows can be: to the box or, in a subspace, to the ball around
    the centre that holds it.
    """
    if AXES not in state.arrays:
        return truncate(points)
    return clip_rows(points, 2.0 * math.sqrt(len(state[AXES])))


def length_of(state: State, name: str) -> float:
    """A length that an entry of the state holds, (1,)."""
    return float(state[name][0])
