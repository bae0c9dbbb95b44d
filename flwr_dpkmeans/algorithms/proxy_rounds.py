"""ProxyLloyd: a private start without server data, then Lloyd steps on clipped
residuals with shrunk steps.

One function for each kind of round of the table in `proxy_plan`: location, or look x 3
-> covariance -> proxies x L -> refinement x T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms import kmeans_task, proxy_plan
from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum, private_sums
from flwr_dpkmeans.algorithms.feddp.server_weights import clustered
from flwr_dpkmeans.algorithms.kmeans_task import (
    PROJECTED_CENTERS,
    SEED,
    SERVER_POINTS,
    KMeansTask,
    seed_of,
)
from flwr_dpkmeans.algorithms.measure import COST_CURVE
from flwr_dpkmeans.algorithms.proxy_plan import (
    AVERAGE_COUNTS,
    AXES,
    CENTRE,
    CLIP,
    DISTANCES,
    EXCESS,
    EXTENT,
    PROXIES,
    PROXY_RADIUS,
    RADIUS,
    SHAPE,
    SPREAD,
    SPREAD_ERROR,
    SUBSPACE_SPREAD,
    ProxyOptions,
    Setting,
    as_length,
)
from flwr_dpkmeans.kernels import outer_products
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.projected_labels import nearest_projected
from flwr_dpkmeans.kernels.residual_sums import residual_sums, unit_residuals
from flwr_dpkmeans.kernels.triangles import (
    rounded_triangle,
    symmetric_from_triangle,
    triangle_of,
)
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import are_saturated, unheard_cut
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST, on_grid
from flwr_dpkmeans.kmeans.centre_errors.moved_labels import moved_labels
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import are_faint
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.projected import shrink_to_server
from flwr_dpkmeans.kmeans.proxies.distances import (
    N_DISTANCES,
    distance_bins,
    distance_counts,
    squared_edges,
)
from flwr_dpkmeans.kmeans.proxies.draws import normal_samples
from flwr_dpkmeans.kmeans.proxies.ellipsoid import (
    Ellipsoid,
    ellipsoid_of,
    shrunk_centre,
)
from flwr_dpkmeans.kmeans.proxies.far_samples import far_samples, outside_cube
from flwr_dpkmeans.kmeans.proxies.lone_proxies import (
    LEAST_CLUSTER,
    are_lone,
    heard_among,
    without_lone_rows,
)
from flwr_dpkmeans.kmeans.proxies.noisy_distances import (
    MIDDLE_OF_BIN,
    binned_square,
    farther_if_likelier,
    farthest_heard,
)
from flwr_dpkmeans.kmeans.proxies.refined_samples import samples_around, scattered
from flwr_dpkmeans.kmeans.proxies.samples import box_samples
from flwr_dpkmeans.kmeans.proxies.split_clusters import split_largest
from flwr_dpkmeans.kmeans.proxies.tessellation import at_means, cell_radii, tessellation
from flwr_dpkmeans.kmeans.proxies.variances import (
    PRIOR_SPREAD,
    PRIOR_VARIANCE,
    axis_variance,
    signal_share,
)
from flwr_dpkmeans.kmeans.proxies.weights import (
    expected_rows,
    likely_weights,
    unheard_rows,
)
from flwr_dpkmeans.kmeans.public_points.weighted_lloyd import weighted_kmeans
from flwr_dpkmeans.kmeans.residuals.likely_values import likely_counts
from flwr_dpkmeans.kmeans.residuals.noisy_counts import adding_up, pulled_together
from flwr_dpkmeans.kmeans.residuals.radii import next_radii
from flwr_dpkmeans.kmeans.residuals.shrinkage import shrunk_steps, step_deviations
from flwr_dpkmeans.kmeans.tails import beyond_radius, excess_sums, shell_lengths
from flwr_dpkmeans.privacy.release import PrivacyUnit, ReleasedSum
from flwr_dpkmeans.sums.option_rules import Options, whole
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerData, ServerFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State

# mean squared length, in squared clip bounds, from which on rows are nearly all clipped
CLIPPED_SQUARE = 0.8
LEAST_EXPECTED = (
    0.25  # part of the prior variance that the spread is then at least, by how nearly
)
# standard deviation of samples around a server point, in sides of a proxy's cell
_JITTER = 0.5
_SMALLEST_SHRINKING = 0.05
# mean squared length, in squared clip bounds, from which on it says only that rows lie
# beyond
_MOSTLY_CLIPPED = 0.9
_SAME_PLACE = 4.0
"""A histogram from a centre that moved counts on in bins so many steps away.

Their rows changed at most one bin.
"""
_FEW_BEYOND = 4.0
"""Spreads beyond which at most a sixteenth of the rows lie (Chebyshev).

Proxies are spread thinly there.
"""
_LONE_ROUNDS = 3
# clusters of one row are looked for where an average one has so many times two rows
_SURE = 4.0


@dataclass(frozen=True)
class ProxyLloydOptions(Options):
    """Options of ProxyLloyd; its constants are `ProxyOptions`."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        "number of refinements; automatic: at most 5",
        most=1_000,
    )
    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means on the proxies",
        most=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class ProxyLloydTask(KMeansTask):
    """A private start from proxies, then shrunk Lloyd steps.

    4 + L + T private sums, 2 + L + T if looks see nothing.
    """

    name = "proxy_lloyd"
    units = tuple(PrivacyUnit)
    needs_n_examples = weighs_clients_alike = True
    server_data = ServerData.OPTIONAL
    chooses = True
    options: ProxyLloydOptions = ProxyLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        return build(public)

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so besides where bounds may not be much wider than the data, whose place
        cannot be looked for.
        """
        looks = all(planned.name != "location" for planned in plan.rounds)
        if looks or plan.server is not None or plan.settings.private_bounds:
            return super().cautions(plan)
        return (
            *super().cautions(plan),
            (
                "So much noise on so few rows or clients hides where the data lie in"
                " wide bounds: these may be about twice as wide as the data; give"
                " narrower bounds, raise epsilon or add data."
            ),
        )

    def server_points_words(self, plan: Plan) -> str:
        """The server's points steer the first proxies."""
        has_proxies = any(
            block.name == "proxy_counts"
            for planned in plan.rounds
            for block in planned.blocks
        )
        start = (
            "proxies, half of which are spread over their neighbourhoods and may lie on"
            " them, along directions in which their covariance has a part"
            if has_proxies
            else (
                f"first centroids, the centers of their own {self.n_clusters} clusters,"
                " some of which may be points themselves"
            )
        )
        return (
            "stay on the server; clients see their mean, a radius around it, and"
            f" {start}"
        )


def build(public: PublicFacts, options: ProxyOptions = ProxyOptions()) -> Algorithm:  # noqa: B008
    """All rounds with their noise; N must be known."""
    options = proxy_plan.options_for(public, options)
    plan = proxy_plan.derive_plan(public, options)
    setting = Setting(public, plan, options)
    looks = [look_round(setting, index) for index in range(1, plan.n_looks + 1)]
    rounds = [
        *(looks or [location_round(setting)]),
        covariance_round(setting),
        *(proxy_round(setting, index) for index in range(1, plan.n_passes + 1)),
        *(
            refinement_round(setting, index)
            for index in range(1, len(plan.refinement_shares) + 1)
        ),
    ]

    def initial_state(seed: int, server_points: Array | None = None, /) -> State:
        state = kmeans_task.seeded_state(
            np.zeros((setting.n_clusters, setting.n_features)), seed, server_points
        )
        return state.changed(**before_looks(setting, public.server)) if looks else state

    return Algorithm("proxy_lloyd", private_sums(public, rounds), initial_state)


def _length(state: State, name: str) -> float:
    return float(state[name][0])


def location_round(setting: Setting) -> PlannedSum:
    """Release where the data lie and how far they spread."""
    parts = setting.parts("location", 1.0)
    n, d = setting.public.n_units, setting.n_features
    first = before_looks(setting, setting.public.server)
    middle, clip, expected = (
        first[CENTRE],
        float(first[CLIP][0]),
        float(first[SPREAD][0]) ** 2 / d,
    )

    @setting.summing(parts)
    def statistic(rows: Array, state: State) -> Sequence[Array]:
        found = residual_sums(
            rows,
            np.zeros(len(rows), dtype=np.int32),
            middle[None, :],
            clip,
            1,
        )
        return [found.sums[0], found.squares]

    def advance(state: State, released: ReleasedSum) -> State:
        mean_noise, square_noise = (
            setting.noise(block) / n for block in released.blocks
        )
        offset = shrunk_centre(released["row_sums"] * (clip / n), mean_noise * clip)
        square = float(released["row_squares"][0]) * clip**2 / n
        known = expected, (PRIOR_SPREAD * expected) ** 2
        variance, _ = axis_variance(
            square,
            square_noise * clip**2,
            offset,
            mean_noise * clip,
            *known,
        )
        # Above 0 where nearly all rows are clipped: their lengths are alike and say
        # nothing of the spread.
        clipped = min((square / clip**2 - CLIPPED_SQUARE) / (1.0 - CLIPPED_SQUARE), 1.0)
        variance = max(variance, clipped * expected * LEAST_EXPECTED)
        spread, extent = as_length(math.sqrt(d * variance)), as_length(setting.farthest)
        return state.changed(
            **{CENTRE: truncate(middle + offset), SPREAD: spread, EXTENT: extent}
        )

    return parts, PrivateSum(
        "location",
        (),
        statistic,
        advance,
    )


def before_looks(
    setting: Setting, server: ServerFacts | None = None
) -> dict[str, Array]:
    """What the first look goes on from: the middle of the box or of the server's
    points, and no histogram.
    """
    d = setting.n_features
    middle, spread = np.zeros(d), math.sqrt(d * PRIOR_VARIANCE)
    clip = setting.options.look_clip * spread
    if server is not None:
        # The server's radius takes in nearly all of its points, so it stands for a
        # larger variance than theirs.
        middle, clip = (
            np.asarray(server.centre),
            min(server.data_radius, setting.farthest),
        )
        spread = clip
    return {
        CENTRE: truncate(middle),
        CLIP: as_length(clip),
        SPREAD: as_length(spread),
        EXTENT: as_length(setting.farthest),
        # The root of the standard deviation of the variance along an axis.
        SPREAD_ERROR: as_length(spread * math.sqrt(PRIOR_SPREAD / d)),
        # Average counts, of how many looks, and the noise of one.
        DISTANCES: np.zeros((3, N_DISTANCES)),
    }


def look_round(setting: Setting, index: int) -> PlannedSum:
    """Look at where the data lie and how far they reach, from the centre and at the
    clip bound of the last look.
    """
    parts = setting.parts("look", proxy_plan.look_share(setting.options))
    n, d, options = setting.public.n_units, setting.n_features, setting.options
    edges = squared_edges(d)

    @setting.summing(parts)
    def statistic(rows: Array, state: State) -> Sequence[Array]:
        centre, clip = state[CENTRE], _length(state, CLIP)
        found = residual_sums(
            rows,
            np.zeros(len(rows), dtype=np.int32),
            centre[None, :],
            clip,
            1,
        )
        return [found.sums[0], found.squares, distance_counts(rows, centre)]

    def advance(state: State, released: ReleasedSum) -> State:
        clip, spread = _length(state, CLIP), _length(state, SPREAD)
        mean_noise, square_noise, bin_noise = (
            setting.noise(block) for block in released.blocks
        )
        if (
            index == 1
            and setting.public.server is not None
            and released["row_squares"][0] > CLIPPED_SQUARE * n
        ):
            # The rows are elsewhere than the server's points, which say no more where
            # to look.
            return state.changed(**before_looks(setting))
        error = mean_noise * clip / n
        offset = shrunk_centre(released["row_sums"] * (clip / n), error)
        moved = math.sqrt(math.fsum(np.square(offset)))
        averages, looks, _ = state[DISTANCES]
        averages = round_to_grid(
            averages + (released["row_distances"] - averages) / (looks + 1.0)
        )
        noise = bin_noise / np.sqrt(looks + 1.0)
        first = farthest_heard(averages / noise, options.heard)
        first = farther_if_likelier(
            first,
            averages,
            noise,
            n,
        )
        square, own = (
            float(released["row_squares"][0]) * clip**2 / n,
            square_noise * clip**2 / n,
        )
        binned, binned_own = binned_square(
            averages[first:],
            noise[first:],
            edges[first:],
            n,
        )
        # Either may miss rows: a histogram those that it did not hear, of which a mean
        # square beyond its noise tells.
        agrees = square - binned <= math.hypot(own, binned_own)
        if agrees and (square > _MOSTLY_CLIPPED * clip**2 or binned_own < own):
            square, own = binned, binned_own
        else:
            # Of rows beyond the clip bound, the mean square knows the bound only.
            excess = np.maximum(edges[first:] - clip**2 / MIDDLE_OF_BIN, 0.0)
            beyond, beyond_own = binned_square(
                averages[first:],
                noise[first:],
                excess,
                n,
            )
            if beyond > options.heard * beyond_own:
                square, own = square + beyond, math.hypot(own, beyond_own)
        known = spread**2 / d, _length(state, SPREAD_ERROR) ** 4
        variance, trusted = axis_variance(
            square,
            own,
            offset,
            error,
            *known,
        )
        spread = math.sqrt(d * variance)
        looks = np.where(edges > (_SAME_PLACE * moved) ** 2, looks + 1.0, 0.0)
        return state.changed(
            **{
                CENTRE: truncate(state[CENTRE] + offset),
                CLIP: as_length(
                    min(clip, options.look_clip * spread + 2.0 * error * math.sqrt(d))
                ),
                SPREAD: as_length(spread),
                EXTENT: as_length(
                    min(math.sqrt(float(edges[first])) + moved, setting.farthest)
                ),
                SPREAD_ERROR: as_length(trusted**0.25),
                DISTANCES: np.stack(
                    [averages, looks, round_to_grid(np.full(len(looks), bin_noise))]
                ),
            }
        )

    reads = (CENTRE, CLIP)
    return parts, PrivateSum(
        f"look-{index}",
        (),
        statistic,
        advance,
        None,
        reads,
        setting.admitting(reads),
    )


def covariance_round(setting: Setting) -> PlannedSum:
    """Release the data's shape, and spread the first proxies (or centroids) over it."""
    parts = setting.parts("covariance")
    d, n, factor = setting.n_features, setting.public.n_units, setting.options.clip

    def summed(points: Array, state: State) -> Sequence[Array]:
        centre, clip = state[CENTRE], factor * _length(state, SPREAD)
        return [
            outer_products.outer_product_sums(
                points, lambda rows: unit_residuals(rows - centre, clip)
            )
        ]

    def statistic(points: Array, state: State) -> Sequence[Array]:
        triangle = triangle_of(*summed(points, state))
        return (
            setting.sent([triangle], len(points), parts)
            if setting.per_client
            else [round_to_grid(triangle)]
        )

    def advance(state: State, released: ReleasedSum) -> State:
        spread, noise = _length(state, SPREAD), setting.noise(released.blocks[0]) / n
        clip = factor * spread
        matrix = symmetric_from_triangle(released["unit_outer_product"], d) / n
        if SERVER_POINTS in state.arrays:
            rows = unit_residuals(state[SERVER_POINTS] - state[CENTRE], clip)
            matrix, noise = shrink_to_server(matrix, rows, noise)
        found = ellipsoid_of(matrix * clip**2, noise * clip**2, spread**2 / d)
        start = _first_proxies if setting.plan.n_passes else without_proxies
        return start(setting, state.changed(**{SPREAD: as_length(found.spread)}), found)

    reads, exact = (CENTRE, SPREAD), (summed, rounded_triangle)
    admits = setting.admitting(reads)
    return parts, PrivateSum(
        "covariance",
        (),
        statistic,
        advance,
        None,
        reads,
        admits,
        unrounded=exact,
    )


def _first_proxies(
    setting: Setting,
    state: State,
    found: Ellipsoid,
) -> State:
    """Spread the first proxies over the ellipsoid, and half of them over the server's
    points if there are any.
    """
    plan, d, generator = setting.plan, setting.n_features, setting.generator(state, 0)
    centre, extent = (
        state[CENTRE],
        min(_length(state, EXTENT), _FEW_BEYOND * found.spread),
    )
    if plan.n_components is None:
        cover = extent if plan.cover_box else None
        samples = box_samples(
            centre,
            found.variances,
            found.axes,
            plan.n_proxies,
            generator,
            cover=cover,
        )
        reach = (
            max(found.spread, min(1.0, extent) * math.sqrt(d / 3.0))
            if plan.cover_box
            else found.spread
        )
    else:
        leading = found.variances[: plan.n_components]
        samples = normal_samples(leading, plan.n_proxies, generator)
        reach = math.sqrt(math.fsum(leading))
        state = state.changed(
            **{
                AXES: found.axes[:, : plan.n_components],
                SUBSPACE_SPREAD: as_length(reach),
            }
        )
    width = samples.shape[1]
    side = reach * plan.n_proxies ** (-1.0 / width)
    if SERVER_POINTS in state.arrays:
        known = in_proxy_space(state[SERVER_POINTS], state)
        own = samples_around(
            known,
            np.ones(len(known)),
            _JITTER * side / math.sqrt(width),
            generator,
        )
        drawn = own[generator.integers(len(own), size=len(samples))]
        samples = np.concatenate([samples, drawn])
    # A cube of that half width around a centre near a wall leaves out the box's other
    # side, however wide it is.
    sides = (np.minimum(centre + extent, 1.0) - np.maximum(centre - extent, -1.0)) / 2.0
    n_far = (
        int(
            setting.options.far_share
            * (1.0 - math.prod(sides.tolist()))
            * plan.n_proxies
        )
        if plan.cover_box
        else 0
    )
    proxies = tessellation(_inside(samples, state), plan.n_proxies - n_far, generator)
    radii = np.full(plan.n_proxies, float(as_length(setting.options.clip * side)[0]))
    if n_far:
        # Rows too few to be heard at their distance may still be heard at their place;
        # cells are wide there.
        far = far_samples(
            centre,
            extent,
            plan.n_proxies,
            generator,
        )
        own = outside_cube(
            tessellation(far, n_far, generator),
            far,
            centre,
            extent,
        )
        proxies = np.concatenate([proxies, own])
        radii[-n_far:] = np.maximum(radii[-n_far:], cell_radii(far, own))
    proxies = _at_known_points(proxies, state)
    if plan.n_passes > 1:
        # Deviations along the axes of the space that proxies live in, above these.
        axes = found.axes if plan.n_components is None else np.eye(width)
        state = state.changed(
            **{SHAPE: np.vstack([as_length(np.sqrt(found.variances[:width])), axes])}
        )
    return state.changed(
        **{PROXIES: proxies, PROXY_RADIUS: radii, EXTENT: as_length(extent)}
    )


def _at_known_points(proxies: Array, state: State) -> Array:
    """Move each proxy to the mean of the server's points that it is nearest to, where
    there are any.
    """
    if SERVER_POINTS not in state.arrays:
        return proxies
    return at_means(proxies, in_proxy_space(state[SERVER_POINTS], state))


def _heard_weights(
    setting: Setting,
    state: State,
    counts: Array,
    noise: float,
) -> Array:
    """Weights of proxies from their noisy counts alone.

    Those that rows are less likely to be at are weighed apart.
    """
    proxies, weights = state[PROXIES], np.zeros(len(counts))
    apart = _beyond(setting, state, proxies)
    # With one pass, a small cluster may be heard by one proxy.
    if setting.plan.n_passes > 1:
        apart = apart | are_lone(
            proxies,
            counts / noise,
            state[PROXY_RADIUS],
            setting.options.heard,
        )
    for part in (apart, ~apart):
        weights[part] = _likely_weights(setting, counts[part], noise)
    if setting.plan.n_passes == 1:
        # Nobody looks again, and so far away a few rows of noise outweigh whole
        # clusters.
        very_far = _beyond(
            setting,
            state,
            proxies,
            2.0,
        )
        weights[very_far & (counts <= heard_among(int(very_far.sum())) * noise)] = 0.0
    return weights


def _beyond(
    setting: Setting,
    state: State,
    points: Array,
    times: float = 1.0,
) -> NDArray[np.bool_]:
    """Which points are so many times as far from the centre, along a column, as where
    proxies lie densely.
    """
    if setting.in_subspace:
        return np.zeros(len(points), dtype=np.bool_)
    return np.asarray(
        np.abs(points - state[CENTRE]).max(axis=1) > times * _length(state, EXTENT)
    )


def _likely_weights(
    setting: Setting,
    counts: Array,
    noise: float,
) -> Array:
    if not setting.options.weighs_likely:
        return np.maximum(counts, 0.0)
    return likely_weights(
        counts,
        noise,
        setting.public.n_units,
        least=setting.options.least_count,
    )


def with_server_points(
    setting: Setting,
    state: State,
    moved: Array,
    counts: Array,
    std: float,
) -> tuple[Array, Array]:
    """Points to cluster and their weights: the server's own in the place of proxies
    that have some.

    A proxy's noisy count is averaged by precision with the number of rows that the
    server's points stand for, which is worth as much as it agrees with all counts; its
    points share what is likely then, and move as the proxy does.
    """
    proxies = state[PROXIES]
    known = in_proxy_space(state[SERVER_POINTS], state)
    labels = nearest_centroids(known, proxies)[0]
    n_known = np.bincount(labels, minlength=len(proxies))
    has_known = n_known > 0
    expected = n_known[has_known] * (setting.public.n_units / len(known))
    more = counts[has_known] - expected
    trusted = signal_share(math.fsum(np.square(more)) / len(more), std)
    both = expected + trusted * more
    # Points that are unlike the rows may stand for none, where an average proxy's rows
    # are to be told from none.
    if trusted > 0.0 and expected.mean() >= setting.options.least_count * std:
        both = _likely_weights(setting, both, math.sqrt(trusted) * std)
    each = np.zeros(len(proxies))
    each[has_known] = round_to_grid(np.maximum(both, 0.0) / n_known[has_known])
    others = state.changed(
        **{name: state[name][~has_known] for name in (PROXIES, PROXY_RADIUS)}
    )
    elsewhere = _heard_weights(
        setting,
        others,
        counts[~has_known],
        std,
    )
    points = np.concatenate([known + (moved - proxies)[labels], moved[~has_known]])
    return _inside(points, state), np.concatenate([each[labels], elsewhere])


def without_proxies(
    setting: Setting,
    state: State,
    found: Ellipsoid,
) -> State:
    """First centroids where the budget does not suffice for proxies.

    From public points, or spread over the data.
    """
    k, generator = setting.n_clusters, setting.generator(state, 0)
    if SERVER_POINTS in state.arrays:
        points, n_init = state[SERVER_POINTS], setting.public.options.n_init
        centers, _ = weighted_kmeans(
            points,
            np.ones(len(points)),
            k,
            n_init=n_init,
            seed=seed_of(state),
        )
        return _started(setting, state, truncate(centers))
    samples = box_samples(
        state[CENTRE],
        found.variances,
        found.axes,
        k,
        generator,
        cover=None,
    )
    return _started(setting, state, truncate(tessellation(samples, k, generator)))


def proxy_round(setting: Setting, index: int) -> PlannedSum:
    """Move and weigh the proxies; after the last pass, cluster them."""
    parts = setting.parts("proxies", setting.plan.pass_share)
    n_proxies, options = setting.plan.n_proxies, setting.options

    @setting.summing(parts)
    def statistic(points: Array, state: State) -> Sequence[Array]:
        rows, proxies = in_proxy_space(points, state), state[PROXIES]
        labels = nearest_projected(rows, None, proxies)
        found = residual_sums(
            rows,
            labels,
            proxies,
            state[PROXY_RADIUS],
            n_proxies,
            drop=not options.clips,
        )
        return [found.sums, found.counts]

    def advance(state: State, released: ReleasedSum) -> State:
        proxies, radii = state[PROXIES], state[PROXY_RADIUS]
        radius, n = float(radii.min()), setting.public.n_units
        sums_noise, counts_noise = (setting.noise(block) for block in released.blocks)
        width = proxies.shape[1]
        steps = shrunk_steps(
            released["proxy_sums"] * radius,
            released["proxy_counts"],
            sums_noise=sums_noise * radius,
            counts_noise=counts_noise,
            axis_variance=_length(
                state, SUBSPACE_SPREAD if AXES in state.arrays else SPREAD
            )
            ** 2
            / width,
            least_tau=options.least_tau,
            radius=radius,
        )
        # In its own radii a step is as likely far away, where cells are wide, as it is
        # among the rows.
        moved = round_to_grid(
            _inside(proxies + steps * (radii / radius)[:, None], state)
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
            weights = _heard_weights(
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
            return _clustered(
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
            return _clustered(
                setting,
                state,
                _inside(points, state),
                shares,
            )
        within = Ellipsoid(np.square(state[SHAPE][0]), state[SHAPE][1:])
        # Few rows of a wide cell far away stand out together, and not in parts.
        whole = _beyond(setting, state, moved)
        samples = samples_around(
            moved,
            weights,
            widths,
            generator,
            within,
            whole,
        )
        redrawn = _at_known_points(
            tessellation(_inside(samples, state), n_proxies, generator), state
        )
        # Noise may have moved one of a wide cell far away to where rows are.
        radii = np.where(
            _beyond(setting, state, redrawn),
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


def in_proxy_space(points: Array, state: State) -> Array:
    """Rows as the proxies see them: projected onto the private axes, or as they are."""
    if AXES not in state.arrays:
        return points
    # Exact, so that the centre can be taken off what has fewer columns.
    axes = state[AXES]
    return round_to_grid(points @ axes - state[CENTRE] @ axes)


def _inside(points: Array, state: State) -> Array:
    """Cut points to where rows can be: to the box or, in a subspace, to the ball around
    the centre that holds it.
    """
    if AXES not in state.arrays:
        return truncate(points)
    return clip_rows(points, 2.0 * math.sqrt(len(state[AXES])))


def _clustered(
    setting: Setting,
    state: State,
    proxies: Array,
    weights: Array,
) -> State:
    """Weighted k-means of the proxies, as centroids in the space of the data.

    Again without clusters of one row.
    """
    config = setting.public.config
    centers, extras = clustered(
        config,
        proxies,
        weights,
        seed_of(state),
        n_features=setting.n_features,
    )
    is_sure = setting.public.n_units >= _SURE * LEAST_CLUSTER * setting.n_clusters
    # The server's own points may be centers, and a choice of k has seen all weights.
    doubts = (
        is_sure and not config.choose_n_clusters and SERVER_POINTS not in state.arrays
    )
    for _ in range(_LONE_ROUNDS if doubts else 0):
        kept = without_lone_rows(weights, nearest_centroids(proxies, centers)[0])
        if np.array_equal(kept, weights):
            break
        weights = kept
        centers, extras = clustered(
            config,
            proxies,
            weights,
            seed_of(state),
        )
    if AXES in state.arrays:
        extras[PROJECTED_CENTERS] = centers
        centers = centers @ state[AXES].T + state[CENTRE]
    return _started(setting, state.changed(**extras), truncate(centers))


def _started(
    setting: Setting,
    state: State,
    centers: Array,
) -> State:
    """Centroids to refine, with their first radius.

    What only proxies needed is left behind.
    """
    centroids = round_to_grid(centers)
    side = _length(state, SPREAD) * len(centroids) ** (-1.0 / setting.n_features)
    radius = min(
        setting.options.cluster_clip * setting.plan.widening * side, setting.farthest
    )
    kept = state.view(
        state.arrays.keys()
        - {
            PROXIES,
            PROXY_RADIUS,
            SHAPE,
            SERVER_POINTS,
            CLIP,
            EXTENT,
            SPREAD_ERROR,
            DISTANCES,
        }
    )
    return kept.changed(
        centroids=centroids,
        counts=np.zeros(len(centroids)),
        **{RADIUS: as_length(np.full(setting.n_radii, radius))},
    )


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
            radii, lengths = _shells(setting, state)
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
            "axis_variance": _length(state, SPREAD) ** 2 / d,
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
            more, cut = _cut_off(
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
            moved, average = _without_empty_clusters(
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
        after = kmeans_task.stepped(kept, moved, counts).changed(
            **{RADIUS: as_length(following), AVERAGE_COUNTS: round_to_grid(average)}
        )
        if setting.per_client:
            return after
        faint = are_faint(average, counts_noise / math.sqrt(index))
        cut = np.where(faint[:, None], WIDEST, cut)
        deviations = _centre_deviations(
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


def _shells(setting: Setting, state: State) -> tuple[Array, Array]:
    """Radius, (k,), and lengths of shells, (k, n_shells), of the clusters that there
    are.
    """
    radii = np.resize(state[RADIUS], len(state.centroids))
    return radii, shell_lengths(radii, setting.plan.n_shells, setting.farthest)


def _cut_off(
    setting: Setting,
    state: State,
    released: ReleasedSum,
    counts: Array,
    fullness: Array,
) -> tuple[Array, Array]:
    """What the pulled residuals lack, (k, d), and its deviation.

    `fullness` is the root mean square of these residuals, in radii, (k,).
    """
    block = next(block for block in released.blocks if block.name == EXCESS)
    _, lengths = _shells(setting, state)
    sums = released[EXCESS][: len(lengths)].reshape(*lengths.shape, setting.n_features)
    return beyond_radius(
        sums,
        lengths,
        counts,
        setting.noise(block),
        fullness,
    )


def _centre_deviations(
    before: Array,
    after: Array,
    of_steps: Array,
    mean_squares: Array,
    cut: Array,
) -> Array:
    """How far the new centres may be from the means of the rows that they label, (k,
    d), on the grid.

    `of_steps` is what noise leaves unsure, `mean_squares`, (k,), are those of the
    clipped residuals.
    """
    moved = moved_labels(before, after, mean_squares / before.shape[1])
    return on_grid(of_steps, cut, moved)


def _without_empty_clusters(
    setting: Setting,
    centroids: Array,
    average: Array,
    radii: Array,
    noise: float,
    total: float,
    mean_squares: Array,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Centroids that likely have no rows, each beside the one that costs most.

    With the average counts that go with it.

    `noise` is that of the average counts, `total` the sum of all squared residuals;
    both halves get the radius.
    """
    n, least = setting.public.n_units, setting.options.least_count
    if n < least * noise * len(centroids):
        # An average cluster is not to be told from none.
        return centroids, average
    (likely, missing), average = (
        expected_rows(average, noise, n),
        average.copy(),
    )
    # Noise far below an average cluster hardly made the proxies believe in rows: what
    # looks empty is few rows far away.
    missing *= noise * len(centroids) > setting.options.unsure_noise * n
    while split := split_largest(
        centroids,
        likely,
        missing,
        mean_squares,
        total,
        generator,
    ):
        centroids, empty, largest = split
        missing[[empty, largest]] = 0.0
        for counts in (likely, average):
            counts[[empty, largest]] = counts[largest] / 2.0
        for of_whole in (radii, mean_squares):
            of_whole[empty] = of_whole[largest]
    return round_to_grid(truncate(centroids)), average
