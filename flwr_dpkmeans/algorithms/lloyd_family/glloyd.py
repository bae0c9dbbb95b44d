"""GLloyd: absolute sums with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.lloyd_family.absolute_sums import OnAbsoluteSums
from flwr_dpkmeans.algorithms.lloyd_family.constants import ERROR_TARGET, RHO
from flwr_dpkmeans.algorithms.lloyd_family.packed import PackedOptions
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm


@dataclass(frozen=True)
class GLloydOptions(PackedOptions):
    """Options of GLloyd."""


@dataclass(frozen=True, kw_only=True)
class GLloydTask(OnAbsoluteSums):
    """DP-Lloyd, Gaussian noise.

    Sums with L2 sensitivity sqrt(d), counts with 1 (FastLloyd paper, appendix B.1).
    """

    name = "glloyd"
    needs_n_examples = True
    options: GLloydOptions = GLloydOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """A sphere packing, then iterations whose number follows from the noise."""
        k, d = self.n_clusters, public.n_features

        def estimate(sigma: float) -> float:
            n = public.n_units
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
    """Split sigma into (sigma_S, sigma_C).

    FastLloyd paper, equation 31, solved with equation 30.
    """
    root = math.sqrt(2.0 * RHO + math.sqrt(n_features))
    return (
        noise_multiplier * root / n_features**0.25,
        noise_multiplier * root / math.sqrt(2.0 * RHO),
    )
