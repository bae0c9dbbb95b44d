"""Lloyd rounds after a start that costs no privacy; k-means++ on the server points."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import private_sums
from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseSchedule
from flwr_dpkmeans.algorithms.budget.round_options import (
    noise_schedule_option,
    tolerance_option,
)
from flwr_dpkmeans.algorithms.feddp.clipped_options import ClippedOptions
from flwr_dpkmeans.algorithms.feddp.on_server_points import OnServerPoints
from flwr_dpkmeans.algorithms.feddp.projected_centers import lloyd_rounds
from flwr_dpkmeans.algorithms.feddp.projection_state import with_mean_beyond
from flwr_dpkmeans.algorithms.feddp.shares import counts_bound_option, sums_bound_option
from flwr_dpkmeans.algorithms.states.cluster_states import seeded_state
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.public_points.seeding import plus_plus
from flwr_dpkmeans.sums.option_rules import whole
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerData
from flwr_dpkmeans.sums.round import Algorithm, Array, State

DEFAULT_ROUNDS = 5
"""Lloyd rounds after a public start, unless ``max_iter`` says otherwise.

Of 2, 5 and 7 the best compromise on the paper's mixture.
"""


@dataclass(frozen=True)
class ServerKMeansPlusPlusOptions(ClippedOptions):
    """Options of DP-Lloyd after a public start."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        f"Lloyd rounds; automatic: {DEFAULT_ROUNDS}",
        most=1_000,
    )
    sums_bound: float | None = sums_bound_option()
    counts_bound: float | None = counts_bound_option()
    noise_schedule: NoiseSchedule = noise_schedule_option()
    tolerance: float | None = tolerance_option()


@dataclass(frozen=True, kw_only=True)
class PublicStartTask(OnServerPoints):
    """A start that costs no privacy, then T Lloyd rounds on clipped sums.

    Section 5 of the paper.
    """

    options: ServerKMeansPlusPlusOptions = ServerKMeansPlusPlusOptions()

    @abstractmethod
    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        """First centroids, (n_clusters, n_features).

        From public randomness and the server's points, if it has any.
        """

    def build(self, public: PublicFacts) -> Algorithm:
        """The whole budget goes to the rounds.

        After the start the server's points are not needed any more.
        """
        facts, rounds = self.facts(public), self.options.max_iter
        planned = lloyd_rounds(
            public,
            facts,
            1.0,
            DEFAULT_ROUNDS if rounds is None else rounds,
        )

        def initial_state(seed: int, server_points: Array | None = None, /) -> State:
            if server_points is None and self.server_data is ServerData.NEEDED:
                raise PlanError(
                    "the server's points are not at hand: give server_data."
                )
            points = (
                np.empty((0, public.n_features))
                if server_points is None
                else server_points
            )
            start = round_to_grid(truncate(self.start(public, seed, points)))
            relative = points - np.asarray(facts.centre)
            state = seeded_state(start, seed)
            return with_mean_beyond(state, relative, facts)

        return Algorithm(self.name, private_sums(public, planned), initial_state)

    def server_points_words(self, plan: Plan) -> str:
        """Say that points stay on the server, and what of them does not."""
        return (
            "stay on the server, except for their mean, the clip bounds, how far they"
            " are beyond these on average, which errors of the centres show, and the"
            " start that is made of them (with 'server_kmeans++' some of the points"
            " themselves)"
        )


@dataclass(frozen=True, kw_only=True)
class ServerKMeansPlusPlusTask(PublicStartTask):
    """k-means++ on the server's points, then DP-Lloyd."""

    name = "server_kmeans++"

    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        """Choose server points by k-means++."""
        weights, generator = np.ones(len(points)), np.random.default_rng(seed)
        return points[
            plus_plus(
                points,
                weights,
                self.n_clusters,
                generator,
                is_greedy=True,
            )
        ]
