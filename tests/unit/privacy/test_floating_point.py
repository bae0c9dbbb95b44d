"""What floating point could do to the noise, and does not.

Low bits that tell, scales rounded down, sums cut short.

Mironov 2012, "On significance of the least significant bits for differential privacy":
noise drawn in doubles reaches only some doubles, others for each true value, so that
one release can rule one of two neighbours out. The attacks here look at released
doubles as he did; each is first shown to break a naive sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy.noise import (
    NoiseKind,
    SecureNoise,
    SeededNoise,
    integer_noise,
    opendp_noise,
)
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    draw_noise,
)
from flwr_dpkmeans.secagg.ring import FRACTION_BITS, AggregateVector, encode
from flwr_dpkmeans.sums.plan import takes_part
from flwr_dpkmeans.sums.trust import Central, Shares

Doubles = NDArray[np.float64]
SIZE = 4000
SCALE = 1.0
EPSILON = 1.0
"""What a Laplace variable of this scale costs for counts of 0 and 1.

The events below prove less of a Gaussian too.
"""
CONFIDENCE = 1e-9


def block_of(
    noise: NoiseShape,
    multiplier: float = SCALE,
    bound: float = 1.0,
    shape: tuple[int, ...] = (SIZE,),
) -> Block:
    norm = Norm.L2 if noise is NoiseShape.GAUSSIAN else Norm.L1
    return Block(
        "count", shape, Sensitivity(norm, bound, PrivacyUnit.RECORD), noise, multiplier,
        1.0,
    )  # fmt: skip


# -- naive samplers --------------------------------------------------------------------


def inverse_laplace(generator: np.random.Generator) -> Doubles:
    """The textbook's: sign times logarithm of one of 2^53 uniform doubles."""
    uniform = generator.integers(1, 2**53 + 1, SIZE) * 2.0**-53
    return generator.choice([-1.0, 1.0], SIZE) * SCALE * np.log(uniform)


def box_muller(generator: np.random.Generator) -> Doubles:
    first, second = 1.0 - generator.random(SIZE), generator.random(SIZE)
    return SCALE * np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * second)


NAIVE: dict[str, Callable[[np.random.Generator], Doubles]] = {
    "inverse Laplace": inverse_laplace,
    "numpy Laplace": lambda generator: generator.laplace(0.0, SCALE, SIZE),
    "Box-Muller": box_muller,
    "numpy normal": lambda generator: generator.normal(0.0, SCALE, SIZE),
    "legacy normal": lambda _: np.random.RandomState(5).normal(0.0, SCALE, SIZE),
}
GRANULARITY = SCALE / 1000.0
"""Of a sampler that draws integers, and scales them to a grid that the true value does
not lie on.
"""


def scaled_after_rounding(generator: np.random.Generator) -> Doubles:
    return GRANULARITY * np.rint(generator.normal(0.0, SCALE / GRANULARITY, SIZE))


# -- attacks: functions of a released double that decide between true 0 and 1 ----------


def finest_bit(released: Doubles) -> NDArray[np.int64]:
    """Exponent of the lowest bit of each double; 99 for zero."""
    mantissa, exponent = np.frexp(released)
    integer = (np.abs(mantissa) * 2.0**53).astype(np.int64)
    lowest = np.where(integer == 0, 1, integer & -integer)
    return np.where(integer == 0, 99, np.log2(lowest).astype(np.int64) + exponent - 53)


def is_reachable(released: Doubles, true_value: float) -> NDArray[np.bool_]:
    """Whether the textbook's sampler can have made each double of a true value."""
    noise = released - true_value
    sign = np.where(noise <= 0.0, 1.0, -1.0)
    place = np.rint(np.exp(-np.abs(noise) / SCALE) * 2.0**53)
    found = np.zeros(len(released), dtype=bool)
    for step in range(-8, 9):
        uniform = np.clip(place + step, 1.0, 2.0**53) * 2.0**-53
        found |= true_value + sign * SCALE * np.log(uniform) == released
    return found


def on_lattice(
    released: Doubles, true_value: float, granularity: float
) -> NDArray[np.bool_]:
    """Whether released values less a true value are multiples of the granularity."""
    steps = (released - true_value) / granularity
    return np.abs(steps - np.rint(steps)) < 1e-6


EVENTS: dict[str, Callable[[Doubles], NDArray[np.bool_]]] = {
    **{
        f"bits below 2^{e}": lambda released, e=e: finest_bit(released) < e
        for e in (-60, -56, -54, -53, -52, -16)
    },
    "not made of 0": lambda released: ~is_reachable(released, 0.0),
    "not made of 1": lambda released: ~is_reachable(released, 1.0),
    "on the lattice of 0.3": lambda released: on_lattice(released, 0.3, GRANULARITY),
    "on the lattice of 1.3": lambda released: on_lattice(released, 1.3, GRANULARITY),
    "odd": lambda released: np.mod(released * 2.0**16, 2.0) == 1.0,
    "zero": lambda released: released == 0.0,
    "negative zero": lambda released: (released == 0.0) & np.signbit(released),
    "above a half": lambda released: released > 0.5,
}


def leaked_epsilon(zero: Doubles, one: Doubles) -> dict[str, float]:
    """Lower bound of epsilon that each event proves, wrong up to `CONFIDENCE`."""
    found = {}
    for name, event in EVENTS.items():
        counts = [int(event(sample).sum()) for sample in (zero, one)]
        found[name] = 0.0
        for more, less in (counts, counts[::-1]):
            lower = (
                stats.beta.ppf(CONFIDENCE / 4, more, SIZE - more + 1) if more else 0.0
            )
            upper = (
                stats.beta.ppf(1 - CONFIDENCE / 4, less + 1, SIZE - less)
                if less < SIZE
                else 1.0
            )
            if lower > 0.0:
                found[name] = max(found[name], math.log(lower / upper))
    return found


@pytest.mark.parametrize("name", NAIVE)
def test_noise_in_doubles_tells_neighbours_apart(name: str) -> None:
    """One release in ten or more rules the other true value out."""
    zero, one = (
        true + NAIVE[name](np.random.default_rng(int(true) + 7)) for true in (0.0, 1.0)
    )
    fine = finest_bit(zero) < -53
    assert fine.mean() > 0.1
    assert not (finest_bit(one) < -53).any()
    assert leaked_epsilon(zero, one)["bits below 2^-53"] > 3.0


def test_the_textbooks_laplace_noise_has_values_that_one_neighbour_reaches() -> None:
    zero, one = (
        true + inverse_laplace(np.random.default_rng(int(true) + 7))
        for true in (0.0, 1.0)
    )
    assert is_reachable(zero, 0.0).all()
    assert is_reachable(one, 1.0).all()
    assert (~is_reachable(zero, 1.0)).mean() > 0.2
    leaked = leaked_epsilon(zero, one)
    assert leaked["not made of 1"] > 3.0


def test_a_lattice_that_the_true_value_is_not_on_tells_it() -> None:
    """Integers scaled to another grid than the data's."""
    low, high = (
        true + scaled_after_rounding(np.random.default_rng(7))
        for true in (0.3, 1.3 + GRANULARITY / 3)
    )
    assert leaked_epsilon(low, high)["on the lattice of 0.3"] > 5.0


def secure_release(true_value: float, noise: NoiseShape) -> Doubles:
    """What `central` publishes of a count, as everybody reads it."""
    blocks = (block_of(noise),)
    vector = encode(np.full(SIZE, true_value))
    sent = Central().broadcast(
        AggregateVector(vector.values, blinded=False),
        blocks,
        FRACTION_BITS,
        SecureNoise(),
    )
    assert sent.released is not None
    return sent.released["count"]


@pytest.mark.parametrize("noise", [NoiseShape.GAUSSIAN, NoiseShape.LAPLACE])
def test_secure_releases_keep_all_that_from_the_attacks(noise: NoiseShape) -> None:
    """The same attacks prove less than the noise costs."""
    zero, one = (secure_release(true, noise) for true in (0.0, 1.0))
    for released in (zero, one):
        assert (finest_bit(released) >= -16).all()
        assert not (np.signbit(released) & (released == 0.0)).any()
    leaked = leaked_epsilon(zero, one)
    assert max(leaked.values()) < EPSILON, leaked
    assert leaked["above a half"] > 0.3  # and the bounds are not blunt


@pytest.mark.parametrize("noise", [NoiseShape.GAUSSIAN, NoiseShape.LAPLACE])
def test_every_ring_word_near_either_neighbour_is_reached_from_both(
    noise: NoiseShape,
) -> None:
    """Noise of 4 steps takes every value of its middle, from either true value."""
    block = block_of(noise, 4.0, 2.0**-16, (3000,))
    words = [
        draw_noise((block,), SecureNoise(), 16).view(np.int64) + true for true in (0, 1)
    ]
    assert all(set(range(-6, 7)) <= set(found.tolist()) for found in words)


def test_noise_is_added_to_integers_modulo_2_to_the_64() -> None:
    """Neighbouring sums give neighbouring words, at the ends of the ring too."""
    block = block_of(NoiseShape.GAUSSIAN, 2.0**40, 1.0, (50,))
    for total in (0, 2**53 + 1, 2**63 - 1, 2**64 - 1):
        words = np.full((2, 50), total, dtype=np.uint64)
        words[1] += np.uint64(1)
        noised = [
            Central()
            .broadcast(
                AggregateVector(row, blinded=False),
                (block,),
                16,
                SeededNoise(np.random.default_rng(3)),
            )
            .values
            for row in words
        ]
        assert (noised[1] - noised[0] == 1).all()


# -- scales ----------------------------------------------------------------------------


class Asked:
    """A source that keeps the scales it is asked for."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        self.scales.append(std)
        return np.zeros(size, dtype=np.int64)

    discrete_laplace = discrete_gaussian


def cases() -> list[tuple[float, float]]:
    generator = np.random.default_rng(8)
    own = [
        (multiplier, bound)
        for multiplier in (0.1, 1 / 3, 7.7, 1e9)
        for bound in (0.1, math.sqrt(2), 3.0, 1e-3)
    ]
    return own + generator.uniform(0.5, 40.0, (300, 2)).tolist()


@pytest.mark.parametrize("noise", [NoiseShape.GAUSSIAN, NoiseShape.LAPLACE])
def test_the_drawn_scale_is_never_below_the_priced_one(noise: NoiseShape) -> None:
    """Multiplier times bound in grid steps, compared as rationals."""
    asked, rounded_down = Asked(), 0
    for multiplier, bound in cases():
        block = block_of(noise, multiplier, bound)
        draw_noise((block,), asked, FRACTION_BITS)
        priced = Fraction(multiplier) * Fraction(bound) * 2**FRACTION_BITS
        assert priced <= Fraction(asked.scales[-1]) < priced * (1 + Fraction(1, 2**52))
        rounded_down += Fraction(block.noise_scale) * 2**FRACTION_BITS < priced
    assert rounded_down > 50  # the product in floats would have been below


def test_shares_that_are_counted_on_add_up_to_the_priced_variance_to_the_last_bit() -> (
    None
):
    asked, rounded_down = Asked(), 0
    for n_honest, (multiplier, bound) in enumerate(cases(), start=1):
        shares = Shares(n_honest + 3, 3)
        assert shares.n_honest == n_honest
        block = block_of(NoiseShape.GAUSSIAN, multiplier, bound)
        draw_noise((block,), asked, FRACTION_BITS, share=shares.factor)
        priced = (Fraction(multiplier) * Fraction(bound) * 2**FRACTION_BITS) ** 2
        assert (
            priced
            <= n_honest * Fraction(asked.scales[-1]) ** 2
            < priced * (1 + Fraction(1, 2**49))
        )
        naive = block.noise_scale * 2.0**FRACTION_BITS * (1.0 / math.sqrt(n_honest))
        rounded_down += n_honest * Fraction(naive) ** 2 < priced
    assert rounded_down > 50


@pytest.mark.parametrize("power", [0, 1, 20, 56])
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_opendp_takes_a_double_as_the_rational_that_it_is(
    family: str, power: int
) -> None:
    """Its own price of a scale is the exact scale's, rounded up."""
    prices = set()
    for ulps in (0, 1, 2, 3):
        scale = Fraction(2**52 + ulps, 2**52) * 2**power
        measurement: Any = opendp_noise.build_measurement(family, float(scale))
        cost = Fraction(measurement.map(1.0 if family == "gaussian" else 1))
        exact = 1 / scale if family == "laplace" else 1 / scale**2 / 2
        assert exact <= cost < exact * (1 + Fraction(1, 2**51))
        prices.add(cost)
    assert len(prices) >= 3


@pytest.mark.parametrize("draw", ["discrete_gaussian", "discrete_laplace"])
def test_noise_below_one_grid_step_is_refused_and_never_rounded_up_or_down(
    draw: str,
) -> None:
    for scale in (math.nextafter(1.0, 0.0), 0.5, 5e-324):
        with pytest.raises(LocalMisuseError, match="at least 1 grid step"):
            getattr(SecureNoise(), draw)(scale, 1)
    assert getattr(SecureNoise(), draw)(1.0, 1).shape == (1,)


def test_what_int64_cuts_off_is_nothing() -> None:
    """OpenDP saturates: the chance at the largest scales is below exp(-100)."""
    laplace, std = (
        Fraction(integer_noise._LARGEST_LAPLACE_SCALE),
        Fraction(integer_noise._LARGEST_STD),
    )
    assert 2**63 / laplace >= 128
    assert (2**63 / std) ** 2 / 2 > 799
    # Beyond, it would show: at a quarter of the range one value in 60 would sit at an
    # end.
    ends = np.array(opendp_noise.build_measurement("laplace", 2.0**61)([0] * 2000))
    assert (np.abs(ends.astype(np.float64)) >= 2.0**63).sum() > 5


def test_a_biased_opendp_is_refused() -> None:
    for version in ("0.9.2", "0.12.0", "0.14.1", "0.14.1a20251001001"):
        with pytest.raises(LocalMisuseError, match=r"biased.*0\.14\.2"):
            opendp_noise.require_unbiased(version)
    for version in ("0.14.2", "0.16.0", "1.0", "0.15.1a20260906001"):
        opendp_noise.require_unbiased(version)


# -- statistics and coins --------------------------------------------------------------


def test_encoding_is_exact_or_refused() -> None:
    """No value is rounded, -0 is 0, and what float64 cannot hold is refused."""
    values = np.array([-0.0, 0.0, 2.0**37, -(2.0**37), 2.0**-16, -(2.0**-16)])
    assert encode(values).values.view(np.int64).tolist() == [
        0, 0, 2**53, -(2**53), 1, -1,
    ]  # fmt: skip
    for bad in (
        2.0**-17,
        1.0 + 2.0**-40,
        5e-324,
        math.nextafter(2.0**37, math.inf),
        math.inf,
        math.nan,
        1e308,
    ):
        with pytest.raises(LocalMisuseError):
            encode(np.array([0.0, bad]))


def test_a_coin_falls_no_more_often_than_is_priced() -> None:
    """The threshold of 2^53 numbers is the rate rounded down, as rationals."""
    for rate in (0.1, 1 / 3, 0.9, math.nextafter(1.0, 0.0), 1e-9, 1e-17):
        config = SimpleNamespace(client_sampling_rate=rate, noise=NoiseKind.SECURE)
        plan: Any = SimpleNamespace(settings=config, seed=1, rates={1: rate, 2: rate})
        threshold = math.floor(Fraction(rate) * 2**53)
        for drawn in (threshold - 1, threshold):
            coins: list[int] = []

            def draw(sides: int, drawn: int = drawn, coins: list[int] = coins) -> int:
                coins.append(sides)
                return drawn

            assert takes_part(plan, 2, 1, 0, draw=draw) is (drawn < threshold)
            assert coins == [2**53]
