"""The private start of ProxyLloyd: location, covariance, passes over proxies.

Every statistic is a sum of vectors of length at most 1: rows, residuals and outer products are divided by their bound
before they are sent. So all sensitivities are 1, also where the bound comes from an earlier release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.feddp_steps import (
    COST_CURVE,
    PROJECTED_CENTERS,
    SEED,
    SERVER_POINTS,
    clustered,
    outer_product_rounding,
    state_extra,
)
from flwr_dpkmeans.algorithms.lloyd_family import cluster_state, counts_sensitivity, largest_step
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart
from flwr_dpkmeans.algorithms.proxy_plan import (
    AXES,
    CENTRE,
    PROXIES,
    PROXY_RADIUS,
    RADIUS,
    SPREAD,
    SUBSPACE_SPREAD,
    Setting,
    admitting,
    as_length,
)
from flwr_dpkmeans.kmeans.assignment import sum_over_blocks
from flwr_dpkmeans.kmeans.projected import (
    nearest_projected,
    outer_product_triangle,
    project,
    server_weight,
    symmetric_from_triangle,
    triangle_size,
)
from flwr_dpkmeans.kmeans.proxies import (
    PRIOR_VARIANCE,
    Ellipsoid,
    axis_variance,
    box_samples,
    ellipsoid_of,
    normal_samples,
    proxy_weights,
    samples_around,
    shrunk_centre,
    tessellation,
)
from flwr_dpkmeans.kmeans.statistics import next_radius, residual_sums, shrunk_steps, unit_residuals
from flwr_dpkmeans.kmeans.update import clip_rows, round_to_grid, truncate
from flwr_dpkmeans.kmeans.weighted import weighted_kmeans
from flwr_dpkmeans.privacy.release import Block, ReleasedSum
from flwr_dpkmeans.sums.round import Array, InitialState, PrivateSum, State

CLIPPED_SQUARE = 0.8
"""Mean squared length, in squared clip bounds, from which on the prior supports the spread."""
LEAST_EXPECTED = 0.25
"""Part of the prior variance that the spread is then at least."""
_JITTER = 0.5
"""Standard deviation of samples around a server point, in sides of a proxy's cell."""


def initial_state(setting: Setting) -> InitialState:
    """Start with the seed, and with the server's points where there are any."""

    def start(seed: int, server_points: Array | None = None, /) -> State:
        extras = {SEED: np.array([float(seed % 2**31)])}
        if server_points is not None:
            extras[SERVER_POINTS] = np.array(server_points)
        nothing = np.zeros((setting.n_clusters, setting.n_features))
        return cluster_state(nothing, np.zeros(setting.n_clusters), (), extras)

    return start


def location_parts(setting: Setting) -> list[ReleasePart]:
    """Describe the mean and the mean square: both of rows divided by their clip bound."""
    return [
        setting.part(
            "row_sums",
            (setting.n_features,),
            setting.options.location_share,
            "S11: one row's difference from the public centre, divided by the location round's clip bound and clipped "
            "to length 1, is in one sum (ProxyLloyd)",
            "mean over its rows",
        ),
        setting.part(
            "row_squares",
            (1,),
            setting.options.squares_share,
            "S11: one row's squared distance from the public centre, divided by the squared clip bound and clipped, is "
            "at most 1 (ProxyLloyd)",
            "mean square over its rows",
            nonnegative=True,
        ),
    ]


def location_round(setting: Setting, blocks: tuple[Block, ...]) -> PrivateSum:
    """Release where the data lie and how far they spread."""
    clip, middle, n, d = setting.reach, setting.middle, setting.n_units, setting.n_features
    # The server's radius takes in nearly all of its points, so it stands for a larger variance than theirs.
    expected = PRIOR_VARIANCE if setting.public.server is None else clip**2 / d

    def statistic(points: Array, state: State) -> Sequence[Array]:
        del state
        found = residual_sums(points, np.zeros(len(points), dtype=np.int32), middle[None, :], clip, 1)
        return setting.sent([found.sums[0], found.squares], len(points), blocks)

    def advance(state: State, released: ReleasedSum) -> State:
        mean_noise, square_noise = (setting.noise(block) / n for block in blocks)
        offset = shrunk_centre(released["row_sums"] * (clip / n), mean_noise * clip)
        square = float(released["row_squares"][0]) * clip**2 / n
        variance = axis_variance(square, square_noise * clip**2, offset, expected)
        # Where nearly all rows are clipped, their lengths are alike and say nothing of the spread.
        clipped = min(max((square / clip**2 - CLIPPED_SQUARE) / (1.0 - CLIPPED_SQUARE), 0.0), 1.0)
        variance = max(variance, clipped * expected * LEAST_EXPECTED)
        known = {name: state.extras[name] for name in (SEED, SERVER_POINTS) if name in state.extras}
        extras = known | {CENTRE: truncate(middle + offset), SPREAD: as_length(math.sqrt(d * variance))}
        return cluster_state(state.centroids, state.counts, state.movements, extras)

    return PrivateSum("location", blocks, statistic, advance)


def covariance_parts(setting: Setting) -> list[ReleasePart]:
    """Describe the outer product of rows of length at most 1: Frobenius norm 1, and the rounding of its sum."""
    size = triangle_size(setting.n_features)
    weight = setting.options.covariance_share
    return [
        setting.part(
            "unit_outer_product",
            (size,),
            weight,
            "S12: one row's difference from the released centre, divided by the radius and clipped to length 1, adds a "
            "matrix of Frobenius norm at most 1, plus one grid step of rounding in each entry (ProxyLloyd)",
            "mean outer product over its rows",
            rounding=outer_product_rounding(size),
        )
    ]


def covariance_round(setting: Setting, blocks: tuple[Block, ...]) -> PrivateSum:
    """Release the data's shape, and spread the first proxies (or centroids) over it."""
    d, n, factor = setting.n_features, setting.n_units, setting.options.covariance_clip

    def clip_of(state: State) -> float:
        return factor * float(state_extra(state, SPREAD)[0])

    def statistic(points: Array, state: State) -> Sequence[Array]:
        centre, clip = state_extra(state, CENTRE), clip_of(state)
        triangle = outer_product_triangle(points, lambda rows: unit_residuals(rows - centre, clip))
        sent = setting.sent([triangle], len(points), blocks)
        return sent if setting.per_client else [round_to_grid(sent[0])]

    def advance(state: State, released: ReleasedSum) -> State:
        clip, noise = clip_of(state), setting.noise(blocks[0]) / n
        matrix = symmetric_from_triangle(released["unit_outer_product"], d) / n
        if SERVER_POINTS in state.extras:
            rows = unit_residuals(state.extras[SERVER_POINTS] - state_extra(state, CENTRE), clip)
            weight, server = server_weight(matrix, rows, noise)
            matrix, noise = (1.0 - weight) * matrix + weight * server, (1.0 - weight) * noise
        found = ellipsoid_of(matrix * clip**2, noise * clip**2, float(state_extra(state, SPREAD)[0]) ** 2 / d)
        kept = cluster_state(state.centroids, state.counts, state.movements, dict(state.extras))
        kept = _with(kept, {SPREAD: as_length(found.spread)})
        return _first_proxies(setting, kept, found) if setting.plan.n_passes else _without_proxies(setting, kept, found)

    reads = (CENTRE, SPREAD)
    return PrivateSum("covariance", blocks, statistic, advance, None, reads, admitting(setting, reads))


def proxy_parts(setting: Setting) -> list[ReleasePart]:
    """Describe a pass: counts of the proxies' cells, and residuals in the proxies' space by cell."""
    width = setting.plan.n_components or setting.n_features
    share, n_proxies = setting.plan.pass_share, setting.plan.n_proxies
    counts = share * setting.options.proxy_counts_share
    return [
        setting.part(
            "proxy_sums",
            (n_proxies, width),
            share - counts,
            "S13: one row's residual from its nearest proxy, divided by the radius and clipped to length 1, is in one "
            "sum (ProxyLloyd)",
            "mean residual over its rows, by nearest proxy",
        ),
        setting.part(
            "proxy_counts",
            (n_proxies,),
            counts,
            "S13: one row is nearest to one proxy (ProxyLloyd)",
            "shares of its rows, by nearest proxy",
            nonnegative=True,
        ),
    ]


def proxy_round(setting: Setting, blocks: tuple[Block, ...], index: int) -> PrivateSum:
    """Move and weigh the proxies; after the last pass, cluster them."""
    n_proxies, options = setting.plan.n_proxies, setting.options

    def statistic(points: Array, state: State) -> Sequence[Array]:
        proxies, radius = state_extra(state, PROXIES), float(state_extra(state, PROXY_RADIUS)[0])

        def summed(part: slice) -> Sequence[Array]:
            rows = in_proxy_space(points[part], state)
            labels = nearest_projected(rows, None, proxies)
            found = residual_sums(rows, labels, proxies, radius, n_proxies, drop=not options.clips)
            return [found.sums, found.counts]

        return setting.sent(sum_over_blocks(summed, len(points), setting.n_features), len(points), blocks)

    def advance(state: State, released: ReleasedSum) -> State:
        proxies, radius = state_extra(state, PROXIES), float(state_extra(state, PROXY_RADIUS)[0])
        sums_noise, counts_noise = (setting.noise(block) for block in blocks)
        width = proxies.shape[1]
        steps = shrunk_steps(
            released["proxy_sums"] * radius,
            released["proxy_counts"],
            sums_noise=sums_noise * radius,
            counts_noise=counts_noise,
            axis_variance=_proxy_variance(setting, state, width),
            least_tau=options.first_least_tau,
            radius=radius,
        )
        moved = round_to_grid(_inside(proxies + steps, state))
        weights = proxy_weights(released["proxy_counts"], counts_noise, options.weight_threshold)
        if index == setting.plan.n_passes:
            return _clustered(setting, state, moved, weights)
        counted = np.where(weights > counts_noise, weights, 0.0)
        generator = setting.generator(state, index)
        samples = samples_around(moved, counted, options.split_width * radius / math.sqrt(width), generator)
        smaller = as_length(options.pass_shrinking * radius)
        redrawn = tessellation(_inside(samples, state), n_proxies, generator)
        return _with(state, {PROXIES: redrawn, PROXY_RADIUS: smaller})

    in_subspace = setting.plan.n_components is not None
    reads = (CENTRE, AXES, PROXIES, PROXY_RADIUS) if in_subspace else (PROXIES, PROXY_RADIUS)
    return PrivateSum(f"proxies-{index}", blocks, statistic, advance, None, reads, admitting(setting, reads))


def in_proxy_space(points: Array, state: State) -> Array:
    """Rows as the proxies see them: projected onto the private axes, or as they are."""
    if AXES not in state.extras:
        return points
    return project(points - state_extra(state, CENTRE), state_extra(state, AXES))


def _first_proxies(setting: Setting, state: State, found: Ellipsoid) -> State:
    """Spread the first proxies over the ellipsoid, and half of them over the server's points if there are any."""
    plan, d, generator = setting.plan, setting.n_features, setting.generator(state, 0)
    centre = state_extra(state, CENTRE)
    extras: dict[str, Array] = {}
    if plan.n_components is None:
        cover = plan.cover_box
        samples = box_samples(centre, found.variances, found.axes, plan.n_proxies, generator, cover_box=cover)
        reach = max(found.spread, math.sqrt(d / 3.0)) if cover else found.spread
    else:
        leading = found.variances[: plan.n_components]
        samples = normal_samples(leading, plan.n_proxies, generator)
        reach = math.sqrt(math.fsum(leading))
        extras |= {AXES: found.axes[:, : plan.n_components], SUBSPACE_SPREAD: as_length(reach)}
    state = _with(state, extras)
    width = samples.shape[1]
    side = reach * plan.n_proxies ** (-1.0 / width)
    if SERVER_POINTS in state.extras:
        known = in_proxy_space(state.extras[SERVER_POINTS], state)
        own = samples_around(known, np.ones(len(known)), _JITTER * side / math.sqrt(width), generator)
        drawn = own[generator.integers(len(own), size=len(samples))]
        samples = np.concatenate([samples, drawn])
    proxies = tessellation(_inside(samples, state), plan.n_proxies, generator)
    return _with(state, {PROXIES: proxies, PROXY_RADIUS: as_length(setting.options.proxy_clip * side)})


def _without_proxies(setting: Setting, state: State, found: Ellipsoid) -> State:
    """First centroids where the budget does not suffice for proxies: from public points, or spread over the data."""
    k, generator = setting.n_clusters, setting.generator(state, 0)
    if SERVER_POINTS in state.extras:
        points, config = state.extras[SERVER_POINTS], setting.public.config
        seed = int(state_extra(state, SEED)[0])
        centers, _ = weighted_kmeans(points, np.ones(len(points)), k, n_init=config.n_init, seed=seed)
        return _started(setting, state, truncate(centers))
    centre = state_extra(state, CENTRE)
    samples = box_samples(centre, found.variances, found.axes, k, generator, cover_box=False)
    return _started(setting, state, truncate(tessellation(samples, k, generator)))


def _clustered(setting: Setting, state: State, proxies: Array, weights: Array) -> State:
    """Weighted k-means of the proxies, as centroids in the space of the data."""
    config, seed = setting.public.config, int(state_extra(state, SEED)[0])
    centers, extras = clustered(config, proxies, weights, seed, logarithmic=True)
    if AXES in state.extras:
        extras[PROJECTED_CENTERS] = centers
        centers = centers @ state.extras[AXES].T + state.extras[CENTRE]
    return _started(setting, _with(state, extras), truncate(centers))


def _started(setting: Setting, state: State, centers: Array) -> State:
    """Centroids to refine, with their first radius; what only proxies needed is left behind."""
    centroids = round_to_grid(centers)
    side = float(state_extra(state, SPREAD)[0]) * len(centroids) ** (-1.0 / setting.n_features)
    kept = {name: array for name, array in state.extras.items() if name not in (PROXIES, PROXY_RADIUS, SERVER_POINTS)}
    extras = kept | {RADIUS: as_length(setting.options.cluster_clip * setting.plan.widening * side)}
    return cluster_state(centroids, np.zeros(len(centroids)), state.movements, extras)


def _with(state: State, changes: dict[str, Array]) -> State:
    """The state with some extras replaced or added."""
    return cluster_state(state.centroids, state.counts, state.movements, dict(state.extras) | changes)


def _inside(points: Array, state: State) -> Array:
    """Cut points to where rows can be: to the box or, in a subspace, to the ball around the centre that holds it."""
    if AXES not in state.extras:
        return truncate(points)
    return clip_rows(points, 2.0 * math.sqrt(len(state.extras[AXES])))


def _proxy_variance(setting: Setting, state: State, width: int) -> float:
    """Variance of the rows along an axis of the proxies' space."""
    in_subspace = AXES in state.extras
    spread = float(state_extra(state, SUBSPACE_SPREAD if in_subspace else SPREAD)[0])
    return spread**2 / (width if in_subspace else setting.n_features)


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
