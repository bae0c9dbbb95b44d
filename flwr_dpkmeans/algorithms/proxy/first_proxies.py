"""The first proxies, or first centroids where there are none."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.algorithms.proxy.clustered_proxies import with_first_centroids
from flwr_dpkmeans.algorithms.proxy.entries import (
    AXES,
    CENTRE,
    EXTENT,
    PROXIES,
    PROXY_RADIUS,
    SHAPE,
    SUBSPACE_SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.proxy_space import (
    at_known_points,
    in_proxy_space,
    inside_box,
    length_of,
)
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS, seed_of
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.draws import normal_samples
from flwr_dpkmeans.kmeans.proxies.ellipsoid import Ellipsoid
from flwr_dpkmeans.kmeans.proxies.far_samples import far_samples, outside_cube
from flwr_dpkmeans.kmeans.proxies.refined_samples import samples_around
from flwr_dpkmeans.kmeans.proxies.samples import box_samples
from flwr_dpkmeans.kmeans.proxies.tessellation import cell_radii, tessellation
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import weighted_kmeans
from flwr_dpkmeans.sums.round import State

# standard deviation of samples around a server point, in sides of a proxy's cell
_JITTER = 0.5
_FEW_BEYOND = 4.0
"""Spreads beyond which at most a sixteenth of the rows lie (Chebyshev).

Proxies are spread thinly there.
"""


def first_proxies(
    setting: Setting,
    state: State,
    found: Ellipsoid,
) -> State:
    """Spread the first proxies over the ellipsoid, and half of them over the server's
    points if there are any.
    """
    plan, d, generator = setting.plan, setting.n_features, setting.generator(state, 0)
    centre, extent = (
        state[CENTRE],
        min(length_of(state, EXTENT), _FEW_BEYOND * found.spread),
    )
    if plan.n_components is None:
        cover = extent if plan.cover_box else None
        samples = box_samples(
            centre,
            found.variances,
            found.axes,
            plan.n_proxies,
            generator,
            cover=cover,
        )
        reach = (
            max(found.spread, min(1.0, extent) * math.sqrt(d / 3.0))
            if plan.cover_box
            else found.spread
        )
    else:
        leading = found.variances[: plan.n_components]
        samples = normal_samples(leading, plan.n_proxies, generator)
        reach = math.sqrt(math.fsum(leading))
        state = state.changed(
            **{
                AXES: found.axes[:, : plan.n_components],
                SUBSPACE_SPREAD: as_length(reach),
            }
        )
    width = samples.shape[1]
    side = reach * plan.n_proxies ** (-1.0 / width)
    if SERVER_POINTS in state.arrays:
        known = in_proxy_space(state[SERVER_POINTS], state)
        own = samples_around(
            known,
            np.ones(len(known)),
            _JITTER * side / math.sqrt(width),
            generator,
        )
        drawn = own[generator.integers(len(own), size=len(samples))]
        samples = np.concatenate([samples, drawn])
    # A cube of that half width around a centre near a wall leaves out the box's other
    # side, however wide it is.
    sides = (np.minimum(centre + extent, 1.0) - np.maximum(centre - extent, -1.0)) / 2.0
    n_far = (
        int(
            setting.options.far_share
            * (1.0 - math.prod(sides.tolist()))
            * plan.n_proxies
        )
        if plan.cover_box
        else 0
    )
    proxies = tessellation(
        inside_box(samples, state), plan.n_proxies - n_far, generator
    )
    radii = np.full(plan.n_proxies, float(as_length(setting.options.clip * side)[0]))
    if n_far:
        # Rows too few to be heard at their distance may still be heard at their place;
        # cells are wide there.
        far = far_samples(
            centre,
            extent,
            plan.n_proxies,
            generator,
        )
        own = outside_cube(
            tessellation(far, n_far, generator),
            far,
            centre,
            extent,
        )
        proxies = np.concatenate([proxies, own])
        radii[-n_far:] = np.maximum(radii[-n_far:], cell_radii(far, own))
    proxies = at_known_points(proxies, state)
    if plan.n_passes > 1:
        # Deviations along the axes of the space that proxies live in, above these.
        axes = found.axes if plan.n_components is None else np.eye(width)
        state = state.changed(
            **{SHAPE: np.vstack([as_length(np.sqrt(found.variances[:width])), axes])}
        )
    return state.changed(
        **{PROXIES: proxies, PROXY_RADIUS: radii, EXTENT: as_length(extent)}
    )


def without_proxies(
    setting: Setting,
    state: State,
    found: Ellipsoid,
) -> State:
    """First centroids where the budget does not suffice for proxies.

    From public points, or spread over the data.
    """
    k, generator = setting.n_clusters, setting.generator(state, 0)
    if SERVER_POINTS in state.arrays:
        points, n_init = state[SERVER_POINTS], setting.public.options.n_init
        centers, _ = weighted_kmeans(
            points,
            np.ones(len(points)),
            k,
            n_init=n_init,
            seed=seed_of(state),
        )
        return with_first_centroids(setting, state, truncate(centers))
    samples = box_samples(
        state[CENTRE],
        found.variances,
        found.axes,
        k,
        generator,
        cover=None,
    )
    return with_first_centroids(
        setting, state, truncate(tessellation(samples, k, generator))
    )
