"""The shape of the data: the ellipsoid that the first proxies are spread over."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.proxy.entries import CENTRE, SPREAD
from flwr_dpkmeans.algorithms.proxy.first_proxies import first_proxies, without_proxies
from flwr_dpkmeans.algorithms.proxy.proxy_space import length_of
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS
from flwr_dpkmeans.kernels import outer_products
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.residual_sums import unit_residuals
from flwr_dpkmeans.kernels.triangles import (
    rounded_triangle,
    symmetric_from_triangle,
    triangle_of,
)
from flwr_dpkmeans.kmeans.projected import shrink_to_server
from flwr_dpkmeans.kmeans.proxies.ellipsoid import ellipsoid_of
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.round import Array, PrivateSum, State


def covariance_round(setting: Setting) -> PlannedSum:
    """Release the data's shape, and spread the first proxies (or centroids) over it."""
    parts = setting.parts("covariance")
    d, n, factor = setting.n_features, setting.public.n_units, setting.options.clip

    def summed(points: Array, state: State) -> Sequence[Array]:
        centre, clip = state[CENTRE], factor * length_of(state, SPREAD)
        return [
            outer_products.outer_product_sums(
                points, lambda rows: unit_residuals(rows - centre, clip)
            )
        ]

    def statistic(points: Array, state: State) -> Sequence[Array]:
        triangle = triangle_of(*summed(points, state))
        return (
            setting.sent([triangle], len(points), parts)
            if setting.per_client
            else [round_to_grid(triangle)]
        )

    def advance(state: State, released: ReleasedSum) -> State:
        spread, noise = length_of(state, SPREAD), setting.noise(released.blocks[0]) / n
        clip = factor * spread
        matrix = symmetric_from_triangle(released["unit_outer_product"], d) / n
        if SERVER_POINTS in state.arrays:
            rows = unit_residuals(state[SERVER_POINTS] - state[CENTRE], clip)
            matrix, noise = shrink_to_server(matrix, rows, noise)
        found = ellipsoid_of(matrix * clip**2, noise * clip**2, spread**2 / d)
        start = first_proxies if setting.plan.n_passes else without_proxies
        return start(setting, state.changed(**{SPREAD: as_length(found.spread)}), found)

    reads, exact = (CENTRE, SPREAD), (summed, rounded_triangle)
    admits = setting.admitting(reads)
    return parts, PrivateSum(
        "covariance",
        (),
        statistic,
        advance,
        None,
        reads,
        admits,
        unrounded=exact,
    )
