"""A start by sphere packing, which needs no server points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.feddp.public_start import (
    PublicStartTask,
    ServerKMeansPlusPlusOptions,
)
from flwr_dpkmeans.algorithms.lloyd_family.packed import require_packable
from flwr_dpkmeans.algorithms.server.server_facts import facts_without_server
from flwr_dpkmeans.kmeans.public_points.packing import PackingMethod, sphere_packing
from flwr_dpkmeans.sums.option_rules import choice
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerData, ServerFacts
from flwr_dpkmeans.sums.round import Array


@dataclass(frozen=True)
class SpherePackingOptions(ServerKMeansPlusPlusOptions):
    """Options of the start from a sphere packing."""

    packing: PackingMethod = choice(
        PackingMethod, PackingMethod.CORNERS, "search of the sphere packing"
    )


@dataclass(frozen=True, kw_only=True)
class SpherePackingTask(PublicStartTask):
    """Sphere packing (appendix G.3), then DP-Lloyd on clipped sums.

    Server points, if any, set the clip bounds.
    """

    name = "sphere_packing"
    server_data = ServerData.BOUNDS
    options: SpherePackingOptions = SpherePackingOptions()

    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        """Pack spheres into the box; no point is looked at."""
        return sphere_packing(
            self.n_clusters,
            public.n_features,
            np.random.default_rng(seed),
            self.options.packing,
        )

    def facts(self, public: PublicFacts) -> ServerFacts:
        """What follows from the server's points or, without, from the box."""
        require_packable(self.n_clusters, public.n_features)
        return public.server or facts_without_server(public.config, public.n_features)
