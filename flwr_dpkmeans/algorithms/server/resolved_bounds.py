"""Bounds of the box, from what a run's configuration says of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.server.server_facts import bounds_from_server
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.loading.server_table import load_server_table
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.kmeans.ranges.magnitudes import WIDEST_DOMAIN
from flwr_dpkmeans.sums.round import Array

PRIVATE = "private"
"""Spelling of bounds that private histograms find, and of a number of rows that is
counted privately.
"""
DEFAULT_DOMAIN = (-WIDEST_DOMAIN, WIDEST_DOMAIN)
"""Where private bounds are looked for unless a narrower domain is public."""


def is_private(value: object) -> bool:
    """Whether bounds, or a number of rows, are to be found privately."""
    return isinstance(value, str) and value == PRIVATE


def resolve_bounds(
    bounds: object,
    server_data: object,
    domain: object = None,
    *,
    names: Sequence[str] = (),
    allow_unnamed: bool = False,
) -> tuple[Bounds, tuple[str, ...], Array | None]:
    """Read bounds and server data.

    Public bounds (or the domain of private ones), columns' names, the server's points.

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
    public_bounds = bounds
    if is_private(bounds):
        public_bounds = DEFAULT_DOMAIN if domain is None else domain
    stated = None if public_bounds is None else read_ranges(public_bounds)
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
    indices = {name: index for index, name in enumerate(table.names)}
    unknown = [name for name in names if name not in indices]
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
    return np.ascontiguousarray(table.points[:, [indices[name] for name in names]])
