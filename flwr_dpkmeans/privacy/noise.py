"""Sources of integer noise: one for privacy, and one for experiments that must be repeatable."""

from __future__ import annotations

import enum
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, require_positive, require_whole


class ForkWatch:
    """Remembers the numbers of the processes that this one was forked from."""

    def __init__(self) -> None:
        self.repeats = False
        """Whether this process, or one that it was forked from, has the number of one before it."""
        self._numbers: frozenset[int] = frozenset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        self._numbers |= {os.getpid()}

    def _in_child(self) -> None:
        self.repeats = self.repeats or os.getpid() in self._numbers


FORKS = ForkWatch()
"""Of this process: what the kernel does to all of it cannot be an object's own."""


# OpenDP moves noise beyond int64 to its ends, where a neighbour's could not be: what lies there must be nothing. Beyond
# 40 standard deviations of a Gaussian lies exp(-800), beyond 128 scales of a Laplace variable exp(-128).
_LARGEST_STD = 2.0**63 / 40.0
_LARGEST_LAPLACE_SCALE = 2.0**63 / 128.0
# Before, a division in its arithmetic was wrong and Bernoulli(exp(-x)) with it: https://github.com/opendp/opendp/issues/2638
_OLDEST_OPENDP = (0, 14, 2)
_MEASUREMENTS_KEPT = 64
_SIZE = "give a size such as 45"


class NoiseKind(enum.Enum):
    """Where noise comes from."""

    SECURE = "secure"
    SEEDED = "seeded"


class NoiseSource(Protocol):
    """A source of integer noise."""

    @property
    def is_private(self) -> bool:
        """Whether the noise protects anybody: exact, and from entropy that nobody can know."""
        ...

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        """Return `size` independent discrete Gaussians: k has a probability proportional to exp(-k^2 / (2 std^2)).

        `std` is in grid units, from 1 to 2^63 / 40; what is out of range is a `LocalMisuseError`.
        """
        ...

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return `size` independent discrete Laplace variables, with probability proportional to exp(-|k| / scale).

        `scale` is in grid units, from 1 to 2^63 / 128; what is out of range is a `LocalMisuseError`.
        """
        ...


class _Checked(ABC):
    """Checks what is asked for before anything is drawn."""

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        """Return discrete Gaussians; see `NoiseSource`."""
        return self._draw("gaussian", _require_scale("std", std, _LARGEST_STD), require_whole("size", size, 0, _SIZE))

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return discrete Laplace variables; see `NoiseSource`."""
        scale = _require_scale("scale", scale, _LARGEST_LAPLACE_SCALE)
        return self._draw("laplace", scale, require_whole("size", size, 0, _SIZE))

    @abstractmethod
    def _draw(self, family: str, scale: float, size: int) -> NDArray[np.int64]:
        """Return `size` values of ``gaussian`` or ``laplace`` noise of a scale that is in its range."""


class SecureNoise(_Checked):
    """Exact discrete noise from the operating system's entropy, drawn by OpenDP, 10 to 20 microseconds per value.

    The samplers work on exact rationals (Canonne, Kamath and Steinke 2020), so no floating-point artefact weakens the
    noise. There is no seed, and no way to give one. Instances may be shared between threads.

    OpenDP takes its bytes from OpenSSL's generator, which each thread seeds from the operating system and which seeds
    itself again in a process with another number, so forked processes and workers do not share a stream; a fork with
    the number of a process before it (in a PID namespace of its own) is refused. A copy of a running process or machine
    that Python does not notice (a restored checkpoint, a cloned virtual machine) would repeat the noise.

    Constant time is not claimed: how long a draw took tells something of the noise to whoever can measure it.
    """

    @property
    def is_private(self) -> bool:
        """Always true."""
        return True

    def _draw(self, family: str, scale: float, size: int) -> NDArray[np.int64]:
        if size == 0:
            return np.zeros(0, dtype=np.int64)
        if FORKS.repeats:
            raise LocalMisuseError(
                f"this process was forked under the number of one before it ({os.getpid()}), so its noise could repeat "
                "that one's: start it afresh instead of forking it into a PID namespace."
            )
        return np.array(_build_measurement(family, scale)([0] * size), dtype=np.int64)


class SeededNoise(_Checked):
    """Repeatable noise for experiments. It is NOT private: whoever knows the seed can take the noise away again.

    The Gaussians are close to discrete Gaussians in distribution but not exact.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        if not isinstance(generator, np.random.Generator):
            raise LocalMisuseError(
                f"generator is of type {type(generator).__name__!r}, but it must be a numpy Generator: "
                "give numpy.random.default_rng(seed)."
            )
        self._generator = generator

    @property
    def is_private(self) -> bool:
        """Always false."""
        return False

    def _draw(self, family: str, scale: float, size: int) -> NDArray[np.int64]:
        if family == "gaussian":
            return np.rint(self._generator.normal(0.0, scale, size)).astype(np.int64)
        success = -np.expm1(-1.0 / scale)
        return self._generator.geometric(success, size) - self._generator.geometric(success, size)


def noise_source(kind: NoiseKind, seed: int | None = None) -> NoiseSource:
    """Return a source of noise: ``SECURE`` for privacy, ``SEEDED`` for experiments, with a `seed` of at least 0.

    A `LocalMisuseError` is raised if `kind` is not a NoiseKind, or the seed does not fit it.
    """
    if kind is NoiseKind.SECURE:
        if seed is not None:
            raise LocalMisuseError(
                f"seed is {seed!r}, but secure noise cannot have one: leave the seed out, or choose NoiseKind.SEEDED."
            )
        return SecureNoise()
    if kind is not NoiseKind.SEEDED:
        raise LocalMisuseError(
            f"kind is {kind!r}, but it must be a NoiseKind: give NoiseKind.SECURE or NoiseKind.SEEDED."
        )
    return SeededNoise(np.random.default_rng(require_whole("seed", seed, 0, "give a seed such as 0")))


@lru_cache(maxsize=_MEASUREMENTS_KEPT)
def _build_measurement(family: str, scale: float) -> Callable[[list[int]], list[int]]:
    """Build OpenDP's mechanism for lists of 64-bit integers: it has no state and takes longer to build than to draw."""
    import opendp.prelude as dp

    _require_version(metadata.version("opendp"))
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement: Callable[[list[int]], list[int]]
    if family == "gaussian":
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    else:
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return measurement


def _require_version(version: str) -> None:
    """Raise if this version of OpenDP draws from another distribution than the one that is priced."""
    parts = re.findall(r"\d+", version)[:3]
    if tuple(map(int, parts)) < _OLDEST_OPENDP:
        raise LocalMisuseError(
            f"OpenDP is {version}, whose samplers are biased, but secure noise needs at least "
            f"{'.'.join(map(str, _OLDEST_OPENDP))}: upgrade opendp."
        )


def _require_scale(name: str, value: float, largest: float) -> float:
    """Return a scale as a float, or raise if it is below one grid step or its tails could leave int64."""
    scale = require_positive(name, value)
    if scale < 1.0:
        raise LocalMisuseError(f"{name} is {scale}, but it must be at least 1 grid step: use a finer grid.")
    if scale > largest:
        raise LocalMisuseError(
            f"{name} is {scale:.3g}, but it must be at most {largest:.3g} grid steps to fit 64 bits: "
            "use a coarser grid."
        )
    return scale
