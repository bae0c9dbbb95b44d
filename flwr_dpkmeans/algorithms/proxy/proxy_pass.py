"""One pass: proxies move to the rows, and counts weigh them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.proxy.clustered_proxies import first_centroids
from flwr_dpkmeans.algorithms.proxy.entries import (
    AXES,
    CENTRE,
    DISTANCES,
    PROXIES,
    PROXY_RADIUS,
    SHAPE,
    SPREAD,
    SUBSPACE_SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.heard_proxies import (
    heard_weights,
    proxies_beyond,
    with_server_points,
)
from flwr_dpkmeans.algorithms.proxy.proxy_space import (
    at_known_points,
    in_proxy_space,
    inside_box,
    length_of,
)
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.states.cluster_states import SERVER_POINTS
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.kmeans.proxies.distances import distance_bins
from flwr_dpkmeans.kmeans.proxies.ellipsoid import Ellipsoid
from flwr_dpkmeans.kmeans.proxies.refined_samples import samples_around, scattered
from flwr_dpkmeans.kmeans.proxies.tessellation import tessellation
from flwr_dpkmeans.kmeans.proxies.weights import unheard_rows
from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts
from flwr_dpkmeans.kmeans.residuals.shrinkage import StepPosterior
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State


def proxy_round(setting: Setting, index: int) -> PlannedSum:
    """Move and weigh the proxies; after the last pass, cluster them."""
    parts = setting.parts("proxies", setting.plan.pass_share)
    n_proxies, options = setting.plan.n_proxies, setting.options

    @setting.summing(parts)
    def statistic(
        points: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        rows, proxies = in_proxy_space(points, state), state[PROXIES]
        labels = nearest_projected(rows, None, proxies)
        residuals = residual_sums(
            rows,
            labels,
            proxies,
            state[PROXY_RADIUS],
            n_proxies,
            weights=weights,
            drop=not options.clips,
        )
        return [residuals.sums, residuals.counts]

    def advance(state: State, released: ReleasedSum) -> State:
        proxies, radii = state[PROXIES], state[PROXY_RADIUS]
        radius, n = float(radii.min()), setting.public.n_units
        sums_noise, counts_noise = (setting.noise(block) for block in released.blocks)
        width = proxies.shape[1]
        in_subspace = AXES in state.arrays
        spread = length_of(state, SUBSPACE_SPREAD if in_subspace else SPREAD)
        posterior = StepPosterior.of(
            released["proxy_sums"] * radius,
            likely_counts(released["proxy_counts"], counts_noise),
            sums_noise=sums_noise * radius,
            counts_noise=counts_noise,
            axis_variance=spread**2 / width,
            least_tau=options.least_tau,
        )
        steps = posterior.means(radius)
        # In its own radii a step is as likely far away, where cells are wide, as it is
        # among the rows.
        moved = round_to_grid(
            inside_box(proxies + steps * (radii / radius)[:, None], state)
        )
        counts = released["proxy_counts"]
        if SERVER_POINTS in state.arrays:
            moved, weights = with_server_points(
                setting,
                state,
                moved,
                counts,
                counts_noise,
            )
        else:
            weights = heard_weights(
                setting,
                state,
                counts,
                counts_noise,
            )
            if (
                DISTANCES in state.arrays
                and not (setting.in_subspace or setting.per_client)
                and options.unheard_times
            ):
                averages, looks, noise = state[DISTANCES]
                bins, noise = (
                    distance_bins(moved, state[CENTRE]),
                    noise / np.sqrt(np.maximum(looks, 1.0)),
                )
                more = unheard_rows(
                    bins,
                    counts,
                    weights,
                    counts_noise,
                    (averages, noise),
                    n,
                )
                weights = (
                    weights
                    + (1.0 if index == setting.plan.n_passes else options.unheard_times)
                    * more
                )
        is_last = index == setting.plan.n_passes
        if is_last and not _is_coarse(setting, state, weights):
            return first_centroids(
                setting,
                state,
                moved,
                weights,
            )
        radii = (
            radii[nearest_centroids(moved, proxies)[0]]
            if len(moved) != len(proxies)
            else radii
        )
        generator, widths = (
            setting.generator(state, index),
            options.pass_shrinking * radii / math.sqrt(width),
        )
        if is_last:
            # A cell with more rows than an average cluster has is a cluster, and
            # narrower the more there are.
            usual = n / setting.n_clusters
            widths *= np.sqrt(usual / np.maximum(weights, usual))
            points, shares = scattered(
                moved,
                weights,
                widths,
                generator,
            )
            return first_centroids(
                setting,
                state,
                inside_box(points, state),
                shares,
            )
        within = Ellipsoid(np.square(state[SHAPE][0]), state[SHAPE][1:])
        # Few rows of a wide cell far away stand out together, and not in parts.
        whole = proxies_beyond(setting, state, moved)
        samples = samples_around(
            moved,
            weights,
            widths,
            generator,
            within,
            whole,
        )
        redrawn = at_known_points(
            tessellation(inside_box(samples, state), n_proxies, generator), state
        )
        # Noise may have moved one of a wide cell far away to where rows are.
        radii = np.where(
            proxies_beyond(setting, state, redrawn),
            radii[nearest_centroids(redrawn, moved)[0]],
            radii.min(),
        )
        closer = round_to_grid(options.pass_shrinking * radii)
        return state.changed(
            **{PROXIES: redrawn, PROXY_RADIUS: np.maximum(closer, as_length(0.0))}
        )

    reads = (
        (CENTRE, AXES, PROXIES, PROXY_RADIUS)
        if setting.in_subspace
        else (PROXIES, PROXY_RADIUS)
    )
    return parts, PrivateSum(
        f"proxies-{index}",
        (),
        statistic,
        advance,
        None,
        reads,
        setting.admitting(reads),
        weighted=weighing(setting.unit, statistic),
    )


def _is_coarse(
    setting: Setting,
    state: State,
    weights: Array,
) -> bool:
    """Whether proxies are so few that clusters' borders run through their cells.

    In many columns these are too wide.
    """
    k, options = setting.n_clusters, setting.options
    if (
        SERVER_POINTS in state.arrays
        or setting.per_client
        or setting.public.config.choose_n_clusters
    ):
        return False
    # Where fewer proxies than clusters have rows, the other centroids had better be
    # elsewhere than in one cell.
    may_cut = (
        setting.n_features <= options.most_scattered_features
        and int(np.count_nonzero(weights)) >= k
    )
    return may_cut and setting.plan.n_proxies < options.proxies_per_cluster * k
