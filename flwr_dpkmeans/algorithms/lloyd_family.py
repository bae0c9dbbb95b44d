"""FastLloyd (Diaa, Humphries, Kerschbaum 2025), and GLloyd, SuLloyd (Su et al. 2016)
and Lloyd on absolute sums.

All start from a sphere packing. On absolute sums, centroids that leave the box are
truncated to it by default: it costs nothing, and with independent noise on sums and
counts an unbounded quotient is much worse than the papers' figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from flwr_dpkmeans.algorithms.kmeans_task import (
    CENTRE_DEVIATION,
    MAX_ITERATIONS,
    KMeansTask,
    cluster_state,
    stepped,
)
from flwr_dpkmeans.algorithms.noise_budget import (
    SCHEDULES,
    TOLERANCE,
    NoiseSchedule,
    root_at_least,
)
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics, relative_statistics
from flwr_dpkmeans.kmeans import lloyd
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import dropped_rows
from flwr_dpkmeans.kmeans.centre_errors.intervals import on_grid
from flwr_dpkmeans.kmeans.centre_errors.moved_labels import moved_labels
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import quotient_deviations
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.kmeans.lloyd import relative_update
from flwr_dpkmeans.kmeans.public_points import PackingMethod, sphere_packing
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.calibration import calibrate_scale
from flwr_dpkmeans.privacy.closeness import (
    Closeness,
    discrete_gaussian_closeness,
    joint_closeness,
)
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.option_rules import Options, choice, flag, real, whole
from flwr_dpkmeans.sums.outcome import CountedRows
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, InitialState, PrivateSum, State

MIN_ITERATIONS = 2
ERROR_TARGET = 0.004
"""Mean squared error per iteration that the number of iterations aims at (Su et al.
2016).
"""
MOST_PACKING_WORK = 10**9
"""Largest k^2 d of a sphere packing, half a minute or so.

a plan comes from a server that may be hostile.
"""
RHO = 0.225
"""Su et al.'s estimate of a normalised centroid coordinate, used by SuLloyd and GLloyd.
"""
SULLOYD_CONSTANT = 500.0
BOX_BOUND = 1.0
"""B: data live in [-B, B]^d."""
_LEAST_WITHIN = 0.5
"""Part of all rows that lies within the radius of FastLloyd's centroids, unless these
fit badly.
"""
_Split = Callable[[float, int], tuple[float, float]]


@dataclass(frozen=True)
class PackedOptions(Options):
    """What all algorithms that start from a sphere packing have."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        "number of iterations; automatic: the paper's estimate",
        most=1_000,
    )
    packing: PackingMethod = choice(
        PackingMethod, PackingMethod.BISECT, "search of the sphere packing"
    )
    post_processing: PostProcessing | None = choice(
        PostProcessing,
        None,
        "what happens to centroids that leave the box; automatic: the algorithm's own",
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


class _Packed(KMeansTask):
    """A start from a sphere packing, then iterations whose number follows from the
    noise.
    """

    options: PackedOptions

    def iterations(self, estimate: float) -> int:
        """Floor the paper's estimate and clip it to [2, 7], unless ``max_iter``
        overrides it.
        """
        if self.max_rounds is not None:
            return self.max_rounds
        if not math.isfinite(estimate):
            return MAX_ITERATIONS
        return int(min(max(math.floor(estimate), MIN_ITERATIONS), MAX_ITERATIONS))

    def calibrated(
        self,
        public: PublicFacts,
        estimate: Callable[[float], float],
        split: _Split,
        bound: float,
    ) -> tuple[float, int]:
        """The least multiplier sigma of all iterations' Gaussian noise together, and
        their number T.

        `estimate` says T for a sigma, `split` the multipliers of sums and counts; sums
        have a sensitivity of `bound`.
        """
        k, d = self.n_clusters, public.n_features

        def closeness_at(sigma: float) -> Closeness:
            t = self.iterations(estimate(sigma))
            sums, counts = split(sigma * math.sqrt(t), d)
            # As if every round had the least noise of all.
            unit = 2.0**public.fraction_bits / math.sqrt(
                max(self.options.noise_schedule.parts(t))
            )
            arrays = [(sums * bound, k * d), (counts, k)]
            return joint_closeness(
                [
                    discrete_gaussian_closeness(max(1.0, std * unit), n)
                    for std, n in arrays
                ]
                * t
            )

        sigma = public.calibrate(closeness_at)
        return sigma, self.iterations(estimate(sigma))

    def packed_state(self, public: PublicFacts) -> InitialState:
        """Start from a sphere packing: data-independent, from a seed that everybody
        knows.
        """
        k, d = self.n_clusters, public.n_features
        require_packable(k, d)

        def initial_state(seed: int, server_points: Array | None = None, /) -> State:
            return cluster_state(
                sphere_packing(
                    k,
                    d,
                    np.random.default_rng(seed),
                    self.options.packing,
                ),
                np.zeros(k),
            )

        return initial_state

    def lloyd_round(
        self,
        public: PublicFacts,
        index: int,
        sums: Block,
        counts_multiplier: float,
        statistic: Callable[[Array, State], Sequence[Array]],
        update: Callable[[Array, Array, Array], Array],
        radius: float | None = None,
    ) -> PrivateSum:
        """One iteration: `statistic` gives sums and counts, ``update(centroids, sums,
        counts)`` the next centroids.
        """
        counted = counts_sensitivity(sums.sensitivity.norm)
        counts = Block(
            "counts",
            (self.n_clusters,),
            counted,
            self.noise,
            counts_multiplier,
            1.0,
        )

        def advance(state: State, released: ReleasedSum) -> State:
            moved = update(state.centroids, released[sums.name], released["counts"])
            after = stepped(state, moved, released["counts"])
            noise = [public.released_std(block) for block in released.blocks]
            deviations = self.centre_deviations(
                public,
                state,
                after,
                noise,
                radius,
            )
            return after.changed(**{CENTRE_DEVIATION: deviations})

        return PrivateSum(
            f"lloyd-{index}",
            (sums, counts),
            statistic,
            advance,
            radius,
            in_blocks=True,
        )

    def centre_deviations(
        self,
        public: PublicFacts,
        before: State,
        after: State,
        noise: Sequence[float],
        radius: float | None,
    ) -> Array:
        """How far the new centres may be from the means of the rows that they label,
        (k, d), on the grid.

        `noise` is that of sums and counts. Sums of the residuals within a radius are
        relative to their own centres.
        """
        moved = moved_labels(before.centroids, after.centroids)
        offsets, cut = after.centroids, 0.0
        if radius is not None:
            offsets = after.centroids - before.centroids
            n_rows = float(public.required_n_examples)
            cut = dropped_rows(
                after.counts,
                noise[1],
                n_rows,
                radius,
            )
        quotients = quotient_deviations(offsets, after.counts, *noise)
        return on_grid(quotients, cut, moved)

    def scheduled(
        self,
        public: PublicFacts,
        rounds: Sequence[PrivateSum],
    ) -> Algorithm:
        """The rounds, which were planned with equal noise, with each its part of the
        budget.
        """
        parts = self.options.noise_schedule.parts(len(rounds))
        power = 1.0 if self.noise is NoiseShape.LAPLACE else 0.5

        def with_part(planned: PrivateSum, part: float) -> PrivateSum:
            # A little more than due, so that rounding costs nothing; equal parts are 1,
            # exactly.
            factor = 1.0 if part == 1.0 else (1.0 + 1e-12) * part**-power
            own = [
                replace(block, noise_multiplier=block.noise_multiplier * factor)
                for block in planned.blocks
            ]
            return replace(planned, blocks=tuple(own))

        return Algorithm(
            self.name, tuple(map(with_part, rounds, parts)), self.packed_state(public)
        )


def require_packable(n_clusters: int, n_features: int) -> None:
    """Refuse a sphere packing that would keep every client busy for minutes.

    Its work grows with k^2 d.
    """
    if n_clusters**2 * n_features > MOST_PACKING_WORK:
        raise ConfigurationError(
            f"n_clusters is {n_clusters} with {n_features} features, but a start by"
            f" sphere packing may take at most k^2 d = {MOST_PACKING_WORK:.0e} steps:"
            " choose fewer clusters, or an algorithm without it such as 'proxy_lloyd'."
        )


def counts_sensitivity(norm: Norm = Norm.L2) -> Sensitivity:
    """Say how far one row moves the counts of clusters, in either norm."""
    return Sensitivity(
        norm,
        1.0,
        PrivacyUnit.RECORD,
        "S2: one row lies in at most one cluster",
        True,
    )


class Schedule(Enum):
    """The radius over the iterations: half the diagonal first, then the radius.

    Or always the radius.
    """

    STEP = "step"
    CONSTANT = "constant"


@dataclass(frozen=True)
class FastLloydOptions(PackedOptions):
    """Options of FastLloyd."""

    alpha: float = real(
        0.8,
        1e-6,
        1e6,
        "0.8",
        "radius over half a cell's diagonal (equation 25)",
    )
    schedule: Schedule = choice(
        Schedule, Schedule.STEP, "radius of the first iteration"
    )
    radius_clipping: bool = flag(True, "clip steps to the radius")


@dataclass(frozen=True, kw_only=True)
class FastLloydTask(_Packed):
    """FastLloyd (Diaa, Humphries, Kerschbaum 2025).

    Relative sums of the points within a radius, Gaussian noise.
    """

    name = "fastlloyd"
    needs_n_examples = True
    options: FastLloydOptions = FastLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """T iterations (equation 21, clipped to [2, 7]) with the smallest sigma that
        costs epsilon (equation 7).
        """
        k, d = self.n_clusters, public.n_features
        eta = cluster_radius(self.options.alpha, k, d)
        first = d**0.5 * BOX_BOUND if self.options.schedule is Schedule.STEP else eta

        def estimate(sigma: float) -> float:
            n = float(public.required_n_examples)
            scale = k**3 * eta**2 * sigma**2 * (1.0 + math.sqrt(4.0 * d)) ** 2
            return ERROR_TARGET * 4.0 * n**2 / scale

        sigma, t = self.calibrated(
            public,
            estimate,
            split_multiplier,
            min(first, eta),
        )
        multipliers = split_multiplier(sigma, d)
        radii = (first,) + (eta,) * (t - 1)
        rounds = [
            self._iteration(
                public,
                index,
                radius,
                multipliers,
                t,
            )
            for index, radius in enumerate(radii, start=1)
        ]
        return self.scheduled(public, rounds)

    def counted_rows(self, state: State) -> CountedRows | None:
        """Rows within the radius of a centroid.

        a run that drops most of its rows has other faults.
        """
        counted = super().counted_rows(state)
        if counted is None:
            return None
        others = report_sentence("beyond_radius")
        return replace(counted, least_part=_LEAST_WITHIN, others=others)

    def sums_sensitivity(
        self,
        radius: float,
        n_features: int,
    ) -> Sensitivity:
        """Rows beyond the radius are left out, so that no row adds more however the
        centroids lie.
        """
        within = (
            "S1: one row lies in one cluster, within the radius of its centroid"
            " (FastLloyd, Theorem 5.1)"
        )
        return Sensitivity(
            Norm.L2,
            radius,
            PrivacyUnit.RECORD,
            within,
        )

    def _iteration(
        self,
        public: PublicFacts,
        index: int,
        radius: float,
        multipliers: tuple[float, float],
        n_iterations: int,
    ) -> PrivateSum:
        """One iteration: noise std sigma_R * radius * sqrt(T) on sums, sigma_C *
        sqrt(T) on counts (equations 8, 9).
        """
        sums_multiplier, counts_multiplier = (
            one * math.sqrt(n_iterations) for one in multipliers
        )
        n_features = public.n_features
        moved = self.sums_sensitivity(radius, n_features)
        # In one coordinate a row of the box is at most the radius from its centroid,
        # which is in the box, or near it.
        processed = self.options.post_processing is not PostProcessing.NONE
        farthest = BOX_BOUND if processed else lloyd.SATURATION
        entry = min(radius, BOX_BOUND + farthest)
        shape = (self.n_clusters, n_features)
        block = Block(
            "relative_sums",
            shape,
            moved,
            self.noise,
            sums_multiplier,
            entry,
        )

        def statistic(points: Array, state: State) -> Sequence[Array]:
            return relative_statistics(points, state.centroids, radius)

        def update(
            centroids: Array,
            sums: Array,
            counts: Array,
        ) -> Array:
            """Step by R~/C~, clip the step to the radius, fold into the box (section
            5.3.5).
            """
            clip, post_processing = (
                self.options.radius_clipping,
                self.options.post_processing or PostProcessing.FOLD,
            )
            clip_radius = radius if clip else None
            return relative_update(
                centroids,
                sums,
                counts,
                clip_radius=clip_radius,
                post_processing=post_processing,
            )

        return self.lloyd_round(
            public,
            index,
            block,
            counts_multiplier,
            statistic,
            update,
            radius,
        )


def cluster_radius(
    alpha: float,
    n_clusters: int,
    n_features: int,
) -> float:
    """Radius eta = alpha * beta / (2 k^(1/d)) with beta = 2 B sqrt(d) (equations
    22-25).
    """
    diagonal = 2.0 * BOX_BOUND * math.sqrt(n_features)
    # Twelve digits, so that a pow that differs in its last digit does not make two
    # machines' states differ.
    return float(f"{alpha * diagonal / (2.0 * n_clusters ** (1.0 / n_features)):.12g}")


def split_multiplier(noise_multiplier: float, n_features: int) -> tuple[float, float]:
    """Split sigma into (sigma_R, sigma_C) with 1/sigma_R^2 + 1/sigma_C^2 = 1/sigma^2
    (equation 7).
    """
    root = math.sqrt(4.0 * n_features)
    counts = noise_multiplier * math.sqrt(1.0 + root)
    return counts / math.sqrt(root), counts


class _OnAbsoluteSums(_Packed):
    """T equal iterations on absolute sums of points in [-1, 1]^d."""

    def iterating(
        self,
        public: PublicFacts,
        n_iterations: int,
        sums_multiplier: float,
        counts_multiplier: float,
    ) -> Algorithm:
        k, d = self.n_clusters, public.n_features
        norm, bound, because = (
            Norm.L2,
            root_at_least(d),
            "S3: one row of [-1, 1]^d has L2 norm at most sqrt(d)",
        )
        if self.noise is NoiseShape.LAPLACE:
            norm, bound, because = (
                Norm.L1,
                float(d),
                "S4: one row of [-1, 1]^d has L1 norm at most d",
            )
        # A row's own coordinates are summed, so one entry moves by at most 1, the box's
        # half width.
        moved = Sensitivity(
            norm,
            bound,
            PrivacyUnit.RECORD,
            because,
        )
        block = Block(
            "sums",
            (k, d),
            moved,
            self.noise,
            sums_multiplier,
            1.0,
        )
        post_processing = self.options.post_processing or PostProcessing.TRUNCATE

        def statistic(points: Array, state: State) -> Sequence[Array]:
            return absolute_statistics(points, state.centroids)

        def update(
            centroids: Array,
            sums: Array,
            counts: Array,
        ) -> Array:
            return lloyd.absolute_update(
                centroids,
                sums,
                counts,
                post_processing=post_processing,
            )

        numbers = range(1, n_iterations + 1)
        rounds = [
            self.lloyd_round(
                public,
                index,
                block,
                counts_multiplier,
                statistic,
                update,
            )
            for index in numbers
        ]
        return self.scheduled(public, rounds)


@dataclass(frozen=True)
class GLloydOptions(PackedOptions):
    """Options of GLloyd."""


@dataclass(frozen=True, kw_only=True)
class GLloydTask(_OnAbsoluteSums):
    """DP-Lloyd, Gaussian noise: sums with L2 sensitivity sqrt(d), counts with 1
    (FastLloyd paper, appendix B.1).
    """

    name = "glloyd"
    needs_n_examples = True
    options: GLloydOptions = GLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        k, d = self.n_clusters, public.n_features

        def estimate(sigma: float) -> float:
            n = float(public.required_n_examples)
            return (
                ERROR_TARGET
                * n**2
                / (k**3 * d * sigma**2 * (2.0 * RHO + math.sqrt(d)) ** 2)
            )

        sigma, t = self.calibrated(
            public,
            estimate,
            glloyd_split,
            math.sqrt(d),
        )
        return self.iterating(public, t, *glloyd_split(sigma * math.sqrt(t), d))


def glloyd_split(noise_multiplier: float, n_features: int) -> tuple[float, float]:
    """Split sigma into (sigma_S, sigma_C) (FastLloyd paper, equation 31, solved with
    equation 30).
    """
    root = math.sqrt(2.0 * RHO + math.sqrt(n_features))
    return (
        noise_multiplier * root / n_features**0.25,
        noise_multiplier * root / math.sqrt(2.0 * RHO),
    )


@dataclass(frozen=True)
class SuLloydOptions(PackedOptions):
    """Options of SuLloyd."""


@dataclass(frozen=True, kw_only=True)
class SuLloydTask(_OnAbsoluteSums):
    """DP-Lloyd, Laplace noise (Su et al.): sums with L1 sensitivity d, counts with 1,
    epsilon/T per iteration.

    Other releases (private count, histograms, evaluation) are Gaussian and have a share
    of epsilon of their own; a mixture costs less than the sum of its parts, so that the
    iterations get more than the rest of epsilon: the same after every outcome of a
    private count, which decides how many there are.
    """

    name = "sulloyd"
    noise = NoiseShape.LAPLACE
    needs_n_examples = True
    options: SuLloydOptions = SuLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """T from what is left of epsilon.

        Sums and counts in the ratio d : (4 d rho^2)^(1/3).
        """
        d, k = public.n_features, self.n_clusters
        epsilon = public.settings.epsilon * (
            1.0 - public.settings.reserved_share(counts=True)
        )
        n = float(public.required_n_examples)
        count_part = (4.0 * d * RHO**2) ** (1.0 / 3.0)
        t = self.iterations(
            epsilon / math.sqrt(SULLOYD_CONSTANT * k**3 / n**2 * (d + count_part) ** 3)
        )
        sum_share, count_share = d / (d + count_part), count_part / (d + count_part)
        per_iteration = (
            laplace_epsilon(public, epsilon, [sum_share / t, count_share / t] * t) / t
        )
        return self.iterating(
            public,
            t,
            1.0 / (per_iteration * sum_share),
            1.0 / (per_iteration * count_share),
        )


def laplace_epsilon(
    public: PublicFacts,
    least: float,
    shares: Sequence[float],
) -> float:
    """The largest sum of the iterations' epsilons, of which each array has a share,
    with which the run costs epsilon.

    Where N was counted it is the same however many iterations follow: see
    `with_joint_pure_release`.
    """
    others = public.released_events()
    if not others:
        return least

    def events_at(scale: float) -> Sequence[release.Event]:
        parts = [1.0] if public.counted else shares
        return [
            *others,
            *[release.PureRelease("iterations", part / scale) for part in parts],
        ]

    scale = calibrate_scale(
        events_at,
        public.settings.epsilon,
        public.delta,
        start=1.0 / least,
    )
    # Not at least `least`: where a count lowers delta, what was released before costs
    # more than its share.
    return 1.0 / scale


@dataclass(frozen=True)
class LloydOptions(PackedOptions):
    """Options of Lloyd."""


@dataclass(frozen=True, kw_only=True)
class LloydTask(_OnAbsoluteSums):
    """Lloyd's algorithm without noise: not private, for comparison."""

    name = "lloyd"
    noise = NoiseShape.NONE
    options: LloydOptions = LloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        return self.iterating(
            public,
            self.iterations(MAX_ITERATIONS),
            0.0,
            0.0,
        )
