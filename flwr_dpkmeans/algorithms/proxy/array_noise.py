"""Noise and clip bounds of the arrays that are released."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.proxy.summed import client_bounds
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.public_facts import PublicFacts


def whole_multiplier(public: PublicFacts) -> float:
    """Of one release that has the whole budget."""
    return (
        gaussian_noise_multiplier(public.config.settings.epsilon, public.delta)
        * public.noise_factor
    )


def bounds_by_array(public: PublicFacts) -> dict[str, float]:
    """Clip bounds by name of the array; those that are not named are 1."""
    return (
        client_bounds(public.config)
        if public.config.settings.unit is PrivacyUnit.CLIENT
        else {}
    )
