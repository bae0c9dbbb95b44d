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
from flwr_dpkmeans.kernels.residual_sums import UnitResiduals, unit_residuals
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
    d = setting.n_features
    n_units = setting.public.n_units
    factor = setting.options.clip

    def summed(points: Array, state: State) -> Sequence[Array]:
        clip = factor * length_of(state, SPREAD)
        residuals = UnitResiduals(state[CENTRE], clip)
        products = outer_products.outer_product_sums(points, residuals)
        return [products]

    def statistic(points: Array, state: State) -> Sequence[Array]:
        (products,) = summed(points, state)
        triangle = triangle_of(products)
        if setting.per_client:
            return setting.sent([triangle], len(points), parts)
        return [round_to_grid(triangle)]

    def advance(state: State, released: ReleasedSum) -> State:
        spread = length_of(state, SPREAD)
        clip = factor * spread
        block = released.blocks[0]
        noise = setting.noise(block) / n_units
        triangle = released["unit_outer_product"]
        matrix = symmetric_from_triangle(triangle, d) / n_units
        if SERVER_POINTS in state.arrays:
            points = state[SERVER_POINTS]
            rows = unit_residuals(points - state[CENTRE], clip)
            matrix, noise = shrink_to_server(matrix, rows, noise)
        axis_variance = spread**2 / d
        area = clip**2
        ellipsoid = ellipsoid_of(matrix * area, noise * area, axis_variance)
        released_spread = as_length(ellipsoid.spread)
        after = state.changed(**{SPREAD: released_spread})
        if setting.plan.n_passes:
            return first_proxies(setting, after, ellipsoid)
        return without_proxies(setting, after, ellipsoid)

    reads = (CENTRE, SPREAD)
    planned = PrivateSum(
        name="covariance",
        blocks=(),
        statistic=statistic,
        advance=advance,
        reads=reads,
        admits=setting.admitting(reads),
        unrounded=(summed, rounded_triangle),
    )
    return parts, planned
