"""The space that proxies live in: all of it, or a few axes."""

from __future__ import annotations

import math

from flwr_dpkmeans.algorithms.proxy.entries import AXES, CENTRE
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.projected_labels import project_from
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.tessellation import at_means
from flwr_dpkmeans.sums.round import Array, State


def at_known_points(proxies: Array, state: State) -> Array:
    """Move each proxy to the mean of the server's points nearest to it, if any."""
    if SERVER_POINTS not in state.arrays:
        return proxies
    points = state[SERVER_POINTS]
    projected = in_proxy_space(points, state)
    return at_means(proxies, projected)


def in_proxy_space(points: Array, state: State) -> Array:
    """Rows as the proxies see them: projected onto the private axes, or as they are."""
    if AXES not in state.arrays:
        return points
    axes = state[AXES]
    projected_centre = state[CENTRE] @ axes
    return project_from(points, axes, projected_centre)


def inside_box(points: Array, state: State) -> Array:
    """Cut points to where rows can be.

    That is the box or, in a subspace, the ball around the centre that holds it.
    """
    if AXES not in state.arrays:
        return truncate(points)
    axes = state[AXES]
    n_features = len(axes)
    diagonal = 2.0 * math.sqrt(n_features)
    return clip_rows(points, diagonal)


def length_of(state: State, name: str) -> float:
    """A length that an entry of the state holds, (1,)."""
    length = state[name]
    return float(length[0])
