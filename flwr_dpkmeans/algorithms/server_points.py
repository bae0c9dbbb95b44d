"""What the server's own points tell everybody before a run: a centre and clip bounds, computed from them alone.

No client data and no budget is needed for these numbers, so a run has no hyper-parameter that somebody would have to
take from private data. They travel in the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.noise_budget import NoiseFamily
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kmeans.clipping import clip_rows
from flwr_dpkmeans.kmeans.projected import nearest_projected, outer_product_triangle, sums_and_counts
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.kmeans.weighted import weighted_kmeans
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.task import CLIP_BOUNDS, Run, ServerFacts

Array = NDArray[np.float64]

RECORD_RADIUS_QUANTILE = 0.95
"""Of the server points' norms: rows beyond it are pulled in, which costs less than the noise of a larger radius."""
OUTER_PRODUCT_QUANTILE = 0.5
"""Clipping all outer products to one norm only makes them equally important; a lower bound needs less noise."""
CLIENT_STATISTIC_QUANTILE = 0.5
"""Of the simulated clients' norms."""
SIMULATED_CLIENTS = 200
_RELATIVE_WIDTH_TOLERANCE = 1e-6
_SIMULATION_SEED = 20_250_711


def bounds_from_server(points: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds of a cube around the server points' mean that their ball fits into.

    Parameters
    ----------
    points : ndarray, (n_server, n_features)
        In the caller's units.

    Returns
    -------
    pair of tuples of float
        All features get the same width, so that distances keep their meaning.

    Raises
    ------
    DataError
        If all points are equal: they say nothing about the data's spread.

    Examples
    --------
    >>> bounds_from_server(np.array([[0.0, 0.0], [2.0, 0.0]]))
    ((0.0, -1.0), (2.0, 1.0))
    """
    mean = points.mean(axis=0)
    half = float(np.linalg.norm(points - mean, axis=1).max())
    if not half > 0.0:
        raise DataError(
            "all server points are equal, so they say nothing about the data's spread: give bounds, or other points."
        )
    return tuple(float(m - half) for m in mean), tuple(float(m + half) for m in mean)


def derive_server_facts(config: Run, scaled_points: Array) -> ServerFacts:
    """Compute the centre and the clip bounds that the configuration leaves open.

    Parameters
    ----------
    config : Run
        Bounds that it gives, in the caller's units, override.
    scaled_points : ndarray, (n_server, n_features)
        The server's points in the box [-1, 1]^d, on the grid.

    Returns
    -------
    ServerFacts

    Raises
    ------
    ConfigurationError
        If a clip bound is given although features have bounds of different widths.
    DataError
        If there are fewer points than clusters, or all are equal.

    Notes
    -----
    At client level, clients of the declared size are drawn from the server points with replacement, and a quantile of
    each statistic's norm is taken.
    """
    if len(scaled_points) < config.n_clusters:
        raise DataError(
            f"there are {len(scaled_points)} server points, but {config.n_clusters} clusters need at least as many: "
            "give more server points or choose fewer clusters."
        )
    centre = round_to_grid(scaled_points.mean(axis=0))
    points = scaled_points - centre
    norms = np.linalg.norm(points, axis=1)
    if not norms.max() > 0.0:
        raise DataError("all server points are equal, so no clip bound follows from them: give other points.")
    given = _given_bounds(config)
    if config.settings.unit is PrivacyUnit.RECORD:
        bounds = _record_bounds(norms, given)
    else:
        bounds = _client_bounds(config, points, norms, given)
    return ServerFacts(len(points), tuple(float(value) for value in centre), **_rounded(bounds))


def facts_without_server(config: Run, n_features: int) -> ServerFacts:
    """The same numbers where there are no server points: the ball around the box, and what follows from it.

    Parameters
    ----------
    config : Run
    n_features : int

    Returns
    -------
    ServerFacts
        Of no points, around the middle of the box.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> config = parse_config(n_clusters=3, bounds=((-1,), (1,)))
    >>> facts_without_server(config, 4).data_radius
    2.0
    """
    given = _given_bounds(config)
    radius = given.get("data_radius", math.sqrt(n_features))
    clusters = math.sqrt(min(config.n_clusters, config.settings.examples_per_client))
    bounds = {
        "data_radius": radius,
        "outer_product_bound": given.get("outer_product_bound", radius**2),
        "weights_bound": given.get("weights_bound", float(config.settings.examples_per_client)),
        "means_bound": given.get("means_bound", radius * clusters),
        "indicators_bound": given.get("indicators_bound", clusters if _order(config) == 2 else clusters**2),
    }
    return ServerFacts(0, (0.0,) * n_features, **_rounded(bounds))


def _given_bounds(config: Run) -> dict[str, float]:
    """The configuration's own clip bounds, from the caller's units to scaled ones."""
    powers = {"data_radius": 1, "outer_product_bound": 2, "weights_bound": 0, "means_bound": 1, "indicators_bound": 0}
    options = config.task.options
    given = {name: value for name in CLIP_BOUNDS if (value := getattr(options, name, None)) is not None}
    lower, upper = config.settings.bounds
    widths = [high - low for low, high in zip(lower, upper, strict=True)]
    if any(powers[name] for name in given) and max(widths) > min(widths) * (1.0 + _RELATIVE_WIDTH_TOLERANCE):
        name = next(name for name in given if powers[name])
        raise ConfigurationError(
            f"{name} is {given[name]:g}, a distance in the caller's units, but the features' bounds have widths from "
            f"{min(widths):g} to {max(widths):g}: give all features one width, or leave {name} out."
        )
    half = widths[0] / 2.0
    return {name: float(value) / half ** powers[name] for name, value in given.items()}


def _record_bounds(norms: Array, given: dict[str, float]) -> dict[str, float]:
    """Clip bounds for one row."""
    radius = given.get("data_radius", float(np.quantile(norms, RECORD_RADIUS_QUANTILE)) or float(norms.max()))
    default = float(np.quantile(norms, OUTER_PRODUCT_QUANTILE)) or radius
    return {"data_radius": radius, "outer_product_bound": given.get("outer_product_bound", min(radius, default) ** 2)}


def _client_bounds(config: Run, points: Array, norms: Array, given: dict[str, float]) -> dict[str, float]:
    """Clip bounds for one client, from simulated ones."""
    radius = given.get("data_radius", float(norms.max()))
    generator = np.random.default_rng(_SIMULATION_SEED)
    clipped = clip_rows(points, radius)
    centers, _ = weighted_kmeans(clipped, np.ones(len(points)), config.n_clusters, n_init=3, seed=_SIMULATION_SEED)
    size = config.settings.examples_per_client
    samples = [clipped[generator.integers(0, len(points), size)] for _ in range(SIMULATED_CLIENTS)]
    order = _order(config)

    def quantile(norm: Callable[[Array], float]) -> float:
        return float(np.quantile([norm(sample) for sample in samples], CLIENT_STATISTIC_QUANTILE))

    def means_norm(sample: Array) -> float:
        labels = nearest_projected(sample, None, centers)
        sums, counts = sums_and_counts(sample, labels, config.n_clusters)
        return float(np.linalg.norm(sums / np.maximum(counts, 1.0)[:, None]))

    def histogram_norm(sample: Array) -> float:
        labels = nearest_projected(sample, None, points)
        return float(np.linalg.norm(np.bincount(labels), order))

    most_clusters = min(config.n_clusters, size)
    defaults: dict[str, Callable[[], float]] = {
        "data_radius": lambda: radius,
        "outer_product_bound": lambda: quantile(lambda sample: float(np.linalg.norm(outer_product_triangle(sample)))),
        "weights_bound": lambda: quantile(histogram_norm),
        "means_bound": lambda: quantile(means_norm),
        "indicators_bound": lambda: float(most_clusters) ** (1.0 / order),
    }
    return {name: given[name] if name in given else default() for name, default in defaults.items()}


def _order(config: Run) -> int:
    """Norm of histograms and indicators: that of their noise."""
    return 1 if getattr(config.task.options, "noise_kind", None) is NoiseFamily.PAPER else 2


def _rounded(bounds: dict[str, float]) -> dict[str, float]:
    """Twelve digits, so that two machines' last digits do not make two plans."""
    return {name: float(f"{value:.12g}") for name, value in bounds.items()}
