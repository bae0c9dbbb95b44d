"""What every clustering has: its state, private discovery of count and bounds, private
evaluation, and what is refused.

Clients check the state that a server sends, so that their search is exact: on the grid
and inside these ranges all sums are exact, and each row's label is then a function of
that row alone, to the last bit. The statistics' bounds themselves hold for every state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms import cluster_profile, measure
from flwr_dpkmeans.algorithms.budget.noise_budget import divided
from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.algorithms.moments import moment_parts
from flwr_dpkmeans.algorithms.server_points import in_callers_units, plan_bounds
from flwr_dpkmeans.algorithms.standard_scale import moments_of, standard_box
from flwr_dpkmeans.errors import (
    ConfigurationError,
    PlanError,
    ProtocolError,
    column_names,
)
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import (
    NORMAL_QUANTILE,
    WIDEST,
    half_widths,
)
from flwr_dpkmeans.kmeans.ranges.coarse import find_coarse_ranges
from flwr_dpkmeans.kmeans.ranges.fine import find_ranges
from flwr_dpkmeans.kmeans.ranges.histograms import (
    N_BINS,
    magnitude_histogram,
    one_vote,
    range_histogram,
)
from flwr_dpkmeans.kmeans.ranges.magnitudes import N_MAGNITUDES, WIDEST_DOMAIN
from flwr_dpkmeans.kmeans.ranges.thresholds import noise_threshold
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.privacy.released_counts import counts_rows
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options, flag, whole
from flwr_dpkmeans.sums.outcome import COUNT, CountedRows, Discoveries, Result
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.price import whole_multiplier
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind, Settings
from flwr_dpkmeans.sums.task import TASKS, Task
from flwr_dpkmeans.sums.trust import TrustModel, trust_model

SERVER_POINTS = "server_points"
PROJECTED_POINTS = "projected_points"
PROJECTED_CENTERS = "projected_centers"
SEED = "seed"
CENTRE_DEVIATION = "centre_deviation"
"""Standard deviation of each coordinate of each centre from the exact mean of the rows
that it labels, (k, d).
"""

_STRETCH = 1.01  # largest length of a projection's column: 1, and room for rounding
_LARGEST_COUNT = 2.0**47


def cluster_state(
    centroids: Array,
    counts: Array,
    movements: tuple[float, ...] = (),
    extras: Mapping[str, Array] | None = None,
) -> State:
    """The state of a clustering: centroids, (k, d) on the grid in [-1, 1]^d, and noisy
    counts, (k,), released last.

    Both are zeros before there are any. `movements` are the largest steps of a centroid
    so far; `extras` what an algorithm's own steps carry on, such as a projection: on
    the grid, of one or two dimensions.
    """
    return State(
        {"centroids": centroids, "counts": counts, **(extras or {})}, movements
    )


def seeded_state(
    centroids: Array,
    seed: int,
    server_points: Array | None = None,
) -> State:
    """The state before the first round of an algorithm that draws public randomness
    later; zeros: no centroids yet.
    """
    extras = {SEED: np.array([float(seed % 2**31)])}
    if server_points is not None:
        extras[SERVER_POINTS] = np.array(server_points)
    return cluster_state(
        centroids,
        np.zeros(len(centroids)),
        (),
        extras,
    )


def stepped(
    state: State,
    centroids: Array,
    counts: Array,
) -> State:
    """The state after a Lloyd step: new centroids, their noisy counts, and the largest
    step among the movements.
    """
    longest = math.sqrt(
        max(map(math.fsum, np.square(centroids - state.centroids).tolist()))
    )
    return replace(
        state.changed(centroids=centroids, counts=counts),
        movements=(*state.movements, longest),
    )


def seed_of(state: State) -> int:
    """The run's public seed."""
    return int(state[SEED][0])


def has_exact_centroids(state: State) -> bool:
    """Whether the centroids are on the grid, in the box, and the counts small enough
    for it.
    """
    inside = (
        np.abs(state.centroids).max(initial=0.0) <= 1.0
        and np.abs(state.counts).max(initial=0.0) <= _LARGEST_COUNT
    )
    return bool(inside) and is_on_grid(state.centroids)


def is_deviation(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether an array can be centres' standard deviations.

    On the grid, from above 0 to the width of the box.
    """
    fits = array.shape == shape and is_on_grid(array)
    return fits and float(array.min()) > 0.0 and float(array.max()) <= WIDEST


def is_projection(array: Array) -> bool:
    """Whether the columns of a table are on the grid and do not stretch."""
    return is_on_grid(array) and bool(
        np.square(array).sum(axis=0).max(initial=0.0) <= _STRETCH**2
    )


def is_near(array: Array, n_features: int) -> bool:
    """Whether points are on the grid and no farther from the origin than points of the
    box can be from a centre.
    """
    # At most 2 sqrt(d) from a centre in the box.
    farthest = (2.0 * _STRETCH) ** 2 * n_features
    return is_on_grid(array) and bool(
        np.square(array).sum(axis=-1).max(initial=0.0) <= farthest
    )


def is_table(
    array: Array,
    most_rows: int,
    width: int,
) -> bool:
    """Whether an array has 1 to `most_rows` rows of the width."""
    return array.ndim == 2 and 1 <= len(array) <= most_rows and array.shape[1] == width


# -- discovery: releases that steer the plan, where nobody declares the number of rows or the range of each column ---
# They come before round 1. What follows from them is computed alike by the server and
# by every client, which compares it with the final plan.

PRELIMINARY_TRUST = "distributed"
"""What steers the plan must be seen by everybody.

Its noise comes from the clients, where there are several.
"""
MAGNITUDES = "magnitudes"
RANGES = "ranges"
MAGNITUDES_PART = 0.8
"""Of `bounds_share`, for the first histogram, which small tables need.

The second only narrows what it found.
"""


def _require_bounded(
    plan: Plan,
    unheard: Sequence[int],
    domain: Box,
    std: float,
) -> None:
    """Refuse to go on with columns that neither a histogram nor the domain says
    anything of.
    """
    unbounded = [
        one
        for one in unheard
        if max(abs(domain[0][one]), abs(domain[1][one])) >= WIDEST_DOMAIN
    ]
    if not unbounded:
        return
    columns = column_names(unbounded, plan.settings.feature_names)
    needed = noise_threshold(len(domain[0]), std)
    public = ""
    if plan.settings.n_examples is None and plan.settings.unit is PrivacyUnit.RECORD:
        public = (
            "; or declare n_examples if the number of rows is public, which allows a"
            " larger delta"
        )
    raise PlanError(
        f"the private histograms found no values of {columns} beyond the noise (a"
        f" standard deviation of {std:.3g} on each bin, of which about {needed:.3g} are"
        " needed within a factor of two), and no domain bounds them: give bounds, or a"
        f" bounds_domain, or raise epsilon or bounds_share, or add rows{public}."
    )


def _require_within(
    plan: Plan,
    found: Box,
    domain: Box,
) -> None:
    """Refuse to clip columns at the ends of a domain that nobody stated.

    The last bins hold what lies beyond, too.
    """
    at_end = (np.array(found) == np.array(domain)) & (np.abs(domain) == WIDEST_DOMAIN)
    if beyond := np.flatnonzero(at_end.any(axis=0)).tolist():
        columns = column_names(beyond, plan.settings.feature_names)
        raise PlanError(
            f"the private histograms found values of {columns} near {WIDEST_DOMAIN:.3g}"
            " or beyond, and without a domain they look no farther: give bounds, or a"
            " bounds_domain, or the column in another unit."
        )


def _domain(config: RunConfig, n_features: int | None) -> Box:
    """The public domain of every column: one pair of bounds holds for all."""
    lower, upper = config.settings.bounds
    n = n_features or 0
    return (lower * n, upper * n) if len(lower) == 1 else (lower, upper)


def _count_block(config: RunConfig, multiplier: float) -> Block:
    """The private count: one entry.

    At client level each client counts no more rows than are declared.
    """
    settings = config.settings
    bound, because = 1.0, "S16: one row changes the number of rows by one"
    if settings.unit is PrivacyUnit.CLIENT:
        bound = float(settings.examples_per_client)
        because = (
            "S16: one client's number of rows is clipped to the declared"
            " examples_per_client"
        )
    moved = Sensitivity(
        Norm.L2,
        bound,
        settings.unit,
        because,
        nonnegative=True,
    )
    return Block(
        COUNT,
        (1,),
        moved,
        NoiseShape.GAUSSIAN,
        multiplier,
        bound,
    )


def _histogram_block(
    config: RunConfig,
    name: str,
    shape: tuple[int, int],
    multiplier: float,
) -> Block:
    """Histograms of all columns together: one row, or one client's vote, adds a norm of
    sqrt(n_features) at most.
    """
    # A one in one bin of each of d columns has norm sqrt(d), which is rounded up (S17).
    bound, entry = math.nextafter(math.sqrt(shape[0]), math.inf), 1.0
    bins = "one bin, by sign and power of two, of each column's histogram"
    if name == RANGES:
        bins = "at most one of each column's equal bins"
    because = f"S17: one row is in {bins}: a norm of sqrt(number of columns)"
    if config.settings.unit is PrivacyUnit.CLIENT:
        entry, because = (
            bound,
            (
                "S17: one client's histograms are scaled down to the norm of a single"
                " row's"
            ),
        )
    moved = Sensitivity(
        Norm.L2,
        bound,
        config.settings.unit,
        because,
        nonnegative=True,
    )
    return Block(
        name,
        shape,
        moved,
        NoiseShape.GAUSSIAN,
        multiplier,
        entry,
    )


DEFAULT_MAX_CLUSTERS = 20
"""Largest number of clusters that ``n_clusters="auto"`` considers."""
MOST_CELLS = 100_000
"""Clusters times classes: every client matches the two and writes the table down."""
MAX_ITERATIONS = 7
"""Of an estimated number of iterations."""
_MOST_RESTARTS = 10**8
_MOST_SAMPLED_ROUNDS = 50
_COUNTS = ("counts", "indicators")


@dataclass(frozen=True, kw_only=True)
class KMeansTask(Task):
    """A clustering into at most k groups."""

    n_clusters: int = whole(
        MISSING,
        1,
        10,
        "number of clusters",
        most=100_000,
    )
    choose_n_clusters: bool = flag(
        False, "let the algorithm choose the number of clusters, up to n_clusters"
    )

    chooses = False
    starts_private = False
    """Whether its result is private before any Lloyd round, so that there may be none.
    """

    def longest(self) -> Task:
        if "max_iter" not in self.options.__dataclass_fields__:
            return self
        changes: dict[str, Any] = {"max_iter": self.max_rounds or MAX_ITERATIONS}
        return replace(self, options=replace(self.options, **changes))

    @property
    def least_rows(self) -> int:
        """One for each cluster."""
        return self.n_clusters

    @property
    def why_rows(self) -> str:
        """Each cluster needs one."""
        k = self.n_clusters
        if self.choose_n_clusters:
            fewer = max(1, k // 2)
            return (
                f"'auto' tries up to {k} clusters, which need as many rows: give"
                f" Auto({fewer}), or add data."
            )
        return (
            f"{k} clusters need at least as many rows: choose fewer clusters or add"
            " data."
        )

    evaluation = staticmethod(measure.evaluation_blocks)
    evaluation_round = staticmethod(measure.evaluation_round)
    profile = staticmethod(cluster_profile.profile_blocks)
    profile_round = staticmethod(cluster_profile.profile_round)

    def result_arrays(self, config: RunConfig) -> tuple[str, ...]:
        return (
            CENTRE_DEVIATION,
            *measure.result_extras(config),
            *self._profile_shapes(config),
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """``centroids`` in the units of the data, ``scaled`` in the box, noisy
        ``counts``, and what a run asked for.
        """
        beside = {
            name: state.arrays[name]
            for name in self.result_arrays(plan.config)
            if name in state.arrays
        }
        beside.pop(CENTRE_DEVIATION, None)
        scaled = state.centroids
        centroids = in_callers_units(plan, scaled)
        half_widths = centre_half_widths(plan, state)
        deviation, _ = counts_std(plan)
        errors = {"centroids": half_widths}
        if deviation > 0.0:
            errors["counts"] = np.full(len(scaled), NORMAL_QUANTILE * deviation)
        arrays = {
            "centroids": centroids,
            "cluster_centers_error": half_widths,
            "scaled": scaled,
            "counts": state.counts,
            **beside,
        }
        return Result(arrays, errors, _AXES)

    def _profile_shapes(self, config: RunConfig) -> Mapping[str, tuple[int, ...]]:
        return (
            cluster_profile.profile_shapes(config) if config.settings.n_beside else {}
        )

    def preliminary(
        self,
        config: RunConfig,
        delta: float,
        n_features: int | None,
    ) -> tuple[PlannedRound, ...]:
        """None, a private count, or two histograms (without a width: missing), the
        first with the count.
        """
        settings = config.settings
        counts = self.counts(settings.unit)
        counted = counts and settings.n_examples is None
        if settings.preliminary_share(counts=counts) == 0.0:
            return ()
        entire = whole_multiplier(config, delta)
        trust = (
            settings.trust if trust_model(settings.trust).alone else PRELIMINARY_TRUST
        )
        count = (
            [_count_block(config, entire / math.sqrt(settings.count_share))]
            if counted
            else []
        )
        if not settings.private_bounds:
            return (PlannedRound(COUNT, trust, tuple(count)),)
        if settings.standard_columns:
            blocks = divided(
                [] if n_features is None else moment_parts(1, n_features),
                settings.bounds_share,
                entire,
            )
            name = " and ".join([COUNT] * counted + ["spreads"])
            return (PlannedRound(name, trust, (*count, *blocks)),)

        def histograms(
            name: str,
            n_bins: int,
            part: float,
        ) -> list[Block]:
            multiplier = entire / math.sqrt(settings.bounds_share * part)
            return (
                []
                if n_features is None
                else [
                    _histogram_block(
                        config,
                        name,
                        (n_features, n_bins),
                        multiplier,
                    )
                ]
            )

        first = (*count, *histograms(MAGNITUDES, N_MAGNITUDES, MAGNITUDES_PART))
        second = tuple(histograms(RANGES, N_BINS, 1.0 - MAGNITUDES_PART))
        name = " and ".join([COUNT] * counted + [MAGNITUDES])
        return PlannedRound(name, trust, first), PlannedRound(RANGES, trust, second)

    def preliminary_statistic(
        self,
        plan: Plan,
        index: int,
        points: Array,
        discoveries: Discoveries,
    ) -> list[Array]:
        """One client's exact part of it, from its rows, (n_points, n_features), in the
        data's units, on the grid.

        Within each block's sensitivity whatever the coarse ranges are; a
        `ProtocolError` if these are not released yet.
        """
        settings, names = (
            plan.settings,
            [block.name for block in plan.round_at(index).blocks],
        )

        def of(
            name: str,
            rows: Array,
            moments: Mapping[str, Array],
        ) -> Array:
            if name == COUNT:
                return np.array([float(len(rows))])
            if name == MAGNITUDES:
                return magnitude_histogram(rows, _domain(plan.config, plan.n_features))
            if name in moments:
                return moments[name]
            if discoveries.box is None:
                raise ProtocolError(
                    "ranges were asked for before magnitudes: stop the run and check"
                    " the server."
                )
            return range_histogram(rows, discoveries.box)

        def summed(part: slice) -> Sequence[Array]:
            rows = points[part]
            moments = moments_of(plan, rows) if settings.standard_columns else {}
            return [of(name, rows, moments) for name in names]

        arrays = sum_over_blocks(summed, len(points), points.shape[1])
        if settings.unit is PrivacyUnit.RECORD:
            return arrays
        most = float(settings.examples_per_client)
        pairs = zip(names, arrays, strict=True)
        return [
            np.minimum(one, most) if name == COUNT else one_vote(one)
            for name, one in pairs
        ]

    def take_preliminary(
        self,
        plan: Plan,
        index: int,
        released: ReleasedSum,
        discoveries: Discoveries,
    ) -> Discoveries:
        """Add what it tells to what was known before.

        The same on the server and on every client.

        A `PlanError` if counted rows are too few, or a column's values are beyond
        finding: nothing more is spent then.
        """
        planned, domain = plan.round_at(index), _domain(plan.config, plan.n_features)
        for block in planned.blocks:
            std = plan.released_std(planned, block)
            if block.name == COUNT:
                discoveries = replace(
                    discoveries,
                    n_examples=self.counted_examples(float(released[COUNT][0])),
                )
            elif block.name == "group_squares":
                box, unclear = standard_box(plan, released, std)
                discoveries = replace(discoveries, box=box, unclear=unclear)
            elif block.name == MAGNITUDES:
                n_examples = discoveries.n_examples or plan.settings.n_examples
                by_row = plan.settings.unit is PrivacyUnit.RECORD
                coarse = find_coarse_ranges(
                    released[block.name],
                    domain,
                    std,
                    n_examples if by_row else None,
                )
                _require_bounded(
                    plan,
                    coarse.silent,
                    domain,
                    std,
                )
                _require_within(plan, coarse.ranges, domain)
                unclear = tuple(sorted(coarse.silent + coarse.zero))
                discoveries = replace(discoveries, box=coarse.ranges, unclear=unclear)
            elif discoveries.box is not None:
                discoveries = replace(
                    discoveries,
                    box=find_ranges(
                        released[block.name],
                        discoveries.box,
                        std,
                        domain,
                    ),
                )
        return discoveries

    def require_box(
        self,
        config: RunConfig,
        box: Box | None,
        n_features: int | None,
    ) -> None:
        """Refuse a box that no release can have led to, by a `PlanError`.

        Bounds are declared, or the box has another width, no extent, or reaches beyond
        the public domain.
        """
        if not config.settings.private_bounds:
            super().require_box(config, box, n_features)
        if box is None:
            return
        if (
            n_features is None
            or {len(box[0]), len(box[1])} != {n_features}
            or len(config.settings.bounds[0]) not in (1, n_features)
        ):
            raise PlanError(
                f"the plan's box has {len(box[0])} features, but tables have"
                f" {n_features}: stop the run."
            )
        domain = _domain(config, n_features)
        for feature, (least, low, high, most) in enumerate(
            zip(
                domain[0],
                *box,
                domain[1],
                strict=True,
            )
        ):
            if config.settings.standard_columns:
                # The stated bounds lie in the box.
                least, low = low, least
                high, most = most, high
            if not least <= low < high <= most:
                raise PlanError(
                    f"the plan's box has [{low:g}, {high:g}] for feature {feature}, but"
                    f" it must lie in the public domain [{least:g}, {most:g}]: stop the"
                    " run and check the server."
                )

    def check(self, settings: Settings) -> None:
        """Refuse too few rows, tables of too many cells, and clip bounds in units that
        are not known yet.
        """
        if settings.standard_columns and settings.unit is PrivacyUnit.CLIENT:
            raise ConfigurationError(
                "the schema's scale is 'standard', whose private deviations are of"
                " rows, but unit is 'client': choose scale = 'bounds' or unit='record'."
            )
        k, classes = self.n_clusters, settings.n_classes
        for name in ("data_radius", "outer_product_bound", "means_bound", "sums_bound"):
            given = getattr(self.options, name, None)
            if settings.private_bounds and given is not None:
                raise ConfigurationError(
                    f"{name} is {given}, in the units of the data, but with private"
                    " bounds the box that data are scaled to is not known before the"
                    f" run: leave {name} out, or give bounds."
                )
        if k * classes > MOST_CELLS:
            raise ConfigurationError(
                f"{k} clusters and {classes} classes make a table of {k * classes}"
                f" cells, but it may have at most {MOST_CELLS}: lower n_classes, or"
                " leave it out."
            )
        super().check(settings)

    def require_supported(
        self,
        settings: Settings,
        trust: TrustModel,
    ) -> None:
        """Refuse numbers of rounds that do not exist, choices of k that are not public,
        noise without shares.
        """
        rounds = self.max_rounds
        if rounds == 0 and not self.starts_private:
            raise ConfigurationError(
                "max_iter is 0, but it must be an integer of at least 1: give 5."
            )
        if settings.client_sampling_rate < 1.0 and (rounds or 0) > _MOST_SAMPLED_ROUNDS:
            raise ConfigurationError(
                f"max_iter is {rounds}, but with client_sampling_rate below 1 at most"
                f" {_MOST_SAMPLED_ROUNDS} Lloyd rounds can be priced in reasonable"
                " time: give fewer."
            )
        paper = getattr(self.options, "noise_kind", None) is NoiseFamily.PAPER
        if (
            paper
            and not trust.can_add(NoiseShape.LAPLACE)
            and self.trust == "distributed"
        ):
            other = "" if self.choose_n_clusters else ", or trust='central'"
            raise ConfigurationError(
                "noise_kind is 'paper', whose Laplace noise the trust model"
                " 'distributed' cannot split into shares: choose"
                f" noise_kind='gaussian'{other}."
            )
        if self.choose_n_clusters and not self.chooses:
            raise ConfigurationError(
                f"n_clusters is 'auto', but {self.name!r} cannot choose it: use"
                " 'proxy_lloyd' or 'feddp_kmeans' with trust='distributed', or give"
                " n_clusters."
            )
        if self.choose_n_clusters and not trust.publishes():
            raise ConfigurationError(
                "n_clusters is 'auto', but everybody sees how many clusters were"
                f" chosen, and under trust {settings.trust!r} the server knows the"
                " noise behind that choice: give trust='distributed', where the"
                " clients add the noise and the server sees the noisy result, or give"
                " n_clusters."
            )

    def require_bearable(self, plan: Plan) -> None:
        """Refuse points that a client would cluster for hours.

        a hostile server says how many there are, how often.
        """
        public = 0 if plan.public_points is None else plan.public_points.n_points
        proxies = [
            block.size
            for planned in plan.rounds
            for block in planned.blocks
            if block.name == "proxy_counts"
        ]
        work = (
            max([public, *proxies])
            * self.n_clusters
            * getattr(self.options, "n_init", 1)
        )
        if work > _MOST_RESTARTS:
            raise ProtocolError(
                f"the plan asks every client for {work} distances in each step of"
                f" k-means, but at most {_MOST_RESTARTS} are taken on: lower n_init, or"
                " have fewer clusters or server points."
            )

    def admits(
        self,
        plan: Plan,
        step: PrivateSum | None,
        state: State,
    ) -> bool:
        """Whether a state has centroids of the plan's shape that are exact, and beside
        them just what is read.
        """
        if (
            not {"centroids", "counts"} <= set(state.arrays)
            or state.centroids.ndim != 2
        ):
            return False
        n_clusters, width = state.centroids.shape
        if state.counts.shape != (n_clusters,):
            return False
        fits = (
            width == plan.n_features
            and 1 <= n_clusters <= self.n_clusters
            and has_exact_centroids(state)
        )
        if step is not None:
            return fits and super().admits(plan, step, state)
        # The result comes with the cost curve where the run chose the number of
        # clusters.
        known, extras = set(self.result_arrays(plan.config)), state.extras
        fits = (
            fits
            and known - {measure.COST_CURVE, CENTRE_DEVIATION} <= set(extras) <= known
        )
        deviation = extras.get(CENTRE_DEVIATION)
        fits = fits and (
            deviation is None or is_deviation(deviation, state.centroids.shape)
        )
        curve = extras.get(measure.COST_CURVE)
        fits = fits and (
            curve is None or (curve.shape == (self.n_clusters,) and is_on_grid(curve))
        )
        shapes = self._profile_shapes(plan.config).items()
        fits = fits and all(
            extras[name].shape == shape and is_on_grid(extras[name])
            for name, shape in shapes
        )
        return fits and (
            plan.settings.evaluation is EvaluationKind.NONE
            or measure.admits_evaluation(plan.config, state)
        )

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where a cluster's noise is as large as the cluster."""
        by_client = plan.settings.unit is PrivacyUnit.CLIENT
        units = (
            plan.n_clients * plan.settings.client_sampling_rate
            if by_client
            else plan.n_examples
        )
        std, of_rows = counts_std(plan)
        asked = plan.settings.n_beside
        profiled = (
            ()
            if units is None or not asked
            else cluster_profile.profile_cautions(plan, units / self.n_clusters)
        )
        if units is not None and by_client and of_rows:
            units *= plan.settings.examples_per_client
        if units is None or std < units / self.n_clusters:
            return profiled
        return (
            *profiled,
            (
                f"The noise on each cluster's count (standard deviation {std:.3g}) is"
                f" no smaller than the {units / self.n_clusters:.3g}"
                f" {'rows' if of_rows else 'clients'} that a cluster has on average:"
                " the result is mostly noise; raise epsilon, add data or choose fewer"
                " clusters."
            ),
        )

    def counted_rows(self, state: State) -> CountedRows | None:
        """Every row is in one cluster's count of the last round."""
        counts = state.arrays.get("counts", np.zeros(()))
        # Another package's task may have another array of this name.
        if counts.ndim != 1:
            return None
        return CountedRows("counts", math.fsum(counts), len(counts))

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Say so where k follows from nothing, or an evaluation's cost is within two
        deviations of its noise of 0.
        """
        found = state.arrays.get(measure.CLIPPED_COST)
        clear = found is None or found.item() >= 2.0 * plan.released_std(
            plan.rounds[-1], plan.rounds[-1].blocks[0]
        )
        blurred = (
            ()
            if clear
            else (report_sentence("blurred_cost", unit=plan.settings.unit.value),)
        )
        curve = state.arrays.get(measure.COST_CURVE)
        if curve is None or curve.any():
            return blurred
        return *blurred, report_sentence("no_elbow")


_AXES = {
    "centroids": ("cluster", "column"),
    "scaled": ("cluster", "column"),
    "counts": ("cluster",),
}
"""What the axes of a clustering's arrays count."""


def centre_half_widths(plan: Plan, state: State) -> Array:
    """Half-widths of the centres' 95% intervals, (k, d), in the units of the data.

    Infinity where nothing is known.
    """
    bounds = plan_bounds(plan, state.centroids.shape[1])
    deviations = state.arrays.get(CENTRE_DEVIATION)
    return half_widths(deviations, (bounds.lower, bounds.upper), state.centroids.shape)


def counts_std(plan: Plan) -> tuple[float, bool]:
    """Standard deviation on a cluster's count in the last round that has one, 0
    without; and whether it is of rows.
    """
    by_row = plan.settings.unit is PrivacyUnit.RECORD
    rounds = [one for one in reversed(plan.rounds) if one.name not in CLOSING_ROUNDS]
    for step, block in [
        (one, block) for one in rounds for block in one.blocks if block.name in _COUNTS
    ]:
        return plan.released_std(step, block), by_row or counts_rows(
            block.name, block.sensitivity.bound
        )
    return 0.0, by_row


@dataclass(frozen=True, kw_only=True)
class InOnePlaceTask(KMeansTask):
    """A baseline that `FederatedKMeans` runs in this process, never in a federation."""

    trust = "central"
    noise = NoiseShape.NONE

    def build(self, public: PublicFacts) -> Algorithm:
        raise needs_all_rows(self.name)


@dataclass(frozen=True)
class OptimalOptions(Options):
    """Options of central k-means."""

    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means",
        most=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class KFedTask(InOnePlaceTask):
    """One-shot federated k-means from each client's own centres; not private."""

    name = "k_fed"


@dataclass(frozen=True, kw_only=True)
class OptimalTask(InOnePlaceTask):
    """k-means on all rows in one place; not private."""

    name = "optimal"
    options: OptimalOptions = OptimalOptions()


@dataclass(frozen=True)
class MaxCoverOptions(Options):
    """Options of max cover."""

    n_components: int | None = whole(
        None,
        1,
        5,
        "dimensions after a projection; automatic: log(N) / 2",
        most=60,
    )
    n_levels: int = whole(
        7,
        1,
        7,
        "grids, each half as fine as the one before",
        most=60,
    )


@dataclass(frozen=True, kw_only=True)
class MaxCoverTask(InOnePlaceTask):
    """Private k-means by maximum cover (Nguyen, Chaturvedi, Xu 2021), on all rows in
    one place.
    """

    name = "max_cover"
    noise = NoiseShape.GAUSSIAN
    options: MaxCoverOptions = MaxCoverOptions()


@dataclass(frozen=True)
class BalcanOptions(MaxCoverOptions):
    """Options of Balcan et al.'s, of a class of their own.

    Options say which algorithm they are of.
    """


@dataclass(frozen=True, kw_only=True)
class BalcanTask(MaxCoverTask):
    """Private k-means by noisy trees and local search (Balcan et al. 2017), on all rows
    in one place.
    """

    name = "balcan"
    options: BalcanOptions = BalcanOptions()


NOT_FEDERATED: Mapping[str, type[InOnePlaceTask]] = MappingProxyType(
    {kind.name: kind for kind in (KFedTask, OptimalTask, MaxCoverTask, BalcanTask)}
)
"""Baselines that `FederatedKMeans` runs in one process, by name."""


def needs_all_rows(name: str) -> ConfigurationError:
    """Say why a federation cannot run a baseline."""
    return ConfigurationError(
        f"algorithm is {name!r}, which needs all rows in one place: run it as"
        f" FederatedKMeans(algorithm={name!r}), or use 'feddp_kmeans' in a federation."
    )


def algorithm_entry(name: str) -> type[Task]:
    """Look an algorithm up by name.

    An unknown one is a `ConfigurationError` with the nearest valid name.
    """
    if name in NOT_FEDERATED:
        raise needs_all_rows(name)
    return TASKS.find(name)
