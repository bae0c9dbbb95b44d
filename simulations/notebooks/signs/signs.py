"""Clusters by signs: each row votes for the nearest centroid and pulls it.

It pulls by the signs of its differences from the centroid.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import allocate
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.kernels import nearest_centroids, round_to_grid
from flwr_dpkmeans.sums import (
    Algorithm,
    Array,
    Norm,
    Options,
    PrivacyUnit,
    PrivateSum,
    PublicFacts,
    ReleasedSum,
    Sensitivity,
    State,
    real,
)

ROUNDS = 4


@dataclass(frozen=True)
class SignsOptions(Options):
    """Options of clusters by signs."""

    pull: float = real(
        0.3, 0.0, 1.0, "0.3", "length of the first step, of half a column's range"
    )


@dataclass(frozen=True, kw_only=True)
class SignsTask(KMeansTask):
    """Clusters by signs."""

    name = "signs"
    options: SignsOptions = SignsOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """Four rounds of votes and pulls."""
        k, d = self.n_clusters, public.n_features
        vote = Sensitivity(
            Norm.L2, 1.0, PrivacyUnit.RECORD, "one row has one vote", nonnegative=True
        )
        pull = Sensitivity(
            Norm.L2,
            root_at_least(d),
            PrivacyUnit.RECORD,
            "one row pulls by at most 1 in d columns",
        )
        parts = [
            ReleasePart("votes", (k,), vote, 1.0, 1.0),
            ReleasePart("pulls", (k, d), pull, 2.0, 1.0),
        ]

        def statistic(points: Array, state: State) -> Sequence[Array]:
            labels, _ = nearest_centroids(points, state.centroids)
            votes, pulls = np.zeros(k), np.zeros((k, d))
            np.add.at(votes, labels, 1.0)
            np.add.at(pulls, labels, np.sign(points - state.centroids[labels]))
            return [votes, pulls]

        def advance(state: State, released: ReleasedSum) -> State:
            step = self.options.pull * 0.6 ** len(state.movements)
            share = np.clip(
                released["pulls"] / np.maximum(released["votes"], 1.0)[:, None],
                -1.0,
                1.0,
            )
            centroids = round_to_grid(
                np.clip(state.centroids + step * share, -1.0, 1.0)
            )
            return cluster_state(centroids, released["votes"], (*state.movements, step))

        def start(seed: int, server_points: Array | None = None, /) -> State:
            centroids = np.random.default_rng(seed).uniform(-0.5, 0.5, (k, d))
            return cluster_state(round_to_grid(centroids), np.zeros(k))

        blocks = allocate(public, [parts] * ROUNDS)
        rounds = tuple(
            PrivateSum(f"signs-{i}", own, statistic, advance)
            for i, own in enumerate(blocks, 1)
        )
        return Algorithm(self.name, rounds, start)
