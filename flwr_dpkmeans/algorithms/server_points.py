"""What the server's own points tell everybody before a run, at no budget.

a centre and clip bounds, for the plan.

So no hyper-parameter has to be taken from private data. Also from the caller's units to
the plan's box and back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.count_norms import count_order
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.bundled import load_server_table
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.rows import Rows, is_large, windows
from flwr_dpkmeans.data.schema import schema_of
from flwr_dpkmeans.data.tables import Table
from flwr_dpkmeans.errors import ConfigurationError, DataError, column_names, nearest
from flwr_dpkmeans.kernels import outer_products, projected_sums
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.projected_sums import sums_and_counts
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import weighted_kmeans
from flwr_dpkmeans.kmeans.ranges.magnitudes import WIDEST_DOMAIN
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.public_facts import CLIP_BOUNDS, ServerData, ServerFacts
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.trust import trust_model

RECORD_RADIUS_QUANTILE = 0.95
"""Of the server points' norms: rows beyond it are pulled in, which costs less than the
noise of a larger radius.
"""
OUTER_PRODUCT_QUANTILE = 0.5
"""Clipping all outer products to one norm only makes them equally important.

a lower bound needs less noise.
"""
CLIENT_STATISTIC_QUANTILE = 0.5
"""Of the simulated clients' norms."""
SIMULATED_CLIENTS = 200
_RELATIVE_WIDTH_TOLERANCE = 1e-6
_SIMULATION_SEED = 20_250_711


def bounds_from_server(points: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds, in the caller's units, of a cube around the server points' mean that
    their ball fits into.

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
    """Centre and clip bounds from the server's points, (n_server, n_features), in the
    box [-1, 1]^d on the grid.

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
    given = _given_bounds(config)
    if config.settings.unit is PrivacyUnit.CLIENT:
        bounds = _client_bounds(
            config, points, given.get("data_radius", float(norms.max()))
        )
    else:
        # A quantile is 0 where most points are equal.
        radius = given.get(
            "data_radius",
            float(np.quantile(norms, RECORD_RADIUS_QUANTILE)) or float(norms.max()),
        )
        typical = float(np.quantile(norms, OUTER_PRODUCT_QUANTILE)) or radius
        bounds = {
            "data_radius": radius,
            "outer_product_bound": min(radius, typical) ** 2,
        }
    return ServerFacts(
        len(points), tuple(float(value) for value in centre), **_rounded(given, bounds)
    )


def facts_without_server(config: RunConfig, n_features: int) -> ServerFacts:
    """The same numbers where there are no server points.

    The ball around the box, and what follows from it.
    """
    given, rows = _given_bounds(config), config.settings.examples_per_client
    radius = given.get("data_radius", math.sqrt(n_features))
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
    return ServerFacts(0, (0.0,) * n_features, **_rounded(given, bounds))


def _given_bounds(config: RunConfig) -> dict[str, float]:
    """The configuration's own clip bounds, from the caller's units to scaled ones."""
    powers = dict.fromkeys(CLIP_BOUNDS, 1) | {"outer_product_bound": 2}
    powers |= dict.fromkeys(("weights_bound", "indicators_bound", "counts_bound"), 0)
    given = {
        name: value
        for name in CLIP_BOUNDS
        if (value := getattr(config.task.options, name, None)) is not None
    }
    lower, upper = config.settings.bounds
    widths = [high - low for low, high in zip(lower, upper, strict=True)]
    if any(powers[name] for name in given) and max(widths) > min(widths) * (
        1.0 + _RELATIVE_WIDTH_TOLERANCE
    ):
        name = next(name for name in given if powers[name])
        raise ConfigurationError(
            f"{name} is {given[name]:g}, a distance in the caller's units, but the"
            f" features' bounds have widths from {min(widths):g} to {max(widths):g}:"
            f" give all features one width, or leave {name} out."
        )
    half = widths[0] / 2.0
    return {name: float(value) / half ** powers[name] for name, value in given.items()}


def _client_bounds(
    config: RunConfig,
    points: Array,
    radius: float,
) -> dict[str, float]:
    generator = np.random.default_rng(_SIMULATION_SEED)
    clipped = clip_rows(points, radius)
    centers, _ = weighted_kmeans(
        clipped,
        np.ones(len(points)),
        config.n_clusters,
        n_init=3,
        seed=_SIMULATION_SEED,
    )
    size, order = config.settings.examples_per_client, count_order(config)
    samples = [
        clipped[generator.integers(0, len(points), size)]
        for _ in range(SIMULATED_CLIENTS)
    ]

    def quantile(vectors: Sequence[NDArray[Any]], order: int = 2) -> float:
        return float(
            np.quantile(
                [np.linalg.norm(one.ravel(), order) for one in vectors],
                CLIENT_STATISTIC_QUANTILE,
            )
        )

    own = [
        sums_and_counts(one, nearest_projected(one, None, centers), config.n_clusters)
        for one in samples
    ]
    return {
        "data_radius": radius,
        "outer_product_bound": quantile(
            [outer_products.outer_product_triangle(sample) for sample in samples]
        ),
        "weights_bound": quantile(
            [np.bincount(nearest_projected(one, None, points)) for one in samples],
            order,
        ),
        "means_bound": quantile(
            [
                projected_sums.means_and_indicators(sums, counts)[0]
                for sums, counts in own
            ]
        ),
        "indicators_bound": float(min(config.n_clusters, size)) ** (1.0 / order),
        "sums_bound": quantile([sums for sums, _ in own]),
        "counts_bound": quantile([counts for _, counts in own], order),
    }


def _rounded(
    given: Mapping[str, float], defaults: Mapping[str, float]
) -> dict[str, float]:
    """Bounds as given or by default, to twelve digits, so that two machines' last
    digits do not make two plans.
    """
    return {
        name: float(f"{given.get(name, value):.12g}")
        for name, value in defaults.items()
    }


PRIVATE = "private"
"""Spelling of bounds that private histograms find, and of a number of rows that is
counted privately.
"""
DEFAULT_DOMAIN = (-WIDEST_DOMAIN, WIDEST_DOMAIN)
"""Where private bounds are looked for unless a narrower domain is public."""


@dataclass(frozen=True)
class HeldPoints:
    """The server's points in the scaled box, on the grid, with the public numbers that
    follow from them.
    """

    scaled: Array = field(repr=False)
    facts: ServerFacts
    public: PublicPoints | None
    """The points themselves, where the trust model needs the clients to have them."""

    @property
    def kept(self) -> Array | None:
        """The points, where the server alone holds and needs them."""
        return (
            None if self.public is not None or self.facts.n_points == 0 else self.scaled
        )


def hold_points(config: RunConfig, points: Array) -> HeldPoints:
    """Scale the server's points, (n_server, n_features), and derive what is public of
    them.

    A `ConfigurationError` or `DataError` if width, bounds or number of points do not
    fit.
    """
    width = points.shape[1]
    if config.settings.n_features not in (None, width):
        raise ConfigurationError(
            f"the server's table has {width} features, but the run has"
            f" {config.settings.n_features}: use the same."
        )
    bounds = Bounds(*config.settings.bounds).for_features(width)
    outside = ((points < bounds.lower) | (points > bounds.upper)).mean(axis=0)
    if columns := np.flatnonzero(outside > 0.5).tolist():
        raise DataError(
            f"{outside.max():.0%} of the server's points lie outside the bounds of"
            f" {column_names(columns, config.settings.feature_names)}, and would be"
            " clipped: give points in the units of the data, or wider bounds."
        )
    scaled = round_to_grid(bounds.scale(points))
    facts = derive_server_facts(config, scaled)
    if config.task.server_data is ServerData.BOUNDS:
        # Only what follows from the points is used, so nobody has to see them.
        return HeldPoints(scaled, replace(facts, n_points=0), None)
    shown = not trust_model(config.settings.trust).server_has_result()
    return HeldPoints(scaled, facts, PublicPoints.of(scaled) if shown else None)


def is_private(value: object) -> bool:
    """Whether bounds, or a number of rows, are to be found privately."""
    return isinstance(value, str) and value == PRIVATE


def resolve_bounds(
    bounds: Any,
    server_data: Any,
    domain: Any = None,
    *,
    names: Sequence[str] = (),
    allow_unnamed: bool = False,
) -> tuple[Bounds, tuple[str, ...], Array | None]:
    """Read bounds and server data: public bounds (or the domain of private ones),
    columns' names, the server's points.

    `bounds` are a schema, or as `read_ranges` takes them, or ``"private"``, inside
    `domain`, which is so wide that it says nothing unless it is given; without bounds
    they follow from the server's points. Names are as given, or those of a bounds file,
    or of the server's points, whose columns are put in this order; without names they
    are matched by position only with `allow_unnamed`. A `ConfigurationError` if there
    are neither bounds nor server data: a box that nobody stated would clip the data
    without a word.
    """
    schema = schema_of(bounds)
    table = (
        None if server_data is None else load_server_table(server_data, schema=schema)
    )
    if domain is not None and not is_private(bounds):
        raise ConfigurationError(
            f"bounds_domain is {domain!r}, but bounds are not 'private': leave one out,"
            " or give bounds='private'."
        )
    if schema is not None and names and tuple(names) != schema.feature_names:
        raise ConfigurationError(
            "columns are named beside a schema, which names them itself: leave them"
            " out."
        )
    if schema is not None:
        return (
            schema.bounds,
            schema.feature_names,
            None if table is None else table.points,
        )
    given = bounds
    if is_private(bounds):
        given = DEFAULT_DOMAIN if domain is None else domain
    stated = None if given is None else read_ranges(given)
    order = (
        tuple(names)
        or (stated.names if stated else ())
        or (table.names if table else ())
    )
    points = (
        None
        if table is None
        else _ordered_points(table, order, allow_unnamed=allow_unnamed)
    )
    if stated is not None:
        return stated.matched(order), order, points
    if points is not None:
        return Bounds(*bounds_from_server(points)), order, points
    raise ConfigurationError(
        "no bounds were given, and they may not be taken from private data: give public"
        " ones, such as bounds='0,100' or the path of a file with columns"
        " feature,lower,upper, let them follow from server_data, or let private"
        " histograms find them by bounds='private'."
    )


def _ordered_points(
    table: Table,
    names: tuple[str, ...],
    *,
    allow_unnamed: bool,
) -> Array:
    if names and not table.names and not allow_unnamed:
        raise ConfigurationError(
            "server_data has no column names, but the run's columns have: give it as a"
            " data frame or a file with a header, or all tables without names."
        )
    if not names or not table.names:
        return table.points
    places = {name: place for place, name in enumerate(table.names)}
    unknown = [name for name in names if name not in places]
    if unknown or len(names) != len(table.names):
        name, others = (
            (unknown[0], table.names)
            if unknown
            else (sorted(set(table.names) - set(names))[0], names)
        )
        where = (
            "server_data lacks"
            if unknown
            else "server_data has, besides the run's columns,"
        )
        raise ConfigurationError(f"{where} a column {name!r}: {nearest(name, others)}")
    return np.ascontiguousarray(table.points[:, [places[name] for name in names]])


@lru_cache(maxsize=16)
def plan_bounds(plan: Plan, n_features: int) -> Bounds:
    """The plan's box, declared or released, one pair per feature."""
    return Bounds(*plan.bounds).for_features(n_features)


def in_box(
    bounds: Bounds,
    points: Array,
    fraction_bits: int,
) -> Array:
    """Points, (n_points, n_features), in the scaled box, on the grid.

    Large tables block by block, when looked at.
    """
    n, d = points.shape
    # Two grid steps at once: products with powers of two are exact, so that each saves
    # a pass over the rows.
    half = 2.0**fraction_bits
    lower, upper, step = _sides(
        bounds,
        min(n, next(windows((n or 1, d))).stop),
        d,
        half,
    )

    def scaled(block: Array) -> Array:
        """`Bounds.scale` and `round_to_grid` in place, to the last bit."""
        found = np.empty(block.shape)
        for rows in windows(block.shape):
            part, first = found[rows], slice(rows.stop - rows.start)
            np.maximum(block[rows], lower[first], out=part)
            np.minimum(part, upper[first], out=part)
            part -= lower[first]
            part /= step[first]
            part -= half
            np.rint(part, out=part)
            part *= 1.0 / half
        # Kept for the next round, which must not find what a statistic wrote into it.
        found.setflags(write=False)
        return found

    return (
        Rows(points.shape, points.__getitem__).then(scaled)
        if is_large(points.shape)
        else scaled(points)
    )


@lru_cache(maxsize=1)
def _sides(
    bounds: Bounds,
    height: int,
    d: int,
    half: float,
) -> tuple[Array, Array, Array]:
    """Bounds and steps, of as many rows as are scaled at a time.

    a row by itself would be too short to be fast.

    Kept for all virtual clients of one process, which have the same.
    """
    fitted = bounds.for_features(d)
    lower, upper = (np.tile(side, (height, 1)) for side in (fitted.lower, fitted.upper))
    return lower, upper, (upper - lower) / (2.0 * half)


def in_callers_units(plan: Plan, centroids: Array) -> Array:
    """Scaled centroids, (n_clusters, n_features), in the caller's units."""
    return np.asarray(plan_bounds(plan, centroids.shape[1]).unscale(centroids))


def squared_unit(box: Box) -> float | None:
    """The caller's squared units in a squared scaled one, where it is a number and the
    same for all features.
    """
    widths = [high - low for low, high in zip(*box, strict=True)]
    # A power would raise where it is infinite.
    squared = (widths[0] / 2.0) * (widths[0] / 2.0)
    is_one = max(widths) <= min(widths) * (1.0 + _RELATIVE_WIDTH_TOLERANCE)
    return squared if is_one and math.isfinite(squared) else None
