"""Step 3 and the Lloyd rounds: sums and counts by nearest projected centre."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_shares import shared
from flwr_dpkmeans.algorithms.feddp.appendix.moved_parts import moved_centroids
from flwr_dpkmeans.algorithms.feddp.centred_rows import with_parts
from flwr_dpkmeans.algorithms.feddp.projected_statistics import (
    new_centroids,
    projected_cluster_sums,
    with_deviations,
)
from flwr_dpkmeans.algorithms.feddp.projection_state import (
    PROJECTION,
    has_exact_projection,
)
from flwr_dpkmeans.algorithms.feddp.shares import budget_shares
from flwr_dpkmeans.algorithms.states.cluster_states import PROJECTED_CENTERS
from flwr_dpkmeans.algorithms.states.steps_ahead import stepped
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels.grid import LabelArray
from flwr_dpkmeans.kernels.projected_labels import clear_labels, nearest_projected
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, State


def centers_round(
    public: PublicFacts,
    facts: ServerFacts,
    sums_share: float,
    counts_share: float,
) -> PlannedSum:
    """Step 3: the rows nearest to each projected centre give the first centroids.

    Algorithm 1, lines 18-24.
    """
    margin = public.options.margin

    def labels_of(rows: Array, state: State) -> LabelArray:
        return clear_labels(
            rows,
            state[PROJECTION],
            state[PROJECTED_CENTERS],
            margin,
        )

    def advance(state: State, released: ReleasedSum) -> State:
        centroids, counts = new_centroids(
            state,
            released,
            facts,
            public.noise_factor,
        )
        after = state.changed(centroids=centroids, counts=counts)
        return with_deviations(
            public,
            facts,
            state,
            after,
            released,
        )

    def admits(state: State) -> bool:
        return has_exact_projection(
            state,
            PROJECTED_CENTERS,
            public,
            public.config.n_clusters,
        )

    parts, statistics = projected_cluster_sums(
        public,
        facts,
        (sums_share, counts_share),
        labels_of,
        as_means=True,
    )
    reads_and_admits = with_parts(
        public,
        facts,
        (PROJECTION, PROJECTED_CENTERS),
        admits,
    )
    return parts, PrivateSum(
        "centers",
        (),
        statistics.of_one,
        advance,
        facts.data_radius,
        *reads_and_admits,
        weighted=weighing(public.settings.unit, statistics.of_one),
        of_each=statistics.of_each,
    )


def lloyd_rounds(
    public: PublicFacts,
    facts: ServerFacts,
    total: float,
    n_rounds: int,
) -> list[PlannedSum]:
    """FedDP-Lloyd (Algorithm 2): as step 3, with distances in the space of the data.

    Clients send sums and counts.

    The T rounds take `total` of the budget together, each split as the centers round
    is.
    """
    centre = np.asarray(facts.centre)

    def labels_of(rows: Array, state: State) -> LabelArray:
        return nearest_projected(
            rows,
            None,
            moved_centroids(state.centroids - centre, state, facts),
        )

    def advance(state: State, released: ReleasedSum) -> State:
        centroids, counts = new_centroids(
            state,
            released,
            facts,
            public.noise_factor,
        )
        after = stepped(state, centroids, counts)
        return with_deviations(
            public,
            facts,
            state,
            after,
            released,
        )

    def one_round(index: int, part: float) -> PlannedSum:
        shares = shared(
            budget_shares(public)[2:],
            part * total / n_rounds,
            public.options.noise_kind,
        )
        parts, statistics = projected_cluster_sums(
            public,
            facts,
            shares,
            labels_of,
        )
        reads_and_admits = with_parts(
            public,
            facts,
            (),
            None,
        )
        return parts, PrivateSum(
            f"lloyd-{index}",
            (),
            statistics.of_one,
            advance,
            facts.data_radius,
            *reads_and_admits,
            weighted=weighing(public.settings.unit, statistics.of_one),
            of_each=statistics.of_each,
        )

    return [
        one_round(index, part)
        for index, part in enumerate(
            public.options.noise_schedule.parts(n_rounds), start=1
        )
    ]
