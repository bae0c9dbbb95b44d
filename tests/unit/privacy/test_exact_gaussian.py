"""Is the sampler of discrete Gaussians exact? Its proof's premises, and each
comparison, in decimals of 60 digits.

No sample of any size would show a bias of one part in 2^32, so random bytes are made up
and decisions are looked at. How the draws are distributed: tests/nightly/statistical.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.machine import replace_entropy

from flwr_dpkmeans.privacy import exact_gaussian
from flwr_dpkmeans.privacy.noise import SecureNoise

DIGITS = decimal.Context(prec=60)
STDS = (1.0, 1.01, 2.5, 16.0, 16.5, 700.3, 65537.5, 1e12, 2.0**63 / 40)


def gaussian(size: int, std: float) -> Decimal:
    """exp(-size^2 / (2 std^2))."""
    with decimal.localcontext(DIGITS):
        return (-(Decimal(size) ** 2) / (2 * Decimal(std) ** 2)).exp()


def blocks_of(std: float) -> tuple[int, int]:
    """Width of a block, and how many make at least a standard deviation."""
    width = math.ceil(std / 16)
    return width, next(
        steps for steps in range(1, 17) if Decimal(steps) * width >= Decimal(std)
    )


def accepted(
    patch: pytest.MonkeyPatch, std: float, coin: int, word: int, uniform: int,
    rest: bytes,
) -> list[int]:  # fmt: skip
    """What becomes of a proposal: coin and sign, place, U; then come `rest`."""
    bits = next(bits for bits in (8, 16, 32, 64) if 256 * blocks_of(std)[0] <= 2**bits)
    drawn = (
        coin.to_bytes(4, "little")
        + uniform.to_bytes(4, "little")
        + word.to_bytes(bits // 8, "little")
    )
    left = [drawn]

    def urandom(size: int) -> bytes:
        given = left.pop() if left else rest * size
        assert len(given) == size
        return given

    with patch.context() as inner:
        replace_entropy(inner, urandom)
        return exact_gaussian.accepted_proposals(std, 1).tolist()  # type: ignore[no-any-return]


def wrong_decisions(patch: pytest.MonkeyPatch, std: float) -> int:
    """How many proposals with a U next to its limit are decided wrongly."""
    width, steps = blocks_of(std)
    ends, _, weights = exact_gaussian.block_weights(steps)
    wrong = 0
    for block in {0, 1, steps, 3 * steps, 12 * steps - 1}:
        for place in {0, width // 2, width - 1}:
            with decimal.localcontext(DIGITS):
                ratio = Decimal(weights[block].denominator) / Decimal(
                    weights[block].numerator
                )
                bound = gaussian(block * width + place, std) * ratio * 2**32
            for uniform in {
                min(max(int(bound) + step, 0), 2**32 - 1)
                for step in (-6, -2, -1, 0, 1, 2, 6)
            }:
                for rest, is_below in (
                    (b"\0", uniform < bound),
                    (b"\xff", uniform + 1 <= bound),
                ):
                    found = accepted(
                        patch, std, 2 * (int(ends[block]) - 1), place, uniform, rest
                    )
                    wrong += found != [block * width + place] * is_below
    return wrong


@pytest.mark.parametrize("steps", range(1, 17))
def test_no_proposal_is_ever_too_unlikely(steps: int) -> None:
    """Every weight is at least what it must be, and all make 31 bits."""
    ends, heights, weights = exact_gaussian.block_weights(steps)
    scale, n = next(weight.denominator for weight in reversed(weights)), 12 * steps
    whole = [int(weight * scale) for weight in weights[:-1]]
    assert len(whole) == n
    assert weights[-1] * scale == 1
    assert np.diff([0, *ends.tolist()]).tolist() == [*whole, 2]
    assert ends[-1] == 2**31
    assert math.isnan(heights[-1])
    assert all(weight >= scale * gaussian(i, steps) for i, weight in enumerate(whole))
    assert heights[:-1].tolist() == pytest.approx(
        [2.0**32 * scale / weight for weight in whole], rel=1e-15
    )
    # From block n on: 2^-t, which what it must be falls faster than, from below 1.
    assert scale * gaussian(n, steps) < 1
    assert gaussian(n + 1, steps) / gaussian(n, steps) < Decimal("0.5")


@pytest.mark.parametrize("std", STDS)
def test_comparisons_are_those_of_real_numbers(
    monkeypatch: pytest.MonkeyPatch, std: float
) -> None:
    assert wrong_decisions(monkeypatch, std) == 0


PLANTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a billionth too likely": (
        "exp_minus",
        lambda real: lambda x: real(x) * (1 + 2.0**-30),
    ),
    "a billionth too unlikely": (
        "exp_minus",
        lambda real: lambda x: real(x) * (1 - 2.0**-30),
    ),
    "what is not clear is refused": ("is_below", lambda real: lambda *given: False),
    "what is not clear is accepted": ("is_below", lambda real: lambda *given: True),
    "what is not clear is a coin": (
        "is_below",
        lambda real: lambda drawn, *given: real(drawn // 2 * 2, *given),
    ),
    "a deviation in single precision": (
        "accepted_proposals",
        lambda real: lambda std, n: real(float(np.float32(std * (1 + 1e-7))), n),
    ),
}


def plant(patch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> None:
    """Let another function decide: what the bytes alone cannot be made to show."""
    patch.setattr(exact_gaussian, name, function)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_biases_of_the_last_bits_are_caught(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place, bug = PLANTED[name]
    exact_gaussian.block_weights(16)
    plant(monkeypatch, place, bug(getattr(exact_gaussian, place)))
    assert wrong_decisions(monkeypatch, 700.3) > 0


def test_each_block_has_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and last 31 bits of each block, with both signs."""
    ends = [0, *exact_gaussian.block_weights(14)[0].tolist()]  # 27.5 is 14 blocks of 2
    for block in range(12 * 14):
        for coin in (ends[block], ends[block + 1] - 1):
            for word in (0, 1, 65534, 65535):
                size = 2 * block + word % 2
                assert accepted(monkeypatch, 27.5, 2 * coin, word, 0, b"\0") == [size]
                assert accepted(monkeypatch, 27.5, 2 * coin + 1, word, 0, b"\0") == [
                    -size
                ] * (size > 0)


def test_places_in_a_block_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2^16 words for a width of 3 the last is no proposal."""
    first = 2 * (int(exact_gaussian.block_weights(14)[0][0]) - 1)
    assert [
        accepted(monkeypatch, 40.0, first, word, 0, b"\0")
        for word in (65532, 65533, 65534)
    ] == [[0], [1], [2]]
    assert accepted(monkeypatch, 40.0, first, 65535, 0, b"\0") == []


def test_what_lies_behind_the_table_is_reached_and_ends_with_int64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = 2**32 - 2
    assert accepted(monkeypatch, 16.0, last, 0, 0, b"\0") == [192]
    assert accepted(monkeypatch, 16.0, last + 1, 0, 0, b"\0") == [-192]
    # Weight 1 of block 192 is compared with scale exp(-72), some 1e-23.
    assert accepted(monkeypatch, 16.0, last, 0, 1, b"\0") == []
    asked: list[tuple[Fraction, int]] = []
    answers = iter([b"\x01", b"\xff", *[b"\x03"] * 998, b"\xfe"])
    plant(
        monkeypatch,
        "is_below",
        lambda drawn, weight, size, std: not asked.append((weight, size)),
    )
    numbers = last.to_bytes(4, "little") + bytes(4 + 8)
    replace_entropy(monkeypatch, lambda size: next(answers) if size == 1 else numbers)
    assert exact_gaussian.accepted_proposals(2.0**63 / 40, 1).tolist() == [2**63 - 1]
    assert asked == [
        (
            exact_gaussian.block_weights(16)[2][-1] / 2**1000,
            1192 * blocks_of(2.0**63 / 40)[0],
        )
    ]


@pytest.mark.parametrize(("rest", "reached"), [(b"\0", 12345), (b"\xff", 12346)])
def test_exact_comparisons_go_on_until_they_are_clear(
    monkeypatch: pytest.MonkeyPatch, rest: bytes, reached: int
) -> None:
    """U lies so close below or above that 40 digits do not tell."""
    replace_entropy(monkeypatch, lambda size: rest * size)
    for size in range(1, 160, 3):
        for side in (-1, 1):
            bound = Fraction(gaussian(size, 20.3)) * (1 + Fraction(side, 10**45))
            assert exact_gaussian.is_below(
                12345, bound * 2**32 / reached, size, 20.3
            ) is (side < 0)


def test_a_draw_without_doubles_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same bytes come the same numbers where only fractions decide."""
    generator = np.random.default_rng(5)
    drawn = generator.bytes(16 * 300)

    def found(std: float) -> list[int]:
        with monkeypatch.context() as inner:
            replace_entropy(
                inner,
                lambda size: drawn[:size] if size > 300 else generator.bytes(size),
            )
            return exact_gaussian.accepted_proposals(std, 300).tolist()  # type: ignore[no-any-return]

    for std in (1.3, 40.0, 1e12):
        by_doubles = found(std)
        with monkeypatch.context() as inner:
            plant(inner, "exp_minus", lambda x: np.full_like(x, np.nan))
            assert found(std) == by_doubles
        assert len(by_doubles) > 150


def test_exponentials_are_as_close_as_the_proof_says() -> None:
    exponents = np.concatenate(
        [np.linspace(0.0, 64.0, 300), [1e-300, 2.0**-40, 65.0, 1e6]]
    )
    for exponent, found in zip(
        exponents.tolist(), exact_gaussian.exp_minus(exponents).tolist(), strict=True
    ):
        exact = DIGITS.exp(-min(Decimal(exponent), Decimal(64)))
        assert abs(Decimal(found) / exact - 1) < Decimal(2) ** -38


@pytest.mark.parametrize("size", [0, 1, 7, 9000])
def test_as_many_as_asked_for_are_drawn(size: int) -> None:
    assert SecureNoise().discrete_gaussian(1.01, size).shape == (size,)
