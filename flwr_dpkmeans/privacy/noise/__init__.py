"""Sources of integer noise: for privacy, or for experiments that must be repeatable.

Secure discrete Gaussians are exact (`privacy.exact_gaussian`); how far they are from
the continuous ones that are priced: `privacy.closeness`.
"""

from __future__ import annotations

from flwr_dpkmeans.privacy.noise.integer_noise import NoiseSource
from flwr_dpkmeans.privacy.noise.noise_kind import NoiseKind, noise_source
from flwr_dpkmeans.privacy.noise.opendp_noise import OpenDPNoise
from flwr_dpkmeans.privacy.noise.secure_noise import SecureNoise
from flwr_dpkmeans.privacy.noise.seeded_noise import SeededNoise

__all__ = [
    "NoiseKind",
    "NoiseSource",
    "OpenDPNoise",
    "SecureNoise",
    "SeededNoise",
    "noise_source",
]
