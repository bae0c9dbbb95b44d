"""Algorithm 4 of FedDP-KMeans: server points that few rows are near to are halved, over and over."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_shares import shared
from flwr_dpkmeans.algorithms.feddp.server_histogram import server_histogram
from flwr_dpkmeans.algorithms.states.cluster_states import PROJECTED_POINTS, seed_of
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State

FROZEN = "frozen"


def least_rows(config: RunConfig) -> float:
    """Rows that a server point must stand for, by Algorithm 4: 2 log(n) / epsilon."""
    return 2.0 * math.log(config.n_examples) / float(config.epsilon)


def simplify_steps(config: RunConfig, n_server: int) -> int:
    """Histograms of Algorithm 4: t = 0 to T = 10 log(4 log|Q| / (epsilon w_min))."""
    log_inside = (
        math.log(4.0 * math.log(max(2, n_server)))
        - math.log(config.epsilon)
        - math.log(config.least_weight)
    )
    return 1 + max(0, math.ceil(10.0 * log_inside))


def simplify_rounds(
    public: PublicFacts,
    facts: ServerFacts,
    total: float,
    later: PrivateSum,
) -> list[PlannedSum]:
    """Histograms over a set that shrinks: who stands for enough rows is frozen, of the
    others half is kept.

    Clients count as in the round after them, `later`, which weighs what is left.
    """
    k, least = public.config.n_clusters, least_rows(public.config)
    n_steps = simplify_steps(public.config, facts.n_points)

    def one_round(index: int, share: float) -> PlannedSum:
        def advance(state: State, released: ReleasedSum) -> State:
            table = state[PROJECTED_POINTS]
            weights = released["weights"][: len(table)]
            frozen = (weights > least) | (
                state.arrays.get(FROZEN, np.zeros(len(table))) > 0.0
            )
            kept = frozen.copy()
            if index < n_steps:
                kept |= (
                    np.random.default_rng((seed_of(state), index)).random(len(table))
                    < 0.5
                )
            # k-means needs as many points as clusters, which the paper takes for
            # granted.
            kept[np.argsort(-weights, kind="stable")[: k if kept.sum() < k else 0]] = (
                True
            )
            return state.changed(
                **{
                    PROJECTED_POINTS: table[kept],
                    FROZEN: frozen[kept].astype(np.float64),
                }
            )

        return server_histogram(public, facts, share), replace(
            later, name=f"simplify-{index}", advance=advance
        )

    shares = shared((1.0,) * n_steps, total, public.options.noise_kind)
    return [one_round(index, share) for index, share in enumerate(shares, start=1)]
