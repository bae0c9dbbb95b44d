"""Refinements: shrunk Lloyd steps on residuals, whose radius falls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms import kmeans_task
from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.proxy.entries import (
    AVERAGE_COUNTS,
    AXES,
    CENTRE,
    RADIUS,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.excess_shells import cut_off, shells_of
from flwr_dpkmeans.algorithms.proxy.proxy_space import in_proxy_space, length_of
from flwr_dpkmeans.algorithms.proxy.refined_centroids import (
    centre_deviations,
    without_empty_clusters,
)
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.states.cluster_states import PROJECTED_CENTERS, SEED
from flwr_dpkmeans.algorithms.states.steps_ahead import stepped
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import are_saturated, unheard_cut
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import are_faint
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts
from flwr_dpkmeans.kmeans.residuals.noisy_counts import adding_up, pulled_together
from flwr_dpkmeans.kmeans.residuals.radii import next_radii
from flwr_dpkmeans.kmeans.residuals.shrinkage import shrunk_steps, step_deviations
from flwr_dpkmeans.kmeans.tails import excess_sums
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.round import Array, PrivateSum, State

_SMALLEST_SHRINKING = 0.05


def refinement_round(setting: Setting, index: int) -> PlannedSum:
    """Lloyd step on clipped residuals.

    The first one assigns rows in the proxies' space, where these were clustered.
    """
    share = setting.plan.refinement_shares[index - 1]
    # Nothing follows the last one, so what it cuts would stay cut.
    has_excess = setting.plan.n_shells > 0 and index == len(
        setting.plan.refinement_shares
    )
    of_excess = setting.options.excess_share * share if has_excess else 0.0
    parts = setting.parts("refinement", share - of_excess)
    if has_excess:
        parts += setting.parts("excess", of_excess)
    options, k, d = setting.options, setting.n_clusters, setting.n_features
    projects, owns = (
        index == 1 and setting.plan.n_passes > 0 and setting.in_subspace,
        setting.n_radii > 1,
    )

    @setting.summing(parts)
    def statistic(rows: Array, state: State) -> Sequence[Array]:
        centers = state[PROJECTED_CENTERS] if projects else state.centroids
        labels = nearest_projected(
            in_proxy_space(rows, state) if projects else rows, None, centers
        )
        found = residual_sums(
            rows,
            labels,
            state.centroids,
            state[RADIUS],
            k,
            drop=not options.clips,
        )
        arrays = [
            found.sums,
            found.counts,
            found.squares if owns else found.squares.sum(keepdims=True),
        ]
        if has_excess:
            radii, lengths = shells_of(setting, state)
            arrays.append(
                excess_sums(
                    rows,
                    labels,
                    state.centroids,
                    radii,
                    lengths,
                    k,
                )
            )
        return arrays

    def advance(state: State, released: ReleasedSum) -> State:
        used, n = len(state.centroids), setting.public.n_units
        radii = state[RADIUS][:used]
        sums_noise, counts_noise, squares_noise = (
            setting.noise(block) for block in released.blocks[:3]
        )
        counts = released["counts"][:used]
        # A client's shares of rows are clipped, and some clients may be silent: then
        # counts add up to less.
        all_are_in = abs(
            n - math.fsum(counts)
        ) <= options.heard * counts_noise * math.sqrt(used)
        total = n if options.adds_up and all_are_in and not setting.per_client else None
        likelier, noise_left = (
            (counts, counts_noise)
            if total is None
            else adding_up(counts, counts_noise, total)
        )
        likelier, noise_left = (
            pulled_together(likelier, noise_left)
            if options.pulls
            else (likelier, noise_left)
        )
        sums = released["residual_sums"][:used] * radii[:, None]
        prior: dict[str, Any] = {
            "sums_noise": sums_noise * radii,
            "counts_noise": noise_left,
            "axis_variance": length_of(state, SPREAD) ** 2 / d,
            "least_tau": options.least_tau ** (2 * index - 1),
            "total": total,
        }
        steps = shrunk_steps(
            sums,
            likelier,
            radius=radii,
            **prior,
        )
        of_steps = step_deviations(sums, likelier, **prior)
        likely_rows = likely_counts(likelier, noise_left, total)
        of_clusters = np.resize(radii, used)
        if not has_excess:
            cut = unheard_cut(of_clusters, d)
            noise_of_sums = np.resize(sums_noise * radii, used)
            saturated = are_saturated(sums, likely_rows, of_clusters, noise_of_sums)
            cut = np.where(saturated[:, None], WIDEST, cut)
        else:
            squares_rows = likely_rows if owns else np.full(1, n, dtype=np.float64)
            mean_squares = released["residual_squares"][:used] / squares_rows
            fullness = np.resize(np.sqrt(np.maximum(mean_squares, 0.0)), used)
            more, cut = cut_off(
                setting,
                state,
                released,
                likely_rows,
                fullness,
            )
            steps = steps + more
        moved = moved_by_rows = round_to_grid(truncate(state.centroids + steps))
        squares, explained = (
            released["residual_squares"][:used],
            np.square(steps).sum(axis=1),
        )
        if owns:
            rows, rows_noise = likely_counts(likelier, noise_left, total), noise_left
        else:
            weights, rows, rows_noise = (
                np.maximum(counts, 0.0),
                np.full(1, n, dtype=np.float64),
                0.0,
            )
            explained = np.full(
                1, float(explained @ weights) / max(1.0, float(weights.sum()))
            )
        following = next_radii(
            radii,
            squares,
            rows,
            explained,
            noise=squares_noise,
            counts_noise=rows_noise,
            width=setting.plan.widening,
            prior_variance=options.residual_prior_variance,
            floor=_SMALLEST_SHRINKING,
        )
        # One for each centroid, also where all are alike.
        following, squares = (
            np.resize(following, used),
            np.maximum(squares, 0.0) * np.square(radii),
        )
        means = np.resize(squares / rows, used)
        average = (
            counts
            if index == 1
            else state[AVERAGE_COUNTS] + (counts - state[AVERAGE_COUNTS]) / index
        )
        # Which of few clients' clusters costs most is noise, where each has a mean
        # square of its own.
        splits = options.splits and not (owns and setting.per_client)
        if splits and 2 <= index < len(setting.plan.refinement_shares):
            noise, generator = (
                counts_noise / math.sqrt(index),
                setting.generator(state, setting.plan.n_passes + index),
            )
            total = float(squares.sum())
            moved, average = without_empty_clusters(
                setting,
                moved,
                average,
                following,
                noise,
                total,
                means,
                generator,
            )
        # As many as planned, also where fewer clusters were chosen.
        following = np.pad(
            np.minimum(following, setting.farthest), (0, k - used), "edge"
        )[: setting.n_radii]
        kept = state.view((SEED, SPREAD, COST_CURVE))
        after = stepped(kept, moved, counts).changed(
            **{RADIUS: as_length(following), AVERAGE_COUNTS: round_to_grid(average)}
        )
        if setting.per_client:
            return after
        faint = are_faint(average, counts_noise / math.sqrt(index))
        cut = np.where(faint[:, None], WIDEST, cut)
        deviations = centre_deviations(
            state.centroids,
            moved_by_rows,
            of_steps,
            means,
            cut,
        )
        return after.changed(**{kmeans_task.CENTRE_DEVIATION: deviations})

    reads = (RADIUS, CENTRE, AXES, PROJECTED_CENTERS) if projects else (RADIUS,)
    return parts, PrivateSum(
        f"refinement-{index}",
        (),
        statistic,
        advance,
        None,
        reads,
        setting.admitting(reads),
    )
