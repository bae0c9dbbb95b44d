"""EUGkM and its hybrid (Su, Cao, Li, Bertino and Jin 2016), federated.

a noisy histogram of cells, then k-means.

The paper's noise is Laplace's; here it is Gaussian, so that parties can add it in
shares. A grid has (N epsilon / 10) ^ (2 d / (2 + d)) cells, the paper's rule, as far as
a table of them can be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum, private_sums
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.algorithms.states.steps_ahead import stepped
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.baselines.pooled import run_kmeans
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.label_sums import counts_by_label, sum_by_label
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.kmeans.lloyd import absolute_update
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.option_rules import Options, flag, whole
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import (
    Algorithm,
    Array,
    PrivateSum,
    RowWeights,
    State,
)

MOST_CELLS = 2**17
_ROWS_PER_CELL = 10.0  # the paper's theta
_RESTARTS = 10
_STEPS = 10
_STARTING_CELLS = 2000
_HYBRID_SHARE = 0.5
"""Of epsilon, for the hybrid's Lloyd round."""


@dataclass(frozen=True)
class UniformGridOptions(Options):
    """Options of EUGkM."""

    hybrid: bool = flag(False, "spend half of epsilon on one Lloyd round at the end")
    cells_per_column: int | None = whole(
        None, 2, 20, "automatic: by the paper's rule", most=MOST_CELLS
    )


@dataclass(frozen=True, kw_only=True)
class UniformGridTask(KMeansTask):
    """One histogram over cells, and k-means of their centres."""

    name = "eugkm"
    trust = "distributed"
    needs_n_examples = True
    options: UniformGridOptions = UniformGridOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """The histogram, and one Lloyd round of the hybrid."""
        epsilon = public.settings.epsilon * (
            1.0 - _HYBRID_SHARE if self.options.hybrid else 1.0
        )
        side = self.options.cells_per_column or grid_side(
            public.required_n_examples, public.n_features, epsilon
        )
        if side**public.n_features > MOST_CELLS:
            raise PlanError(
                f"a grid of {side} cells in each of {public.n_features} columns has"
                f" more than {MOST_CELLS}: choose 'proxy_lloyd' for so many columns, or"
                " fewer cells_per_column."
            )
        planned = [self._histogram(side, public.n_features)]
        if self.options.hybrid:
            planned.append(self._lloyd(public.n_features))
        shape = (self.n_clusters, public.n_features)

        def start(seed: int, server_points: Array | None = None, /) -> State:
            return cluster_state(np.zeros(shape), np.zeros(self.n_clusters))

        return Algorithm(self.name, private_sums(public, planned), start)

    def _histogram(
        self,
        side: int,
        n_features: int,
    ) -> PlannedSum:
        cell_count = Sensitivity(
            Norm.L2,
            1.0,
            PrivacyUnit.RECORD,
            "one row lies in one cell",
            nonnegative=True,
        )
        n_cells = side**n_features
        strides = side ** np.arange(n_features)

        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            # The upper bound belongs to the last cell.
            cells = np.minimum((points + 1.0) * (side / 2.0), side - 1).astype(np.int64)
            return [counts_by_label(cells @ strides, n_cells, weights)]

        def advance(state: State, released: ReleasedSum) -> State:
            cells = np.arange(n_cells)
            coordinates = cells[:, None] // strides % side
            middles = (coordinates + 0.5) * (2.0 / side) - 1.0
            centres = np.asarray(middles, dtype=np.float64)
            centroids, counts = weighted_kmeans(
                centres, released["cells"], self.n_clusters
            )
            centroids = round_to_grid(centroids)
            return stepped(state, centroids, round_to_grid(counts))

        parts = [ReleasePart("cells", (n_cells,), cell_count, 1.0, 1.0)]
        weighted = weighing(PrivacyUnit.RECORD, statistic)
        return parts, PrivateSum("grid", (), statistic, advance, weighted=weighted)

    def _lloyd(self, n_features: int) -> PlannedSum:
        because = "one row of the box is in one cluster"
        sums = Sensitivity(
            Norm.L2, root_at_least(n_features), PrivacyUnit.RECORD, because
        )
        counts = Sensitivity(
            Norm.L2, 1.0, PrivacyUnit.RECORD, because, nonnegative=True
        )

        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            return absolute_statistics(points, state.centroids, weights)

        def advance(state: State, released: ReleasedSum) -> State:
            moved = absolute_update(
                state.centroids,
                released["sums"],
                released["counts"],
                post_processing=PostProcessing.TRUNCATE,
            )
            return stepped(state, moved, released["counts"])

        shape = (self.n_clusters, n_features)
        parts = [
            ReleasePart("sums", shape, sums, 0.8, 1.0),
            ReleasePart("counts", shape[:1], counts, 0.6, 1.0),
        ]
        weighted = weighing(PrivacyUnit.RECORD, statistic)
        return parts, PrivateSum("lloyd", (), statistic, advance, weighted=weighted)


def grid_side(
    n_rows: int,
    n_features: int,
    epsilon: float,
) -> int:
    """Cells in each column by the paper's rule, as many as a table of `MOST_CELLS`
    allows, and at least 2.

    >>> grid_side(5000, 2, 1.0)  # 500 cells
    22
    """
    cells: float = (n_rows * epsilon / _ROWS_PER_CELL) ** (
        2.0 * n_features / (2.0 + n_features)
    )
    return max(2, int(min(cells, float(MOST_CELLS)) ** (1.0 / n_features) + 1e-9))


def weighted_kmeans(
    centres: Array,
    weights: Array,
    n_clusters: int,
) -> tuple[Array, Array]:
    """Lloyd's algorithm on cells, (n, d), whose weights may be negative, and the weight
    of each of its clusters.

    Noise of both signs cancels in sums over many empty cells; without its negative half
    it would draw all centroids to the middle of the box. Starts are those of k-means on
    the heaviest cells.
    """
    heaviest = np.argsort(-weights)[: max(n_clusters, _STARTING_CELLS)]
    centroids = run_kmeans(
        centres[heaviest],
        n_clusters,
        n_init=_RESTARTS,
        random_state=0,
        weights=np.maximum(weights[heaviest], 2.0**-16),
    )
    for _ in range(_STEPS):
        labels, _ = nearest_centroids(centres, centroids)
        totals = np.bincount(labels, weights, minlength=n_clusters)
        sums = sum_by_label(centres * weights[:, None], labels, n_clusters)
        full = totals > 1.0
        centroids[full] = np.clip(sums[full] / totals[full, None], -1.0, 1.0)
    return centroids, np.maximum(totals, 0.0)
