"""What a client sums by nearest projected centre, and the centroids that follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flwr_dpkmeans.algorithms import kmeans_task
from flwr_dpkmeans.algorithms.budget.count_norms import count_norm, count_order
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.feddp.appendix.moved_parts import moved_back
from flwr_dpkmeans.algorithms.feddp.centred_rows import centred, clipped_statistic
from flwr_dpkmeans.algorithms.feddp.one_and_many import OneAndMany, of_one_and_many
from flwr_dpkmeans.algorithms.feddp.projection_state import MEAN_BEYOND
from flwr_dpkmeans.algorithms.lloyd_family.count_sensitivities import counts_sensitivity
from flwr_dpkmeans.kernels import projected_sums
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import LabelArray, Sizes, round_to_grid
from flwr_dpkmeans.kernels.projected_sums import clipped_together, sums_and_counts
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import pulled_rows
from flwr_dpkmeans.kmeans.centre_errors.intervals import on_grid
from flwr_dpkmeans.kmeans.centre_errors.moved_labels import moved_labels
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import quotient_deviations
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, RowWeights, State


def projected_cluster_sums(
    public: PublicFacts,
    facts: ServerFacts,
    shares: Sequence[float],
    labels_of: Callable[[Array, State], LabelArray],
    *,
    as_means: bool = False,
) -> tuple[list[ReleasePart], OneAndMany]:
    """Sums and counts by label, of a client clipped: what and how, of one and of many.

    In step 3 they are turned into means and indicators instead.
    """
    k, d = public.config.n_clusters, public.n_features
    norm, order = (
        count_norm(public.config),
        count_order(public.config),
    )

    def sums_of_each(
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
        labels = labels_of(in_ball, state)
        return sums_and_counts(
            in_ball,
            labels,
            k,
            sizes,
            weights,
        )

    if public.settings.unit.by_row:
        # The centre is public, so the row's distance from it is all that one row adds.
        because = (
            "S9: one row, clipped to the data radius, lies in one cluster"
            " (FedDP-KMeans, section 3, step 3)"
        )
        sums = Sensitivity(
            Norm.L2,
            facts.data_radius,
            PrivacyUnit.RECORD,
            because,
        )
        return (
            [
                ReleasePart(
                    "clipped_sums",
                    (k, d),
                    sums,
                    shares[0],
                    sums.bound,
                ),
                ReleasePart(
                    "counts",
                    (k,),
                    counts_sensitivity(norm),
                    shares[1],
                    1.0,
                ),
            ],
            of_one_and_many(public, sums_of_each, list),
        )
    names, what = (
        ("clipped_sums", "counts"),
        ("list of cluster sums", "list of rows by cluster"),
    )
    bounds = facts.sums_bound, facts.counts_bound
    if as_means:
        names, what = (
            ("means", "indicators"),
            ("list of cluster means", "list of non-empty clusters"),
        )
        bounds = facts.means_bound, facts.indicators_bound

    def clipped_each(sums: Sequence[Array]) -> Sequence[Array]:
        vectors, numbers = sums
        if as_means:
            vectors, numbers = projected_sums.means_and_indicators(vectors, numbers)
        return clipped_together(
            vectors,
            numbers,
            *bounds,
            order=order,
        )

    vectors = clipped_statistic(
        "S10",
        what[0],
        Norm.L2,
        bounds[0],
    )
    numbers = clipped_statistic(
        "S10",
        what[1],
        norm,
        bounds[1],
        nonnegative=True,
    )
    # An indicator is 0 or 1 before the list is scaled down.
    entry = min(1.0, numbers.bound) if as_means else numbers.bound
    return (
        [
            ReleasePart(
                names[0],
                (k, d),
                vectors,
                shares[0],
                vectors.bound,
            ),
            ReleasePart(
                names[1],
                (k,),
                numbers,
                shares[1],
                entry,
            ),
        ],
        of_one_and_many(public, sums_of_each, clipped_each),
    )


def new_centroids(
    state: State,
    released: ReleasedSum,
    facts: ServerFacts,
    noise_factor: float,
) -> tuple[Array, Array]:
    """Quotients of released sums and counts.

    A cluster whose count is lost in its noise keeps the centroid it had.
    """
    k = len(state.centroids)
    summed, counted = released.blocks
    sums = released[summed.name][:k]
    counts = released[counted.name][:k]
    one_row = min(1.0, counted.sensitivity.bound)
    is_clear = counts > one_row + counted.noise_scale * noise_factor
    divisors = np.where(is_clear, counts, 1.0)
    means = sums / divisors[:, None]
    # The means of clipped rows lie in the ball, so noise that leaves it is cut off.
    clipped = clip_rows(round_to_grid(means), facts.data_radius)
    in_box = truncate(moved_back(clipped, state) + np.asarray(facts.centre))
    centroids = np.where(is_clear[:, None], in_box, state.centroids)
    return round_to_grid(centroids), counts


def with_deviations(
    public: PublicFacts,
    facts: ServerFacts,
    before: State,
    after: State,
    released: ReleasedSum,
) -> State:
    """Add how far the new centres may be from the means of the rows that they label.

    Rows are expected beyond the data radius as far as the server's points are. A
    client's own means are clipped, and what that cuts is not released: nothing is
    said at client level.
    """
    if public.settings.unit is PrivacyUnit.CLIENT:
        return after
    sums_noise, counts_noise = map(public.released_std, released.blocks)
    offsets = after.centroids - np.asarray(facts.centre)
    quotients = quotient_deviations(
        offsets,
        after.counts,
        sums_noise,
        counts_noise,
    )
    moved = moved_labels(before.centroids, after.centroids)
    # Without points of a server the ball holds the box, and nothing is cut.
    cut = np.zeros(offsets.shape)
    if MEAN_BEYOND in before.arrays:
        beyond = before[MEAN_BEYOND].item()
        cut = pulled_rows(offsets, after.counts, beyond)
    deviations = on_grid(quotients, cut, moved)
    return after.changed(**{kmeans_task.CENTRE_DEVIATION: deviations})
