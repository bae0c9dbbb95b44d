"""What every clustering has.

Its state, private discovery of count and bounds, private evaluation, and what is
refused.

Clients check the state that a server sends, so that their search is exact: on the grid
and inside these ranges all sums are exact, and each row's label is then a function of
that row alone, to the last bit. The statistics' bounds themselves hold for every state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import divided
from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.algorithms.discovery.discovered_bounds import (
    require_bounded,
    require_within,
)
from flwr_dpkmeans.algorithms.discovery.discovery_blocks import (
    MAGNITUDES,
    MAGNITUDES_PART,
    PRELIMINARY_TRUST,
    RANGES,
    count_block,
    domain_of,
    histogram_block,
)
from flwr_dpkmeans.algorithms.measure.evaluated_state import (
    CLIPPED_COST,
    COST_CURVE,
    admits_evaluation,
    result_extras,
)
from flwr_dpkmeans.algorithms.measure.evaluation_round import (
    evaluation_blocks,
    evaluation_round,
)
from flwr_dpkmeans.algorithms.profile.profile_reading import profile_cautions
from flwr_dpkmeans.algorithms.profile.profile_round import (
    profile_blocks,
    profile_round,
    profile_shapes,
)
from flwr_dpkmeans.algorithms.server.box_units import in_callers_units, plan_bounds
from flwr_dpkmeans.algorithms.states.state_arrays import (
    has_exact_centroids,
    is_deviation,
)
from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_parts
from flwr_dpkmeans.algorithms.statistics.standard_scale import moments_of, standard_box
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.kmeans.centre_errors.intervals import NORMAL_QUANTILE, half_widths
from flwr_dpkmeans.kmeans.ranges.coarse import find_coarse_ranges
from flwr_dpkmeans.kmeans.ranges.fine import find_ranges
from flwr_dpkmeans.kmeans.ranges.histograms import (
    N_BINS,
    magnitude_histogram,
    one_vote,
    range_histogram,
)
from flwr_dpkmeans.kmeans.ranges.magnitudes import N_MAGNITUDES
from flwr_dpkmeans.privacy.release import Block, NoiseShape, PrivacyUnit, ReleasedSum
from flwr_dpkmeans.privacy.released_counts import counts_rows
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import flag, whole
from flwr_dpkmeans.sums.outcome import COUNT, CountedRows, Discoveries, Result
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.price import whole_multiplier
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind, Settings
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.trust import TrustModel, trust_model

CENTRE_DEVIATION = "centre_deviation"
"""Standard deviation of each coordinate of each centre from the exact mean of the rows
that it labels, (k, d).
"""
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
        """With as many iterations as there may be."""
        if "max_iter" not in self.options.__dataclass_fields__:
            return self
        changes: dict[str, object] = {"max_iter": self.max_rounds or MAX_ITERATIONS}
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

    evaluation = staticmethod(evaluation_blocks)
    evaluation_round = staticmethod(evaluation_round)
    profile = staticmethod(profile_blocks)
    profile_round = staticmethod(profile_round)

    def result_arrays(self, config: RunConfig) -> tuple[str, ...]:
        """Names of what a result has besides centroids and counts."""
        return (
            CENTRE_DEVIATION,
            *result_extras(config),
            *self._profile_shapes(config),
        )

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        """Centroids and noisy counts, and what a run asked for.

        ``centroids`` are in the units of the data, ``scaled`` in the box.
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
            of_sizes = NORMAL_QUANTILE * deviation * plan.settings.weight_unit
            errors["counts"] = np.full(len(scaled), of_sizes)
        arrays = {
            "centroids": centroids,
            "cluster_centers_error": half_widths,
            "scaled": scaled,
            "counts": state.counts * plan.settings.weight_unit,
            **beside,
        }
        return Result(arrays, errors, _AXES)

    def _profile_shapes(self, config: RunConfig) -> Mapping[str, tuple[int, ...]]:
        return profile_shapes(config) if config.settings.n_beside else {}

    def preliminary(
        self,
        config: RunConfig,
        delta: float,
        n_features: int | None,
    ) -> tuple[PlannedRound, ...]:
        """None, a private count, or two histograms (without a width: missing).

        The first with the count.
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
            [count_block(config, entire / math.sqrt(settings.count_share))]
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
                    histogram_block(
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
        weights: RowWeights | None = None,
    ) -> list[Array]:
        """One client's exact part of it, from its rows, (n_points, n_features).

        In the data's units, on the grid. Weights, (n_points,), are for units of rows:
        at client level each client is one.

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
            of_rows: RowWeights | None,
        ) -> Array:
            if name == COUNT:
                one_group = np.zeros(len(rows), np.int32)
                return counts_by_label(one_group, 1, of_rows)
            if name == MAGNITUDES:
                domain = domain_of(plan.config, plan.n_features)
                return magnitude_histogram(rows, domain, of_rows)
            if name in moments:
                return moments[name]
            if discoveries.box is None:
                raise ProtocolError(
                    "ranges were asked for before magnitudes: stop the run and check"
                    " the server."
                )
            return range_histogram(rows, discoveries.box, of_rows)

        def summed(part: slice) -> Sequence[Array]:
            rows = points[part]
            of_rows = None if weights is None else weights[part]
            moments: Mapping[str, Array] = {}
            if settings.standard_columns:
                moments = moments_of(plan, rows, of_rows)
            return [of(name, rows, moments, of_rows) for name in names]

        arrays = sum_over_blocks(summed, len(points), points.shape[1])
        if settings.unit.by_row:
            return arrays
        most = float(settings.examples_per_client)
        pairs = zip(names, arrays, strict=True)
        return [
            np.minimum(array, most) if name == COUNT else one_vote(array)
            for name, array in pairs
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
        planned, domain = plan.round_at(index), domain_of(plan.config, plan.n_features)
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
                by_row = plan.settings.unit.by_row
                coarse = find_coarse_ranges(
                    released[block.name],
                    domain,
                    std,
                    n_examples if by_row else None,
                )
                require_bounded(
                    plan,
                    coarse.silent,
                    domain,
                    std,
                )
                require_within(plan, coarse.ranges, domain)
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
        domain = domain_of(config, n_features)
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
        """Refuse too few rows, tables of too many cells.

        And clip bounds in units that are not known yet.
        """
        if settings.standard_columns and settings.unit is PrivacyUnit.CLIENT:
            raise ConfigurationError(
                "the schema's scale is 'standard', whose private deviations are of"
                " rows, but unit is 'client': choose scale = 'bounds' or unit='record'."
            )
        k, classes = self.n_clusters, settings.n_classes
        for name in ("data_radius", "outer_product_bound", "means_bound", "sums_bound"):
            bound = getattr(self.options, name, None)
            if settings.private_bounds and bound is not None:
                raise ConfigurationError(
                    f"{name} is {bound}, in the units of the data, but with private"
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
        """Refuse numbers of rounds that do not exist, and noise without shares.

        And choices of k that are not public.
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
        """Whether a state has centroids of the plan's shape that are exact.

        And beside them just what is read.
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
        extras = state.extras
        may_have = set(self.result_arrays(plan.config))
        must_have = may_have - {COST_CURVE, CENTRE_DEVIATION}
        fits = fits and must_have <= set(extras) <= may_have
        deviation = extras.get(CENTRE_DEVIATION)
        fits = fits and (
            deviation is None or is_deviation(deviation, state.centroids.shape)
        )
        curve = extras.get(COST_CURVE)
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
            or admits_evaluation(plan.config, state)
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
        profiled: tuple[str, ...] = ()
        if units is not None and plan.settings.n_beside:
            profiled = profile_cautions(plan, units / self.n_clusters)
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
        """Say so where k follows from nothing.

        Or an evaluation's cost is within two deviations of its noise of 0.
        """
        cost = state.arrays.get(CLIPPED_COST)
        blurred: tuple[str, ...] = ()
        if cost is not None:
            evaluation = plan.rounds[-1]
            noise = plan.released_std(evaluation, evaluation.blocks[0])
            if not cost.item() >= 2.0 * noise:
                unit = plan.settings.unit.value
                blurred = (report_sentence("blurred_cost", unit=unit),)
        curve = state.arrays.get(COST_CURVE)
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
    """Standard deviation on a cluster's count in the last round that has one.

    0 without; and whether it is of rows.
    """
    by_row = plan.settings.unit.by_row
    for planned in reversed(plan.rounds):
        if planned.name in CLOSING_ROUNDS:
            continue
        for block in planned.blocks:
            if block.name in _COUNTS:
                std = plan.released_std(planned, block)
                if by_row:
                    return std, True
                return std, counts_rows(block.name, block.sensitivity.bound)
    return 0.0, by_row
