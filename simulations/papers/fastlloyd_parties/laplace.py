"""FastLloyd with Laplace noise: the authors' package has it, their paper has not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import FastLloydTask, Schedule
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd_noise import cluster_radius
from flwr_dpkmeans.algorithms.lloyd_family.sulloyd import laplace_epsilon
from flwr_dpkmeans.privacy.release import NoiseShape, Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm


@dataclass(frozen=True, kw_only=True)
class LaplaceFastLloyd(FastLloydTask):
    """Rounds that are purely private.

    A row within the radius r of its centroid in L2 is within r sqrt(d) of it in L1.
    Each iteration has epsilon / T, which sums and counts share as (4 d^2)^(1/3) to 1:
    with d^2 r^2 and r^2 / 4 for what a unit of either noise costs (the paper's equation
    7 has d r^2 and r^2 / 4), this is the least sum of variances.
    """

    name = "fastlloyd_laplace"
    noise = NoiseShape.LAPLACE

    def build(self, public: PublicFacts) -> Algorithm:
        n_features = public.n_features
        n_iterations = self.iterations(math.inf)
        radius = cluster_radius(self.options.alpha, self.n_clusters, n_features)
        radii = [radius] * n_iterations
        if self.options.schedule is Schedule.STEP:
            radii[0] = math.sqrt(n_features)
        sums_part = (4.0 * n_features**2) ** (1.0 / 3.0)
        sums_share = sums_part / (1.0 + sums_part) / n_iterations
        counts_share = 1.0 / (1.0 + sums_part) / n_iterations
        unreserved = 1.0 - public.settings.reserved_share(counts=True)
        epsilon = public.settings.epsilon * unreserved
        shares = [sums_share, counts_share] * n_iterations
        base = laplace_epsilon(public, epsilon, shares)
        scales = (1.0 / (base * sums_share), 1.0 / (base * counts_share))
        rounds = [
            self._iteration(public, index, round_radius, scales, 1)
            for index, round_radius in enumerate(radii, start=1)
        ]
        return self.scheduled(public, rounds)

    def sums_sensitivity(
        self,
        radius: float,
        n_features: int,
    ) -> Sensitivity:
        bound = math.nextafter(radius * math.sqrt(n_features), math.inf)
        because = (
            "S1: one row lies in one cluster, within the radius in L2, so within"
            " sqrt(d) times the radius in L1"
        )
        return Sensitivity(Norm.L1, bound, PrivacyUnit.RECORD, because)
