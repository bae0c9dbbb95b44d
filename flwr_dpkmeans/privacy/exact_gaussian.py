"""Exact discrete Gaussians, made of the operating system's bytes alone.

A *proposal* is a block i >= 0, drawn by weights W_i, a place r in it, uniform below the
whole number `width`, and a coin for the sign: it is k =
+-(i width + r). With a uniform number U it is accepted if it is not -0 and U W_i <
scale exp(-k^2 / (2 std^2)).

    Proof. Let steps >= std / width. W_i is at least scale exp(-i^2 / (2 steps^2)), so
    at least scale exp(-(i width)^2 / (2 std^2)), so at least what stands on the right
    in block i. A proposal's probability is proportional to W_i, and that of an accepted
    one to W_i scale exp(-k^2 / (2 std^2)) / W_i. Every k is one proposal, as -0 is
    none. QED.

Doubles decide a comparison only where it is clear whatever they were rounded to, else
fractions and more bits of U do. What is left, with s for steps, at most 16, n = 12 s
for the blocks with weights of their own, and c for scale, a whole number below 2^31:

    Width and steps. width = ceil(std/16) and s = ceil(ceil(std)/width) =
    ceil(std/width) <= 16 are exact: 16 is a power of two, and the rest is of integers.

    Weights. W_i = floor(c e_i) + 2 for i < n, e_i being a double for exp(-i^2/(2 s^2))
    that is at most 2^-38 of it off, and at most 2^-92 where i^2/(2 s^2) > 64: c e_i is
    off by less than 1, so W_i > c exp(-i^2/(2 s^2)). c was chosen so that they and 2
    add up to 2^31 at most; W_0 gets what is missing, so that 31 bits choose a block
    without a remainder. Block n + t has the weight 2^-t for every t >= 0, 2 together:
    this much of 2^31 leads there, and a coin for each t further. That is enough: c
    exp(-n^2/(2 s^2)) = c exp(-72) < 1, and the next one falls by exp(-(2 i + 1)/(2
    s^2)) <= exp(-12/s) < 1/2, i >= n.

    Places. A uniform word of 8, 16, 32 or 64 bits, at least 2^8 times the width, below
    the largest multiple of the width, modulo the width. A word above it, 1 in 2^8 at
    most, is no proposal.

    Comparison. U in [u, u + 1)/2^32 with u of 32 bits; q = 2^32 c exp(-k^2/(2
    std^2))/W_i <= 2^32. Doubles are added, multiplied, divided and compared only, which
    IEEE 754 rounds correctly. k/std, squared and halved, is within 2^-50 of itself,
    which is 2^-44 as long as it is at most 64. exp(-x): the series of exp(-x/256)
    breaks off after ten terms, 2^-46.9 of it; each bracket is in [0, 1] and rounded
    thrice, 2^-51 of it in all; squaring doubles an error eight times and adds eight
    roundings, below 2^-38 together. With the quotient 2^32 c/W_i, rounded once, q comes
    out within 2^-37 of itself, 2^-5. Beyond 64 what comes out and what is meant are
    both below 2^62 exp(-63.9) < 2^-30. So where the double for q, less u, is at least
    1.5, u + 1 < q and U is below; where it is at most -.5, u > q and U is not. Else,
    two proposals in 2^32, fractions decide: exp(-k^2/(2 std^2)) to 40 digits, by
    `decimal`, whose quotients and exponentials are correctly rounded, with a bound on
    what is left; where that and 32 bits do not tell, 20 digits and 64 bits more, until
    they do. QED.

    Beyond int64, at more than 40 std, lies less than exp(-800); what would be there is
    moved to its ends, as by OpenDP.

What is assumed: `os.urandom` gives independent uniform bytes, doubles are those of IEEE
754 in round-to-nearest, Python's integers and `decimal` are right.
"""

from __future__ import annotations

import decimal
import math
import os
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MOST_STEPS = 16
"""Blocks in a standard deviation, at most; weights are proved for no more."""
_DEVIATIONS_WITH_BLOCKS = 12
"""Standard deviations that have blocks of their own."""
_AT_ONCE = 1 << 13
"""Proposals whose arrays fit a processor's cache."""
_LARGEST = 2**63 - 1
Integers = NDArray[np.int64]
_Reals = NDArray[np.float64]


def discrete_gaussians(std: float, size: int) -> Integers:
    """Draw independent discrete Gaussians.

    Parameters
    ----------
    std : float
        Parameter sigma in grid units, in the range of `NoiseSource.discrete_gaussian`.
    size : int
        How many.
    """
    values = np.zeros(size, dtype=np.int64)
    n_drawn = 0
    while n_drawn < size:
        n_missing = size - n_drawn
        n_proposals = n_missing + n_missing // 8 + 16
        n_proposals = min(_AT_ONCE, n_proposals)
        accepted = accepted_proposals(std, n_proposals)
        used = accepted[:n_missing]
        end = n_drawn + len(used)
        values[n_drawn:end] = used
        n_drawn = end
    return values


class BlockWeights(NamedTuple):
    """Weights of the blocks and, last, of the first one behind them."""

    ends: NDArray[np.uint32]
    """Sums of W, among which 31 bits choose."""
    heights: _Reals
    """2^32 scale / W; not a number for the last."""
    weights: tuple[Fraction, ...]
    """W / scale."""


@lru_cache(maxsize=_MOST_STEPS)
def block_weights(steps: int) -> BlockWeights:
    """Compute the weights for so many blocks in a standard deviation."""
    n_blocks = _DEVIATIONS_WITH_BLOCKS * steps
    squares = np.arange(n_blocks) ** 2
    exponents = squares / (2.0 * steps**2)
    wanted = exp_minus(exponents).tolist()
    room = 2**31 - 2 * n_blocks - 3
    scale = int(room / math.fsum(wanted))

    weights = []
    for height in wanted:
        weights.append(int(scale * height) + 2)
    missing = 2**31 - 2 - sum(weights)
    weights[0] += missing

    heights = []
    ratios = []
    for weight in weights:
        heights.append(2.0**32 * scale / weight)
        ratios.append(Fraction(weight, scale))
    heights.append(math.nan)
    ratios.append(Fraction(1, scale))
    ends = np.cumsum([*weights, 2])
    return BlockWeights(
        ends=ends.astype(np.uint32),
        heights=np.array(heights),
        weights=tuple(ratios),
    )


def accepted_proposals(std: float, n_proposals: int) -> Integers:
    """Make proposals and return those that are accepted."""
    width = math.ceil(std / _MOST_STEPS)
    steps = (math.ceil(std) + width - 1) // width
    table = block_weights(steps)

    raw = raw_proposals(n_proposals, width)
    # The lowest bit is the coin for the sign; the others choose a block.
    is_negative = raw.coins % 2 == 1
    blocks = np.searchsorted(table.ends, raw.coins >> 1, side="right")
    places = raw.words % width
    sizes = blocks * width + places.astype(np.int64)

    exponents = np.square(sizes / std) / 2.0
    heights = table.heights[blocks]
    margin = heights * exp_minus(exponents) - raw.uniform
    is_accepted = margin >= 1.5
    is_refused = margin <= -0.5
    is_unclear = ~is_accepted & ~is_refused
    for index in np.flatnonzero(is_unclear).tolist():
        size = int(sizes[index])
        block = int(blocks[index])
        weight = table.weights[block]
        if block == len(table.weights) - 1:
            # Later blocks have half the weight of the one before.
            n_later = _coins_in_a_row()
            size += n_later * width
            weight /= 2**n_later
        sizes[index] = min(size, _LARGEST)
        bits = int(raw.uniform[index])
        is_accepted[index] = is_below(bits, weight, size, std)

    # Words beyond the last whole multiple of the width are no proposals, and neither is
    # -0.
    n_words = 256**raw.words.itemsize
    n_usable = n_words // width * width
    is_minus_zero = is_negative & (sizes == 0)
    is_proposal = (raw.words < n_usable) & ~is_minus_zero
    values = np.where(is_negative, -sizes, sizes)
    drawn: Integers = values[is_accepted & is_proposal]
    return drawn


class RawProposals(NamedTuple):
    """Uniform bits, of each proposal its own."""

    coins: NDArray[np.uint32]
    uniform: NDArray[np.uint32]
    """The first bits of U."""
    words: NDArray[np.unsignedinteger]
    """As long as 8 bits more than a place in a block takes."""


def raw_proposals(n_proposals: int, width: int) -> RawProposals:
    """Read so many proposals' bits from the operating system."""
    word = np.min_scalar_type(256 * width - 1)
    n_bytes = 8 + word.itemsize
    entropy = os.urandom(n_bytes * n_proposals)
    halves = np.frombuffer(entropy, dtype=np.uint32, count=2 * n_proposals)
    words = np.frombuffer(entropy, dtype=word, offset=8 * n_proposals)
    return RawProposals(
        coins=halves[:n_proposals],
        uniform=halves[n_proposals:],
        words=words,
    )


def _coins_in_a_row() -> int:
    """Toss coins until one shows tails, and count the others."""
    n_heads = 0
    while os.urandom(1)[0] % 2 == 1:
        n_heads += 1
    return n_heads


def exp_minus(exponents: _Reals) -> _Reals:
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


def is_below(
    uniform: int,
    weight: Fraction,
    size: int,
    std: float,
) -> bool:
    """Tell, exactly, whether U times a weight is below exp(-size^2 / (2 std^2)).

    Parameters
    ----------
    uniform : int
        The first 32 bits of U; more are drawn where they do not decide.
    weight : Fraction
        W / scale of the block.
    size : int
        Magnitude of the proposal, k.
    std : float
        Parameter sigma.
    """
    numerator, denominator = std.as_integer_ratio()
    scaled_size = size * denominator
    dividend = decimal.Decimal(-(scaled_size**2))
    divisor = decimal.Decimal(2 * numerator**2)
    n_bits = 32
    n_digits = 40
    while True:
        context = decimal.Context(prec=n_digits)
        exponent = context.divide(dividend, divisor)
        height = Fraction(context.exp(exponent))
        # Quotient and exponential are correctly rounded: each errs by half a unit of
        # its last digit.
        n_units = 2 - Fraction(exponent)
        error = height * n_units / 10 ** (n_digits - 1)
        lowest = (height - error) * 2**n_bits
        highest = (height + error) * 2**n_bits
        if (uniform + 1) * weight <= lowest:
            return True
        if uniform * weight >= highest:
            return False
        more_bits = int.from_bytes(os.urandom(8))
        uniform = uniform << 64 | more_bits
        n_bits += 64
        n_digits += 20
