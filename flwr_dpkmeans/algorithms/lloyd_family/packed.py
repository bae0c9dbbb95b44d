"""What all of Lloyd's family share: a start by sphere packing, then rounds of sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseSchedule
from flwr_dpkmeans.algorithms.budget.round_options import (
    noise_schedule_option,
    tolerance_option,
)
from flwr_dpkmeans.algorithms.client_means import for_unit, means_of_rows
from flwr_dpkmeans.algorithms.kmeans_task import (
    CENTRE_DEVIATION,
    MAX_ITERATIONS,
    KMeansTask,
)
from flwr_dpkmeans.algorithms.lloyd_family.count_sensitivities import counts_sensitivity
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.algorithms.states.steps_ahead import stepped
from flwr_dpkmeans.algorithms.weighing import Weighable, weighing
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kmeans.centre_errors.cut_rows import dropped_rows
from flwr_dpkmeans.kmeans.centre_errors.intervals import on_grid
from flwr_dpkmeans.kmeans.centre_errors.moved_labels import moved_labels
from flwr_dpkmeans.kmeans.centre_errors.noisy_means import quotient_deviations
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.kmeans.public_points.packing import PackingMethod, sphere_packing
from flwr_dpkmeans.privacy.closeness import (
    Closeness,
    discrete_gaussian_closeness,
    joint_closeness,
)
from flwr_dpkmeans.privacy.release import Block, NoiseShape, PrivacyUnit, ReleasedSum
from flwr_dpkmeans.sums.option_rules import Options, choice, whole
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, InitialState, PrivateSum, State
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.trust import TrustModel

MIN_ITERATIONS = 2
MOST_PACKING_WORK = 10**9
"""Largest k^2 d of a sphere packing, half a minute or so.

a plan comes from a server that may be hostile.
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
    noise_schedule: NoiseSchedule = noise_schedule_option()
    tolerance: float | None = tolerance_option()


class Packed(KMeansTask):
    """A start from a sphere packing, then iterations.

    Their number follows from the noise.
    """

    units: ClassVar[tuple[PrivacyUnit, ...]] = (
        PrivacyUnit.RECORD,
        PrivacyUnit.CLIENT,
    )
    weighs_clients_alike = True
    clips_clients = samples_clients = False
    options: PackedOptions

    def require_supported(self, settings: Settings, trust: TrustModel) -> None:
        """Refuse samples of clients besides, for which the papers find no noise."""
        super().require_supported(settings, trust)
        rate = settings.client_sampling_rate
        if rate < 1.0:
            raise ConfigurationError(
                f"client_sampling_rate is {rate:g}, but {self.name!r} finds its noise"
                " for all clients: leave it at 1, or choose 'proxy_lloyd'."
            )

    def iterations(self, estimate: float) -> int:
        """Floor the paper's estimate and clip it to [2, 7].

        Unless ``max_iter`` overrides it.
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
        """The least multiplier sigma of all iterations' Gaussian noise together.

        And their number T.

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
        """Start from a sphere packing.

        Data-independent, from a seed that everybody knows.
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
        statistic: Weighable,
        update: Callable[[Array, Array, Array], Array],
        radius: float | None = None,
    ) -> PrivateSum:
        """One iteration: a statistic, and the update that follows.

        `statistic` gives sums and counts, ``update(centroids, sums, counts)`` the next
        centroids.
        """
        unit = public.settings.unit
        counted = counts_sensitivity(sums.sensitivity.norm)
        counts = Block(
            "counts",
            (self.n_clusters,),
            for_unit(counted, unit, self.name),
            self.noise,
            counts_multiplier,
            1.0,
        )

        def means(points: Array, state: State) -> Sequence[Array]:
            return means_of_rows(statistic(points, state), len(points))

        def advance(state: State, released: ReleasedSum) -> State:
            moved = update(state.centroids, released[sums.name], released["counts"])
            after = stepped(state, moved, released["counts"])
            if unit is PrivacyUnit.CLIENT:
                # How far a client's mean is from its rows is not released.
                return after
            noise = [public.released_std(block) for block in released.blocks]
            deviations = self.centre_deviations(
                public,
                state,
                after,
                noise,
                radius,
            )
            return after.changed(**{CENTRE_DEVIATION: deviations})

        moved = for_unit(sums.sensitivity, unit, self.name)
        return PrivateSum(
            f"lloyd-{index}",
            (replace(sums, sensitivity=moved), counts),
            means if unit is PrivacyUnit.CLIENT else statistic,
            advance,
            radius,
            weighted=weighing(unit, statistic),
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
        """How far new centres may be from the means of the rows that they label.

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
        """The rounds, which were planned with equal noise.

        With each its part of the budget.
        """
        parts = self.options.noise_schedule.parts(len(rounds))
        power = 1.0 if self.noise is NoiseShape.LAPLACE else 0.5

        def with_part(planned: PrivateSum, part: float) -> PrivateSum:
            # A little more than due, so that rounding costs nothing; equal parts are 1,
            # exactly.
            factor = 1.0 if part == 1.0 else (1.0 + 1e-12) * part**-power
            blocks = [
                replace(block, noise_multiplier=block.noise_multiplier * factor)
                for block in planned.blocks
            ]
            return replace(planned, blocks=tuple(blocks))

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
