"""SuLloyd: absolute sums with Laplace noise (Su et al. 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.lloyd_family.absolute_sums import OnAbsoluteSums
from flwr_dpkmeans.algorithms.lloyd_family.constants import RHO
from flwr_dpkmeans.algorithms.lloyd_family.packed import PackedOptions
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.calibration import calibrate_scale
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm

SULLOYD_CONSTANT = 500.0


@dataclass(frozen=True)
class SuLloydOptions(PackedOptions):
    """Options of SuLloyd."""


@dataclass(frozen=True, kw_only=True)
class SuLloydTask(OnAbsoluteSums):
    """DP-Lloyd, Laplace noise (Su et al.).

    Sums with L1 sensitivity d, counts with 1, epsilon/T per iteration.

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
        counts = self.counts(public.settings.unit)
        reserved = public.settings.reserved_share(counts=counts)
        epsilon = public.settings.epsilon * (1.0 - reserved)
        n = public.n_units
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
    """The largest sum of the iterations' epsilons with which the run costs epsilon.

    Each array has a share of it.

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
