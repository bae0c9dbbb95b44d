"""Sources of integer noise, one for privacy and one for experiments that must be repeatable; and how far what they draw
may be from the noise that is analysed.

Noise is drawn from discrete Gaussians, or is a sum of many discrete Gaussians, while privacy is computed for the
continuous Gaussian. With P for what would be released with the analysed noise and Q with the noise that is drawn, a
`Closeness` (a, b, tau) says that for any set S

    Q(S) <= exp(a) P(S) + tau   and   P(S) <= exp(b) Q(S) + tau,

whatever the exact values are. It is paid for in epsilon, and tau, which is far below any delta, in delta:

    If M is (epsilon, delta)-DP, and on every input the outputs of M' and M are that close, then M' is
    (epsilon + a + b, exp(a) (delta + (1 + exp(epsilon)) tau))-DP.

Over adaptive releases a, b and tau add up. Proofs: ``README.md``, "How close discrete noise is".
"""

from __future__ import annotations

import enum
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, invalid, require_positive, require_real, require_whole


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


class NoiseSource(ABC):
    """A source of integer noise; what is asked for is checked before anything is drawn."""

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        """Return `size` independent discrete Gaussians: k has a probability proportional to exp(-k^2 / (2 std^2)).

        `std` is in grid units, from 1 to 2^63 / 40; what is out of range is a `LocalMisuseError`.
        """
        return self._draw("gaussian", _require_scale("std", std, _LARGEST_STD), require_whole("size", size, 0, _SIZE))

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Return `size` independent discrete Laplace variables, with probability proportional to exp(-|k| / scale).

        `scale` is in grid units, from 1 to 2^63 / 128; what is out of range is a `LocalMisuseError`.
        """
        scale = _require_scale("scale", scale, _LARGEST_LAPLACE_SCALE)
        return self._draw("laplace", scale, require_whole("size", size, 0, _SIZE))

    @abstractmethod
    def _draw(self, family: str, scale: float, size: int) -> NDArray[np.int64]:
        """Return `size` values of ``gaussian`` or ``laplace`` noise of a scale that is in its range."""


class SecureNoise(NoiseSource):
    """Exact discrete noise from the operating system's entropy, drawn by OpenDP, 10 to 20 microseconds per value.

    The samplers work on exact rationals (Canonne, Kamath and Steinke 2020), so no floating-point artefact weakens the
    noise. There is no seed, and no way to give one. Threads may share it. Constant time is not claimed (`LIMITS.md`).

    OpenDP takes its bytes from OpenSSL's generator, which each thread seeds from the operating system and which seeds
    itself again in a process with another number, so forked processes and workers do not share a stream; a fork with
    the number of a process before it (in a PID namespace of its own) is refused. A copy of a running process or machine
    that Python does not notice (a restored checkpoint, a cloned virtual machine) would repeat the noise.
    """

    def _draw(self, family: str, scale: float, size: int) -> NDArray[np.int64]:
        if size == 0:
            return np.zeros(0, dtype=np.int64)
        if FORKS.repeats:
            raise LocalMisuseError(
                f"this process was forked under the number of one before it ({os.getpid()}), so its noise could repeat "
                "that one's: start it afresh instead of forking it into a PID namespace."
            )
        return np.array(_build_measurement(family, scale)([0] * size), dtype=np.int64)


class SeededNoise(NoiseSource):
    """Repeatable noise for experiments. It is NOT private: whoever knows the seed can take the noise away again.

    The Gaussians are close to discrete Gaussians in distribution but not exact.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

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
        raise invalid("kind", kind, "a NoiseKind", "give NoiseKind.SECURE or NoiseKind.SEEDED")
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
    scale = _require_at_least(name, value, 1, "grid step: use a finer grid")
    if scale > largest:
        raise LocalMisuseError(
            f"{name} is {scale:.3g}, but it must be at most {largest:.3g} grid steps to fit 64 bits: "
            "use a coarser grid."
        )
    return scale


# -- closeness of the drawn to the analysed noise -------------------------------------------------------------------

_TAIL = 100.0
"""The additive part of every closeness is exp(-100), 4e-44."""


@dataclass(frozen=True)
class Closeness:
    """How close drawn noise is to analysed noise, in the sense of this module; a `LocalMisuseError` if out of range."""

    log_ratio_above: float = 0.0
    """a: the drawn noise's probabilities are at most exp(a) times the analysed noise's; at least 0."""
    log_ratio_below: float = 0.0
    """b: the analysed noise's probabilities are at most exp(b) times the drawn noise's; at least 0."""
    additive: float = 0.0
    """tau: up to a probability of tau; from 0 to 1. Alone it is a total-variation distance."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is float and 0.0 <= value < math.inf:
                continue  # as all proofs give it
            value = require_real(name, value, "give 0.0, or what a proof of closeness gives")
            if not value >= 0.0:
                raise LocalMisuseError(f"{name} of a closeness is {value}, but it must be at least 0: give 0.0.")
        if self.additive > 1.0:
            raise LocalMisuseError(f"additive is {self.additive}, but it must be at most 1: give a probability.")

    @property
    def log_ratio(self) -> float:
        """The part of epsilon that this closeness costs, a + b."""
        return self.log_ratio_above + self.log_ratio_below

    def widened(self, log_ratio: float) -> Closeness:
        """Return the closeness of noise whose log-ratio to the noise that was drawn so far is within `log_ratio`.

        What Q has a probability of tau for has one of at most ``exp(log_ratio) tau`` under the new noise.
        """
        additive = self.additive * math.exp(min(log_ratio, 700.0))
        return Closeness(self.log_ratio_above + log_ratio, self.log_ratio_below + log_ratio, min(1.0, additive))


SAME = Closeness()
"""The noise that is drawn is the noise that is analysed."""


def joint_closeness(parts: Iterable[Closeness]) -> Closeness:
    """Add up the closeness of several, possibly adaptive, releases; none at all are the same."""
    listed = list(parts)
    return Closeness(
        math.fsum([part.log_ratio_above for part in listed]),
        math.fsum([part.log_ratio_below for part in listed]),
        min(1.0, math.fsum([part.additive for part in listed])),
    )


def slack_cost(tau: float, epsilon: float) -> float:
    """Return (1 + exp(epsilon)) tau, the delta that an additive closeness of tau costs."""
    if tau == 0.0:
        return 0.0
    exponent = epsilon + math.log(tau)
    return tau + (math.exp(exponent) if exponent < 700.0 else math.inf)


def discrete_gaussian_closeness(std: float, n_entries: int) -> Closeness:
    """Bound how far discrete Gaussian noise is from a continuous Gaussian rounded to integers.

    The rounded continuous Gaussian mechanism on an integer-valued query is a post-processing of the continuous one
    (adding an integer and rounding to the nearest integer commute), so it is exactly mu-GDP.

    The discrete Gaussian has the parameter sigma = `std` >= 1, in grid units, and the release n = `n_entries` >= 0
    independent entries. With s = `std`, x = 100, h = 2.1 exp(-2 pi^2 s^2), y = x + n (1/(290 s^4) + h) the additive
    part is exp(-x), and the log-ratios are ::

        above = min(n / (24 s^2), sqrt(6.00002 n x) / (24 s^2) + n / (319 s^4)),
        below = (sqrt(n y) + y) / (12 s^2 - 1) + n (1/(186 s^4) + h).

    The proof is in ``README.md``, "How close discrete noise is".
    """
    std = _require_at_least("std", std, 1.0, "grid steps: use a finer grid")
    n = require_whole("n_entries", n_entries, 0, "give one such as 1")
    if n == 0:
        return SAME
    precision = 1.0 / (std * std)
    square, poisson = precision * precision, 2.1 * math.exp(-2.0 * math.pi**2 * std * std)
    always = n * precision / 24.0
    nearly_always = math.sqrt(6.00002 * n * _TAIL) * precision / 24.0 + n * square / 319.0
    tail = _TAIL + n * (square / 290.0 + poisson)
    spread = (math.sqrt(n * tail) + tail) * precision / (12.0 - precision)
    below = spread + n * (square / 186.0 + poisson)
    return Closeness(min(always, nearly_always), below, math.exp(-_TAIL))


def discrete_gaussian_sum_log_ratio(std_share: float, n_shares: int, n_entries: int) -> float:
    """Bound the log-ratio of a sum of discrete Gaussians to the one discrete Gaussian of the same variance.

    ``5 n_entries sum_{k=1}^{n_shares-1} exp(-2 pi^2 std_share^2 k / (k+1))`` bounds it in both directions. Each of the
    `n_shares` >= 1 independent shares has the parameter sigma = `std_share` >= 0.5, in grid units, and the one has
    ``sqrt(n_shares) std_share``.

    Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
    aggregation", whose privacy theorem pays 10 times the sum.
    """
    std_share = _require_at_least("std_share", std_share, 0.5, "grid steps: use a finer grid")
    n_shares = require_whole("n_shares", n_shares, 1, "give one such as 2")
    n_entries = require_whole("n_entries", n_entries, 0, "give one such as 1")
    rate = 2.0 * math.pi**2 * std_share * std_share
    return 5.0 * n_entries * math.fsum(math.exp(-rate * k / (k + 1)) for k in range(1, n_shares))


def _require_at_least(name: str, value: float, bound: float, mend: str) -> float:
    number = require_positive(name, value)
    if number < bound:
        raise LocalMisuseError(f"{name} is {number}, but it must be at least {bound} {mend}.")
    return number
