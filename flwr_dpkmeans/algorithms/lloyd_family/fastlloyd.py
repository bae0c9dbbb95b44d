"""FastLloyd: relative sums of rows within a radius."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from flwr_dpkmeans.algorithms.lloyd_family.constants import ERROR_TARGET
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd_noise import (
    BOX_BOUND,
    cluster_radius,
    split_multiplier,
)
from flwr_dpkmeans.algorithms.lloyd_family.packed import Packed, PackedOptions
from flwr_dpkmeans.kernels.cluster_sums import relative_statistics
from flwr_dpkmeans.kmeans import lloyd
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.kmeans.lloyd import relative_update
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.option_rules import choice, flag, real
from flwr_dpkmeans.sums.outcome import CountedRows
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, RowWeights, State

_LEAST_WITHIN = 0.5
"""Part of all rows that lies within the radius of FastLloyd's centroids, unless these
fit badly.
"""


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
class FastLloydTask(Packed):
    """FastLloyd (Diaa, Humphries, Kerschbaum 2025).

    Relative sums of the points within a radius, Gaussian noise.
    """

    name = "fastlloyd"
    needs_n_examples = True
    options: FastLloydOptions = FastLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """T iterations with the smallest sigma that costs epsilon (equation 7).

        T is that of equation 21, clipped to [2, 7].
        """
        k, d = self.n_clusters, public.n_features
        eta = cluster_radius(self.options.alpha, k, d)
        first = d**0.5 * BOX_BOUND if self.options.schedule is Schedule.STEP else eta

        def estimate(sigma: float) -> float:
            n = public.n_units
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
        """Rows beyond the radius are left out.

        So that no row adds more however the centroids lie.
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
        """One iteration, with the noise of equations 8 and 9.

        Its deviation is sigma_R * radius * sqrt(T) on sums, sigma_C * sqrt(T) on
        counts.
        """
        sums_multiplier, counts_multiplier = (
            multiplier * math.sqrt(n_iterations) for multiplier in multipliers
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

        def statistic(
            points: Array,
            state: State,
            weights: RowWeights | None = None,
        ) -> Sequence[Array]:
            return relative_statistics(points, state.centroids, radius, weights)

        def update(
            centroids: Array,
            sums: Array,
            counts: Array,
        ) -> Array:
            """Step by R~/C~, clip the step to the radius, fold into the box.

            Section 5.3.5.
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
