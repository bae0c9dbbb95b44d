"""What every clustering has: k, private discovery of count and bounds, private evaluation, and what a state may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.algorithms.cluster_states import COST_CURVE, has_exact_centroids
from flwr_dpkmeans.algorithms.discovery import preliminary_rounds, preliminary_statistic, require_box, take_preliminary
from flwr_dpkmeans.algorithms.measure import admits_evaluation, evaluation_blocks, evaluation_round, result_extras
from flwr_dpkmeans.algorithms.noise_budget import NoiseFamily
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.kmeans.assignment import is_on_grid
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum, State
from flwr_dpkmeans.sums.settings import Evaluation, Options, Settings, flag, whole
from flwr_dpkmeans.sums.task import Known, Task
from flwr_dpkmeans.sums.trust import TrustModel

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

    n_clusters: int = whole(MISSING, 1, 10, "number of clusters", most=100_000)
    choose_n_clusters: bool = flag(False, "let the algorithm choose the number of clusters, up to n_clusters")

    chooses = False
    """Whether it can choose the number of clusters."""
    starts_private = False
    """Whether its result is private before any Lloyd round, so that there may be none."""

    def longest(self) -> Task:
        if "max_iter" not in self.options.__dataclass_fields__:
            return self
        changes: dict[str, Any] = {"max_iter": self.max_rounds or MAX_ITERATIONS}
        return replace(self, options=replace(self.options, **changes))

    @property
    def least_rows(self) -> int:
        """One for each cluster."""
        return self.n_clusters

    # -- what is released besides -------------------------------------------------------------------------------

    preliminary = staticmethod(preliminary_rounds)
    preliminary_statistic = staticmethod(preliminary_statistic)
    take_preliminary = staticmethod(take_preliminary)
    require_box = staticmethod(require_box)
    evaluation = staticmethod(evaluation_blocks)
    evaluation_round = staticmethod(evaluation_round)
    result_arrays = staticmethod(result_extras)

    # -- what is refused ----------------------------------------------------------------------------------------

    def check(self, settings: Settings) -> None:
        """Refuse too few rows, tables of too many cells, and clip bounds in units that are not known yet."""
        k, n, classes = self.n_clusters, settings.n_examples, settings.n_classes
        for name in ("data_radius", "outer_product_bound", "means_bound"):
            given = getattr(self.options, name, None)
            if settings.private_bounds and given is not None:
                raise ConfigurationError(
                    f"{name} is {given}, in the units of the data, but with private bounds the box that "
                    f"data are scaled to is not known before the run: leave {name} out, or give bounds."
                )
        if k * classes > MOST_CELLS:
            raise ConfigurationError(
                f"{k} clusters and {classes} classes make a table of {k * classes} cells, but it may "
                f"have at most {MOST_CELLS}: lower n_classes, or leave it out."
            )
        if n is not None and n < k:
            raise ConfigurationError(
                f"n_examples is {n}, but {k} clusters need at least as many rows: choose fewer clusters or add data."
            )

    def require_supported(self, settings: Settings, trust: TrustModel) -> None:
        """Refuse numbers of rounds that do not exist, choices of k that are not public, noise without shares."""
        rounds = self.max_rounds
        if rounds == 0 and not self.starts_private:
            raise ConfigurationError("max_iter is 0, but it must be an integer of at least 1: give 5.")
        if settings.client_sampling_rate < 1.0 and (rounds or 0) > _MOST_SAMPLED_ROUNDS:
            raise ConfigurationError(
                f"max_iter is {rounds}, but with client_sampling_rate below 1 at most {_MOST_SAMPLED_ROUNDS} "
                "Lloyd rounds can be priced in reasonable time: give fewer."
            )
        paper = getattr(self.options, "noise_kind", None) is NoiseFamily.PAPER
        if paper and not trust.can_add(NoiseShape.LAPLACE) and self.trust == "distributed":
            other = "" if self.choose_n_clusters else ", or trust='central'"
            raise ConfigurationError(
                "noise_kind is 'paper', whose Laplace noise the trust model 'distributed' cannot split into shares: "
                f"choose noise_kind='gaussian'{other}."
            )
        if self.choose_n_clusters and not self.chooses:
            raise ConfigurationError(
                f"n_clusters is 'auto', but {self.name!r} cannot choose it: use 'proxy_lloyd' or 'feddp_kmeans' with "
                "trust='distributed', or give n_clusters."
            )
        if self.choose_n_clusters and not trust.publishes():
            raise ConfigurationError(
                f"n_clusters is 'auto', but everybody sees how many clusters were chosen, and under trust "
                f"{settings.trust!r} the server knows the noise behind that choice: give trust='distributed', where "
                "the clients add the noise and the server sees the noisy result, or give n_clusters."
            )

    def counted_examples(self, released_count: float) -> int:
        n = max(1, round(released_count))
        if n < self.n_clusters:
            raise PlanError(
                f"the private count found about {n} rows, but {self.n_clusters} clusters need at least as many: choose "
                "fewer clusters or add data."
            )
        return n

    def require_bearable(self, plan: Plan) -> None:
        """Refuse points that a client would cluster for hours: a hostile server says how many there are."""
        if plan.public_points is None:
            return
        work = plan.public_points.n_points * self.n_clusters * getattr(self.options, "n_init", 1)
        if work > _MOST_RESTARTS:
            raise ProtocolError(
                f"the plan asks every client for {work} distances in each step of k-means, but at most "
                f"{_MOST_RESTARTS} are taken on: lower n_init or give fewer server points."
            )

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """Whether a state has centroids of the plan's shape that are exact, and beside them just what is read."""
        if not {"centroids", "counts"} <= set(state.arrays) or state.centroids.ndim != 2:
            return False
        n_clusters, width = state.centroids.shape
        if state.counts.shape != (n_clusters,):
            return False
        fits = width == plan.n_features and 1 <= n_clusters <= self.n_clusters and has_exact_centroids(state)
        if step is not None:
            return fits and super().admits(plan, step, state)
        # The result comes with the cost curve where the run chose the number of clusters.
        known, extras = set(result_extras(plan.config)), state.extras
        fits = fits and known - {COST_CURVE} <= set(extras) <= known
        curve = extras.get(COST_CURVE)
        fits = fits and (curve is None or (curve.shape == (self.n_clusters,) and is_on_grid(curve)))
        return fits and (plan.settings.evaluation is Evaluation.NONE or admits_evaluation(plan.config, state))

    # -- what is told -------------------------------------------------------------------------------------------

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where a cluster's noise is as large as the cluster."""
        by_client = plan.settings.unit is PrivacyUnit.CLIENT
        units = plan.n_clients * plan.settings.client_sampling_rate if by_client else plan.n_examples
        std = _counts_std(plan)
        if units is None or std < units / self.n_clusters:
            return ()
        return (
            f"The noise on each cluster's count (standard deviation {std:.3g}) is no smaller than the "
            f"{units / self.n_clusters:.3g} {'clients' if by_client else 'rows'} that a cluster has on average: the "
            "result is mostly noise; raise epsilon, add data or choose fewer clusters.",
        )


def _counts_std(plan: Plan) -> float:
    """Standard deviation on a cluster's count in the last round that has one; 0 without."""
    for planned in reversed([planned for planned in plan.rounds if planned.name != EVALUATION_ROUND]):
        for block in planned.blocks:
            if block.name in _COUNTS:
                return plan.released_std(planned, block)
    return 0.0


@dataclass(frozen=True, kw_only=True)
class InOnePlace(KMeansTask):
    """A baseline that `FederatedKMeans` runs in this process, never in a federation."""

    trust = "central"
    noise = NoiseShape.NONE

    def build(self, known: Known) -> Algorithm:
        del known
        raise needs_all_rows(self.name)


@dataclass(frozen=True)
class OptimalOptions(Options):
    """Options of central k-means."""

    n_init: int = whole(20, 1, 20, "restarts of k-means", most=10_000)


@dataclass(frozen=True, kw_only=True)
class KFed(InOnePlace):
    """One-shot federated k-means."""

    name = "k_fed"
    title = "one-shot federated k-means from each client's own centres; not private"


@dataclass(frozen=True, kw_only=True)
class Optimal(InOnePlace):
    """Central k-means."""

    name = "optimal"
    title = "k-means on all rows in one place; not private"
    options: OptimalOptions = OptimalOptions()


@dataclass(frozen=True, kw_only=True)
class MaxCover(InOnePlace):
    """Central differentially private k-means."""

    name = "max_cover"
    title = "central k-means by maximum cover (Nguyen, Chaturvedi, Xu 2021): private, on all rows in one place"
    noise = NoiseShape.GAUSSIAN


NOT_FEDERATED: Mapping[str, type[InOnePlace]] = MappingProxyType(
    {kind.name: kind for kind in (KFed, Optimal, MaxCover)}
)
"""Baselines that `FederatedKMeans` runs in one process, by name."""


def needs_all_rows(name: str) -> ConfigurationError:
    """Say why a federation cannot run a baseline."""
    return ConfigurationError(
        f"algorithm is {name!r}, which needs all rows in one place: run it as FederatedKMeans(algorithm={name!r}), "
        "or use 'feddp_kmeans' in a federation."
    )
