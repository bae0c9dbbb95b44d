"""Weights of proxies, from their noisy counts, the server's points included."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.proxy.entries import CENTRE, EXTENT, PROXIES, PROXY_RADIUS
from flwr_dpkmeans.algorithms.proxy.proxy_space import (
    in_proxy_space,
    inside_box,
    length_of,
)
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.proxies.lone_proxies import are_lone, heard_among
from flwr_dpkmeans.kmeans.proxies.variances import signal_share
from flwr_dpkmeans.kmeans.proxies.weights import likely_weights
from flwr_dpkmeans.sums.round import Array, State


def heard_weights(
    setting: Setting,
    state: State,
    counts: Array,
    noise: float,
) -> Array:
    """Weights of proxies from their noisy counts alone.

    Those that rows are less likely to be at are weighed apart.
    """
    proxies, weights = state[PROXIES], np.zeros(len(counts))
    apart = proxies_beyond(setting, state, proxies)
    # With one pass, a small cluster may be heard by one proxy.
    if setting.plan.n_passes > 1:
        apart = apart | are_lone(
            proxies,
            counts / noise,
            state[PROXY_RADIUS],
            setting.options.audible_deviations,
        )
    for part in (apart, ~apart):
        weights[part] = _likely_weights(setting, counts[part], noise)
    if setting.plan.n_passes == 1:
        # Nobody looks again, and so far away a few rows of noise outweigh whole
        # clusters.
        very_far = proxies_beyond(
            setting,
            state,
            proxies,
            2.0,
        )
        weights[very_far & (counts <= heard_among(int(very_far.sum())) * noise)] = 0.0
    return weights


def proxies_beyond(
    setting: Setting,
    state: State,
    points: Array,
    times: float = 1.0,
) -> NDArray[np.bool_]:
    """Which points lie far beyond the proxies along a column.

    So many times as far from the centre as where proxies lie densely.
    """
    if setting.in_subspace:
        return np.zeros(len(points), dtype=np.bool_)
    return np.asarray(
        np.abs(points - state[CENTRE]).max(axis=1) > times * length_of(state, EXTENT)
    )


def _likely_weights(
    setting: Setting,
    counts: Array,
    noise: float,
) -> Array:
    if not setting.options.weighs_likely:
        return np.maximum(counts, 0.0)
    return likely_weights(
        counts,
        noise,
        setting.public.n_units,
        least=setting.options.least_count,
    )


def with_server_points(
    setting: Setting,
    state: State,
    moved: Array,
    counts: Array,
    std: float,
) -> tuple[Array, Array]:
    """Points to cluster and their weights.

    The server's own in the place of proxies that have some.

    A proxy's noisy count is averaged by precision with the number of rows that the
    server's points stand for, which is worth as much as it agrees with all counts; its
    points share what is likely then, and move as the proxy does.
    """
    proxies = state[PROXIES]
    server_points = in_proxy_space(state[SERVER_POINTS], state)
    labels = nearest_centroids(server_points, proxies)[0]
    n_points = np.bincount(labels, minlength=len(proxies))
    has_points = n_points > 0
    expected = n_points[has_points] * (setting.public.n_units / len(server_points))
    more = counts[has_points] - expected
    trusted = signal_share(math.fsum(np.square(more)) / len(more), std)
    both = expected + trusted * more
    # Points that are unlike the rows may stand for none, where an average proxy's rows
    # are to be told from none.
    if trusted > 0.0 and expected.mean() >= setting.options.least_count * std:
        both = _likely_weights(setting, both, math.sqrt(trusted) * std)
    each = np.zeros(len(proxies))
    each[has_points] = round_to_grid(np.maximum(both, 0.0) / n_points[has_points])
    others = state.changed(
        **{name: state[name][~has_points] for name in (PROXIES, PROXY_RADIUS)}
    )
    elsewhere = heard_weights(
        setting,
        others,
        counts[~has_points],
        std,
    )
    points = np.concatenate(
        [server_points + (moved - proxies)[labels], moved[~has_points]]
    )
    return inside_box(points, state), np.concatenate([each[labels], elsewhere])
