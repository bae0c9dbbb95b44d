"""Noise from the operating system's entropy."""

from __future__ import annotations

from flwr_dpkmeans.privacy.noise import SecureNoise

N_VALUES = 1_000_000


class ExactGaussians:
    """A million discrete Gaussians, of a small and of a common scale."""

    params = (2.5, 65537.5)
    param_names = ("standard deviation",)

    def time_draw(self, std: float) -> None:
        """Draw them by this project's own sampler."""
        SecureNoise().discrete_gaussian(std, N_VALUES)

    def peakmem_draw(self, std: float) -> None:
        """Draw them: memory."""
        self.time_draw(std)
