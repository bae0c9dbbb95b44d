"""Facts that follow from the server's own points."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.algorithms.budget.count_norms import count_order
from flwr_dpkmeans.algorithms.server.box_widths import have_one_width
from flwr_dpkmeans.algorithms.server.simulated_clients import client_bounds_of
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import CLIP_BOUNDS, ServerFacts
from flwr_dpkmeans.sums.round import Array

RECORD_RADIUS_QUANTILE = 0.95
"""Of the server points' norms: rows beyond it are pulled in, which costs less than the
noise of a larger radius.
"""
OUTER_PRODUCT_QUANTILE = 0.5
"""Clipping all outer products to one norm only makes them equally important.

a lower bound needs less noise.
"""


def bounds_from_server(points: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds, in the caller's units.

    Of a cube around the server points' mean that their ball fits into.

    All features get the same width, so that distances keep their meaning. A `DataError`
    if all points are equal: they say nothing about the data's spread.
    """
    mean = points.mean(axis=0)
    half = float(np.linalg.norm(points - mean, axis=1).max())
    if not half > 0.0:
        raise DataError(
            "all server points are equal, so they say nothing about the data's spread:"
            " give bounds, or other points."
        )
    return tuple(float(m - half) for m in mean), tuple(float(m + half) for m in mean)


def derive_server_facts(config: RunConfig, scaled_points: Array) -> ServerFacts:
    """Centre and clip bounds from the server's points, (n_server, n_features).

    In the box [-1, 1]^d on the grid.

    Bounds that the configuration gives, in the caller's units, override. At client
    level, clients of the declared size are drawn from the server points with
    replacement, and a quantile of each statistic's norm is taken. A `DataError` if
    there are fewer points than clusters, or all are equal; a `ConfigurationError` if a
    clip bound is given although features have bounds of different widths.
    """
    if len(scaled_points) < config.n_clusters:
        raise DataError(
            f"there are {len(scaled_points)} server points, but {config.n_clusters}"
            " clusters need at least as many: give more server points or choose fewer"
            " clusters."
        )
    centre = round_to_grid(scaled_points.mean(axis=0))
    points = scaled_points - centre
    norms = np.linalg.norm(points, axis=1)
    if not norms.max() > 0.0:
        raise DataError(
            "all server points are equal, so no clip bound follows from them: give"
            " other points."
        )
    configured = _configured_bounds(config)
    if config.settings.unit is PrivacyUnit.CLIENT:
        bounds = client_bounds_of(
            config, points, configured.get("data_radius", float(norms.max()))
        )
    else:
        # A quantile is 0 where most points are equal.
        radius = configured.get(
            "data_radius",
            float(np.quantile(norms, RECORD_RADIUS_QUANTILE)) or float(norms.max()),
        )
        typical = float(np.quantile(norms, OUTER_PRODUCT_QUANTILE)) or radius
        bounds = {
            "data_radius": radius,
            "outer_product_bound": min(radius, typical) ** 2,
        }
    return ServerFacts(
        len(points),
        tuple(float(value) for value in centre),
        **_rounded(configured, bounds),
    )


def facts_without_server(config: RunConfig, n_features: int) -> ServerFacts:
    """The same numbers where there are no server points.

    The ball around the box, and what follows from it.
    """
    configured, rows = _configured_bounds(config), config.settings.examples_per_client
    radius = configured.get("data_radius", math.sqrt(n_features))
    clusters = math.sqrt(min(config.n_clusters, rows))
    bounds = {
        "data_radius": radius,
        "outer_product_bound": radius**2,
        "weights_bound": float(rows),
        "means_bound": radius * clusters,
        "indicators_bound": clusters if count_order(config) == 2 else clusters**2,
        "sums_bound": radius * rows,
        "counts_bound": float(rows),
    }
    return ServerFacts(0, (0.0,) * n_features, **_rounded(configured, bounds))


def _configured_bounds(config: RunConfig) -> dict[str, float]:
    """The configuration's own clip bounds, from the caller's units to scaled ones."""
    powers = dict.fromkeys(CLIP_BOUNDS, 1) | {"outer_product_bound": 2}
    powers |= dict.fromkeys(("weights_bound", "indicators_bound", "counts_bound"), 0)
    configured = {
        name: value
        for name in CLIP_BOUNDS
        if (value := getattr(config.task.options, name, None)) is not None
    }
    lower, upper = config.settings.bounds
    widths = [high - low for low, high in zip(lower, upper, strict=True)]
    of_length = [name for name in configured if powers[name]]
    if of_length and not have_one_width(widths):
        name = of_length[0]
        raise ConfigurationError(
            f"{name} is {configured[name]:g}, a distance in the caller's units, but the"
            f" features' bounds have widths from {min(widths):g} to {max(widths):g}:"
            f" give all features one width, or leave {name} out."
        )
    half = widths[0] / 2.0
    return {
        name: float(value) / half ** powers[name] for name, value in configured.items()
    }


def _rounded(
    configured: Mapping[str, float], defaults: Mapping[str, float]
) -> dict[str, float]:
    """Bounds as given or by default, to twelve digits.

    So that two machines' last digits do not make two plans.
    """
    return {
        name: float(f"{configured.get(name, value):.12g}")
        for name, value in defaults.items()
    }
