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

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.algorithms.discovery.discovering_task import DiscoveringTask
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
from flwr_dpkmeans.errors import ConfigurationError, ProtocolError
from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import NORMAL_QUANTILE, half_widths
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.privacy.released_counts import counts_rows
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import flag, whole
from flwr_dpkmeans.sums.outcome import CountedRows, Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import EvaluationKind, Settings
from flwr_dpkmeans.sums.task import Task
from flwr_dpkmeans.sums.trust import TrustModel

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
class KMeansTask(DiscoveringTask):
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
