"""Step 2: how many rows are nearest to each server point, and k-means of these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.budget.count_norms import count_norm, count_order
from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.feddp.appendix.moved_parts import moved_back
from flwr_dpkmeans.algorithms.feddp.centred_rows import (
    centred,
    clipped_statistic,
    with_parts,
)
from flwr_dpkmeans.algorithms.feddp.one_and_many import of_one_and_many
from flwr_dpkmeans.algorithms.feddp.projection_state import (
    PROJECTION,
    has_exact_projection,
)
from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_CENTERS,
    PROJECTED_POINTS,
    seed_of,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels.grid import Sizes, round_to_grid
from flwr_dpkmeans.kernels.label_sums import counts_of_each
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.vector_clipping import clip_each
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.public_points.elbow import cost_curve, elbow
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import weighted_kmeans
from flwr_dpkmeans.privacy.release import PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

# share of the server points that keep their weights, if positive, however large the
# noise is
_ALWAYS_KEPT = 0.4


def weights_round(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> PlannedSum:
    """Step 2: how many rows each projected server point stands for.

    And their k-means (Algorithm 1, lines 8-17).
    """
    config = public.config
    norm, order = count_norm(config), count_order(config)
    per_client = config.settings.unit is PrivacyUnit.CLIENT
    if per_client:
        moved = clipped_statistic(
            "S8",
            "histogram",
            norm,
            facts.weights_bound,
            nonnegative=True,
        )
    else:
        nearest = (
            "S7: one row is nearest to one server point (FedDP-KMeans, section 3,"
            " step 2)"
        )
        moved = Sensitivity(
            norm,
            1.0,
            PrivacyUnit.RECORD,
            nearest,
            nonnegative=True,
        )

    def histograms_of(
        rows: Array,
        sizes: Sizes,
        state: State,
        weights: RowWeights | None,
    ) -> Sequence[Array]:
        in_ball = centred(
            rows,
            facts,
            facts.data_radius,
            state,
        )
        labels = nearest_projected(
            in_ball,
            state[PROJECTION],
            state[PROJECTED_POINTS],
        )
        histograms = counts_of_each(
            labels,
            facts.n_points,
            sizes,
            weights,
        )
        return [histograms]

    def from_histograms(histograms: Sequence[Array]) -> Sequence[Array]:
        if not per_client:
            return histograms
        (of_each,) = histograms
        return [clip_each(of_each, facts.weights_bound, order=order)]

    of_one, of_each = of_one_and_many(public, histograms_of, from_histograms)

    def advance(state: State, released: ReleasedSum) -> State:
        least = public.options.weight_threshold * public.released_std(
            released.blocks[0]
        )
        weights = _without_noise_weights(
            released["weights"][: len(state[PROJECTED_POINTS])], least
        )
        centers, curve = clustered(
            config,
            state[PROJECTED_POINTS],
            weights,
            seed_of(state),
        )
        # In the space of the data: the best guess before step 3.
        lifted = moved_back(centers @ state[PROJECTION].T, state)
        lifted = round_to_grid(truncate(lifted + np.asarray(facts.centre)))
        return state.changed(
            centroids=lifted,
            counts=np.zeros(len(lifted)),
            **curve,
            **{PROJECTED_CENTERS: centers},
        )

    def admits(state: State) -> bool:
        appended = getattr(public.options, "least_weight", None) is not None
        complete = appended or len(state.arrays[PROJECTED_POINTS]) == facts.n_points
        return complete and has_exact_projection(
            state,
            PROJECTED_POINTS,
            public,
            facts.n_points,
        )

    parts = [
        ReleasePart(
            "weights",
            (facts.n_points,),
            moved,
            share,
            moved.bound,
        )
    ]
    reads_and_admits = with_parts(
        public,
        facts,
        (PROJECTION, PROJECTED_POINTS),
        admits,
    )
    return parts, PrivateSum(
        "weights",
        (),
        of_one,
        advance,
        facts.data_radius,
        *reads_and_admits,
        weighted=weighing(config.settings.unit, of_one),
        of_each=of_each,
    )


def clustered(
    config: RunConfig,
    points: Array,
    weights: Array,
    seed: int,
    *,
    n_features: int | None = None,
) -> tuple[Array, dict[str, Array]]:
    """Weighted k-means, on the grid.

    Where k is to be chosen, at the elbow of the cost curve, which is an extra.
    """
    k, n_init = config.n_clusters, config.n_init
    if not config.choose_n_clusters:
        centers, _ = weighted_kmeans(
            points,
            weights,
            k,
            n_init=n_init,
            seed=seed,
        )
        return round_to_grid(centers), {}
    if not np.any(weights > 0.0):
        # Noise has left nothing to choose from, which a curve of zeros says: see
        # `KMeansTask.doubts`.
        center, _ = weighted_kmeans(
            points,
            weights,
            1,
            n_init=n_init,
            seed=seed,
        )
        return round_to_grid(center), {COST_CURVE: np.zeros(k)}
    costs, centers_by_k = cost_curve(
        points,
        weights,
        k,
        n_init=n_init,
        seed=seed,
    )
    n_points = int(np.count_nonzero(weights))
    chosen = elbow(costs, n_features=n_features, n_points=n_points)
    centers = centers_by_k[chosen - 1]
    return round_to_grid(centers), {COST_CURVE: round_to_grid(costs)}


def _without_noise_weights(weights: Array, threshold: float) -> Array:
    """Drop weights below the threshold, which noise alone may have made.

    The largest stay.
    """
    least = max(0.0, min(threshold, float(np.quantile(weights, 1.0 - _ALWAYS_KEPT))))
    return np.where(weights >= least, weights, 0.0)
