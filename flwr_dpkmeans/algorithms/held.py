"""The server's own points: from the caller's units to the plan's box, and what everybody may know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.server_points import bounds_from_server, derive_server_facts
from flwr_dpkmeans.data.bounds import Bounds, bounds_feature_names, parse_bounds
from flwr_dpkmeans.data.bundled import load_server_table
from flwr_dpkmeans.data.tables import Table
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.kmeans.ranges import WIDEST
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.sums.plan import PublicPoints
from flwr_dpkmeans.sums.task import Run, ServerData, ServerFacts
from flwr_dpkmeans.sums.trust import trust_model

Array = NDArray[np.float64]

PRIVATE = "private"
"""Spelling of bounds that private histograms find, and of a number of rows that is counted privately."""
DEFAULT_DOMAIN = (-WIDEST, WIDEST)
"""Where private bounds are looked for unless a narrower domain is public."""


@dataclass(frozen=True)
class HeldPoints:
    """The server's points in the scaled box, with the public numbers that follow from them.

    Parameters
    ----------
    scaled : ndarray, (n_server, n_features)
        On the grid.
    facts : ServerFacts
        Public.
    public : PublicPoints or None
        The points themselves, where the trust model needs the clients to have them.
    """

    scaled: Array = field(repr=False)
    facts: ServerFacts
    public: PublicPoints | None

    @property
    def kept(self) -> Array | None:
        """The points, where the server alone holds and needs them."""
        return None if self.public is not None or self.facts.n_points == 0 else self.scaled


def hold_points(config: Run, points: Array) -> HeldPoints:
    """Scale the server's points and derive what is public of them.

    Parameters
    ----------
    config : Run
        With bounds in the caller's units.
    points : ndarray, (n_server, n_features)
        In the caller's units.

    Returns
    -------
    HeldPoints

    Raises
    ------
    ConfigurationError, DataError
        If width, bounds or number of points do not fit.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> config = parse_config(n_clusters=2, bounds=((0,), (4,)), trust="distributed")
    >>> hold_points(config, np.array([[1.0, 1.0], [3.0, 3.0]])).scaled.tolist()
    [[-0.5, -0.5], [0.5, 0.5]]
    """
    width = points.shape[1]
    if config.settings.n_features not in (None, width):
        raise ConfigurationError(
            f"the server's table has {width} features, but the run has {config.settings.n_features}: use the same "
            "columns."
        )
    scaled = round_to_grid(Bounds(*config.settings.bounds).for_features(width).scale(points))
    facts = derive_server_facts(config, scaled)
    if config.task.server_data is ServerData.BOUNDS:
        # Only what follows from the points is used, so nobody has to see them.
        return HeldPoints(scaled, replace(facts, n_points=0), None)
    public = None if trust_model(config.settings.trust).server_reads else PublicPoints.of(scaled)
    return HeldPoints(scaled, facts, public)


def is_private(value: object) -> bool:
    """Whether bounds, or a number of rows, are to be found privately.

    Examples
    --------
    >>> is_private("private"), is_private((-1.0, 1.0))
    (True, False)
    """
    return isinstance(value, str) and value == PRIVATE


def resolve_bounds(
    bounds: Any, server_data: Any, domain: Any = None, *, names: Sequence[str] = (), allow_unnamed: bool = False
) -> tuple[Bounds, tuple[str, ...], Array | None]:
    """Read bounds and server data; without bounds they follow from the server's points.

    Parameters
    ----------
    bounds : object or None
        As `flwr_dpkmeans.data.bounds.parse_bounds` takes them, or ``"private"``.
    server_data : array-like, path or None
        The server's own points.
    domain : object or None
        Public range that private bounds lie in, in the same forms; None: so wide that it says nothing.
    names : sequence of str
        Of the columns in the order of the run, if they are known.
    allow_unnamed : bool
        Whether server data without names may be matched by position where there are names.

    Returns
    -------
    Bounds
        Public: the bounds, or the domain of private ones.
    tuple of str
        Names of the columns that they belong to: as given, or those of a bounds file, or of the server's points.
    ndarray or None
        The server's points, in the caller's units, with their columns in this order.

    Raises
    ------
    ConfigurationError
        If there are neither bounds nor server data: a box that nobody stated would clip the data without a word.
    """
    table = None if server_data is None else load_server_table(server_data)
    if domain is not None and not is_private(bounds):
        raise ConfigurationError(
            f"bounds_domain is {domain!r}, but bounds are not 'private': leave one of the two out, or give "
            "bounds='private'."
        )
    given = bounds
    if is_private(bounds):
        given = DEFAULT_DOMAIN if domain is None else domain
    of_bounds = bounds_feature_names(given)
    order = tuple(names) or of_bounds or (() if table is None else table.names)
    points = None if table is None else _ordered_points(table, order, allow_unnamed=allow_unnamed)
    if given is None and points is not None:
        return Bounds(*bounds_from_server(points)), order, points
    if given is None:
        raise ConfigurationError(
            "no bounds were given, and they may not be taken from private data: give public ones, such as "
            "bounds='0,100' or the path of a file with columns feature,lower,upper, let them follow from server_data, "
            "or let private histograms find them by bounds='private'."
        )
    return parse_bounds(given, feature_names=order if of_bounds else None), order, points


def _ordered_points(table: Table, names: tuple[str, ...], *, allow_unnamed: bool) -> Array:
    """The server's points with their columns in the order of the run's names."""
    if names and not table.named and not allow_unnamed:
        raise ConfigurationError(
            "server_data has no column names, but the run's columns have: give it as a data frame or a file with a "
            "header, or all tables without names."
        )
    if not names or not table.named:
        return table.points
    places = {name: place for place, name in enumerate(table.names)}
    unknown = [name for name in names if name not in places]
    if unknown or len(names) != len(table.names):
        name, others = (unknown[0], table.names) if unknown else (sorted(set(table.names) - set(names))[0], names)
        where = "server_data lacks" if unknown else "server_data has, besides the run's columns,"
        raise ConfigurationError(f"{where} a column {name!r}: {nearest(name, others)}")
    return np.ascontiguousarray(table.points[:, [places[name] for name in names]])
