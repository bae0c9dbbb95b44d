"""Sources of integer noise: for privacy, or for experiments that must be repeatable.

Secure discrete Gaussians are exact (`privacy.exact_gaussian`); how far they are from
the continuous ones that are priced: `privacy.closeness`.
"""

from __future__ import annotations

import enum
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata

import numpy as np

from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
    invalid,
    require_whole,
)
from flwr_dpkmeans.privacy.closeness import require_at_least
from flwr_dpkmeans.privacy.exact_gaussian import Integers, discrete_gaussians


class ForkWatch:
    """The numbers of the processes that this one was forked from."""

    def __init__(self) -> None:
        self.repeats = False
        """Whether this process, or one that it was forked from, has the number of one
        before it.
        """
        self._numbers: frozenset[int] = frozenset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        self._numbers |= {os.getpid()}

    def _in_child(self) -> None:
        self.repeats = self.repeats or os.getpid() in self._numbers


FORKS = ForkWatch()
"""Of this process: what the kernel does to all of it cannot be an object's own."""


# OpenDP moves noise beyond int64 to its ends, where a neighbour's could not be: what
# lies there must be nothing. Beyond 40 standard deviations of a Gaussian lies
# exp(-800), beyond 128 scales of a Laplace variable exp(-128).
_LARGEST_STD = 2.0**63 / 40.0
_LARGEST_LAPLACE_SCALE = 2.0**63 / 128.0
# Before, a division in its arithmetic was wrong and Bernoulli(exp(-x)) with it:
# https://github.com/opendp/opendp/issues/2638
_OLDEST_OPENDP = (0, 14, 2)
_MOST_MEASUREMENTS = 64
_MEND_OF_SIZE = "give a size such as 45"


class NoiseKind(enum.Enum):
    """Where noise comes from."""

    SECURE = "secure"
    OPENDP = "opendp"
    SEEDED = "seeded"


class NoiseSource(ABC):
    """A source of integer noise, which checks arguments before it draws anything."""

    def discrete_gaussian(
        self,
        std: float,
        size: int,
    ) -> Integers:
        """Return independent discrete Gaussians.

        k has a probability proportional to exp(-k^2 / (2 std^2)).

        Parameters
        ----------
        std : float
            In grid units, from 1 to 2^63 / 40; else `LocalMisuseError`.
        size : int
            How many.
        """
        std = _require_scale("std", std, _LARGEST_STD)
        size = require_whole(
            "size",
            size,
            0,
            _MEND_OF_SIZE,
        )
        return self._draw("gaussian", std, size)

    def discrete_laplace(
        self,
        scale: float,
        size: int,
    ) -> Integers:
        """Return independent discrete Laplace variables.

        k has a probability proportional to exp(-|k| / scale).

        Parameters
        ----------
        scale : float
            In grid units, from 1 to 2^63 / 128; else `LocalMisuseError`.
        size : int
            How many.
        """
        scale = _require_scale("scale", scale, _LARGEST_LAPLACE_SCALE)
        size = require_whole(
            "size",
            size,
            0,
            _MEND_OF_SIZE,
        )
        return self._draw("laplace", scale, size)

    def require_available(self, family: str) -> None:  # noqa: B027
        """Refuse a family of noise that cannot be drawn in this environment.

        Parameters
        ----------
        family : str
            ``gaussian`` or ``laplace``.

        Raises
        ------
        ConfigurationError
            If the package that draws it is not installed.
        """

    @abstractmethod
    def _draw(
        self,
        family: str,
        scale: float,
        size: int,
    ) -> Integers:
        """Return ``gaussian`` or ``laplace`` noise of a scale that is in its range."""


class OpenDPNoise(NoiseSource):
    """Exact discrete noise from the operating system's entropy, drawn by OpenDP.

    It takes 10 to 20 microseconds per value. The samplers work on exact rationals
    (Canonne, Kamath and Steinke 2020). Threads may share it, and it takes no seed.
    Constant time is not claimed (`sharp_edges.md`).

    OpenDP takes its bytes from OpenSSL's generator, which each thread seeds from the
    operating system and which seeds itself again in a process with another number, so
    forked processes and workers do not share a stream; a fork with the number of a
    process before it (in a PID namespace of its own) is refused. A copy of a running
    process or machine that Python does not notice (a restored checkpoint, a cloned
    virtual machine) would repeat the noise.
    """

    def require_available(self, family: str) -> None:
        """Refuse all noise where OpenDP is not installed."""
        require_opendp()

    def _draw(
        self,
        family: str,
        scale: float,
        size: int,
    ) -> Integers:
        if size == 0:
            return np.zeros(0, dtype=np.int64)
        if FORKS.repeats:
            raise LocalMisuseError(
                "this process was forked under the number of one before it"
                f" ({os.getpid()}), so its noise could repeat that one's: start it"
                " afresh instead of forking it into a PID namespace."
            )
        measurement = build_measurement(family, scale)
        zeros = [0] * size
        return np.array(measurement(zeros), dtype=np.int64)


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


class SeededNoise(NoiseSource):
    """Repeatable noise for experiments.

    It is NOT private: whoever knows the seed can take the noise away again.

    The Gaussians are close to discrete Gaussians in distribution but not exact.
    """

    def __init__(self, generator: np.random.Generator | int) -> None:
        self._seed = generator

    def _draw(
        self,
        family: str,
        scale: float,
        size: int,
    ) -> Integers:
        # From a seed it is made now, which takes longer than much of what clients do
        # that add no noise.
        generator = np.random.default_rng(self._seed)
        self._seed = generator
        if family == "gaussian":
            normal = generator.normal(0.0, scale, size)
            return np.rint(normal).astype(np.int64)
        success = -np.expm1(-1.0 / scale)
        positive = generator.geometric(success, size)
        negative = generator.geometric(success, size)
        return positive - negative


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


def require_opendp() -> None:
    """Raise ConfigurationError if OpenDP, which few runs need, is not installed."""
    installed = list(metadata.distributions(name="opendp"))
    if not installed:
        raise ConfigurationError(
            "Laplace noise and noise='opendp' are drawn by OpenDP, which is not"
            " installed: pip install 'flwr-dpkmeans[opendp]'."
        )


@lru_cache(maxsize=_MOST_MEASUREMENTS)
def build_measurement(family: str, scale: float) -> Callable[[list[int]], list[int]]:
    """Build OpenDP's mechanism for lists of 64-bit integers.

    It has no state and takes longer to build than to draw.
    """
    require_opendp()
    import opendp.prelude as dp

    require_unbiased(metadata.version("opendp"))
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement: Callable[[list[int]], list[int]]
    if family == "gaussian":
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    else:
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return measurement


def require_unbiased(version: str) -> None:
    """Raise if this version of OpenDP draws another noise than what is priced."""
    numbers = re.findall(r"\d+", version)[:3]
    if tuple(map(int, numbers)) < _OLDEST_OPENDP:
        oldest = ".".join(map(str, _OLDEST_OPENDP))
        raise LocalMisuseError(
            f"OpenDP is {version}, whose samplers are biased, but secure noise needs at"
            f" least {oldest}: upgrade opendp."
        )


def _require_scale(
    name: str,
    value: float,
    largest: float,
) -> float:
    """Return a scale as a float.

    One below a grid step, or whose tails could leave int64, is a `LocalMisuseError`.
    """
    if type(value) is float and 1.0 <= value <= largest:
        # As all plans give it.
        return value
    scale = require_at_least(
        name,
        value,
        1,
        "grid step: use a finer grid",
    )
    if scale > largest:
        raise LocalMisuseError(
            f"{name} is {scale:.3g}, but it must be at most {largest:.3g} grid steps"
            " (64 bits): use a coarser grid."
        )
    return scale
