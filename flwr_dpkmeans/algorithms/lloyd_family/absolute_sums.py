"""Sums of the rows themselves, and Lloyd's algorithm without noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.kmeans_task import MAX_ITERATIONS
from flwr_dpkmeans.algorithms.lloyd_family.packed import Packed, PackedOptions
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics
from flwr_dpkmeans.kmeans import lloyd
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, RowWeights, State


class OnAbsoluteSums(Packed):
    """T equal iterations on absolute sums of points in [-1, 1]^d."""

    def iterating(
        self,
        public: PublicFacts,
        n_iterations: int,
        sums_multiplier: float,
        counts_multiplier: float,
    ) -> Algorithm:
        """All rounds: sums (k, d) and counts (k,), with noise by these multipliers."""
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

        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            return absolute_statistics(points, state.centroids, weights)

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
class LloydOptions(PackedOptions):
    """Options of Lloyd."""


@dataclass(frozen=True, kw_only=True)
class LloydTask(OnAbsoluteSums):
    """Lloyd's algorithm without noise: not private, for comparison."""

    name = "lloyd"
    units = (PrivacyUnit.RECORD,)
    noise = NoiseShape.NONE
    options: LloydOptions = LloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """A sphere packing, then as many iterations as were asked for."""
        return self.iterating(
            public,
            self.iterations(MAX_ITERATIONS),
            0.0,
            0.0,
        )
