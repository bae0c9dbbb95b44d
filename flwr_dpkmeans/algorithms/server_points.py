"""What the server's own points tell everybody before a run: a centre and clip bounds, computed from them alone.

No client data and no budget is needed for these numbers, so a run has no hyper-parameter that somebody would have to
take from private data. They travel in the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.config import CLIP_BOUNDS, KMeansConfig, NoiseFamily
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kmeans.clipping import clip_rows
from flwr_dpkmeans.kmeans.projected import nearest_projected, outer_product_triangle, sums_and_counts
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.kmeans.weighted import weighted_kmeans
from flwr_dpkmeans.privacy.release import PrivacyUnit

Array = NDArray[np.float64]

RECORD_RADIUS_QUANTILE = 0.95
"""Of the server points' norms: rows beyond it are pulled in, which costs less than the noise of a larger radius."""
OUTER_PRODUCT_QUANTILE = 0.5
"""Clipping all outer products to one norm only makes them equally important; a lower bound needs less noise."""
CLIENT_STATISTIC_QUANTILE = 0.5
"""Of the simulated clients' norms."""
SIMULATED_CLIENTS = 200
MAX_SERVER_POINTS = 2**17
"""A client's work and memory grow with their number, and a plan may come from a hostile server."""
_RELATIVE_WIDTH_TOLERANCE = 1e-6
_SIMULATION_SEED = 20_250_711


@dataclass(frozen=True)
class ServerFacts:
    """Public numbers that follow from the server's points; all in the scaled box [-1, 1]^d.

    Parameters
    ----------
    n_points : int
        Number of server points.
    centre : tuple of float, (n_features,)
        Their mean, on the grid; rows are taken relative to it.
    data_radius : float
        Rows are clipped to this distance from the centre.
    outer_product_bound : float
        Frobenius norm that one unit adds to the outer product.
    weights_bound, means_bound, indicators_bound : float
        Norms of a client's histogram, cluster means and indicators (client level).
    """

    n_points: int
    centre: tuple[float, ...]
    data_radius: float
    outer_product_bound: float
    weights_bound: float = 1.0
    means_bound: float = 1.0
    indicators_bound: float = 1.0

    def __post_init__(self) -> None:
        for name in CLIP_BOUNDS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigurationError(f"{name} is {value!r}, but it must be positive and finite: give another one.")
        if self.n_points > MAX_SERVER_POINTS:
            raise ConfigurationError(
                f"the server has {self.n_points} points, but at most {MAX_SERVER_POINTS} can be weighted: give fewer."
            )
        # Off the grid, a client's sums could not be encoded for some data, and that it fails would tell of them.
        if self.n_points < 0 or not all(abs(value) <= 1.0 and (value * 2.0**16).is_integer() for value in self.centre):
            raise ConfigurationError("the server data's centre is not on the grid inside the bounds: check the server.")


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


def derive_server_facts(config: KMeansConfig, scaled_points: Array) -> ServerFacts:
    """Compute the centre and the clip bounds that the configuration leaves open.

    Parameters
    ----------
    config : KMeansConfig
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
    if config.unit is PrivacyUnit.RECORD:
        bounds = _record_bounds(norms, given)
    else:
        bounds = _client_bounds(config, points, norms, given)
    return ServerFacts(len(points), tuple(float(value) for value in centre), **_rounded(bounds))


def facts_without_server(config: KMeansConfig, n_features: int) -> ServerFacts:
    """The same numbers where there are no server points: the ball around the box, and what follows from it.

    Parameters
    ----------
    config : KMeansConfig
    n_features : int

    Returns
    -------
    ServerFacts
        Of no points, around the middle of the box.

    Examples
    --------
    >>> config = KMeansConfig(n_clusters=3, bounds=((-1.0,), (1.0,)))
    >>> facts_without_server(config, 4).data_radius
    2.0
    """
    given = _given_bounds(config)
    radius = given.get("data_radius", math.sqrt(n_features))
    clusters = math.sqrt(min(config.n_clusters, config.examples_per_client))
    bounds = {
        "data_radius": radius,
        "outer_product_bound": given.get("outer_product_bound", radius**2),
        "weights_bound": given.get("weights_bound", float(config.examples_per_client)),
        "means_bound": given.get("means_bound", radius * clusters),
        "indicators_bound": given.get("indicators_bound", clusters if _order(config) == 2 else clusters**2),
    }
    return ServerFacts(0, (0.0,) * n_features, **_rounded(bounds))


def _given_bounds(config: KMeansConfig) -> dict[str, float]:
    """The configuration's own clip bounds, from the caller's units to scaled ones."""
    powers = {"data_radius": 1, "outer_product_bound": 2, "weights_bound": 0, "means_bound": 1, "indicators_bound": 0}
    given = {name: getattr(config, name) for name in CLIP_BOUNDS if getattr(config, name) is not None}
    lower, upper = config.bounds
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


def _client_bounds(config: KMeansConfig, points: Array, norms: Array, given: dict[str, float]) -> dict[str, float]:
    """Clip bounds for one client, from simulated ones."""
    radius = given.get("data_radius", float(norms.max()))
    generator = np.random.default_rng(_SIMULATION_SEED)
    clipped = clip_rows(points, radius)
    centers, _ = weighted_kmeans(clipped, np.ones(len(points)), config.n_clusters, n_init=3, seed=_SIMULATION_SEED)
    samples = [
        clipped[generator.integers(0, len(points), config.examples_per_client)] for _ in range(SIMULATED_CLIENTS)
    ]
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

    most_clusters = min(config.n_clusters, config.examples_per_client)
    defaults: dict[str, Callable[[], float]] = {
        "data_radius": lambda: radius,
        "outer_product_bound": lambda: quantile(lambda sample: float(np.linalg.norm(outer_product_triangle(sample)))),
        "weights_bound": lambda: quantile(histogram_norm),
        "means_bound": lambda: quantile(means_norm),
        "indicators_bound": lambda: float(most_clusters) ** (1.0 / order),
    }
    return {name: given[name] if name in given else default() for name, default in defaults.items()}


def _order(config: KMeansConfig) -> int:
    """Norm of histograms and indicators: that of their noise."""
    return 1 if config.noise_kind is NoiseFamily.PAPER else 2


def _rounded(bounds: dict[str, float]) -> dict[str, float]:
    """Twelve digits, so that two machines' last digits do not make two plans."""
    return {name: float(f"{value:.12g}") for name, value in bounds.items()}
