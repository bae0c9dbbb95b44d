"""What all tasks on FedDP-KMeans' rounds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flwr_dpkmeans.algorithms import kmeans_task
from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum, private_sums
from flwr_dpkmeans.algorithms.feddp.projection_state import with_mean_beyond
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.states.cluster_states import seeded_state
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.outcome import CountedRows
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerData, ServerFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, State

# Centroids farther out than this part of the data radius, with so many rows, are
# doubted.
_BORDER = 0.85
_MOST_AT_BORDER = 0.6


class OnServerPoints(KMeansTask):
    """A clustering whose rounds build on the server's own points."""

    units = tuple(PrivacyUnit)
    server_data = ServerData.NEEDED
    trust = "distributed"

    def facts(self, public: PublicFacts) -> ServerFacts:
        """What follows from the server's points, without which there is no run."""
        if public.server is None or public.server.n_points == 0:
            raise PlanError(
                f"{self.name!r} starts from the server's own points: give server_data."
            )
        return public.server

    def of_rounds(
        self,
        public: PublicFacts,
        facts: ServerFacts,
        rounds: Sequence[PlannedSum],
    ) -> Algorithm:
        """The rounds with their noise, from a state without centroids."""

        def initial_state(seed: int, server_points: Array | None = None, /) -> State:
            relative = None
            if server_points is not None:
                relative = server_points - np.asarray(facts.centre)
            start = np.zeros((self.n_clusters, public.n_features))
            state = seeded_state(start, seed, relative)
            return with_mean_beyond(state, relative, facts)

        return Algorithm(self.name, private_sums(public, rounds), initial_state)

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Say so besides where rows are unlike the server's points.

        Most rows end at the border of the server's ball then, and most of its own
        points do not.
        """
        doubts = super().doubts(plan, state, names)
        facts, counts = plan.server, state.counts
        options = vars(self.options)
        std, is_of_rows = kmeans_task.counts_std(plan)
        is_clear = counts > COUNT_DEVIATIONS * std
        if facts is None or options.get("reduce_diameter"):
            return doubts
        if not (facts.n_points and is_of_rows and is_clear.any()):
            return doubts
        border = _BORDER * facts.data_radius
        offsets = state.centroids - np.asarray(facts.centre)
        is_at_border = np.square(offsets).sum(axis=1) > border**2
        n_rows = max(counts.sum(), counts[is_clear].sum())
        part = float(counts[is_at_border & is_clear].sum() / n_rows)
        if part <= _MOST_AT_BORDER:
            return doubts
        # Half of the server's points are longer than the root of that bound, unless it,
        # or what cuts it off, was given.
        follows_from_points = (
            options.get("data_radius") is None
            and options.get("outer_product_bound") is None
            and plan.settings.unit.by_row
        )
        if follows_from_points and facts.outer_product_bound >= border**2:
            return doubts
        return (*doubts, report_sentence("unlike_server", part=part))

    def counted_rows(self, state: State) -> CountedRows | None:
        """As others, but where no Lloyd round follows the first centroids.

        These may be of clear rows alone.
        """
        counted = super().counted_rows(state)
        margin = getattr(self.options, "margin", 1.0)
        if counted is None or margin == 1.0 or self.max_rounds != 0:
            return counted
        return replace(counted, least_part=0.0)

    def server_points_words(self, plan: Plan) -> str:
        """What clients see of the server's points where these stay on the server."""
        k, width = self.n_clusters, plan.n_features or 0
        shown = f"their projection onto at most {min(k, width)} of {width} directions"
        away = ", which gives them away" if k >= width else ""
        return (
            "stay on the server; clients see their mean, the clip bounds, in the"
            " errors of the centres how far points are beyond these on average, and"
            f" {shown}{away}"
        )
