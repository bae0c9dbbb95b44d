"""The refinements of ProxyLloyd: Lloyd steps on clipped residuals with shrunk steps and a radius that follows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.feddp_steps import COST_CURVE, PROJECTED_CENTERS, SEED, state_extra
from flwr_dpkmeans.algorithms.lloyd_family import counts_sensitivity, largest_step
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart
from flwr_dpkmeans.algorithms.proxy_rounds import in_proxy_space
from flwr_dpkmeans.algorithms.proxy_setting import AXES, CENTRE, RADIUS, SPREAD, Setting, admitting, as_length
from flwr_dpkmeans.algorithms.received import cluster_state
from flwr_dpkmeans.kmeans.blocks import sum_over_blocks
from flwr_dpkmeans.kmeans.projected import nearest_projected
from flwr_dpkmeans.kmeans.residuals import next_radius, residual_sums, shrunk_steps
from flwr_dpkmeans.kmeans.update import round_to_grid, truncate
from flwr_dpkmeans.privacy.release import Block, ReleasedSum
from flwr_dpkmeans.sums.round import Array, PrivateSum
from flwr_dpkmeans.sums.state import State

_SMALLEST_SHRINKING = 0.05


def refinement_parts(setting: Setting, share: float) -> list[ReleasePart]:
    """Describe a refinement: residuals and counts by cluster, and the sum of the residuals' squares."""
    k, d, options = setting.n_clusters, setting.n_features, setting.options
    return [
        setting.part(
            "residual_sums",
            (k, d),
            share * (1.0 - options.counts_share - options.residual_share),
            "S14: one row's residual from its nearest centroid, divided by the radius and clipped to length 1, is in "
            "one sum (ProxyLloyd)",
            "mean residual over its rows, by cluster",
        ),
        setting.part(
            "counts",
            (k,),
            share * options.counts_share,
            counts_sensitivity().because,
            "shares of its rows, by cluster",
            nonnegative=True,
        ),
        setting.part(
            "residual_squares",
            (1,),
            share * options.residual_share,
            "S14: one row's squared residual in radii, clipped, is at most 1 (ProxyLloyd)",
            "mean squared residual over its rows",
            nonnegative=True,
        ),
    ]


def refinement_round(setting: Setting, blocks: tuple[Block, ...], index: int) -> PrivateSum:
    """Lloyd step on clipped residuals; the first one assigns rows in the proxies' space, where these were clustered."""
    options, k, d = setting.options, setting.n_clusters, setting.n_features
    projects = index == 1 and setting.plan.n_passes > 0 and setting.plan.n_components is not None

    def statistic(points: Array, state: State) -> Sequence[Array]:
        centers = state_extra(state, PROJECTED_CENTERS) if projects else state.centroids
        radius = float(state_extra(state, RADIUS)[0])

        def summed(part: slice) -> Sequence[Array]:
            rows = points[part]
            labels = nearest_projected(in_proxy_space(rows, state) if projects else rows, None, centers)
            found = residual_sums(rows, labels, state.centroids, radius, k, drop=not options.clips)
            return [found.sums, found.counts, found.squares]

        return setting.sent(sum_over_blocks(summed, len(points), d), len(points), blocks)

    def advance(state: State, released: ReleasedSum) -> State:
        radius, used = float(state_extra(state, RADIUS)[0]), len(state.centroids)
        sums_noise, counts_noise, _ = (setting.noise(block) for block in blocks)
        counts = released["counts"][:used]
        steps = shrunk_steps(
            released["residual_sums"][:used] * radius,
            counts,
            sums_noise=sums_noise * radius,
            counts_noise=counts_noise,
            axis_variance=float(state_extra(state, SPREAD)[0]) ** 2 / d,
            least_tau=options.first_least_tau * options.least_tau_falls ** (index - 1),
            radius=radius,
        )
        moved = round_to_grid(truncate(state.centroids + steps))
        smaller = _next_radius(setting, blocks, released, steps if index == 1 else np.zeros_like(steps), radius)
        extras = {name: array for name, array in state.extras.items() if name in (SEED, SPREAD, COST_CURVE)}
        movements = (*state.movements, largest_step(state.centroids, moved))
        return cluster_state(moved, counts, movements, extras | {RADIUS: as_length(smaller)})

    reads = (RADIUS, CENTRE, AXES, PROJECTED_CENTERS) if projects else (RADIUS,)
    return PrivateSum(f"refinement-{index}", blocks, statistic, advance, None, reads, admitting(setting, reads))


def _next_radius(
    setting: Setting, blocks: tuple[Block, ...], released: ReleasedSum, steps: Array, radius: float
) -> float:
    """Radius of the next refinement, from the mean square of what the steps leave of the residuals."""
    n, options = setting.n_units, setting.options
    square = float(released["residual_squares"][0])
    counts = np.maximum(released["counts"][: len(steps)], 0.0)
    explained = float(np.square(steps).sum(axis=1) @ counts) / max(1.0, float(counts.sum())) / radius**2
    square -= min(n * explained, 0.9 * max(square, 0.0))
    return next_radius(
        radius,
        square / n,
        setting.noise(blocks[2]) / n,
        width=options.residual_width * setting.plan.widening,
        prior_variance=options.residual_prior_variance,
        floor=_SMALLEST_SHRINKING,
    )
