"""Clients whose rows are drawn from a mixture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import (
    require_whole,
)

MIXTURE_BOUNDS = Bounds((-2.7,), (3.7,))
"""Public bounds of the mixture: its means lie in [0, 1], and 3.2 is 4.5 deviations of
sqrt(0.5).
"""


# Rows to which means are added at once: the copy of the means stays small beside the
# points.
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class MixtureClients:
    """Ten Gaussians in 100 dimensions.

    Their means uniform in the unit cube (Scott, Lampert, Saulpic 2025, G.1).

    Each client has `rows_per_client` rows and a generator of its own, spawned from the
    seed, so that it can be drawn without the others. A number below 0 is a
    ConfigurationError.
    """

    seed: int = 0
    rows_per_client: int = 50

    n_components: ClassVar[int] = 10
    n_features: ClassVar[int] = 100
    variance: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        require_whole("the seed of the mixture", self.seed, 0)
        require_whole(
            "the number of rows of each of the mixture's clients",
            self.rows_per_client,
            0,
        )

    def means(self) -> NDArray[np.float64]:
        """Means of the components, (10, 100)."""
        rng = np.random.default_rng(self.seed)
        return rng.random((self.n_components, self.n_features))

    def server_points(self) -> NDArray[np.float64]:
        """The server's points, (300, 100): 20 of each component, 100 uniform ones."""
        rng = np.random.default_rng(self.seed)
        means = rng.random((self.n_components, self.n_features))
        labels = np.repeat(np.arange(self.n_components), 20)
        drawn = points_around(
            means,
            labels,
            self.variance,
            rng,
        )
        uniform = rng.random((100, self.n_features))
        return np.concatenate([drawn, uniform])

    def client_points(self, client: int) -> NDArray[np.float64]:
        """The rows of one client, (rows_per_client, 100), by its index."""
        require_whole("the number of the mixture's client", client, 0)
        seeds = np.random.SeedSequence(self.seed, spawn_key=(client,))
        rng = np.random.default_rng(seeds)
        labels = rng.integers(self.n_components, size=self.rows_per_client)
        return points_around(
            self.means(),
            labels,
            self.variance,
            rng,
        )


def points_around(
    means: NDArray[np.float64],
    labels: NDArray[np.int64],
    variance: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw a Gaussian point around the mean of each label, in one large array."""
    points = rng.standard_normal((len(labels), means.shape[1]))
    points *= math.sqrt(variance)
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        points[rows] += means[labels[rows]]
    return points
