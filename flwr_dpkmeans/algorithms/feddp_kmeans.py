"""FedDP-KMeans (Scott, Lampert, Saulpic, ICML 2025): a private start from server-held data, then DP-Lloyd.

Rounds: outer product -> weights -> centers -> Lloyd x T. Also the choice of k from the first two alone.
"""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.feddp_steps import (
    centers_parts,
    centers_round,
    lloyd_round,
    outer_product_part,
    outer_product_round,
    server_state,
    weights_part,
    weights_round,
)
from flwr_dpkmeans.algorithms.lloyd_family import Public
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate, shared
from flwr_dpkmeans.algorithms.server_points import ServerFacts
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.round import Algorithm, Array, ClusterState, InitialState

RULE_OF_THUMB = {
    PrivacyUnit.RECORD: (0.2, 0.2, 0.45, 0.15),
    PrivacyUnit.CLIENT: (0.35, 0.1, 0.45, 0.1),
}
"""Budget shares of outer product, weights, sums and counts (appendix H.1)."""
DEFAULT_LLOYD_ROUNDS = 0
"""In most Pareto-optimal runs of the paper no Lloyd round followed the start (appendix H.1, Tables 4 and 5)."""


def build(public: Public) -> Algorithm:
    """FedDP-KMeans as a list of 3 + T private sums.

    Parameters
    ----------
    public : Public
        Public parameters, with what follows from the server's points.

    Returns
    -------
    Algorithm
        Its rounds release ``outer_product``, ``weights``, and ``clipped_sums`` with ``counts`` (record level) or
        ``means`` with ``indicators`` (client level).

    Raises
    ------
    PlanError
        If the server has no points.
    """
    facts, config = _facts(public), public.config
    n_lloyd = config.max_iter if config.max_iter is not None else DEFAULT_LLOYD_ROUNDS
    lloyd_total = config.lloyd_share if n_lloyd else 0.0
    shares = shared(budget_shares(public), 1.0 - lloyd_total, config.noise_kind)
    parts: list[list[ReleasePart]] = [
        [outer_product_part(public, facts, shares[0])],
        [weights_part(public, facts, shares[1])],
        centers_parts(public, facts, *shares[2:]),
        *lloyd_parts(public, facts, lloyd_total, n_lloyd),
    ]
    outer, weights, centers, *lloyd = allocate(public, parts)
    rounds = (
        outer_product_round(public, facts, outer),
        weights_round(public, facts, weights),
        centers_round(public, facts, centers),
        *(lloyd_round(public, facts, blocks, index) for index, blocks in enumerate(lloyd, start=1)),
    )
    return Algorithm("feddp_kmeans", rounds, empty_state(public, facts))


def build_choose_k(public: Public) -> Algorithm:
    """The first two rounds alone, on the whole budget: the cost curve over k and its elbow (appendix H.3)."""
    facts, config = _facts(public), public.config
    if not config.choose_n_clusters:
        raise PlanError("'feddp_choose_k' looks for the number of clusters: give n_clusters='auto'.")
    shares = shared(budget_shares(public)[:2], 1.0, config.noise_kind)
    outer, weights = allocate(
        public, [[outer_product_part(public, facts, shares[0])], [weights_part(public, facts, shares[1])]]
    )
    rounds = (outer_product_round(public, facts, outer), weights_round(public, facts, weights))
    return Algorithm("feddp_choose_k", rounds, empty_state(public, facts))


def budget_shares(public: Public) -> tuple[float, ...]:
    """Shares as configured, or the paper's rule of thumb for the unit."""
    return public.config.budget_shares or RULE_OF_THUMB[public.config.unit]


def lloyd_parts(public: Public, facts: ServerFacts, total: float, n_rounds: int) -> list[list[ReleasePart]]:
    """T equal Lloyd rounds that take `total` of the budget together, split as the centers round is."""
    if n_rounds == 0:
        return []
    sums, counts = shared(budget_shares(public)[2:], total / n_rounds, public.config.noise_kind)
    return [centers_parts(public, facts, sums, counts) for _ in range(n_rounds)]


def empty_state(public: Public, facts: ServerFacts) -> InitialState:
    """Start without centroids: the server's points only."""

    def initial_state(seed: int, server_points: Array | None = None, /) -> ClusterState:
        nothing = np.zeros((public.config.n_clusters, public.n_features))
        return server_state(nothing, facts, seed, server_points)

    return initial_state


def _facts(public: Public) -> ServerFacts:
    """What follows from the server's points, which this algorithm needs."""
    if public.server is None or public.server.n_points == 0:
        raise PlanError(f"{public.config.algorithm!r} starts from the server's own points: give server_data.")
    return public.server
