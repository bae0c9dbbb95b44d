"""The private-sum rounds of FedDP-KMeans (Scott, Lampert, Saulpic 2025), each usable alone.

Record level (section 3): a row is clipped to the data radius. Client level (appendix G.4): a client's whole statistic
is clipped, and the centers round sums cluster means and indicators instead of rows and counts. In both cases the
bounds come from the plan and do not depend on what the server sends, so a false projection costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from flwr_dpkmeans.algorithms.lloyd_family import (
    cluster_state,
    counts_sensitivity,
    is_near,
    is_projection,
    is_table,
    largest_step,
)
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, count_norm, count_order
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kmeans.assignment import LabelArray, sum_over_blocks
from flwr_dpkmeans.kmeans.projected import (
    clear_labels,
    leading_eigenvectors,
    means_and_indicators,
    nearest_projected,
    outer_product_triangle,
    shrink_to_server,
    standing_out,
    sums_and_counts,
    symmetric_from_triangle,
    triangle_size,
)
from flwr_dpkmeans.kmeans.update import clip_rows, clip_vector, round_to_grid, truncate
from flwr_dpkmeans.kmeans.weighted import cost_curve, elbow, weighted_kmeans
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.round import Array, PrivateSum, State
from flwr_dpkmeans.sums.task import Known, Run, ServerFacts

SERVER_POINTS = "server_points"
PROJECTION = "projection"
PROJECTED_POINTS = "projected_points"
PROJECTED_CENTERS = "projected_centers"
COST_CURVE = "cost_curve"
SEED = "seed"

_ALWAYS_KEPT = 0.4
"""Share of the server points that keep their weights, if positive, however large the noise is."""
_ROUNDING = 1.05 * 2.0**-16
"""Grid step, with room for the last digits of the sums before they are rounded (2^-6 of a step at 2^28 rows)."""


_ONE_OUTER_PRODUCT = (
    "S5: one row x within the radius R adds x x^T, of Frobenius norm at most R^2, plus one grid step of rounding in "
    "each entry; entries off the diagonal are sent times sqrt(2) (FedDP-KMeans, section 3, step 1)"
)
_ONE_CLIPPED_ROW = "S9: one row, clipped to the data radius, lies in one cluster (FedDP-KMeans, section 3, step 3)"


def centred(points: Array, facts: ServerFacts, radius: float) -> Array:
    """Rows relative to the public centre, clipped to the ball of a radius; on the grid."""
    return clip_rows(points - np.asarray(facts.centre), radius)


def outer_product_part(public: Known, facts: ServerFacts, share: float) -> ReleasePart:
    """Describe the outer product: its Frobenius norm is bounded per row, or per client by clipping it.

    A row of norm at most R adds a matrix of Frobenius norm at most R^2. At record level a client's sum is rounded to
    the grid, which changes the difference of two neighbours' sums by at most one grid step in each of m entries:
    sqrt(m) steps are added. At client level the whole triangle is clipped and rounded toward zero: nothing is added.
    """
    size = triangle_size(public.n_features)
    if public.settings.unit is PrivacyUnit.CLIENT:
        sensitivity = _clipped("S6: ", "outer product, in Frobenius norm,", Norm.L2, facts.outer_product_bound)
    else:
        # Each party rounds its own sum, so two neighbours' sums may also differ by a grid step in each entry.
        bound = facts.outer_product_bound + outer_product_rounding(size)
        sensitivity = Sensitivity(Norm.L2, bound, PrivacyUnit.RECORD, _ONE_OUTER_PRODUCT)
    return ReleasePart("outer_product", (size,), sensitivity, share, sensitivity.bound)


def outer_product_rounding(size: int) -> float:
    """What rounding a client's sum of `size` entries to the grid adds to the sensitivity at record level."""
    return math.sqrt(size) * _ROUNDING


def outer_product_round(public: Known, facts: ServerFacts, blocks: tuple[Block, ...]) -> PrivateSum:
    """Step 1: the projection onto the leading eigenvectors of the clients' outer product (Algorithm 1, lines 2-7)."""
    n_components = min(public.config.n_clusters, public.n_features)
    per_client = public.settings.unit is PrivacyUnit.CLIENT
    radius = facts.data_radius if per_client else math.sqrt(facts.outer_product_bound)

    def statistic(points: Array, state: State) -> Sequence[Array]:
        del state
        triangle = outer_product_triangle(points, lambda rows: centred(rows, facts, radius))
        return [clip_vector(triangle, facts.outer_product_bound) if per_client else round_to_grid(triangle)]

    def advance(state: State, released: ReleasedSum) -> State:
        matrix = symmetric_from_triangle(released["outer_product"], public.n_features)
        server_points = state_extra(state, SERVER_POINTS)
        if public.options.server_prior:
            matrix = shrink_to_server(matrix, clip_rows(server_points, radius), blocks[0].noise_scale)
        # Directions of noise would hide the elbow, and where k is to be chosen there are more of them than clusters.
        auto = public.config.choose_n_clusters
        used = standing_out(matrix, blocks[0].noise_scale, n_components) if auto else n_components
        projection = leading_eigenvectors(matrix, used)
        projected = round_to_grid(server_points @ projection)
        extras = {PROJECTION: projection, PROJECTED_POINTS: projected, SEED: state_extra(state, SEED)}
        return cluster_state(state.centroids, state.counts, state.movements, extras)

    return PrivateSum("outer-product", blocks, statistic, advance, radius)


def weights_part(public: Known, facts: ServerFacts, share: float) -> ReleasePart:
    """Describe the histogram over server points: one row lies in one bin; a client's histogram is clipped."""
    norm = count_norm(public.config)
    if public.settings.unit is PrivacyUnit.CLIENT:
        sensitivity = _clipped("S8: ", "histogram", norm, facts.weights_bound, nonnegative=True)
    else:
        nearest = "S7: one row is nearest to one server point (FedDP-KMeans, section 3, step 2)"
        sensitivity = Sensitivity(norm, 1.0, PrivacyUnit.RECORD, nearest, nonnegative=True)
    return ReleasePart("weights", (facts.n_points,), sensitivity, share, sensitivity.bound)


def weights_round(public: Known, facts: ServerFacts, blocks: tuple[Block, ...]) -> PrivateSum:
    """Step 2: how many rows each projected server point stands for, and their k-means (Algorithm 1, lines 8-17)."""
    config = public.config
    per_client = config.settings.unit is PrivacyUnit.CLIENT
    order = count_order(config)
    noise = blocks[0].noise_scale * (math.sqrt(2.0) if blocks[0].noise is NoiseShape.LAPLACE else 1.0)

    def statistic(points: Array, state: State) -> Sequence[Array]:
        def counted(part: slice) -> Sequence[Array]:
            rows = centred(points[part], facts, facts.data_radius)
            labels = nearest_projected(rows, state_extra(state, PROJECTION), state_extra(state, PROJECTED_POINTS))
            return [np.bincount(labels, minlength=facts.n_points).astype(np.float64)]

        (histogram,) = sum_over_blocks(counted, len(points), public.n_features)
        return [clip_vector(histogram, facts.weights_bound, order=order) if per_client else histogram]

    def advance(state: State, released: ReleasedSum) -> State:
        weights = _without_noise_weights(released["weights"], public.options.weight_threshold * noise)
        points, seed = state_extra(state, PROJECTED_POINTS), int(state_extra(state, SEED)[0])
        centers, curve = clustered(config, points, weights, seed)
        extras = dict(state.extras) | curve | {PROJECTED_CENTERS: centers}
        lifted = _lifted(extras[PROJECTED_CENTERS], state_extra(state, PROJECTION), facts)
        return cluster_state(lifted, np.zeros(len(lifted)), state.movements, extras)

    def admits(state: State) -> bool:
        complete = len(state.extras[PROJECTED_POINTS]) == facts.n_points
        return complete and _fits(state, PROJECTED_POINTS, public, facts.n_points)

    reads = (PROJECTION, PROJECTED_POINTS)
    return PrivateSum("weights", blocks, statistic, advance, facts.data_radius, reads, admits)


def centers_parts(public: Known, facts: ServerFacts, sums_share: float, counts_share: float) -> list[ReleasePart]:
    """Describe sums and counts (record level), or cluster means and indicators (client level)."""
    k, d = public.config.n_clusters, public.n_features
    norm = count_norm(public.config)
    if public.settings.unit is PrivacyUnit.RECORD:
        # The centre is public, so the row's distance from it is all that one row adds.
        sums = Sensitivity(Norm.L2, facts.data_radius, PrivacyUnit.RECORD, _ONE_CLIPPED_ROW)
        return [
            ReleasePart("clipped_sums", (k, d), sums, sums_share, sums.bound),
            ReleasePart("counts", (k,), counts_sensitivity(norm), counts_share, 1.0),
        ]
    means = _clipped("S10: ", "list of cluster means", Norm.L2, facts.means_bound)
    indicators = _clipped("S10: ", "list of non-empty clusters", norm, facts.indicators_bound, nonnegative=True)
    return [
        ReleasePart("means", (k, d), means, sums_share, means.bound),
        # An indicator is 0 or 1 before the list is scaled down.
        ReleasePart("indicators", (k,), indicators, counts_share, min(1.0, indicators.bound)),
    ]


def centers_round(public: Known, facts: ServerFacts, blocks: tuple[Block, ...]) -> PrivateSum:
    """Step 3: the rows nearest to each projected centre give the first centroids (Algorithm 1, lines 18-24)."""
    margin = public.options.margin

    def labels_of(rows: Array, state: State) -> LabelArray:
        return clear_labels(rows, state_extra(state, PROJECTION), state_extra(state, PROJECTED_CENTERS), margin)

    def advance(state: State, released: ReleasedSum) -> State:
        centroids, counts = _new_centroids(state, released, blocks, facts)
        return cluster_state(centroids, counts, state.movements, state.extras)

    def admits(state: State) -> bool:
        return _fits(state, PROJECTED_CENTERS, public, public.config.n_clusters)

    statistic, reads = _cluster_statistic(public, facts, labels_of), (PROJECTION, PROJECTED_CENTERS)
    return PrivateSum("centers", blocks, statistic, advance, facts.data_radius, reads, admits)


def lloyd_round(public: Known, facts: ServerFacts, blocks: tuple[Block, ...], index: int) -> PrivateSum:
    """One round of FedDP-Lloyd (Algorithm 2): as step 3, with distances in the space of the data."""
    centre = np.asarray(facts.centre)

    def labels_of(rows: Array, state: State) -> LabelArray:
        return nearest_projected(rows, None, state.centroids - centre)

    def advance(state: State, released: ReleasedSum) -> State:
        centroids, counts = _new_centroids(state, released, blocks, facts)
        movements = (*state.movements, largest_step(state.centroids, centroids))
        return cluster_state(centroids, counts, movements, state.extras)

    statistic = _cluster_statistic(public, facts, labels_of)
    return PrivateSum(f"lloyd-{index}", blocks, statistic, advance, facts.data_radius)


def clustered(
    config: Run, points: Array, weights: Array, seed: int, *, logarithmic: bool = False
) -> tuple[Array, dict[str, Array]]:
    """Weighted k-means, on the grid; where k is to be chosen, at the elbow of the cost curve, which is an extra."""
    k, n_init = config.n_clusters, config.n_init
    if not config.choose_n_clusters:
        return round_to_grid(weighted_kmeans(points, weights, k, n_init=n_init, seed=seed)[0]), {}
    costs, found = cost_curve(points, weights, k, n_init=n_init, seed=seed)
    return round_to_grid(found[elbow(costs, logarithmic=logarithmic) - 1]), {COST_CURVE: round_to_grid(costs)}


def server_state(centroids: Array, facts: ServerFacts, seed: int, server_points: Array | None) -> State:
    """The state before the first round; server points, in the scaled box, are kept relative to the centre."""
    extras = {SEED: np.array([float(seed % 2**31)])}
    if server_points is not None:
        extras[SERVER_POINTS] = server_points - np.asarray(facts.centre)
    return cluster_state(centroids, np.zeros(len(centroids)), (), extras)


def _cluster_statistic(
    public: Known, facts: ServerFacts, labels_of: Callable[[Array, State], LabelArray]
) -> Callable[[Array, State], Sequence[Array]]:
    """Sums and counts by label, or a client's means and indicators."""
    config = public.config
    k, order = config.n_clusters, count_order(config)

    def statistic(points: Array, state: State) -> Sequence[Array]:
        def summed(part: slice) -> Sequence[Array]:
            rows = centred(points[part], facts, facts.data_radius)
            return sums_and_counts(rows, labels_of(rows, state), k)

        sums, counts = sum_over_blocks(summed, len(points), public.n_features)
        if config.settings.unit is PrivacyUnit.RECORD:
            return [sums, counts]
        means, indicators = means_and_indicators(
            sums, counts, facts.means_bound, facts.indicators_bound, indicator_order=order
        )
        return [means, indicators]

    return statistic


def _new_centroids(
    state: State, released: ReleasedSum, blocks: tuple[Block, ...], facts: ServerFacts
) -> tuple[Array, Array]:
    """Quotients of released sums and counts; a cluster whose count is lost in its noise keeps the centroid it had."""
    k = len(state.centroids)
    sums, counts = released[blocks[0].name][:k], released[blocks[1].name][:k]
    least = min(1.0, blocks[1].sensitivity.bound) + blocks[1].noise_scale
    found = counts > least
    means = sums / np.where(found, counts, 1.0)[:, None]
    # The means of clipped rows lie in the ball, so noise that leaves it is cut off.
    inside = clip_rows(round_to_grid(means), facts.data_radius)
    centroids = np.where(found[:, None], truncate(inside + np.asarray(facts.centre)), state.centroids)
    return round_to_grid(centroids), counts


def _fits(state: State, name: str, public: Known, most_rows: int) -> bool:
    """Whether a server's projection and its projected points or centres have the plan's shapes and are exact."""
    projection, table = state.extras[PROJECTION], state.extras[name]
    d, k = public.n_features, public.config.n_clusters
    if projection.ndim != 2 or len(projection) != d or not 1 <= projection.shape[1] <= min(k, d):
        return False
    shaped = is_table(table, most_rows, projection.shape[1])
    return shaped and is_projection(projection) and is_near(table, d)


def _without_noise_weights(weights: Array, threshold: float) -> Array:
    """Drop weights below the threshold, which noise alone may have made; the largest stay."""
    least = max(0.0, min(threshold, float(np.quantile(weights, 1.0 - _ALWAYS_KEPT))))
    return np.where((weights >= least) & (weights > 0.0), weights, 0.0)


def _lifted(centers: Array, projection: Array, facts: ServerFacts) -> Array:
    """Projected centres in the space of the data: the best guess before step 3."""
    return round_to_grid(truncate(centers @ projection.T + np.asarray(facts.centre)))


def _clipped(row: str, what: str, norm: Norm, bound: float, *, nonnegative: bool = False) -> Sensitivity:
    """One client's statistic, clipped to a bound."""
    because = f"{row}one client's {what} is scaled down to the bound (FedDP-KMeans, appendix G.4)"
    return Sensitivity(norm, bound, PrivacyUnit.CLIENT, because, nonnegative)


def state_extra(state: State, name: str) -> Array:
    """An array that an earlier step, or the server, must have put into the state."""
    if name not in state.extras:
        raise PlanError(f"the state has no {name.replace('_', ' ')}: run the step that makes it first.")
    return state.extras[name]
