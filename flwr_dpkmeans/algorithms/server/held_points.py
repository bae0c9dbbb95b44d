"""The server's own points, as a run uses them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flwr_dpkmeans.algorithms.server.server_facts import derive_server_facts
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError, DataError, column_names
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.public_facts import ServerData, ServerFacts
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.trust import trust_model


@dataclass(frozen=True)
class HeldPoints:
    """The server's points in the scaled box, and the public numbers that follow."""

    scaled: Array = field(repr=False)
    """(n_server, n_features), on the grid."""
    facts: ServerFacts
    public: PublicPoints | None
    """The points themselves, where the trust model needs the clients to have them."""

    @property
    def on_server(self) -> Array | None:
        """The points, where the server alone holds and needs them."""
        if self.public is not None or self.facts.n_points == 0:
            return None
        return self.scaled


def hold_points(config: RunConfig, points: Array) -> HeldPoints:
    """Scale the server's points, (n_server, n_features), and derive public numbers.

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
    is_outside = (points < bounds.lower) | (points > bounds.upper)
    outside = is_outside.mean(axis=0)
    columns = np.flatnonzero(outside > 0.5).tolist()
    if columns:
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
    if trust_model(config.settings.trust).server_has_result():
        return HeldPoints(scaled, facts, None)
    return HeldPoints(scaled, facts, PublicPoints.of(scaled))
