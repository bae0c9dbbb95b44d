"""FedDP-KMeans (Scott, Lampert, Saulpic, ICML 2025).

a private start from server-held data, then DP-Lloyd.

Rounds: outer product -> weights -> centers -> Lloyd x T. The choice of k needs the
first two alone, the paper's baselines the Lloyd rounds alone, after starts that cost no
privacy.

Record level (section 3): a row is clipped to the data radius. Client level (appendix
G.4): a client's whole statistic is clipped, and the centers round sums cluster means
and indicators instead of rows and counts. In both cases the bounds come from the plan
and do not depend on what the server sends, so a false projection costs nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms import feddp_appendix, kmeans_task, noise_budget
from flwr_dpkmeans.algorithms.kmeans_task import (
    PROJECTED_CENTERS,
    PROJECTED_POINTS,
    SEED,
    SERVER_POINTS,
    KMeansTask,
)
from flwr_dpkmeans.algorithms.lloyd_family import counts_sensitivity, require_packable
from flwr_dpkmeans.algorithms.measure import COST_CURVE
from flwr_dpkmeans.algorithms.noise_budget import SCHEDULES, TOLERANCE, NoiseSchedule
from flwr_dpkmeans.algorithms.server_points import facts_without_server
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.kernels import outer_products, projected_sums
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.kernels.grid import LabelArray, round_to_grid
from flwr_dpkmeans.kernels.projected_labels import clear_labels, nearest_projected
from flwr_dpkmeans.kernels.projected_sums import clipped_together, sums_and_counts
from flwr_dpkmeans.kernels.triangles import (
    rounded_triangle,
    symmetric_from_triangle,
    triangle_of,
)
from flwr_dpkmeans.kernels.vector_clipping import clip_vector
from flwr_dpkmeans.kmeans import projected, public_points
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import pulled_rows
from flwr_dpkmeans.kmeans.centre_errors.intervals import on_grid
from flwr_dpkmeans.kmeans.centre_errors.moved_labels import moved_labels
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import quotient_deviations
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.public_points import (
    PackingMethod,
    cost_curve,
    elbow,
    sphere_packing,
    weighted_kmeans,
)
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.privacy.released_counts import COUNT_DEVIATIONS
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import (
    Options,
    as_numbers,
    choice,
    flag,
    option,
    real,
    whole,
)
from flwr_dpkmeans.sums.outcome import CountedRows
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerData, ServerFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Settings

PROJECTION = "projection"
MEAN_BEYOND = "mean_beyond"
RULE_OF_THUMB = {
    PrivacyUnit.RECORD: (0.2, 0.2, 0.45, 0.15),
    PrivacyUnit.CLIENT: (0.35, 0.1, 0.45, 0.1),
}
"""Budget shares of outer product, weights, sums and counts (appendix H.1)."""
DEFAULT_LLOYD_ROUNDS = 0
"""In most Pareto-optimal runs of the paper no Lloyd round followed the start (appendix
H.1, Tables 4 and 5).
"""
DEFAULT_ROUNDS = 5
"""Lloyd rounds after a public start, unless ``max_iter`` says otherwise.

Of 2, 5 and 7 the best compromise on the paper's mixture.
"""
# share of the server points that keep their weights, if positive, however large the
# noise is
_ALWAYS_KEPT = 0.4
# Centroids farther out than this part of the data radius, with so many rows, are
# doubted.
_BORDER = 0.85
_MOST_AT_BORDER = 0.6
_ROUNDING = 1.05 * 2.0**-16
"""Grid step, with room for the last digits of the sums before they are rounded (2^-6 of
a step at 2^28 rows).
"""


def _require_shares(name: str, shares: object) -> None:
    """One sentence for budget shares that are not four positive numbers."""
    four = shares if isinstance(shares, tuple) and len(shares) == 4 else (None,)
    if not all(isinstance(share, float) and 0.0 < share < math.inf for share in four):
        raise ConfigurationError(
            f"{name} are {shares!r}, but they must be four positive numbers (outer"
            " product, weights, sums, counts): give (0.2, 0.2, 0.45, 0.15)."
        )


def _clip_bound(example: str, about: str) -> Any:
    """A clip bound that follows from server data unless it is given."""
    return real(
        None,
        0.0,
        math.inf,
        example,
        f"{about}, in the caller's units; automatic: from server data",
    )


@dataclass(frozen=True)
class ClippedOptions(Options):
    """What all algorithms on FedDP-KMeans' rounds have.

    Bounds are relative to the server points' mean.
    """

    noise_kind: noise_budget.NoiseFamily = choice(
        noise_budget.NoiseFamily,
        noise_budget.NoiseFamily.GAUSSIAN,
        "noise of sums, histograms and counts",
    )
    budget_shares: tuple[float, ...] | None = option(
        None,
        _require_shares,
        "shares of outer product, weights, sums, counts; automatic: the paper's rule of"
        " thumb for the unit",
        as_numbers,
    )
    data_radius: float | None = _clip_bound("11.0", "norm that rows are clipped to")


@dataclass(frozen=True)
class ChooseKOptions(ClippedOptions):
    """Options of the first two rounds: weights of the server's points."""

    weight_threshold: float = real(
        3.0,
        -5e-324,
        math.inf,
        "1.5",
        "weights of fewer noise deviations are dropped, except the largest 40%",
    )
    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means on the server points",
        most=10_000,
    )
    server_prior: bool = flag(
        True,
        "let the server points' own outer product support the noisy one; False: the"
        " released one alone",
    )
    outer_product_bound: float | None = _clip_bound(
        "1500.0", "norm of a unit's outer product"
    )
    weights_bound: float | None = _clip_bound("1.0", "norm of a client's histogram")


@dataclass(frozen=True)
class FedDPKMeansOptions(ChooseKOptions):
    """Options of FedDP-KMeans."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        "Lloyd rounds after the start; automatic: none",
        most=1_000,
    )
    # Not refused where there are no rounds, since ``start(num_rounds=...)`` may still
    # ask for some.
    lloyd_share: float = real(
        0.3,
        0.0,
        1.0,
        "0.3",
        "share of the budget that all Lloyd rounds together take, if there are any",
    )
    margin: float = real(
        1.0,
        0.0,
        math.inf,
        "1.0",
        "largest ratio of a row's distances to its two nearest centres; 1 keeps all"
        " rows",
    )
    reduce_diameter: bool = flag(
        False,
        "bring parts of the data that server points show to be far apart nearer to each"
        " other (Lemma 17)",
    )
    simplify_server_data: bool = flag(
        False,
        "halve server points that few rows are near to, over and over, before they are"
        " weighed (Algorithm 4)",
    )
    least_weight: float | None = real(
        None,
        1e-9,
        1.0,
        "0.1",
        "w_min, the smallest cluster's part of the rows, publicly known: these two"
        " need it",
    )
    deviation: float | None = real(
        None,
        0.0,
        math.inf,
        "0.5",
        "sigma_max, largest of a cluster in any direction, which Lemma 17 needs as"
        " well",
    )
    means_bound: float | None = _clip_bound("21.0", "norm of a client's cluster means")
    indicators_bound: float | None = _clip_bound(
        "10.0", "norm of a client's list of clusters"
    )
    sums_bound: float | None = _clip_bound("400.0", "norm of a client's cluster sums")
    counts_bound: float | None = _clip_bound(
        "30.0", "norm of a client's rows by cluster"
    )
    noise_schedule: NoiseSchedule = choice(
        NoiseSchedule, NoiseSchedule.EQUAL, SCHEDULES
    )
    tolerance: float | None = real(
        None,
        0.0,
        math.inf,
        "0.01",
        TOLERANCE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin > 1.0:
            raise ConfigurationError(
                f"margin is {self.margin:g}, but a nearest distance is at most the"
                " second one: give 1.0 or less."
            )


@dataclass(frozen=True)
class ServerKMeansPlusPlusOptions(ClippedOptions):
    """Options of DP-Lloyd after a public start."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        f"Lloyd rounds; automatic: {DEFAULT_ROUNDS}",
        most=1_000,
    )
    sums_bound: float | None = _clip_bound("400.0", "norm of a client's cluster sums")
    counts_bound: float | None = _clip_bound(
        "30.0", "norm of a client's rows by cluster"
    )
    noise_schedule: NoiseSchedule = choice(
        NoiseSchedule, NoiseSchedule.EQUAL, SCHEDULES
    )
    tolerance: float | None = real(
        None,
        0.0,
        math.inf,
        "0.01",
        TOLERANCE,
    )


@dataclass(frozen=True)
class ServerLloydOptions(ServerKMeansPlusPlusOptions):
    """Options of the start from a whole k-means."""

    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means on the server points",
        most=10_000,
    )


@dataclass(frozen=True)
class SpherePackingOptions(ServerKMeansPlusPlusOptions):
    """Options of the start from a sphere packing."""

    packing: PackingMethod = choice(
        PackingMethod, PackingMethod.CORNERS, "search of the sphere packing"
    )


class _OnServerPoints(KMeansTask):
    units = tuple(PrivacyUnit)
    server_data = ServerData.NEEDED
    trust = "distributed"

    def facts(self, public: PublicFacts) -> ServerFacts:
        """What follows from the server's points, without which there is no run."""
        if public.server is None or public.server.n_points == 0:
            raise PlanError(
                f"{self.name!r} starts from the server's own points: give server_data."
            )
        return public.server

    def of_rounds(
        self,
        public: PublicFacts,
        facts: ServerFacts,
        rounds: Sequence[noise_budget.PlannedSum],
    ) -> Algorithm:
        """The rounds with their noise, from a state without centroids."""

        def initial_state(seed: int, server_points: Array | None = None, /) -> State:
            relative = (
                None
                if server_points is None
                else server_points - np.asarray(facts.centre)
            )
            start = np.zeros((self.n_clusters, public.n_features))
            state = kmeans_task.seeded_state(start, seed, relative)
            return _with_mean_beyond(state, relative, facts)

        return Algorithm(
            self.name, noise_budget.private_sums(public, rounds), initial_state
        )

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """Say so besides where most rows end at the border of the server's ball, and
        most of its own points do not.
        """
        found, facts, counts = (
            super().doubts(plan, state, names),
            plan.server,
            state.counts,
        )
        (std, of_rows), own = kmeans_task.counts_std(plan), vars(self.options)
        clear = counts > COUNT_DEVIATIONS * std
        if (
            facts is None
            or not (facts.n_points and of_rows and clear.any())
            or own.get("reduce_diameter")
        ):
            return found
        border = _BORDER * facts.data_radius
        beyond = (
            np.square(state.centroids - np.asarray(facts.centre)).sum(axis=1)
            > border**2
        )
        part = float(
            counts[beyond & clear].sum() / max(counts.sum(), counts[clear].sum())
        )
        # Half of the server's points are longer than the root of that bound, unless it,
        # or what cuts it off, was given.
        free = own.get("data_radius") is own.get("outer_product_bound") is None
        likes = (
            free
            and plan.settings.unit is PrivacyUnit.RECORD
            and facts.outer_product_bound >= border**2
        )
        return (
            found
            if likes or part <= _MOST_AT_BORDER
            else (*found, report_sentence("unlike_server", part=part))
        )

    def counted_rows(self, state: State) -> CountedRows | None:
        """As others, but where no Lloyd round follows the first centroids.

        These may be of clear rows alone.
        """
        counted = super().counted_rows(state)
        margin = getattr(self.options, "margin", 1.0)
        if counted is None or margin == 1.0 or self.max_rounds != 0:
            return counted
        return replace(counted, least_part=0.0)

    def server_points_words(self, plan: Plan) -> str:
        """What clients see of the server's points where these stay on the server."""
        k, width = self.n_clusters, plan.n_features or 0
        shown = f"their projection onto at most {min(k, width)} of {width} directions"
        away = ", which gives them away" if k >= width else ""
        return (
            "stay on the server; clients see their mean, the clip bounds, in the"
            " errors of the centres how far points are beyond these on average, and"
            f" {shown}{away}"
        )


@dataclass(frozen=True, kw_only=True)
class FedDPKMeansTask(_OnServerPoints):
    """FedDP-KMeans (Scott, Lampert, Saulpic 2025), from server data.

    3 + T private sums.
    """

    name = "feddp_kmeans"
    chooses = starts_private = True
    options: FedDPKMeansOptions = FedDPKMeansOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        facts, rounds = self.facts(public), self.options.max_iter
        n_lloyd = DEFAULT_LLOYD_ROUNDS if rounds is None else rounds
        lloyd_total = self.options.lloyd_share if n_lloyd else 0.0
        start, kind = 1.0 - lloyd_total, self.options.noise_kind
        parted, simplified = (
            self.options.reduce_diameter,
            self.options.simplify_server_data,
        )
        part = feddp_appendix.QUARTER * start
        outer, weights, *centers = noise_budget.shared(
            budget_shares(public), start - part * (parted + simplified), kind
        )
        weighed = weights_round(public, facts, weights)
        rounds_of_start = [
            outer_product_round(public, facts, outer),
            weighed,
            centers_round(public, facts, *centers),
        ]
        if simplified:
            rounds_of_start[1:1] = feddp_appendix.simplify_rounds(
                public,
                facts,
                part,
                weighed[1],
            )
        if parted:
            (share,) = noise_budget.shared((1.0,), part, kind)
            rounds_of_start[:0] = [feddp_appendix.parting_round(public, facts, share)]
        return self.of_rounds(
            public,
            facts,
            rounds_of_start
            + lloyd_rounds(
                public,
                facts,
                lloyd_total,
                n_lloyd,
            ),
        )

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        return *super().cautions(plan), *feddp_appendix.cautions(plan)

    def check(self, settings: Settings) -> None:
        super().check(settings)
        feddp_appendix.require_known(self.options, settings)

    def server_points_words(self, plan: Plan) -> str:
        if self.options.reduce_diameter:
            return (
                "are sent to every client, which takes its rows to the nearest of them"
                " (reduce_diameter)"
            )
        return super().server_points_words(plan)


@dataclass(frozen=True, kw_only=True)
class FedDPChooseKTask(_OnServerPoints):
    """The first two rounds alone, on the whole budget.

    The cost curve over k and its elbow (appendix H.3).
    """

    name = "feddp_choose_k"
    chooses = starts_private = True
    options: ChooseKOptions = ChooseKOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        facts = self.facts(public)
        if not self.choose_n_clusters:
            raise PlanError(
                "'feddp_choose_k' looks for the number of clusters: give"
                " n_clusters='auto'."
            )
        outer, weights = noise_budget.shared(
            budget_shares(public)[:2], 1.0, self.options.noise_kind
        )
        rounds = [
            outer_product_round(public, facts, outer),
            weights_round(public, facts, weights),
        ]
        return self.of_rounds(public, facts, rounds)


@dataclass(frozen=True, kw_only=True)
class PublicStartTask(_OnServerPoints):
    """A start that costs no privacy, then T Lloyd rounds on clipped sums (paper,
    section 5).
    """

    options: ServerKMeansPlusPlusOptions = ServerKMeansPlusPlusOptions()

    @abstractmethod
    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        """First centroids, (n_clusters, n_features), from public randomness and the
        server's points, if it has any.
        """

    def build(self, public: PublicFacts) -> Algorithm:
        """The whole budget goes to the rounds.

        After the start the server's points are not needed any more.
        """
        facts, rounds = self.facts(public), self.options.max_iter
        planned = lloyd_rounds(
            public,
            facts,
            1.0,
            DEFAULT_ROUNDS if rounds is None else rounds,
        )

        def initial_state(seed: int, server_points: Array | None = None, /) -> State:
            if server_points is None and self.server_data is ServerData.NEEDED:
                raise PlanError(
                    "the server's points are not at hand: give server_data."
                )
            points = (
                np.empty((0, public.n_features))
                if server_points is None
                else server_points
            )
            start = round_to_grid(truncate(self.start(public, seed, points)))
            relative = points - np.asarray(facts.centre)
            state = kmeans_task.seeded_state(start, seed)
            return _with_mean_beyond(state, relative, facts)

        return Algorithm(
            self.name, noise_budget.private_sums(public, planned), initial_state
        )

    def server_points_words(self, plan: Plan) -> str:
        return (
            "stay on the server, except for their mean, the clip bounds, how far they"
            " are beyond these on average, which errors of the centres show, and the"
            " start that is made of them (with 'server_kmeans++' some of the points"
            " themselves)"
        )


@dataclass(frozen=True, kw_only=True)
class ServerKMeansPlusPlusTask(PublicStartTask):
    """k-means++ on the server's points, then DP-Lloyd."""

    name = "server_kmeans++"

    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        weights, generator = np.ones(len(points)), np.random.default_rng(seed)
        return points[
            public_points.plus_plus(
                points,
                weights,
                self.n_clusters,
                generator,
                is_greedy=True,
            )
        ]


@dataclass(frozen=True, kw_only=True)
class ServerLloydTask(PublicStartTask):
    """k-means of the server's points, with restarts, then DP-Lloyd."""

    name = "server_lloyd"
    options: ServerLloydOptions = ServerLloydOptions()

    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        return weighted_kmeans(
            points,
            np.ones(len(points)),
            self.n_clusters,
            n_init=self.options.n_init,
            seed=seed,
        )[0]


@dataclass(frozen=True, kw_only=True)
class SpherePackingTask(PublicStartTask):
    """Sphere packing (appendix G.3), then DP-Lloyd on clipped sums.

    Server points, if any, set the clip bounds.
    """

    name = "sphere_packing"
    server_data = ServerData.BOUNDS
    options: SpherePackingOptions = SpherePackingOptions()

    def start(
        self,
        public: PublicFacts,
        seed: int,
        points: Array,
    ) -> Array:
        return sphere_packing(
            self.n_clusters,
            public.n_features,
            np.random.default_rng(seed),
            self.options.packing,
        )

    def facts(self, public: PublicFacts) -> ServerFacts:
        """What follows from the server's points or, without, from the box."""
        require_packable(self.n_clusters, public.n_features)
        return public.server or facts_without_server(public.config, public.n_features)


def budget_shares(public: PublicFacts) -> tuple[float, ...]:
    """Shares as configured, or the paper's rule of thumb for the unit."""
    shares: tuple[float, ...] | None = public.options.budget_shares
    return shares or RULE_OF_THUMB[public.settings.unit]


def outer_product_round(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> noise_budget.PlannedSum:
    """Step 1: the projection onto the leading eigenvectors of the clients' outer
    product (Algorithm 1, lines 2-7).

    Clients round their sums to the grid, which adds to the sensitivity at record level;
    at client level the whole triangle is clipped and rounded toward zero: nothing is
    added.
    """
    n_components = min(public.config.n_clusters, public.n_features)
    size = outer_products.triangle_size(public.n_features)
    per_client = public.settings.unit is PrivacyUnit.CLIENT
    if per_client:
        radius = facts.data_radius
        moved = _clipped(
            "S6",
            "outer product, in Frobenius norm,",
            Norm.L2,
            facts.outer_product_bound,
        )
    else:
        radius = math.sqrt(facts.outer_product_bound)
        # Each party rounds its own sum, so two neighbours' sums may also differ by a
        # grid step in each entry.
        bound = facts.outer_product_bound + outer_product_rounding(size)
        because = (
            "S5: one row x within the radius R adds x x^T, of Frobenius norm at most"
            " R^2, plus one grid step of rounding in each entry; entries off the"
            " diagonal are sent times sqrt(2) (FedDP-KMeans, section 3, step 1)"
        )
        moved = Sensitivity(
            Norm.L2,
            bound,
            PrivacyUnit.RECORD,
            because,
        )

    def summed(points: Array, state: State) -> Sequence[Array]:
        return [
            outer_products.outer_product_sums(
                points,
                lambda rows: centred(
                    rows,
                    facts,
                    radius,
                    state,
                ),
            )
        ]

    def statistic(points: Array, state: State) -> Sequence[Array]:
        triangle = triangle_of(*summed(points, state))
        return [
            (
                clip_vector(triangle, facts.outer_product_bound)
                if per_client
                else round_to_grid(triangle)
            )
        ]

    def advance(state: State, released: ReleasedSum) -> State:
        noise = public.released_std(released.blocks[0])
        matrix = symmetric_from_triangle(released["outer_product"], public.n_features)
        server_points = state[SERVER_POINTS]
        if public.options.server_prior:
            matrix, _ = projected.shrink_to_server(
                matrix, clip_rows(server_points, radius), noise
            )
        # Directions of noise would hide the elbow, and where k is to be chosen there
        # are more of them than clusters.
        auto = public.config.choose_n_clusters
        n_kept = (
            projected.standing_out(matrix, noise, n_components)
            if auto
            else n_components
        )
        projection = projected.leading_eigenvectors(matrix, n_kept)
        points = round_to_grid(server_points @ projection)
        return state.view((SEED, MEAN_BEYOND, *feddp_appendix.MOVED)).changed(
            **{PROJECTION: projection, PROJECTED_POINTS: points}
        )

    parts = [
        noise_budget.ReleasePart(
            "outer_product",
            (size,),
            moved,
            share,
            moved.bound,
        )
    ]
    reads, admits = _with_parts(
        public,
        facts,
        (),
        None,
    )
    exact = summed, rounded_triangle
    return parts, PrivateSum(
        "outer-product",
        (),
        statistic,
        advance,
        radius,
        reads,
        admits,
        unrounded=exact,
    )


def outer_product_rounding(size: int) -> float:
    """What rounding a client's sum of `size` entries to the grid adds to the
    sensitivity at record level.
    """
    return math.sqrt(size) * _ROUNDING


def centred(
    points: Array,
    facts: ServerFacts,
    radius: float,
    state: State,
) -> Array:
    """Rows relative to the public centre, where Lemma 17 has them, clipped to the ball
    of a radius; on the grid.
    """
    return clip_rows(
        feddp_appendix.moved_rows(points - np.asarray(facts.centre), state), radius
    )


def _with_parts(
    public: PublicFacts,
    facts: ServerFacts,
    reads: tuple[str, ...],
    admits: Callable[[State], bool] | None,
) -> tuple[tuple[str, ...], Callable[[State], bool] | None]:
    """What a round reads, and admits, with what Lemma 17 has found, if it is to."""
    if not getattr(public.options, "reduce_diameter", False):
        return reads, admits

    def both(state: State) -> bool:
        return feddp_appendix.admits_moved(state, facts, public.n_features) and (
            admits is None or admits(state)
        )

    return (*reads, *feddp_appendix.MOVED), both


def weights_round(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> noise_budget.PlannedSum:
    """Step 2: how many rows each projected server point stands for, and their k-means
    (Algorithm 1, lines 8-17).
    """
    config = public.config
    norm, order = noise_budget.count_norm(config), noise_budget.count_order(config)
    per_client = config.settings.unit is PrivacyUnit.CLIENT
    if per_client:
        moved = _clipped(
            "S8",
            "histogram",
            norm,
            facts.weights_bound,
            nonnegative=True,
        )
    else:
        nearest = (
            "S7: one row is nearest to one server point (FedDP-KMeans, section 3,"
            " step 2)"
        )
        moved = Sensitivity(
            norm,
            1.0,
            PrivacyUnit.RECORD,
            nearest,
            nonnegative=True,
        )

    @in_blocks
    def counted(points: Array, state: State) -> Sequence[Array]:
        rows = centred(
            points,
            facts,
            facts.data_radius,
            state,
        )
        labels = nearest_projected(rows, state[PROJECTION], state[PROJECTED_POINTS])
        return [np.bincount(labels, minlength=facts.n_points).astype(np.float64)]

    def statistic(points: Array, state: State) -> Sequence[Array]:
        (histogram,) = counted(points, state)
        return [
            (
                clip_vector(histogram, facts.weights_bound, order=order)
                if per_client
                else histogram
            )
        ]

    def advance(state: State, released: ReleasedSum) -> State:
        least = public.options.weight_threshold * public.released_std(
            released.blocks[0]
        )
        weights = _without_noise_weights(
            released["weights"][: len(state[PROJECTED_POINTS])], least
        )
        centers, curve = clustered(
            config,
            state[PROJECTED_POINTS],
            weights,
            kmeans_task.seed_of(state),
        )
        # In the space of the data: the best guess before step 3.
        lifted = feddp_appendix.moved_back(centers @ state[PROJECTION].T, state)
        lifted = round_to_grid(truncate(lifted + np.asarray(facts.centre)))
        return state.changed(
            centroids=lifted,
            counts=np.zeros(len(lifted)),
            **curve,
            **{PROJECTED_CENTERS: centers},
        )

    def admits(state: State) -> bool:
        appended = getattr(public.options, "least_weight", None) is not None
        complete = appended or len(state.arrays[PROJECTED_POINTS]) == facts.n_points
        return complete and has_exact_projection(
            state,
            PROJECTED_POINTS,
            public,
            facts.n_points,
        )

    parts = [
        noise_budget.ReleasePart(
            "weights",
            (facts.n_points,),
            moved,
            share,
            moved.bound,
        )
    ]
    own = _with_parts(
        public,
        facts,
        (PROJECTION, PROJECTED_POINTS),
        admits,
    )
    return parts, PrivateSum(
        "weights",
        (),
        statistic,
        advance,
        facts.data_radius,
        *own,
    )


def clustered(
    config: RunConfig,
    points: Array,
    weights: Array,
    seed: int,
    *,
    n_features: int | None = None,
) -> tuple[Array, dict[str, Array]]:
    """Weighted k-means, on the grid.

    Where k is to be chosen, at the elbow of the cost curve, which is an extra.
    """
    k, n_init = config.n_clusters, config.n_init
    if not config.choose_n_clusters:
        return (
            round_to_grid(
                weighted_kmeans(
                    points,
                    weights,
                    k,
                    n_init=n_init,
                    seed=seed,
                )[0]
            ),
            {},
        )
    if not np.any(weights > 0.0):
        # Noise has left nothing to choose from, which a curve of zeros says: see
        # `KMeansTask.doubts`.
        center, _ = weighted_kmeans(
            points,
            weights,
            1,
            n_init=n_init,
            seed=seed,
        )
        return round_to_grid(center), {COST_CURVE: np.zeros(k)}
    costs, found = cost_curve(
        points,
        weights,
        k,
        n_init=n_init,
        seed=seed,
    )
    chosen = elbow(
        costs, n_features=n_features, n_points=int(np.count_nonzero(weights))
    )
    return round_to_grid(found[chosen - 1]), {COST_CURVE: round_to_grid(costs)}


def _without_noise_weights(weights: Array, threshold: float) -> Array:
    """Drop weights below the threshold, which noise alone may have made.

    The largest stay.
    """
    least = max(0.0, min(threshold, float(np.quantile(weights, 1.0 - _ALWAYS_KEPT))))
    return np.where(weights >= least, weights, 0.0)


def centers_round(
    public: PublicFacts,
    facts: ServerFacts,
    sums_share: float,
    counts_share: float,
) -> noise_budget.PlannedSum:
    """Step 3: the rows nearest to each projected centre give the first centroids
    (Algorithm 1, lines 18-24).
    """
    margin = public.options.margin

    def labels_of(rows: Array, state: State) -> LabelArray:
        return clear_labels(
            rows,
            state[PROJECTION],
            state[PROJECTED_CENTERS],
            margin,
        )

    def advance(state: State, released: ReleasedSum) -> State:
        centroids, counts = _new_centroids(
            state,
            released,
            facts,
            public.noise_factor,
        )
        after = state.changed(centroids=centroids, counts=counts)
        return _with_deviations(
            public,
            facts,
            state,
            after,
            released,
        )

    def admits(state: State) -> bool:
        return has_exact_projection(
            state,
            PROJECTED_CENTERS,
            public,
            public.config.n_clusters,
        )

    parts, statistic = _cluster_sums(
        public,
        facts,
        (sums_share, counts_share),
        labels_of,
        as_means=True,
    )
    own = _with_parts(
        public,
        facts,
        (PROJECTION, PROJECTED_CENTERS),
        admits,
    )
    return parts, PrivateSum(
        "centers",
        (),
        statistic,
        advance,
        facts.data_radius,
        *own,
    )


def lloyd_rounds(
    public: PublicFacts,
    facts: ServerFacts,
    total: float,
    n_rounds: int,
) -> list[noise_budget.PlannedSum]:
    """FedDP-Lloyd (Algorithm 2): as step 3, with distances in the space of the data.

    Clients send sums and counts.

    The T rounds take `total` of the budget together, each split as the centers round
    is.
    """
    centre = np.asarray(facts.centre)

    def labels_of(rows: Array, state: State) -> LabelArray:
        return nearest_projected(
            rows,
            None,
            feddp_appendix.moved_centroids(state.centroids - centre, state, facts),
        )

    def advance(state: State, released: ReleasedSum) -> State:
        centroids, counts = _new_centroids(
            state,
            released,
            facts,
            public.noise_factor,
        )
        after = kmeans_task.stepped(state, centroids, counts)
        return _with_deviations(
            public,
            facts,
            state,
            after,
            released,
        )

    def one_round(index: int, part: float) -> noise_budget.PlannedSum:
        shares = noise_budget.shared(
            budget_shares(public)[2:],
            part * total / n_rounds,
            public.options.noise_kind,
        )
        parts, statistic = _cluster_sums(
            public,
            facts,
            shares,
            labels_of,
        )
        own = _with_parts(
            public,
            facts,
            (),
            None,
        )
        return parts, PrivateSum(
            f"lloyd-{index}",
            (),
            statistic,
            advance,
            facts.data_radius,
            *own,
        )

    return [
        one_round(index, part)
        for index, part in enumerate(
            public.options.noise_schedule.parts(n_rounds), start=1
        )
    ]


def _cluster_sums(
    public: PublicFacts,
    facts: ServerFacts,
    shares: Sequence[float],
    labels_of: Callable[[Array, State], LabelArray],
    *,
    as_means: bool = False,
) -> tuple[list[noise_budget.ReleasePart], Callable[[Array, State], Sequence[Array]]]:
    """Sums and counts by label, of a client clipped or, in step 3, turned into means
    and indicators: what and how.
    """
    k, d = public.config.n_clusters, public.n_features
    norm, order = (
        noise_budget.count_norm(public.config),
        noise_budget.count_order(public.config),
    )

    @in_blocks
    def sums_of(points: Array, state: State) -> Sequence[Array]:
        rows = centred(
            points,
            facts,
            facts.data_radius,
            state,
        )
        return sums_and_counts(rows, labels_of(rows, state), k)

    if public.settings.unit is PrivacyUnit.RECORD:
        # The centre is public, so the row's distance from it is all that one row adds.
        because = (
            "S9: one row, clipped to the data radius, lies in one cluster"
            " (FedDP-KMeans, section 3, step 3)"
        )
        sums = Sensitivity(
            Norm.L2,
            facts.data_radius,
            PrivacyUnit.RECORD,
            because,
        )
        return [
            noise_budget.ReleasePart(
                "clipped_sums",
                (k, d),
                sums,
                shares[0],
                sums.bound,
            ),
            noise_budget.ReleasePart(
                "counts",
                (k,),
                counts_sensitivity(norm),
                shares[1],
                1.0,
            ),
        ], sums_of
    names, what = (
        ("clipped_sums", "counts"),
        ("list of cluster sums", "list of rows by cluster"),
    )
    bounds = facts.sums_bound, facts.counts_bound
    if as_means:
        names, what = (
            ("means", "indicators"),
            ("list of cluster means", "list of non-empty clusters"),
        )
        bounds = facts.means_bound, facts.indicators_bound

    def clipped_of(points: Array, state: State) -> Sequence[Array]:
        vectors, numbers = sums_of(points, state)
        if as_means:
            vectors, numbers = projected_sums.means_and_indicators(vectors, numbers)
        return clipped_together(
            vectors,
            numbers,
            *bounds,
            order=order,
        )

    vectors = _clipped(
        "S10",
        what[0],
        Norm.L2,
        bounds[0],
    )
    numbers = _clipped(
        "S10",
        what[1],
        norm,
        bounds[1],
        nonnegative=True,
    )
    # An indicator is 0 or 1 before the list is scaled down.
    entry = min(1.0, numbers.bound) if as_means else numbers.bound
    return [
        noise_budget.ReleasePart(
            names[0],
            (k, d),
            vectors,
            shares[0],
            vectors.bound,
        ),
        noise_budget.ReleasePart(
            names[1],
            (k,),
            numbers,
            shares[1],
            entry,
        ),
    ], clipped_of


def _new_centroids(
    state: State,
    released: ReleasedSum,
    facts: ServerFacts,
    noise_factor: float,
) -> tuple[Array, Array]:
    """Quotients of released sums and counts.

    a cluster whose count is lost in its noise keeps the centroid it had.
    """
    k, (summed, counted) = len(state.centroids), released.blocks
    sums, counts = released[summed.name][:k], released[counted.name][:k]
    least = min(1.0, counted.sensitivity.bound) + counted.noise_scale * noise_factor
    found = counts > least
    means = sums / np.where(found, counts, 1.0)[:, None]
    # The means of clipped rows lie in the ball, so noise that leaves it is cut off.
    inside = feddp_appendix.moved_back(
        clip_rows(round_to_grid(means), facts.data_radius), state
    )
    centroids = np.where(
        found[:, None], truncate(inside + np.asarray(facts.centre)), state.centroids
    )
    return round_to_grid(centroids), counts


def _with_mean_beyond(
    state: State,
    points: Array | None,
    facts: ServerFacts,
) -> State:
    """Add what the server's points, relative to their centre, have beyond the data
    radius on average: rows are expected to have as much.
    """
    if points is None or not len(points):
        return state
    beyond = np.maximum(np.linalg.norm(points, axis=1) - facts.data_radius, 0.0)
    return state.changed(**{MEAN_BEYOND: round_to_grid(beyond.mean(keepdims=True))})


def _with_deviations(
    public: PublicFacts,
    facts: ServerFacts,
    before: State,
    after: State,
    released: ReleasedSum,
) -> State:
    """Add how far the new centres may be from the means of the rows that they label.

    Rows are expected beyond the data radius as far as the server's points are. A
    client's own means are clipped, and what that cuts is not released: nothing is
    said at client level.
    """
    if public.settings.unit is PrivacyUnit.CLIENT:
        return after
    sums_noise, counts_noise = map(public.released_std, released.blocks)
    offsets = after.centroids - np.asarray(facts.centre)
    quotients = quotient_deviations(
        offsets,
        after.counts,
        sums_noise,
        counts_noise,
    )
    moved = moved_labels(before.centroids, after.centroids)
    # Without points of a server the ball holds the box, and nothing is cut.
    cut = np.zeros(offsets.shape)
    if MEAN_BEYOND in before.arrays:
        beyond = before[MEAN_BEYOND].item()
        cut = pulled_rows(offsets, after.counts, beyond)
    deviations = on_grid(quotients, cut, moved)
    return after.changed(**{kmeans_task.CENTRE_DEVIATION: deviations})


def has_exact_projection(
    state: State,
    name: str,
    public: PublicFacts,
    most_rows: int,
) -> bool:
    """Whether a server's projection and its projected points or centres have the plan's
    shapes and are exact.
    """
    projection, table = state.arrays[PROJECTION], state.arrays[name]
    d, k = public.n_features, public.config.n_clusters
    if (
        projection.ndim != 2
        or len(projection) != d
        or not 1 <= projection.shape[1] <= min(k, d)
    ):
        return False
    shaped = kmeans_task.is_table(table, most_rows, projection.shape[1])
    return (
        shaped
        and kmeans_task.is_projection(projection)
        and kmeans_task.is_near(table, d)
    )


def _clipped(
    row: str,
    what: str,
    norm: Norm,
    bound: float,
    *,
    nonnegative: bool = False,
) -> Sensitivity:
    because = (
        f"{row}: one client's {what} is scaled down to the bound (FedDP-KMeans,"
        " appendix G.4)"
    )
    return Sensitivity(
        norm,
        bound,
        PrivacyUnit.CLIENT,
        because,
        nonnegative,
    )
