"""Which source a run takes its noise from."""

from __future__ import annotations

import enum

from flwr_dpkmeans.errors import LocalMisuseError, invalid, require_whole
from flwr_dpkmeans.privacy.noise.integer_noise import NoiseSource
from flwr_dpkmeans.privacy.noise.opendp_noise import OpenDPNoise
from flwr_dpkmeans.privacy.noise.secure_noise import SecureNoise
from flwr_dpkmeans.privacy.noise.seeded_noise import SeededNoise


class NoiseKind(enum.Enum):
    """Where noise comes from."""

    SECURE = "secure"
    OPENDP = "opendp"
    SEEDED = "seeded"


def noise_source(kind: NoiseKind, seed: int | None = None) -> NoiseSource:
    """Return a source of noise.

    Parameters
    ----------
    kind : NoiseKind
        ``SEEDED`` for experiments, others for privacy.
    seed : int, optional
        At least 0, for ``SEEDED`` alone.

    Raises
    ------
    LocalMisuseError
        If `kind` is not a NoiseKind, or the seed does not fit it.
    """
    if not isinstance(kind, NoiseKind):
        raise invalid(
            "kind",
            kind,
            "a NoiseKind",
            "give NoiseKind.SECURE or NoiseKind.SEEDED",
        )
    if kind is NoiseKind.SEEDED:
        return SeededNoise(
            require_whole(
                "seed",
                seed,
                0,
                "give a seed such as 0",
            )
        )
    if seed is not None:
        raise LocalMisuseError(
            f"seed is {seed!r}, but secure noise cannot have one: leave the seed out,"
            " or choose NoiseKind.SEEDED."
        )
    if kind is NoiseKind.SECURE:
        return SecureNoise()
    return OpenDPNoise()
