"""k-means of the proxies: the first centroids."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.feddp.server_weights import clustered
from flwr_dpkmeans.algorithms.proxy.entries import (
    AXES,
    CENTRE,
    CLIP,
    DISTANCES,
    EXTENT,
    PROXIES,
    PROXY_RADIUS,
    RADIUS,
    SHAPE,
    SPREAD,
    SPREAD_ERROR,
)
from flwr_dpkmeans.algorithms.proxy.proxy_space import length_of
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_CENTERS,
    SERVER_POINTS,
    seed_of,
)
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.lone_proxies import LEAST_CLUSTER, without_lone_rows
from flwr_dpkmeans.sums.round import Array, State

_LONE_ROUNDS = 3
# clusters of one row are looked for where an average one has so many times two rows
_SURE = 4.0


def first_centroids(
    setting: Setting,
    state: State,
    proxies: Array,
    weights: Array,
) -> State:
    """Weighted k-means of the proxies, as centroids in the space of the data.

    Again without clusters of one row.
    """
    config = setting.public.config
    centers, extras = clustered(
        config,
        proxies,
        weights,
        seed_of(state),
        n_features=setting.n_features,
    )
    n_rows_of_sure = _SURE * LEAST_CLUSTER * setting.n_clusters
    # The server's own points may be centers, and a choice of k has seen all weights.
    doubts_lone = (
        setting.public.n_units >= n_rows_of_sure
        and not config.choose_n_clusters
        and SERVER_POINTS not in state.arrays
    )
    n_rounds = _LONE_ROUNDS if doubts_lone else 0
    for _ in range(n_rounds):
        labels, _ = nearest_centroids(proxies, centers)
        without_lone = without_lone_rows(weights, labels)
        if np.array_equal(without_lone, weights):
            break
        weights = without_lone
        centers, extras = clustered(
            config,
            proxies,
            weights,
            seed_of(state),
        )
    if AXES in state.arrays:
        extras[PROJECTED_CENTERS] = centers
        centers = centers @ state[AXES].T + state[CENTRE]
    return with_first_centroids(setting, state.changed(**extras), truncate(centers))


def with_first_centroids(
    setting: Setting,
    state: State,
    centers: Array,
) -> State:
    """Centroids to refine, with their first radius.

    What only proxies needed is left behind.
    """
    centroids = round_to_grid(centers)
    side = length_of(state, SPREAD) * len(centroids) ** (-1.0 / setting.n_features)
    radius = min(
        setting.options.cluster_clip * setting.plan.widening * side, setting.farthest
    )
    carried = state.view(
        state.arrays.keys()
        - {
            PROXIES,
            PROXY_RADIUS,
            SHAPE,
            SERVER_POINTS,
            CLIP,
            EXTENT,
            SPREAD_ERROR,
            DISTANCES,
        }
    )
    return carried.changed(
        centroids=centroids,
        counts=np.zeros(len(centroids)),
        **{RADIUS: as_length(np.full(setting.n_radii, radius))},
    )
