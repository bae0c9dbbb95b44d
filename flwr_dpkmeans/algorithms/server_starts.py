"""FedDP-KMeans' baselines: starts that cost no privacy, then DP-Lloyd on the whole budget (paper, section 5).

``server_kmeans++`` and ``server_lloyd`` start from the server's points, ``sphere_packing`` from none.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.feddp_kmeans import ClippedOptions, clip_bound, lloyd_parts
from flwr_dpkmeans.algorithms.feddp_steps import lloyd_round, server_state
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.lloyd_family import iterations, require_packable
from flwr_dpkmeans.algorithms.noise_budget import allocate
from flwr_dpkmeans.algorithms.server_points import facts_without_server
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kmeans.sphere_packing import PackingMethod, sphere_packing
from flwr_dpkmeans.kmeans.update import round_to_grid, truncate
from flwr_dpkmeans.kmeans.weighted import weighted_kmeans
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.round import Algorithm, Array, State
from flwr_dpkmeans.sums.settings import choice, whole
from flwr_dpkmeans.sums.task import Known, ServerData, ServerFacts

DEFAULT_ROUNDS = 5
"""Lloyd rounds unless ``max_iter`` says otherwise: of 2, 5 and 7 the best compromise on the paper's mixture."""


@dataclass(frozen=True)
class ServerKMeansPlusPlusOptions(ClippedOptions):
    """Options of DP-Lloyd after a public start."""

    max_iter: int | None = whole(None, 0, 5, f"Lloyd rounds; automatic: {DEFAULT_ROUNDS}", most=1_000)
    means_bound: float | None = clip_bound("21.0", "norm of a client's cluster means")
    indicators_bound: float | None = clip_bound("10.0", "norm of a client's list of clusters")


@dataclass(frozen=True)
class ServerLloydOptions(ServerKMeansPlusPlusOptions):
    """Options of the start from a whole k-means."""

    n_init: int = whole(20, 1, 20, "restarts of k-means on the server points", most=10_000)


@dataclass(frozen=True)
class SpherePackingOptions(ServerKMeansPlusPlusOptions):
    """Options of the start from a sphere packing."""

    packing: PackingMethod = choice(PackingMethod, PackingMethod.BISECT, "search of the sphere packing")


@dataclass(frozen=True, kw_only=True)
class PublicStart(KMeansTask):
    """A start that costs no privacy, then T Lloyd rounds on clipped sums."""

    units = tuple(PrivacyUnit)
    server_data = ServerData.NEEDED
    trust = "distributed"
    options: ServerKMeansPlusPlusOptions = ServerKMeansPlusPlusOptions()

    @abstractmethod
    def start(self, known: Known, seed: int, server_points: Array | None) -> Array:
        """First centroids, (n_clusters, n_features), from public randomness and the server's points."""

    def build(self, known: Known) -> Algorithm:
        """The whole budget goes to the rounds; after the start the server's points are not needed any more."""
        facts = self.facts(known)
        blocks = allocate(
            known, lloyd_parts(known, facts, 1.0, iterations(known.config, DEFAULT_ROUNDS)), known.options.noise_kind
        )

        def initial_state(seed: int, server_points: Array | None = None, /) -> State:
            centroids = round_to_grid(truncate(self.start(known, seed, server_points)))
            return server_state(centroids, facts, seed, None)

        rounds = tuple(lloyd_round(known, facts, round_blocks, i) for i, round_blocks in enumerate(blocks, start=1))
        return Algorithm(self.name, rounds, initial_state)

    def facts(self, known: Known) -> ServerFacts:
        """What follows from the server's points."""
        if known.server is None:
            raise PlanError(f"{self.name!r} starts from the server's own points: give server_data.")
        return known.server


@dataclass(frozen=True, kw_only=True)
class ServerKMeansPlusPlus(PublicStart):
    """Start from k-means++ seeding of the server's points."""

    name = "server_kmeans++"
    title = "k-means++ on server data, then DP-Lloyd"

    def start(self, known: Known, seed: int, server_points: Array | None) -> Array:
        """k-means++ of the server's points."""
        from sklearn.cluster import kmeans_plusplus

        centers, _ = kmeans_plusplus(_present(server_points), self.n_clusters, random_state=seed % 2**32)
        return np.asarray(centers, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class ServerLloyd(PublicStart):
    """Start from a whole k-means of the server's points, with restarts."""

    name = "server_lloyd"
    title = "k-means of server data, then DP-Lloyd"
    options: ServerLloydOptions = ServerLloydOptions()

    def start(self, known: Known, seed: int, server_points: Array | None) -> Array:
        """k-means of the server's points."""
        points = _present(server_points)
        weights = np.ones(len(points))
        return weighted_kmeans(points, weights, self.n_clusters, n_init=self.options.n_init, seed=seed)[0]


@dataclass(frozen=True, kw_only=True)
class SpherePacking(PublicStart):
    """Start from a sphere packing (appendix G.3), without server points; if there are any they set the clip bounds."""

    name = "sphere_packing"
    title = "sphere packing, then DP-Lloyd on clipped sums"
    server_data = ServerData.BOUNDS
    options: SpherePackingOptions = SpherePackingOptions()

    def start(self, known: Known, seed: int, server_points: Array | None) -> Array:
        """A sphere packing of the box."""
        generator = np.random.default_rng(seed)
        return sphere_packing(self.n_clusters, known.n_features, generator, self.options.packing)

    def facts(self, known: Known) -> ServerFacts:
        """What follows from the server's points or, without, from the box."""
        require_packable(known)
        return known.server or facts_without_server(known.config, known.n_features)


def _present(server_points: Array | None) -> Array:
    """The server's points, without which there is no start."""
    if server_points is None:
        raise PlanError("the server's points are not at hand: give server_data.")
    return server_points
