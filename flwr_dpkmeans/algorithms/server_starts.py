"""FedDP-KMeans' baselines: starts that cost no privacy, then DP-Lloyd on the whole budget (paper, section 5).

``server_kmeans++`` and ``server_lloyd`` start from the server's points, ``sphere_packing`` from none.
"""

from __future__ import annotations

from collections.abc import Callable
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
from flwr_dpkmeans.sums.round import Algorithm, Array, InitialState
from flwr_dpkmeans.sums.settings import choice, whole
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.task import Known, ServerData, ServerFacts

DEFAULT_ROUNDS = 5
"""Lloyd rounds unless ``max_iter`` says otherwise: of 2, 5 and 7 the best compromise on the paper's mixture."""

Start = Callable[[Known, int, Array | None], Array]


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
class ServerKMeansPlusPlus(KMeansTask):
    """K-means++ on server data, then DP-Lloyd."""

    name = "server_kmeans++"
    title = "k-means++ on server data, then DP-Lloyd"
    units = tuple(PrivacyUnit)
    server_data = ServerData.NEEDED
    trust = "distributed"
    options: ServerKMeansPlusPlusOptions = ServerKMeansPlusPlusOptions()

    def build(self, known: Known) -> Algorithm:
        """See `build_server_kmeans_plus_plus`."""
        return build_server_kmeans_plus_plus(known)


@dataclass(frozen=True, kw_only=True)
class ServerLloyd(KMeansTask):
    """K-means of server data, then DP-Lloyd."""

    name = "server_lloyd"
    title = "k-means of server data, then DP-Lloyd"
    units = tuple(PrivacyUnit)
    server_data = ServerData.NEEDED
    trust = "distributed"
    options: ServerLloydOptions = ServerLloydOptions()

    def build(self, known: Known) -> Algorithm:
        """See `build_server_lloyd`."""
        return build_server_lloyd(known)


@dataclass(frozen=True, kw_only=True)
class SpherePacking(KMeansTask):
    """Sphere packing, then DP-Lloyd on clipped sums."""

    name = "sphere_packing"
    title = "sphere packing, then DP-Lloyd on clipped sums"
    units = tuple(PrivacyUnit)
    server_data = ServerData.BOUNDS
    trust = "distributed"
    options: SpherePackingOptions = SpherePackingOptions()

    def build(self, known: Known) -> Algorithm:
        """See `build_sphere_packing`."""
        return build_sphere_packing(known)


def build_server_kmeans_plus_plus(public: Known) -> Algorithm:
    """Start from k-means++ on the server's points."""
    return _build("server_kmeans++", public, _plus_plus)


def build_server_lloyd(public: Known) -> Algorithm:
    """Start from a whole k-means of the server's points."""
    return _build("server_lloyd", public, _server_lloyd)


def build_sphere_packing(public: Known) -> Algorithm:
    """Start from a sphere packing (appendix G.3), without server points; if there are any they set the clip bounds."""
    require_packable(public)
    return _build("sphere_packing", public, _packed)


def _build(name: str, public: Known, start: Start) -> Algorithm:
    """T Lloyd rounds on clipped sums after a public start."""
    facts = public.server
    if facts is None:
        if name != "sphere_packing":
            raise PlanError(f"{name!r} starts from the server's own points: give server_data.")
        facts = facts_without_server(public.config, public.n_features)
    n_rounds = iterations(public.config, DEFAULT_ROUNDS)
    blocks = allocate(public, lloyd_parts(public, facts, 1.0, n_rounds), public.options.noise_kind)
    rounds = tuple(lloyd_round(public, facts, round_blocks, i) for i, round_blocks in enumerate(blocks, start=1))
    return Algorithm(name, rounds, _initial_state(public, facts, start))


def _initial_state(public: Known, facts: ServerFacts, start: Start) -> InitialState:
    """The start as a state; the server's points themselves are not needed any more."""

    def initial_state(seed: int, server_points: Array | None = None, /) -> State:
        centroids = round_to_grid(truncate(start(public, seed, server_points)))
        return server_state(centroids, facts, seed, None)

    return initial_state


def _plus_plus(public: Known, seed: int, server_points: Array | None) -> Array:
    """k-means++ seeding of the server's points."""
    from sklearn.cluster import kmeans_plusplus

    points = _present(server_points)
    centers, _ = kmeans_plusplus(points, public.config.n_clusters, random_state=seed % 2**32)
    return np.asarray(centers, dtype=np.float64)


def _server_lloyd(public: Known, seed: int, server_points: Array | None) -> Array:
    """k-means of the server's points, with restarts."""
    points = _present(server_points)
    config = public.config
    return weighted_kmeans(points, np.ones(len(points)), config.n_clusters, n_init=public.options.n_init, seed=seed)[0]


def _packed(public: Known, seed: int, server_points: Array | None) -> Array:
    """A sphere packing of the box."""
    del server_points
    return sphere_packing(
        public.config.n_clusters, public.n_features, np.random.default_rng(seed), public.options.packing
    )


def _present(server_points: Array | None) -> Array:
    """The server's points, without which there is no start."""
    if server_points is None:
        raise PlanError("the server's points are not at hand: give server_data.")
    return server_points
