"""The private-sum rounds of ProxyLloyd: location, covariance, proxies, refinement.

Every statistic is a sum of vectors of length at most 1: rows, residuals and outer products are divided by their bound
before they are sent. So all sensitivities are 1, also where the bound comes from an earlier release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget import ReleasePart
from flwr_dpkmeans.algorithms.feddp_steps import (
    COST_CURVE,
    PROJECTED_CENTERS,
    SEED,
    outer_product_rounding,
    state_extra,
)
from flwr_dpkmeans.algorithms.lloyd_family import Public, largest_step
from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions, ProxyPlan
from flwr_dpkmeans.kmeans.ellipsoid import axis_variance, ellipsoid_of, shrunk_centre
from flwr_dpkmeans.kmeans.projected import (
    nearest_projected,
    outer_product_triangle,
    project,
    symmetric_from_triangle,
    triangle_size,
)
from flwr_dpkmeans.kmeans.proxies import box_samples, normal_samples, proxy_weights, samples_around, tessellation
from flwr_dpkmeans.kmeans.residuals import next_radius, residual_sums, unit_residuals
from flwr_dpkmeans.kmeans.shrinkage import shrunk_steps
from flwr_dpkmeans.kmeans.update import round_to_grid, truncate
from flwr_dpkmeans.kmeans.weighted import cost_curve, elbow, weighted_kmeans
from flwr_dpkmeans.privacy.mechanisms import Block, NoiseShape, ReleasedSum
from flwr_dpkmeans.rounds.private_sum import Array, ClusterState, InitialState, PrivateSum

CENTRE = "centre"
SPREAD = "spread"
AXES = "axes"
SUBSPACE_SPREAD = "subspace_spread"
PROXIES = "proxies"
PROXY_RADIUS = "proxy_radius"
RADIUS = "radius"

_SMALLEST_RADIUS = 2.0**-12
_SMALLEST_SHRINKING = 0.05


@dataclass(frozen=True)
class Setting:
    """What all rounds of one run need to know.

    Parameters
    ----------
    public : Public
    plan : ProxyPlan
    options : ProxyOptions
    """

    public: Public
    plan: ProxyPlan
    options: ProxyOptions

    @property
    def n_clusters(self) -> int:
        """k, or the largest one that may be chosen."""
        return self.public.config.n_clusters

    @property
    def n_features(self) -> int:
        """d."""
        return self.public.n_features

    @property
    def n_examples(self) -> int:
        """N."""
        return self.public.known_n_examples

    def noise(self, block: Block) -> float:
        """Standard deviation of a released entry, in the units of the statistic."""
        return block.noise_scale * self.public.noise_factor

    def generator(self, state: ClusterState, *place: int) -> np.random.Generator:
        """Public randomness of one step."""
        return np.random.default_rng([int(state_extra(state, SEED)[0]), *place])


def part(name: str, shape: tuple[int, ...], weight: float, bound: float = 1.0) -> ReleasePart:
    """Describe an array whose sensitivity is `bound`, with a share of the squared-GDP budget."""
    return ReleasePart(name, shape, bound, math.sqrt(weight), NoiseShape.GAUSSIAN, bound)


def initial_state(setting: Setting) -> InitialState:
    """Start with nothing but the seed."""

    def start(seed: int, server_points: Array | None = None, /) -> ClusterState:
        del server_points
        nothing = np.zeros((setting.n_clusters, setting.n_features))
        return ClusterState(nothing, np.zeros(setting.n_clusters), (), {SEED: np.array([float(seed % 2**31)])})

    return start


def location_parts(setting: Setting) -> list[ReleasePart]:
    """Describe the mean and the mean square: both of rows divided by their clip bound."""
    return [
        part("row_sums", (setting.n_features,), setting.options.location_share),
        part("row_squares", (1,), setting.options.squares_share),
    ]


def location_round(setting: Setting, blocks: tuple[Block, ...]) -> PrivateSum:
    """Release where the data lie and how far they spread."""
    clip = setting.options.location_clip * math.sqrt(setting.n_features)
    n = setting.n_examples

    def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
        del state
        middle = np.zeros((1, setting.n_features))
        found = residual_sums(points, np.zeros(len(points), dtype=np.int32), middle, clip, 1)
        return [found.sums[0], found.squares]

    def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
        mean_noise, square_noise = (setting.noise(block) / n for block in blocks)
        centre = shrunk_centre(released["row_sums"] * (clip / n), mean_noise * clip)
        square = float(released["row_squares"][0]) * clip**2 / n
        variance = axis_variance(square, square_noise * clip**2, centre)
        spread = _radius(math.sqrt(setting.n_features * variance))
        extras = {SEED: state_extra(state, SEED), CENTRE: centre, SPREAD: spread}
        return ClusterState(state.centroids, state.counts, state.movements, extras)

    return PrivateSum("location", blocks, statistic, advance, clip)


def covariance_parts(setting: Setting) -> list[ReleasePart]:
    """Describe the outer product of rows of length at most 1: Frobenius norm 1, and the rounding of its sum."""
    size = triangle_size(setting.n_features)
    return [part("unit_outer_product", (size,), setting.options.covariance_share, 1.0 + outer_product_rounding(size))]


def covariance_round(setting: Setting, blocks: tuple[Block, ...]) -> PrivateSum:
    """Release the data's shape, and spread the first proxies (or centroids) over it."""
    plan, d, n = setting.plan, setting.n_features, setting.n_examples

    def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
        rows = unit_residuals(
            points - state_extra(state, CENTRE), setting.options.covariance_clip * float(state_extra(state, SPREAD)[0])
        )
        return [round_to_grid(outer_product_triangle(rows))]

    def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
        centre, spread = state_extra(state, CENTRE), float(state_extra(state, SPREAD)[0])
        unit = (setting.options.covariance_clip * spread) ** 2 / n
        matrix = symmetric_from_triangle(released["unit_outer_product"], d) * unit
        found = ellipsoid_of(matrix, setting.noise(blocks[0]) * unit, spread**2 / d)
        extras = {SEED: state_extra(state, SEED), CENTRE: centre, SPREAD: _radius(found.spread)}
        generator = setting.generator(state, 0)
        samples_for = plan.n_proxies or setting.n_clusters
        if plan.n_components is None or not plan.n_passes:
            cover = plan.cover_box
            samples = box_samples(centre, found.variances, found.axes, samples_for, generator, cover_box=cover)
            reach = max(found.spread, math.sqrt(d / 3.0)) if cover else found.spread
        else:
            extras[AXES] = found.axes[:, : plan.n_components]
            leading = found.variances[: plan.n_components]
            samples = normal_samples(leading, samples_for, generator)
            reach = math.sqrt(math.fsum(leading))
            extras[SUBSPACE_SPREAD] = _radius(reach)
        proxies = tessellation(samples, samples_for, generator)
        if plan.n_passes:
            extras[PROXIES] = proxies
            extras[PROXY_RADIUS] = _radius(
                setting.options.proxy_clip * reach * plan.n_proxies ** (-1.0 / proxies.shape[1])
            )
            return ClusterState(state.centroids, state.counts, state.movements, extras)
        return _started(setting, state, extras, truncate(proxies))

    return PrivateSum("covariance", blocks, statistic, advance, None, (CENTRE, SPREAD))


def proxy_parts(setting: Setting) -> list[ReleasePart]:
    """Describe a pass: counts of the proxies' cells, and residuals in the proxies' space by cell."""
    width = setting.plan.n_components or setting.n_features
    share, n_proxies = setting.plan.pass_share, setting.plan.n_proxies
    return [
        part("proxy_sums", (n_proxies, width), share * (1.0 - setting.options.proxy_counts_share)),
        part("proxy_counts", (n_proxies,), share * setting.options.proxy_counts_share),
    ]


def proxy_round(setting: Setting, blocks: tuple[Block, ...], index: int) -> PrivateSum:
    """Move and weigh the proxies; after the last pass, cluster them."""
    n_proxies, is_last = setting.plan.n_proxies, index == setting.plan.n_passes

    def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
        proxies, rows = state_extra(state, PROXIES), _in_proxy_space(points, state)
        labels = nearest_projected(rows, None, proxies)
        radius = float(state_extra(state, PROXY_RADIUS)[0])
        found = residual_sums(rows, labels, proxies, radius, n_proxies, drop=not setting.options.clips)
        return [found.sums, found.counts]

    def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
        proxies, radius = state_extra(state, PROXIES), float(state_extra(state, PROXY_RADIUS)[0])
        sums_noise, counts_noise = (setting.noise(block) for block in blocks)
        width = proxies.shape[1]
        steps = shrunk_steps(
            released["proxy_sums"] * radius,
            released["proxy_counts"],
            sums_noise=sums_noise * radius,
            counts_noise=counts_noise,
            axis_variance=_proxy_variance(setting, state, width),
            least_tau=setting.options.first_least_tau,
            radius=radius,
        )
        moved = round_to_grid(_inside(proxies + steps, state))
        weights = proxy_weights(released["proxy_counts"], counts_noise, setting.options.weight_threshold)
        extras = dict(state.extras)
        if is_last:
            return _clustered(setting, state, moved, weights)
        counted = np.where(weights > counts_noise, weights, 0.0)
        generator = setting.generator(state, index)
        samples = samples_around(moved, counted, setting.options.split_width * radius / math.sqrt(width), generator)
        extras[PROXIES] = tessellation(_inside(samples, state), n_proxies, generator)
        extras[PROXY_RADIUS] = _radius(setting.options.pass_shrinking * radius)
        return ClusterState(state.centroids, state.counts, state.movements, extras)

    return PrivateSum(f"proxies-{index}", blocks, statistic, advance, None, (CENTRE, AXES, PROXIES, PROXY_RADIUS))


def refinement_parts(setting: Setting, share: float) -> list[ReleasePart]:
    """Describe a refinement: residuals and counts by cluster, and the sum of the residuals' squares."""
    k, d = setting.n_clusters, setting.n_features
    return [
        part("residual_sums", (k, d), share * (1.0 - setting.options.counts_share - setting.options.residual_share)),
        part("counts", (k,), share * setting.options.counts_share),
        part("residual_squares", (1,), share * setting.options.residual_share),
    ]


def refinement_round(setting: Setting, blocks: tuple[Block, ...], index: int) -> PrivateSum:
    """Lloyd step on clipped residuals with a shrunk step; the first one assigns rows as the proxies were clustered."""
    k, d = setting.n_clusters, setting.n_features
    first = index == 1

    def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
        if first and PROJECTED_CENTERS in state.extras:
            labels = nearest_projected(_in_proxy_space(points, state), None, state_extra(state, PROJECTED_CENTERS))
        else:
            labels = nearest_projected(points, None, state.centroids)
        radius = float(state_extra(state, RADIUS)[0])
        found = residual_sums(points, labels, state.centroids, radius, k, drop=not setting.options.clips)
        return [found.sums, found.counts, found.squares]

    def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
        radius, used = float(state_extra(state, RADIUS)[0]), len(state.centroids)
        sums_noise, counts_noise, square_noise = (setting.noise(block) for block in blocks)
        counts = released["counts"][:used]
        steps = shrunk_steps(
            released["residual_sums"][:used] * radius,
            counts,
            sums_noise=sums_noise * radius,
            counts_noise=counts_noise,
            axis_variance=float(state_extra(state, SPREAD)[0]) ** 2 / d,
            least_tau=setting.options.first_least_tau * setting.options.least_tau_falls ** (index - 1),
            radius=radius,
        )
        moved = round_to_grid(truncate(state.centroids + steps))
        square, n = float(released["residual_squares"][0]), setting.n_examples
        if first:
            # The first steps are long: the residuals that remain are those after them.
            lengths = np.square(steps).sum(axis=1) @ np.maximum(counts, 0.0) / max(1.0, float(counts.sum()))
            square -= min(n * float(lengths) / radius**2, 0.9 * max(square, 0.0))
        smaller = next_radius(
            radius,
            square / n,
            square_noise / n,
            width=setting.options.residual_width,
            prior_variance=setting.options.residual_prior_variance,
            floor=_SMALLEST_SHRINKING,
        )
        extras = {name: array for name, array in state.extras.items() if name in (SEED, SPREAD, COST_CURVE)}
        movements = (*state.movements, largest_step(state.centroids, moved))
        return ClusterState(moved, counts, movements, extras | {RADIUS: _radius(smaller)})

    reads = (RADIUS, CENTRE, AXES, PROJECTED_CENTERS) if first else (RADIUS,)
    return PrivateSum(f"refinement-{index}", blocks, statistic, advance, None, reads)


def _clustered(setting: Setting, state: ClusterState, proxies: Array, weights: Array) -> ClusterState:
    """Weighted k-means of the proxies, as centroids in the space of the data."""
    config, extras = setting.public.config, dict(state.extras)
    seed = int(state_extra(state, SEED)[0])
    del extras[PROXIES], extras[PROXY_RADIUS]
    if config.choose_n_clusters:
        costs, found = cost_curve(proxies, weights, config.n_clusters, n_init=config.n_init, seed=seed)
        extras[COST_CURVE], centers = round_to_grid(costs), found[elbow(costs) - 1]
    else:
        centers, _ = weighted_kmeans(proxies, weights, config.n_clusters, n_init=config.n_init, seed=seed)
    centers = round_to_grid(centers)
    if AXES in extras:
        extras[PROJECTED_CENTERS] = centers
        centers = centers @ extras[AXES].T + extras[CENTRE]
    return _started(setting, state, extras, truncate(centers))


def _started(setting: Setting, state: ClusterState, extras: dict[str, Array], centers: Array) -> ClusterState:
    """Centroids to refine, with their first radius."""
    centroids = round_to_grid(centers)
    spread = float(extras[SPREAD][0])
    extras = extras | {
        RADIUS: _radius(setting.options.cluster_clip * spread * len(centroids) ** (-1.0 / setting.n_features))
    }
    return ClusterState(centroids, np.zeros(len(centroids)), state.movements, extras)


def _in_proxy_space(points: Array, state: ClusterState) -> Array:
    """Rows as the proxies see them: projected onto the private axes, or as they are."""
    if AXES not in state.extras:
        return points
    return project(points - state_extra(state, CENTRE), state_extra(state, AXES))


def _inside(points: Array, state: ClusterState) -> Array:
    """Cut points of the whole space to the box; points of a subspace may lie anywhere."""
    return points if AXES in state.extras else truncate(points)


def _proxy_variance(setting: Setting, state: ClusterState, width: int) -> float:
    """Variance of the rows along an axis of the proxies' space."""
    spread = float(state_extra(state, SPREAD)[0])
    if AXES not in state.extras:
        return spread**2 / setting.n_features
    return float(state_extra(state, SUBSPACE_SPREAD)[0]) ** 2 / width


def _radius(value: float) -> Array:
    """A length on the grid, as an array of the state."""
    return round_to_grid(np.array([max(value, _SMALLEST_RADIUS)]))
