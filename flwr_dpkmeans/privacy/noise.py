"""Sources of integer noise, one for privacy and one for experiments that must be
repeatable; and how far what they draw may be from the noise that is analysed.

Noise is drawn from discrete Gaussians, or is a sum of many discrete Gaussians, while
privacy is computed for the continuous Gaussian. With P for what would be released with
the analysed noise and Q with the noise that is drawn, a `Closeness` (a, b, tau) says
that for any set S

    Q(S) <= exp(a) P(S) + tau   and   P(S) <= exp(b) Q(S) + tau,

whatever the exact values are. It is paid for in epsilon, and tau, which is far below
any delta, in delta:

    If M is (epsilon, delta)-DP, and on every input the outputs of M' and M are that
    close, then M' is (epsilon + a + b, exp(a) (delta + (1 + exp(epsilon)) tau))-DP.

Over adaptive releases a, b and tau add up. Proofs: ``README.md``, "How close discrete
noise is".

Secure discrete Gaussians are exact, and made of the operating system's bytes alone. A
*proposal* is a block i >= 0, drawn by weights W_i, a place r in it, uniform below the
whole number `width`, and a coin for the sign: it is k =
+-(i width + r). With a uniform number U it is accepted if it is not -0 and U W_i <
scale exp(-k^2 / (2 std^2)).

    Proof. Let steps >= std / width. W_i is at least scale exp(-i^2 / (2 steps^2)), so
    at least scale exp(-(i width)^2 / (2 std^2)), so at least what stands on the right
    in block i. A proposal's probability is proportional to W_i, and that of an accepted
    one to W_i scale exp(-k^2 / (2 std^2)) / W_i. Every k is one proposal, as -0 is
    none. QED.

Doubles decide a comparison only where it is clear whatever they were rounded to, else
fractions and more bits of U do. Weights, errors, and what lies behind the last block:
``README.md``, "How exact discrete Gaussians are".
"""

from __future__ import annotations

import decimal
import enum
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import (
    LocalMisuseError,
    invalid,
    require_positive,
    require_real,
    require_whole,
)


class ForkWatch:
    """Remembers the numbers of the processes that this one was forked from."""

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
_MEASUREMENTS_KEPT = 64
_SIZE = "give a size such as 45"
_Integers = NDArray[np.int64]
_Reals = NDArray[np.float64]


class NoiseKind(enum.Enum):
    """Where noise comes from."""

    SECURE = "secure"
    OPENDP = "opendp"
    SEEDED = "seeded"


class NoiseSource(ABC):
    """A source of integer noise; what is asked for is checked before anything is drawn."""

    def discrete_gaussian(self, std: float, size: int) -> _Integers:
        """Return `size` independent discrete Gaussians.

        k has a probability proportional to exp(-k^2 / (2 std^2)).

        `std` is in grid units, from 1 to 2^63 / 40; what is out of range is a
        `LocalMisuseError`.
        """
        return self._draw(
            "gaussian",
            _require_scale("std", std, _LARGEST_STD),
            require_whole("size", size, 0, _SIZE),
        )

    def discrete_laplace(self, scale: float, size: int) -> _Integers:
        """Return `size` independent discrete Laplace variables, with probability
        proportional to exp(-|k| / scale).

        `scale` is in grid units, from 1 to 2^63 / 128; what is out of range is a
        `LocalMisuseError`.
        """
        scale = _require_scale("scale", scale, _LARGEST_LAPLACE_SCALE)
        return self._draw("laplace", scale, require_whole("size", size, 0, _SIZE))

    @abstractmethod
    def _draw(self, family: str, scale: float, size: int) -> _Integers:
        """Return `size` values of ``gaussian`` or ``laplace`` noise of a scale that is
        in its range.
        """


class OpenDPNoise(NoiseSource):
    """Exact discrete noise from the operating system's entropy, drawn by OpenDP, 10 to
    20 microseconds per value.

    The samplers work on exact rationals (Canonne, Kamath and Steinke 2020). Threads may
    share it, and no seed can be given. Constant time is not claimed (`LIMITS.md`).

    OpenDP takes its bytes from OpenSSL's generator, which each thread seeds from the
    operating system and which seeds itself again in a process with another number, so
    forked processes and workers do not share a stream; a fork with the number of a
    process before it (in a PID namespace of its own) is refused. A copy of a running
    process or machine that Python does not notice (a restored checkpoint, a cloned
    virtual machine) would repeat the noise.
    """

    def _draw(self, family: str, scale: float, size: int) -> _Integers:
        if size == 0:
            return np.zeros(0, dtype=np.int64)
        if FORKS.repeats:
            raise LocalMisuseError(
                "this process was forked under the number of one before it"
                f" ({os.getpid()}), so its noise could repeat that one's: start it"
                " afresh instead of forking it into a PID namespace."
            )
        return np.array(_build_measurement(family, scale)([0] * size), dtype=np.int64)


class SecureNoise(OpenDPNoise):
    """The same by this module's sampler, .1 microseconds per value.

    Laplace variables remain OpenDP's.

    Each Gaussian is made of fresh bytes of the system's: there is neither key nor state
    that forks, threads, workers or copies of a process could share. Constant time is
    not claimed (`LIMITS.md`).
    """

    def _draw(self, family: str, scale: float, size: int) -> _Integers:
        if family != "gaussian":
            return super()._draw(family, scale, size)
        found, missing = [np.zeros(0, dtype=np.int64)], size
        while missing > 0:
            found.append(
                _accepted(scale, min(_AT_ONCE, missing + missing // 8 + 16))[:missing]
            )
            missing -= len(found[-1])
        return np.concatenate(found)


class SeededNoise(NoiseSource):
    """Repeatable noise for experiments.

    It is NOT private: whoever knows the seed can take the noise away again.

    The Gaussians are close to discrete Gaussians in distribution but not exact.
    """

    def __init__(self, generator: np.random.Generator | int) -> None:
        self._seed = generator

    def _draw(self, family: str, scale: float, size: int) -> _Integers:
        # From a seed it is made now, which takes longer than much of what clients do
        # that add no noise.
        generator = self._seed = np.random.default_rng(self._seed)
        if family == "gaussian":
            return np.rint(generator.normal(0.0, scale, size)).astype(np.int64)
        success = -np.expm1(-1.0 / scale)
        return generator.geometric(success, size) - generator.geometric(success, size)


def noise_source(kind: NoiseKind, seed: int | None = None) -> NoiseSource:
    """Return a source of noise: ``SEEDED`` for experiments, with a `seed` of at least
    0, others for privacy.

    A `LocalMisuseError` is raised if `kind` is not a NoiseKind, or the seed does not
    fit it.
    """
    if not isinstance(kind, NoiseKind):
        raise invalid(
            "kind", kind, "a NoiseKind", "give NoiseKind.SECURE or NoiseKind.SEEDED"
        )
    if kind is NoiseKind.SEEDED:
        return SeededNoise(require_whole("seed", seed, 0, "give a seed such as 0"))
    if seed is not None:
        raise LocalMisuseError(
            f"seed is {seed!r}, but secure noise cannot have one: leave the seed out,"
            " or choose NoiseKind.SEEDED."
        )
    return SecureNoise() if kind is NoiseKind.SECURE else OpenDPNoise()


@lru_cache(maxsize=_MEASUREMENTS_KEPT)
def _build_measurement(family: str, scale: float) -> Callable[[list[int]], list[int]]:
    """Build OpenDP's mechanism for lists of 64-bit integers.

    It has no state and takes longer to build than to draw.
    """
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
    """Raise if this version of OpenDP draws from another distribution than the one that
    is priced.
    """
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < _OLDEST_OPENDP:
        raise LocalMisuseError(
            f"OpenDP is {version}, whose samplers are biased, but secure noise needs at"
            f" least {'.'.join(map(str, _OLDEST_OPENDP))}: upgrade opendp."
        )


def _require_scale(name: str, value: float, largest: float) -> float:
    """Return a scale as a float, or raise if it is below one grid step or its tails
    could leave int64.
    """
    if type(value) is float and 1.0 <= value <= largest:
        return value  # as all plans give it
    scale = _require_at_least(name, value, 1, "grid step: use a finer grid")
    if scale > largest:
        raise LocalMisuseError(
            f"{name} is {scale:.3g}, but it must be at most {largest:.3g} grid steps"
            " (64 bits): use a coarser grid."
        )
    return scale


# -- exact discrete Gaussians ----------------------------------------------------------

_MOST_STEPS = (
    16  # blocks in a standard deviation, at most; weights are proved for no more
)
_AT_ONCE = 1 << 13  # proposals whose arrays fit a processor's cache


@lru_cache(maxsize=_MOST_STEPS)
def _weights_of(steps: int) -> tuple[NDArray[np.uint32], _Reals, tuple[Fraction, ...]]:
    """Weights of the blocks and, last, the first one behind them, for so many in a
    standard deviation.

    Returned are sums of W, among which 31 bits choose; 2^32 scale / W, not a number for
    the last; and W / scale.
    """
    n = 12 * steps
    wanted = _exp_minus(np.arange(n) ** 2 / (2.0 * steps**2)).tolist()
    scale = int((2**31 - 2 * n - 3) / math.fsum(wanted))
    each = [int(scale * height) + 2 for height in wanted]
    each[0] += 2**31 - 2 - sum(each)
    heights = np.array([2.0**32 * scale / weight for weight in each] + [math.nan])
    return (
        np.cumsum([*each, 2]).astype(np.uint32),
        heights,
        tuple(Fraction(weight, scale) for weight in [*each, 1]),
    )


def _accepted(std: float, n: int) -> _Integers:
    """Make n proposals and return those that are accepted."""
    width = math.ceil(std / _MOST_STEPS)
    ends, heights, weights = _weights_of(-(-math.ceil(std) // width))
    word = np.min_scalar_type(256 * width - 1)
    drawn = os.urandom((8 + word.itemsize) * n)
    coins, uniform = (
        np.frombuffer(drawn, np.uint32, n),
        np.frombuffer(drawn, np.uint32, n, 4 * n),
    )
    words = np.frombuffer(drawn, word, n, 8 * n)
    is_negative, blocks = (
        coins % 2 == 1,
        np.searchsorted(ends, coins >> 1, side="right"),
    )
    sizes = blocks * width + (words % width).astype(np.int64)
    above = heights[blocks] * _exp_minus(np.square(sizes / std) / 2.0) - uniform
    kept = above >= 1.5
    for place in np.flatnonzero(~kept & ~(above <= -0.5)).tolist():
        size, weight = int(sizes[place]), weights[blocks[place]]
        while blocks[place] == len(weights) - 1 and os.urandom(1)[0] % 2:
            size, weight = size + width, weight / 2
        sizes[place] = min(size, 2**63 - 1)
        kept[place] = _is_below(int(uniform[place]), weight, size, std)
    # Words beyond the last whole multiple of the width are no proposals, and neither is
    # -0.
    kept &= (words < 256**word.itemsize // width * width) & ~(
        is_negative & (sizes == 0)
    )
    return np.where(is_negative, -sizes, sizes)[kept]


def _exp_minus(exponents: _Reals) -> _Reals:
    """Return exp(-x), and exp(-64) beyond 64, but for 2^-38 of it.

    Taylor's series of exp(-x/256), squared 8 times.
    """
    parts = np.minimum(exponents, 64.0) / 256.0
    series = np.ones_like(parts)
    for term in range(10, 0, -1):
        series = 1.0 - parts / term * series
    for _ in range(8):
        series *= series
    return series


def _is_below(drawn: int, weight: Fraction, size: int, std: float) -> bool:
    """Whether U, of which 32 bits are drawn, times the weight is below exp(-size^2 / (2
    std^2)): exactly.
    """
    (numerator, denominator), n_bits, n_digits = std.as_integer_ratio(), 32, 40
    while True:
        context = decimal.Context(prec=n_digits)
        exponent = context.divide(
            decimal.Decimal(-((size * denominator) ** 2)),
            decimal.Decimal(2 * numerator**2),
        )
        height = Fraction(context.exp(exponent))
        # Quotient and exponential are correctly rounded: each errs by half a unit of
        # its last digit.
        error = height * (2 - Fraction(exponent)) / 10 ** (n_digits - 1)
        if (drawn + 1) * weight <= (height - error) * 2**n_bits:
            return True
        if drawn * weight >= (height + error) * 2**n_bits:
            return False
        drawn, n_bits, n_digits = (
            drawn << 64 | int.from_bytes(os.urandom(8)),
            n_bits + 64,
            n_digits + 20,
        )


# -- closeness of the drawn to the analysed noise --------------------------------------

_TAIL = 100.0
"""The additive part of every closeness is exp(-100), 4e-44."""


@dataclass(frozen=True)
class Closeness:
    """How close drawn noise is to analysed noise, in the sense of this module.

    a `LocalMisuseError` if out of range.
    """

    log_ratio_above: float = 0.0
    """a: the drawn noise's probabilities are at most exp(a) times the analysed noise's.

    At least 0.
    """
    log_ratio_below: float = 0.0
    """b: the analysed noise's probabilities are at most exp(b) times the drawn noise's.

    At least 0.
    """
    additive: float = 0.0
    """tau: up to a probability of tau; from 0 to 1.

    Alone it is a total-variation distance.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is float and 0.0 <= value < math.inf:
                continue  # as all proofs give it
            value = require_real(
                name, value, "give 0.0, or what a proof of closeness gives"
            )
            if not value >= 0.0:
                raise LocalMisuseError(
                    f"{name} of a closeness is {value}, but it must be at least 0: give"
                    " 0.0."
                )
        if self.additive > 1.0:
            raise LocalMisuseError(
                f"additive is {self.additive}, but it must be at most 1: give a"
                " probability."
            )

    @property
    def log_ratio(self) -> float:
        """The part of epsilon that this closeness costs, a + b."""
        return self.log_ratio_above + self.log_ratio_below

    def widened(self, log_ratio: float) -> Closeness:
        """Return the closeness of noise whose log-ratio to the noise that was drawn so
        far is within `log_ratio`.

        What Q has a probability of tau for has one of at most ``exp(log_ratio) tau``
        under the new noise.
        """
        # Beyond 700 the factor is not a number any more, and all of it may be
        # exceptional.
        factor = math.exp(log_ratio) if log_ratio < 700.0 else math.inf
        additive = min(1.0, self.additive * factor) if self.additive > 0.0 else 0.0
        return Closeness(
            self.log_ratio_above + log_ratio, self.log_ratio_below + log_ratio, additive
        )


SAME = Closeness()
"""The noise that is drawn is the noise that is analysed."""


def joint_closeness(parts: Iterable[Closeness]) -> Closeness:
    """Add up the closeness of several, possibly adaptive, releases.

    None at all are the same.
    """
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
    """Bound how far discrete Gaussian noise is from a continuous Gaussian rounded to
    integers.

    The rounded continuous Gaussian mechanism on an integer-valued query is a
    post-processing of the continuous one (adding an integer and rounding to the nearest
    integer commute), so it is exactly mu-GDP.

    The discrete Gaussian has the parameter sigma = `std` >= 1, in grid units, and the
    release n = `n_entries` >= 0 independent entries. With s = `std`, x = 100, h = 2.1
    exp(-2 pi^2 s^2), y = x + n (1/(290 s^4) + h) the additive part is exp(-x), and the
    log-ratios are ::

        above = min(n / (24 s^2), sqrt(6.00002 n x) / (24 s^2) + n / (319 s^4)),
        below = (sqrt(n y) + y) / (12 s^2 - 1) + n (1/(186 s^4) + h).

    The proof is in ``README.md``, "How close discrete noise is".
    """
    std = _require_at_least("std", std, 1.0, "grid steps: use a finer grid")
    n = require_whole("n_entries", n_entries, 0, "give one such as 1")
    if n == 0:
        return SAME
    precision = 1.0 / (std * std)
    square, poisson = (
        precision * precision,
        2.1 * math.exp(-2.0 * math.pi**2 * std * std),
    )
    always = n * precision / 24.0
    nearly_always = (
        math.sqrt(6.00002 * n * _TAIL) * precision / 24.0 + n * square / 319.0
    )
    tail = _TAIL + n * (square / 290.0 + poisson)
    spread = (math.sqrt(n * tail) + tail) * precision / (12.0 - precision)
    below = spread + n * (square / 186.0 + poisson)
    return Closeness(min(always, nearly_always), below, math.exp(-_TAIL))


def discrete_gaussian_sum_log_ratio(
    std_share: float, n_shares: int, n_entries: int
) -> float:
    """Bound the log-ratio of a sum of discrete Gaussians to the one discrete Gaussian
    of the same variance.

    ``5 n_entries sum_{k=1}^{n_shares-1} exp(-2 pi^2 std_share^2 k / (k+1))`` bounds it
    in both directions. Each of the `n_shares` >= 1 independent shares has the parameter
    sigma = `std_share` >= 0.5, in grid units, and the one has ``sqrt(n_shares)
    std_share``.

    Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation", whose privacy theorem pays 10 times the
    sum.
    """
    std_share = _require_at_least(
        "std_share", std_share, 0.5, "grid steps: use a finer grid"
    )
    n_shares = require_whole("n_shares", n_shares, 1, "give one such as 2")
    n_entries = require_whole("n_entries", n_entries, 0, "give one such as 1")
    rate = 2.0 * math.pi**2 * std_share * std_share
    return (
        5.0
        * n_entries
        * math.fsum(math.exp(-rate * k / (k + 1)) for k in range(1, n_shares))
    )


def _require_at_least(name: str, value: float, bound: float, mend: str) -> float:
    number = require_positive(name, value)
    if number < bound:
        raise LocalMisuseError(
            f"{name} is {number}, but it must be at least {bound} {mend}."
        )
    return number
