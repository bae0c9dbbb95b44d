"""Exact discrete noise by this project's own sampler."""

from __future__ import annotations

from flwr_dpkmeans.privacy.exact_gaussian import Integers, discrete_gaussians
from flwr_dpkmeans.privacy.noise.opendp_noise import OpenDPNoise


class SecureNoise(OpenDPNoise):
    """Exact discrete noise by this project's own sampler, .1 microseconds per value.

    Laplace variables remain OpenDP's. Each Gaussian is made of fresh bytes of the
    system's: there is neither key nor state that forks, threads, workers or copies of a
    process could share. Constant time is not claimed (`sharp_edges.md`).
    """

    def require_available(self, family: str) -> None:
        """Refuse Laplace noise where OpenDP is not installed."""
        if family == "laplace":
            super().require_available(family)

    def _draw(
        self,
        family: str,
        scale: float,
        size: int,
    ) -> Integers:
        if family != "gaussian":
            return super()._draw(family, scale, size)
        return discrete_gaussians(scale, size)
