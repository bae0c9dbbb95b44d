"""Step 1: the outer product of clipped rows, and the projection that it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.feddp.appendix.parting import MOVED
from flwr_dpkmeans.algorithms.feddp.centred_rows import (
    centred,
    clipped_statistic,
    with_parts,
)
from flwr_dpkmeans.algorithms.feddp.one_and_many import unless_moved
from flwr_dpkmeans.algorithms.feddp.projection_state import MEAN_BEYOND, PROJECTION
from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_POINTS,
    SEED,
    SERVER_POINTS,
)
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels import outer_products
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import Sizes, round_to_grid
from flwr_dpkmeans.kernels.triangles import (
    rounded_triangle,
    symmetric_from_triangle,
    triangle_of,
)
from flwr_dpkmeans.kernels.vector_clipping import clip_each
from flwr_dpkmeans.kmeans import projected
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

_ROUNDING = 1.05 * 2.0**-16
"""Grid step, with room for the last digits of the sums before they are rounded (2^-6 of
a step at 2^28 rows).
"""


def outer_product_round(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> PlannedSum:
    """Step 1: the projection that the clients' outer product gives.

    Onto its leading eigenvectors (Algorithm 1, lines 2-7).

    Clients round their sums to the grid, which adds to the sensitivity at record level;
    at client level the whole triangle is clipped and rounded toward zero: nothing is
    added.
    """
    n_components = min(public.config.n_clusters, public.n_features)
    size = outer_products.triangle_size(public.n_features)
    per_client = public.settings.unit is PrivacyUnit.CLIENT
    if per_client:
        radius = facts.data_radius
        moved = clipped_statistic(
            "S6",
            "outer product, in Frobenius norm,",
            Norm.L2,
            facts.outer_product_bound,
        )
    else:
        radius = math.sqrt(facts.outer_product_bound)
        # Each party rounds its own sum, so two neighbours' sums may also differ by a
        # grid step in each entry.
        bound = facts.outer_product_bound + outer_product_rounding(size)
        because = (
            "S5: one row x within the radius R adds x x^T, of Frobenius norm at most"
            " R^2, plus one grid step of rounding in each entry; entries off the"
            " diagonal are sent times sqrt(2) (FedDP-KMeans, section 3, step 1)"
        )
        moved = Sensitivity(
            Norm.L2,
            bound,
            PrivacyUnit.RECORD,
            because,
        )

    def in_ball(points: Array, state: State) -> Array:
        return centred(
            points,
            facts,
            radius,
            state,
        )

    def from_triangles(triangles: Array) -> Array:
        """What clients send of the triangles (n_clients, size) of their sums."""
        if per_client:
            return clip_each(triangles, facts.outer_product_bound)
        return round_to_grid(triangles)

    def summed(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        return [
            outer_products.outer_product_sums(
                points,
                lambda rows: in_ball(rows, state),
                weights,
            )
        ]

    def of_one(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        triangle = triangle_of(*summed(points, state, weights))
        return list(from_triangles(triangle[None]))

    def of_each(rows: Array, sizes: Sizes, state: State) -> Sequence[Array]:
        triangles = outer_products.outer_products_of_each(in_ball(rows, state), sizes)
        return [from_triangles(triangles)]

    def advance(state: State, released: ReleasedSum) -> State:
        noise = public.released_std(released.blocks[0])
        matrix = symmetric_from_triangle(released["outer_product"], public.n_features)
        server_points = state[SERVER_POINTS]
        if public.options.server_prior:
            matrix, _ = projected.shrink_to_server(
                matrix, clip_rows(server_points, radius), noise
            )
        # Directions of noise would hide the elbow, and where k is to be chosen there
        # are more of them than clusters.
        auto = public.config.choose_n_clusters
        n_kept = (
            projected.standing_out(matrix, noise, n_components)
            if auto
            else n_components
        )
        projection = projected.leading_eigenvectors(matrix, n_kept)
        points = round_to_grid(server_points @ projection)
        return state.view((SEED, MEAN_BEYOND, *MOVED)).changed(
            **{PROJECTION: projection, PROJECTED_POINTS: points}
        )

    parts = [
        ReleasePart(
            "outer_product",
            (size,),
            moved,
            share,
            moved.bound,
        )
    ]
    reads, admits = with_parts(
        public,
        facts,
        (),
        None,
    )
    exact = summed, rounded_triangle
    return parts, PrivateSum(
        "outer-product",
        (),
        of_one,
        advance,
        radius,
        reads,
        admits,
        unrounded=exact,
        weighted=weighing(public.settings.unit, of_one),
        of_each=unless_moved(public, of_each),
    )


def outer_product_rounding(size: int) -> float:
    """What rounding a client's sum to the grid adds to the sensitivity.

    At record level, of a sum of `size` entries.
    """
    return math.sqrt(size) * _ROUNDING
