"""The server's own points: from the caller's units to the plan's box, and what everybody may know of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms import ServerData, algorithm_entry
from flwr_dpkmeans.config import KMeansConfig
from flwr_dpkmeans.data.bounds import Bounds, bounds_feature_names, parse_bounds
from flwr_dpkmeans.data.server_data import load_server_points
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.plan import PublicPoints
from flwr_dpkmeans.server_facts import ServerFacts, bounds_from_server, derive_server_facts
from flwr_dpkmeans.trust import trust_model

Array = NDArray[np.float64]

UNSCALED_BOUNDS = (-1.0, 1.0)
"""Bounds where none are given and no server data says otherwise."""


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

    scaled: Array
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
    if algorithm_entry(config.algorithm).server_data is ServerData.OPTIONAL:
        # Only what follows from the points is used, so nobody has to see them.
        return HeldPoints(scaled, replace(facts, n_points=0), None)
    public = None if trust_model(config.trust).server_reads else PublicPoints.of(scaled)
    return HeldPoints(scaled, facts, public)


def resolve_bounds(bounds: Any, server_data: Any) -> tuple[Bounds, tuple[str, ...], Array | None]:
    """Read bounds and server data; without bounds they follow from the server's points, or are the box [-1, 1]^d.

    Parameters
    ----------
    bounds : object or None
        As `flwr_dpkmeans.data.bounds.parse_bounds` takes them.
    server_data : array-like, path or None
        The server's own points.

    Returns
    -------
    Bounds
        Public.
    tuple of str
        Names of the features that they belong to, if a file gave them.
    ndarray or None
        The server's points, in the caller's units.
    """
    points = None if server_data is None else load_server_points(server_data)
    if bounds is None and points is not None:
        return Bounds(*bounds_from_server(points)), (), points
    given = UNSCALED_BOUNDS if bounds is None else bounds
    return parse_bounds(given), bounds_feature_names(given), points
