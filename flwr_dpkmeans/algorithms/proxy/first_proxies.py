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
    ellipsoid: Ellipsoid,
) -> State:
    """Spread the first proxies over the ellipsoid.

    Half of them over the server's points, if there are any.
    """
    plan = setting.plan
    d = setting.n_features
    generator = setting.generator(state, 0)
    centre = state[CENTRE]
    extent = min(length_of(state, EXTENT), _FEW_BEYOND * ellipsoid.spread)
    if plan.n_components is None:
        cover = extent if plan.cover_box else None
        samples = box_samples(
            centre,
            ellipsoid.variances,
            ellipsoid.axes,
            plan.n_proxies,
            generator,
            cover=cover,
        )
        reach = ellipsoid.spread
        if plan.cover_box:
            # The spread of a cube that is filled evenly.
            spread_of_cube = min(1.0, extent) * math.sqrt(d / 3.0)
            reach = max(reach, spread_of_cube)
    else:
        leading = ellipsoid.variances[: plan.n_components]
        samples = normal_samples(leading, plan.n_proxies, generator)
        reach = math.sqrt(math.fsum(leading))
        state = state.changed(
            **{
                AXES: ellipsoid.axes[:, : plan.n_components],
                SUBSPACE_SPREAD: as_length(reach),
            }
        )
    width = samples.shape[1]
    side = reach * plan.n_proxies ** (-1.0 / width)
    if SERVER_POINTS in state.arrays:
        server_points = in_proxy_space(state[SERVER_POINTS], state)
        around_points = samples_around(
            server_points,
            np.ones(len(server_points)),
            _JITTER * side / math.sqrt(width),
            generator,
        )
        indices = generator.integers(len(around_points), size=len(samples))
        drawn = around_points[indices]
        samples = np.concatenate([samples, drawn])
    # A cube of that half width around a centre near a wall leaves out the box's other
    # side, however wide it is.
    upper = np.minimum(centre + extent, 1.0)
    lower = np.maximum(centre - extent, -1.0)
    sides = (upper - lower) / 2.0
    n_far = 0
    if plan.cover_box:
        part_outside = 1.0 - math.prod(sides.tolist())
        n_far = int(setting.options.far_share * part_outside * plan.n_proxies)
    n_near = plan.n_proxies - n_far
    proxies = tessellation(inside_box(samples, state), n_near, generator)
    radius = as_length(setting.options.clip * side)
    radii = np.full(plan.n_proxies, float(radius[0]))
    if n_far:
        # Rows too few to be heard at their distance may still be heard at their place;
        # cells are wide there.
        far = far_samples(
            centre,
            extent,
            plan.n_proxies,
            generator,
        )
        far_proxies = outside_cube(
            tessellation(far, n_far, generator),
            far,
            centre,
            extent,
        )
        proxies = np.concatenate([proxies, far_proxies])
        far_radii = cell_radii(far, far_proxies)
        radii[-n_far:] = np.maximum(radii[-n_far:], far_radii)
    proxies = at_known_points(proxies, state)
    if plan.n_passes > 1:
        # Deviations along the axes of the space that proxies live in, above these.
        axes = ellipsoid.axes if plan.n_components is None else np.eye(width)
        deviations = as_length(np.sqrt(ellipsoid.variances[:width]))
        state = state.changed(**{SHAPE: np.vstack([deviations, axes])})
    return state.changed(
        **{PROXIES: proxies, PROXY_RADIUS: radii, EXTENT: as_length(extent)}
    )


def without_proxies(
    setting: Setting,
    state: State,
    ellipsoid: Ellipsoid,
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
        ellipsoid.variances,
        ellipsoid.axes,
        k,
        generator,
        cover=None,
    )
    return with_first_centroids(
        setting, state, truncate(tessellation(samples, k, generator))
    )
