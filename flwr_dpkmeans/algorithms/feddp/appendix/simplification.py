"""Algorithm 4 of FedDP-KMeans.

Server points that few rows are near to are halved, over and over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_shares import shared
from flwr_dpkmeans.algorithms.feddp.appendix.server_histogram import server_histogram
from flwr_dpkmeans.algorithms.states.cluster_states import PROJECTED_POINTS, seed_of
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, State

FROZEN = "frozen"


def least_rows(config: RunConfig) -> float:
    """Rows that a server point must stand for, by Algorithm 4: 2 log(n) / epsilon."""
    return 2.0 * math.log(config.n_examples) / float(config.epsilon)


def simplify_steps(config: RunConfig, n_server: int) -> int:
    """Histograms of Algorithm 4: t = 0 to T = 10 log(4 log|Q| / (epsilon w_min))."""
    log_size = math.log(max(2, n_server))
    log_inside = (
        math.log(4.0 * log_size)
        - math.log(config.epsilon)
        - math.log(config.least_weight)
    )
    n_steps = math.ceil(10.0 * log_inside)
    return 1 + max(0, n_steps)


def simplify_rounds(
    public: PublicFacts,
    facts: ServerFacts,
    total: float,
    later: PrivateSum,
) -> list[PlannedSum]:
    """Histograms over server points, whose number shrinks.

    Points that stand for enough rows are frozen, of the others half is left. Clients
    count as in the round after them, `later`, which weighs what is left.
    """
    n_clusters = public.config.n_clusters
    least = least_rows(public.config)
    n_steps = simplify_steps(public.config, facts.n_points)

    def halving(index: int) -> Callable[[State, ReleasedSum], State]:
        """What follows from the index-th histogram, from 1."""

        def advance(state: State, released: ReleasedSum) -> State:
            points = state[PROJECTED_POINTS]
            n_points = len(points)
            weights = released["weights"][:n_points]
            were_frozen = state.arrays.get(FROZEN, np.zeros(n_points)) > 0.0
            frozen = (weights > least) | were_frozen
            stays = frozen
            if index < n_steps:
                generator = np.random.default_rng((seed_of(state), index))
                stays = frozen | (generator.random(n_points) < 0.5)
            stays = _at_least(n_clusters, stays, weights)
            return state.changed(
                **{
                    PROJECTED_POINTS: points[stays],
                    FROZEN: frozen[stays].astype(np.float64),
                }
            )

        return advance

    steps = (1.0,) * n_steps
    shares = shared(steps, total, public.options.noise_kind)
    rounds: list[PlannedSum] = []
    for index, share in enumerate(shares, start=1):
        histogram = server_histogram(public, facts, share)
        name = f"simplify-{index}"
        step = replace(later, name=name, advance=halving(index))
        rounds.append((histogram, step))
    return rounds


def _at_least(
    n_clusters: int,
    stays: NDArray[np.bool_],
    weights: Array,
) -> NDArray[np.bool_]:
    """Let as many points stay as there are clusters, by their weights.

    k-means needs them, which the paper takes for granted.
    """
    if stays.sum() >= n_clusters:
        return stays
    heaviest = np.argsort(-weights, kind="stable")[:n_clusters]
    enough = stays.copy()
    enough[heaviest] = True
    return enough
