"""The server's own points: from the caller's units to the plan's box, and what everybody may know of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms import ServerData, algorithm_entry
from flwr_dpkmeans.config import KMeansConfig
from flwr_dpkmeans.data.bounds import Bounds, bounds_feature_names, parse_bounds
from flwr_dpkmeans.data.server_data import load_server_points
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kmeans.ranges import WIDEST
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.plan import PublicPoints
from flwr_dpkmeans.server_facts import ServerFacts, bounds_from_server, derive_server_facts
from flwr_dpkmeans.trust import trust_model

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


def hold_points(config: KMeansConfig, points: Array) -> HeldPoints:
    """Scale the server's points and derive what is public of them.

    Parameters
    ----------
    config : KMeansConfig
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
    >>> config = KMeansConfig(n_clusters=2, bounds=((0.0,), (4.0,)), trust="distributed")
    >>> hold_points(config, np.array([[1.0, 1.0], [3.0, 3.0]])).scaled.tolist()
    [[-0.5, -0.5], [0.5, 0.5]]
    """
    width = points.shape[1]
    if config.n_features not in (None, width):
        raise ConfigurationError(
            f"the server's table has {width} features, but the run has {config.n_features}: use the same columns."
        )
    scaled = round_to_grid(Bounds(*config.bounds).for_features(width).scale(points))
    facts = derive_server_facts(config, scaled)
    if algorithm_entry(config.algorithm).server_data is ServerData.BOUNDS:
        # Only what follows from the points is used, so nobody has to see them.
        return HeldPoints(scaled, replace(facts, n_points=0), None)
    public = None if trust_model(config.trust).server_reads else PublicPoints.of(scaled)
    return HeldPoints(scaled, facts, public)


def is_private(value: object) -> bool:
    """Whether bounds, or a number of rows, are to be found privately.

    Examples
    --------
    >>> is_private("private"), is_private((-1.0, 1.0))
    (True, False)
    """
    return isinstance(value, str) and value == PRIVATE


def resolve_bounds(bounds: Any, server_data: Any, domain: Any = None) -> tuple[Bounds, tuple[str, ...], Array | None]:
    """Read bounds and server data; without bounds they follow from the server's points.

    Parameters
    ----------
    bounds : object or None
        As `flwr_dpkmeans.data.bounds.parse_bounds` takes them, or ``"private"``.
    server_data : array-like, path or None
        The server's own points.
    domain : object or None
        Public range that private bounds lie in, in the same forms; None: so wide that it says nothing.

    Returns
    -------
    Bounds
        Public: the bounds, or the domain of private ones.
    tuple of str
        Names of the features that they belong to, if a file gave them.
    ndarray or None
        The server's points, in the caller's units.

    Raises
    ------
    ConfigurationError
        If there are neither bounds nor server data: a box that nobody stated would clip the data without a word.
    """
    points = None if server_data is None else load_server_points(server_data)
    if domain is not None and not is_private(bounds):
        raise ConfigurationError(
            f"bounds_domain is {domain!r}, but bounds are not 'private': leave one of the two out, or give "
            "bounds='private'."
        )
    if is_private(bounds):
        given = DEFAULT_DOMAIN if domain is None else domain
        return parse_bounds(given), bounds_feature_names(given), points
    if bounds is None and points is not None:
        return Bounds(*bounds_from_server(points)), (), points
    if bounds is None:
        raise ConfigurationError(
            "no bounds were given, and they may not be taken from private data: give public ones, such as "
            "bounds='0,100' or the path of a file with columns feature,lower,upper, let them follow from server_data, "
            "or let private histograms find them by bounds='private'."
        )
    return parse_bounds(bounds), bounds_feature_names(bounds), points
