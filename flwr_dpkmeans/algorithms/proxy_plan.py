"""ProxyLloyd's rounds in one table, its constants, and the public numbers that follow
from them before any release.

Every statistic is a sum of vectors of length at most 1: rows, residuals and outer
products are divided by their radius before they are sent, so that all L2 sensitivities
are 1 (and the rounding of a sum), whatever an earlier release or a hostile server made
the radius. Client level: every client adds the mean over its rows of the same vectors,
clipped. Pictures and reasons: ``docs/explanation/proxy_lloyd.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_rounding
from flwr_dpkmeans.algorithms.kmeans_task import (
    is_near,
    is_projection,
    is_table,
    seed_of,
)
from flwr_dpkmeans.algorithms.lloyd_family.count_sensitivities import counts_sensitivity
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.outer_products import triangle_size
from flwr_dpkmeans.kernels.vector_clipping import clip_vector
from flwr_dpkmeans.kmeans.proxies.distances import N_DISTANCES
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, State

Statistic = Callable[[Array, State], Sequence[Array]]


@dataclass(frozen=True)
class Summed:
    """One array that a round releases."""

    name: str
    shape: Callable[[Setting], tuple[int, ...]]
    share: Callable[[ProxyOptions, float], float]
    """Of the squared-GDP budget, from the constants and, where rounds of a kind are
    repeated, this one's share.
    """
    one_row: str
    """Why one row adds a vector of length at most 1, with the row of the proof table.
    """
    one_client: str
    """What one client sends instead: a mean of such vectors."""
    client_bound: Callable[[int, int], float] = lambda *_: 1.0
    """Norm that it is clipped to, at most 1, from a client's rows n and k.

    ``proxy_lloyd.md`` says why.
    """
    nonnegative: bool = False
    sum_is_rounded: bool = False
    """Whether a client rounds its sum and not each row's vector, which adds a grid step
    in each entry.
    """


EXCESS = "excess_sums"
_LOCATION = (
    Summed(
        "row_sums",
        lambda run: (run.n_features,),
        lambda options, whole: whole * options.location_share,
        "S11: one row's difference from a public or released centre, divided by the"
        " clip bound and clipped to length 1, is in one sum (ProxyLloyd)",
        "mean over its rows",
    ),
    Summed(
        "row_squares",
        lambda _: (1,),
        lambda options, whole: whole * options.squares_share,
        "S11: one row's squared distance from that centre, divided by the squared clip"
        " bound and clipped, is at most 1 (ProxyLloyd)",
        "mean square over its rows",
        nonnegative=True,
    ),
)
ROUNDS: Mapping[str, tuple[Summed, ...]] = MappingProxyType(
    {
        # 1. Where the data lie and how far they spread: one round, or three looks, each
        # closer than the last.
        "location": _LOCATION,
        "look": (
            *_LOCATION,
            Summed(
                "row_distances",
                lambda _: (N_DISTANCES,),
                lambda options, whole: (
                    whole
                    * options.distances_share
                    * (options.location_share + options.squares_share)
                ),
                "S11: one row has one distance from the released centre, so it is in"
                " one bin (ProxyLloyd)",
                "shares of its rows, by distance",
                nonnegative=True,
            ),
        ),
        # Then which shape they have: the ellipsoid that the first proxies are spread
        # over.
        "covariance": (
            Summed(
                "unit_outer_product",
                lambda run: (triangle_size(run.n_features),),
                lambda options, _: options.location_share,
                "S12: one row's difference from the released centre, divided by the"
                " radius and clipped to length 1, adds a matrix of Frobenius norm at"
                " most 1, plus one grid step of rounding in each entry (ProxyLloyd)",
                "mean outer product over its rows",
                lambda n, _: 2.0 / math.sqrt(n),
                sum_is_rounded=True,
            ),
        ),
        # Then L passes. Where rows are: the proxies move to them, and counts weigh
        # them.
        "proxies": (
            Summed(
                "proxy_sums",
                lambda run: (
                    run.plan.n_proxies,
                    run.plan.n_components or run.n_features,
                ),
                lambda options, whole: whole - whole * options.proxy_counts_share,
                "S13: one row's residual from its nearest proxy, divided by the radius"
                " and clipped to length 1, is in one sum (ProxyLloyd)",
                "mean residual over its rows, by nearest proxy",
                lambda n, _: 1.0 / math.sqrt(n),
            ),
            Summed(
                "proxy_counts",
                lambda run: (run.plan.n_proxies,),
                lambda options, whole: whole * options.proxy_counts_share,
                "S13: one row is nearest to one proxy (ProxyLloyd)",
                "shares of its rows, by nearest proxy",
                lambda n, k: math.sqrt(1.0 / n + 1.0 / k),
                nonnegative=True,
            ),
        ),
        # Then T refinements. Lloyd steps on residuals, whose radius falls with their
        # mean square.
        "refinement": (
            Summed(
                "residual_sums",
                lambda run: (run.n_clusters, run.n_features),
                lambda options, whole: (
                    whole * (1.0 - options.counts_share - options.residual_share)
                ),
                "S14: one row's residual from its nearest centroid, divided by the"
                " radius and clipped to length 1, is in one sum (ProxyLloyd)",
                "mean residual over its rows, by cluster",
                lambda n, _: 1.0 / math.sqrt(n),
            ),
            Summed(
                "counts",
                lambda run: (run.n_clusters,),
                lambda options, whole: whole * options.counts_share,
                counts_sensitivity().because,
                "shares of its rows, by cluster",
                lambda n, k: math.sqrt(1.0 / n + 1.0 / k),
                nonnegative=True,
            ),
            Summed(
                "residual_squares",
                lambda run: (run.n_radii,),
                lambda options, whole: whole * options.residual_share,
                "S14: one row's squared residual in radii, clipped, is at most 1, in"
                " one entry (ProxyLloyd)",
                "mean squared residual over its rows, by cluster where each has a"
                " radius",
                nonnegative=True,
            ),
        ),
        # The last one also releases what it clips, which would bias the result.
        "excess": (
            Summed(
                EXCESS,
                lambda run: (run.n_clusters, run.plan.n_shells * run.n_features),
                lambda options, whole: whole,
                "S35: what is beyond the radius of one row's residual, divided by the"
                " length of its shell and clipped to length 1, is in one sum"
                " (ProxyLloyd)",
                "mean excess over its rows, by cluster and shell",
            ),
        ),
    }
)
"""What each kind of round releases: shapes, shares of the budget, and why nothing moves
by more than its bound.
"""


@dataclass(frozen=True)
class ProxyOptions:
    """The constants, whose reasons stand in ``proxy_lloyd.md``.

    `simulations.papers.proxy.ablation` changes one at a time.
    """

    # of the squared-GDP budget, for the mean; and as much for the outer product
    location_share: float = 0.05
    squares_share: float = 0.01  # for the mean squared length
    looks: int = 3
    least_zoom: float = (
        5.0  # how far in the first look must be able to see to have any (`derive_plan`)
    )
    distances_share: float = (
        0.25  # for a look's histogram of distances, beside its two others
    )
    heard: float = (
        3.0  # counts of a bin of distances are heard from so many deviations on
    )
    look_clip: float = 1.5  # clip bound of a look, in spreads as far as known
    # clip bounds of centred rows, in spreads, and of proxies, in sides of a cell,
    # spread * k'^(-1/r)
    clip: float = 1.2
    seeding_share: float = 0.35  # for all passes over proxies together
    proxy_counts_share: float = 0.6  # of a pass, for counts
    # of a refinement, for counts; and for residuals' mean square: 0 keeps the radius
    counts_share: float = 0.1
    residual_share: float = 0.03
    rows_per_proxy: float = (
        3.5  # on average, in standard deviations of the noise on a count
    )
    few_proxies: float = 2.5  # up to so many per cluster may have `least_count` instead
    most_proxies: int = (
        200  # or as many as there may be per cluster, where these are more
    )
    proxies_per_cluster: int = 8
    # from which on they are spread over all of the box too, and better heard twice
    proxies_per_column: float = 12.5
    most_direct_features: int = 8  # up to here proxies are spread over the box itself
    # directions of the private covariance that the proxies of wider tables live in
    most_components: int = 12
    subspace_passes: int = 3
    refinements: int = 5  # T; one less for each pass beyond the second
    cluster_clip: float = 0.8  # in sides of a cluster's cell, spread * k^(-1/d)
    # of the mean square around what the radius was chosen for, in squared radii
    residual_prior_variance: float = 0.06
    # radius of a pass over that of the one before; and how widely its proxies lie
    # around
    pass_shrinking: float = 0.8
    # up to here rows of few proxies are spread over their cells; 0: they lie on them
    most_scattered_features: int = 5
    least_count: float = (
        2.0  # of a proxy that has rows, or of all proxies, in deviations of their noise
    )
    # on a count, in average clusters: from here on proxies may be believed in falsely
    unsure_noise: float = 0.1
    # part of the proxies beyond the farthest rows heard, where these do not fill the
    # box
    far_share: float = 0.2
    least_tau: float = (
        0.25  # smallest variance of a first step; in refinement t, its power 2 t - 1
    )
    audible_noise: float = (
        0.02  # on a centroid, in radii: what it falls short of this widens them
    )
    clips: bool = (
        True  # residuals beyond the radius; False drops them, as FastLloyd does
    )
    # proxies by posterior means of their counts; False: by noisy counts above 0
    weighs_likely: bool = True
    # the weight of rows heard far away, but at no proxy, in the next pass; 0: no weight
    unheard_times: float = 3.0
    adds_up: bool = True  # makes counts of refinements add up to all rows
    # counts of refinements toward their mean, by what noise explains of their scatter
    pulls: bool = True
    # share of the last refinement, whose steps nothing mends, in those of the others
    last_weight: float = 2.0
    n_shells: int = 5  # of what the last refinement clips; 0: it is not released
    excess_share: float = 0.4  # of the last refinement, for them
    audible_excess: float = (
        0.03  # noise on a centroid, in radii, from which on they say nothing
    )
    most_excess: int = 1 << 16  # entries of theirs, from which on they are not released
    # columns from which on they are not released: residuals are nearly alike in length,
    # and the share that shells take from the sums costs more than tails do
    most_excess_features: int = 64
    splits: bool = True  # the largest cluster by a centroid that likely has no rows


def client_bounds(config: RunConfig) -> dict[str, float]:
    """Clip bounds of one client's means of vectors of length at most 1, by name of the
    array; above 0, at most 1.

    A client beyond a bound is scaled down: its direction is kept.
    """
    n, k = config.settings.examples_per_client, config.n_clusters
    arrays = [one for released in ROUNDS.values() for one in released]
    return {
        one.name: float(f"{min(1.0, one.client_bound(n, k)):.12g}") for one in arrays
    }


def options_for(public: PublicFacts, options: ProxyOptions) -> ProxyOptions:
    """The options as they are, or beside points of a server without the rule for few
    proxies, if there are enough.
    """
    if public.server is None or public.server.n_points == 0:
        return options
    found = replace(options, few_proxies=0.0)
    # The points may miss clusters, which only proxies show.
    return found if _proxies(public, found)[1] >= _least_proxies(public) else options


@dataclass(frozen=True)
class ProxyPlan:
    """Public numbers of a run."""

    n_proxies: int
    """k'; 0 where proxies are skipped."""
    n_passes: int
    """Releases over proxies; 0 where proxies are skipped."""
    n_components: int | None
    """Dimension of the subspace that proxies live in; None: the whole space."""
    refinement_shares: tuple[float, ...]
    pass_share: float
    cover_box: bool
    widening: float = 1.0
    """Factor on the refinements' radii, at least 1."""
    n_shells: int = 0
    """Shells of what the last refinement clips; 0: not released."""
    n_looks: int = 0
    """Looks at where the data lie; 0: one round at a fixed clip bound instead."""


def derive_plan(public: PublicFacts, options: ProxyOptions) -> ProxyPlan:
    """Derive a run's numbers from N, d, k, epsilon and delta.

    Too few proxies to choose k from are a `PlanError`.
    """
    config, d, k = public.config, public.n_features, public.config.n_clusters
    n_components = (
        None
        if d <= options.most_direct_features
        else min(d, options.most_components, max(2, k - 1))
    )
    n_passes, n_proxies = _proxies(public, options)
    if n_proxies < _least_proxies(public):
        if config.choose_n_clusters:
            raise PlanError(
                f"n_clusters='auto' needs at least {_least_proxies(public)} proxies to"
                f" look for up to {k} clusters, but the budget allows {n_proxies}: give"
                " n_clusters, or raise epsilon or lower max_clusters."
            )
        n_passes = n_proxies = 0
    sigma, bounds = _noise_multiplier(public), _bounds(public)
    before = 0.0
    for one in (*ROUNDS["location"], *ROUNDS["covariance"]):
        before += one.share(options, 1.0)
    before += options.seeding_share if n_passes else 0.0
    noise = (
        bounds.get("residual_sums", 1.0)
        * sigma
        * math.sqrt(d)
        * k
        / (public.n_units * math.sqrt(1.0 - before))
    )
    widening = max(1.0, (options.audible_noise / noise) ** (1.0 / 3.0))
    n_refinements = public.options.max_iter
    if n_refinements is None:
        n_refinements = options.refinements - max(0, n_passes - 2)
    zoom = (
        public.n_units
        * math.sqrt(look_share(options) * options.location_share / d)
        / sigma
    )
    return ProxyPlan(
        n_proxies=n_proxies,
        n_passes=n_passes,
        n_components=n_components,
        refinement_shares=_refinement_shares(options, 1.0 - before, n_refinements),
        n_shells=_shells(public, options, noise),
        pass_share=options.seeding_share / max(1, n_passes),
        cover_box=n_components is None and n_proxies >= options.proxies_per_column * d,
        widening=float(f"{widening:.12g}"),
        n_looks=options.looks if zoom >= options.least_zoom else 0,
    )


def _refinement_shares(
    options: ProxyOptions,
    whole: float,
    n_refinements: int,
) -> tuple[float, ...]:
    """Share the rest of the budget among the refinements."""
    if n_refinements == 0:
        return ()
    n_others = n_refinements - 1
    share = whole / (n_others + options.last_weight)
    return (share,) * n_others + (options.last_weight * share,)


def _shells(
    public: PublicFacts,
    options: ProxyOptions,
    noise: float,
) -> int:
    """Shells of the excess that the last refinement releases.

    0 where noise hides it, or a client is protected.
    """
    size = public.config.n_clusters * public.n_features * options.n_shells
    is_small = size <= options.most_excess
    is_narrow = public.n_features <= options.most_excess_features
    is_heard = noise <= options.audible_excess and is_small and is_narrow
    by_record = public.config.settings.unit is PrivacyUnit.RECORD
    return options.n_shells if is_heard and by_record else 0


def look_share(options: ProxyOptions) -> float:
    """Part of a single location round's shares that the mean and the mean square of one
    look have.
    """
    return 1.0 / (options.looks * (1.0 + options.distances_share))


def _noise_multiplier(public: PublicFacts) -> float:
    """Of one release that has the whole budget."""
    return (
        gaussian_noise_multiplier(public.config.settings.epsilon, public.delta)
        * public.noise_factor
    )


def _bounds(public: PublicFacts) -> dict[str, float]:
    """Clip bounds by name of the array; those that are not named are 1."""
    return (
        client_bounds(public.config)
        if public.config.settings.unit is PrivacyUnit.CLIENT
        else {}
    )


def _proxies(public: PublicFacts, options: ProxyOptions) -> tuple[int, int]:
    """Releases over proxies, if there are any, and as many of these as have enough rows
    each to be told from none.
    """
    k, noise = public.config.n_clusters, _noise_multiplier(public)
    most = max(options.most_proxies, options.proxies_per_cluster * k)

    def heard(n_passes: int, rows: float) -> float:
        """As many as have so many rows each, in deviations of a count's noise in each
        of some passes.
        """
        share = options.seeding_share / n_passes * options.proxy_counts_share
        return public.n_units / (
            rows * (noise / math.sqrt(share) * _bounds(public).get("proxy_counts", 1.0))
        )

    n_passes = options.subspace_passes
    if public.n_features <= options.most_direct_features:
        # A second pass was not measured at client level, or beside points of the
        # server's own.
        is_plain = (
            public.server is None and public.config.settings.unit is PrivacyUnit.RECORD
        )
        least = (
            options.proxies_per_column
            * max(4, public.n_features)
            * most
            / options.most_proxies
        )
        n_passes = 2 if is_plain and heard(2, options.rows_per_proxy) >= least else 1
    few = min(options.few_proxies * k, most, heard(n_passes, options.least_count))
    return n_passes, max(
        int(min(heard(n_passes, options.rows_per_proxy), most)), int(few)
    )


def _least_proxies(public: PublicFacts) -> int:
    """Fewer are too few to cluster."""
    return int(public.config.n_clusters) + 2


CENTRE = "centre"
CLIP = "clip"
DISTANCES = "distances"
EXTENT = "extent"
SPREAD = "spread"
SPREAD_ERROR = "spread_error"
SUBSPACE_SPREAD = "subspace_spread"
AXES = "axes"
SHAPE = "shape"
PROXIES = "proxies"
PROXY_RADIUS = "proxy_radius"
RADIUS = "radius"
AVERAGE_COUNTS = "average_counts"

_SMALLEST_RADIUS = 2.0**-15
_MEANS = (
    "S15: one client's {}, vectors of length at most 1, is scaled down to the bound,"
    " which follows from the declared examples_per_client (ProxyLloyd)"
)


@dataclass(frozen=True)
class Setting:
    """What all rounds of one run need to know."""

    public: PublicFacts
    plan: ProxyPlan
    options: ProxyOptions

    @property
    def n_clusters(self) -> int:
        """k, or the largest one that may be chosen."""
        return int(self.public.config.n_clusters)

    @property
    def n_features(self) -> int:
        """d."""
        return self.public.n_features

    @property
    def n_radii(self) -> int:
        """Radii of a refinement: one for each cluster where noise is so small that they
        are widened, else one.
        """
        return self.n_clusters if self.plan.widening > 1.0 else 1

    @property
    def per_client(self) -> bool:
        """Whether one client, not one row, is protected."""
        return self.public.settings.unit is PrivacyUnit.CLIENT

    @property
    def farthest(self) -> float:
        """Largest distance of two points of the box."""
        return 2.0 * math.sqrt(self.n_features)

    @property
    def in_subspace(self) -> bool:
        """Whether proxies live on some axes only."""
        return self.plan.n_components is not None

    def noise(self, block: Block) -> float:
        """Standard deviation of a released entry, in the units of the statistic.

        Seven digits, as calibration searches for it and two machines' last digits may
        differ.
        """
        return float(np.float32(self.public.released_std(block)))

    def generator(self, state: State, *place: int) -> np.random.Generator:
        """Public randomness of one step."""
        return np.random.default_rng([seed_of(state), *place])

    def parts(
        self,
        name: str,
        whole: float = 0.0,
    ) -> list[ReleasePart]:
        """What one round of a kind releases: the table's arrays, with the sensitivity
        of the run's unit.
        """
        parts = []
        for one in ROUNDS[name]:
            shape = one.shape(self)
            if self.per_client:
                bound, because = (
                    client_bounds(self.public.config)[one.name],
                    _MEANS.format(one.one_client),
                )
            else:
                rounding = (
                    outer_product_rounding(math.prod(shape))
                    if one.sum_is_rounded
                    else 0.0
                )
                # Divided by its radius before it is summed: 1, whatever an earlier
                # release made it (S11-S14, S35).
                bound, because = 1.0 + rounding, one.one_row
            moved = Sensitivity(
                Norm.L2,
                bound,
                self.public.settings.unit,
                because,
                one.nonnegative,
            )
            parts.append(
                ReleasePart(
                    one.name,
                    shape,
                    moved,
                    math.sqrt(one.share(self.options, whole)),
                    bound,
                )
            )
        return parts

    def summing(self, parts: Sequence[ReleasePart]) -> Callable[[Statistic], Statistic]:
        """Decorate ``statistic(rows, state) -> arrays``.

        It sees one block after another, and the sum is made ready.
        """

        def decorate(of_block: Statistic) -> Statistic:
            summed = in_blocks(of_block)
            return lambda points, state: self.sent(
                summed(points, state), len(points), parts
            )

        return decorate

    def sent(
        self,
        arrays: Sequence[Array],
        n_rows: int,
        parts: Sequence[ReleasePart],
    ) -> list[Array]:
        """Turn sums over one client's rows into what it sends."""
        if not self.per_client:
            return list(arrays)
        pairs = zip(arrays, parts, strict=True)
        return [
            clip_vector(array / max(1, n_rows), part.sensitivity.bound)
            for array, part in pairs
        ]

    def admitting(self, names: Sequence[str]) -> Callable[[State], bool]:
        """Whether what a server sent for a round lies on the grid and in the ranges
        where nearest proxies are exact.

        The bounds of the statistics hold for every state. Inside these ranges each
        row's label is also a function of that row alone, to the last bit.
        """
        d, k, n_proxies = self.n_features, self.n_clusters, self.plan.n_proxies
        width = self.plan.n_components or d
        shapes: dict[str, tuple[int, ...]] = {
            CENTRE: (d,),
            AXES: (d, width),
            PROXIES: (n_proxies, width),
        }
        shapes |= {
            PROXY_RADIUS: (n_proxies,),
            RADIUS: (self.n_radii,),
            CLIP: (1,),
            SPREAD: (1,),
        }

        def fits(name: str, array: Array) -> bool:
            shaped = (
                array.shape == shapes[name]
                if name in shapes
                else is_table(array, k, width)
            )
            # Each radius is a length of its own.
            points = (
                array[:, None] if shaped and name in (PROXY_RADIUS, RADIUS) else array
            )
            return shaped and (
                is_projection(points) if name == AXES else is_near(points, d)
            )

        return lambda state: all(
            name in state.arrays and fits(name, state.arrays[name]) for name in names
        )


def as_length(value: float | Array) -> Array:
    """A length, or several, on the grid, as an array of the state."""
    return round_to_grid(np.maximum(np.atleast_1d(value), _SMALLEST_RADIUS))
