"""A start by k-means on the server points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.feddp.public_start import (
    PublicStartTask,
    ServerKMeansPlusPlusOptions,
)
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import weighted_kmeans
from flwr_dpkmeans.sums.option_rules import whole
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array


@dataclass(frozen=True)
class ServerLloydOptions(ServerKMeansPlusPlusOptions):
    """Options of the start from a whole k-means."""

    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means on the server points",
        most=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class ServerLloydTask(PublicStartTask):
    """k-means of the server's points, with restarts, then DP-Lloyd."""

    name = "server_lloyd"
    options: ServerLloydOptions = ServerLloydOptions()

    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        """Cluster the server points by k-means."""
        return weighted_kmeans(
            points,
            np.ones(len(points)),
            self.n_clusters,
            n_init=self.options.n_init,
            seed=seed,
        )[0]
