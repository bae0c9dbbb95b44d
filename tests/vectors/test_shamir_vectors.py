"""An independent verifier of shamir.json.

Carry-less products of Python integers, reduced by division.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

KNOWN: dict[str, Any] = json.loads(Path(__file__).with_name("shamir.json").read_text())
CASES = KNOWN["cases"]


def times(a: int, b: int) -> int:
    """Carry-less product modulo x^8 + x^4 + x^3 + x + 1."""
    product = 0
    for bit in range(8):
        product ^= (a << bit) * (b >> bit & 1)
    for bit in range(14, 7, -1):
        product ^= (0b100011011 << (bit - 8)) * (product >> bit & 1)
    return product


def inverse(a: int) -> int:
    """By trial."""
    return next(b for b in range(256) if times(a, b) == 1)


def value_at(coefficients: list[int], x: int) -> int:
    """Sum of c_i x^i, power by power."""
    total, power = 0, 1
    for coefficient in coefficients:
        total ^= times(coefficient, power)
        power = times(power, x)
    return total


def test_the_field_is_that_of_aes() -> None:
    assert KNOWN["polynomial"] == 0x11B
    assert times(0x53, 0xCA) == 1  # FIPS 197, section 4.2
    assert times(0x57, 0x83) == 0xC1
    assert times(0x57, 0x13) == 0xFE


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['threshold']}-of-{case['n_holders']}"
)
def test_shares_are_values_of_the_polynomials(case: dict[str, Any]) -> None:
    secret, entropy = bytes.fromhex(case["secret"]), bytes.fromhex(case["entropy"])
    length = len(secret)
    # The entropy fills the highest power's coefficients of all bytes first.
    rows = [
        entropy[start : start + length] for start in range(0, len(entropy), length)
    ][::-1]
    assert len(rows) == case["threshold"] - 1
    for x, share in case["shares"].items():
        expected = [
            value_at([secret[i], *(row[i] for row in rows)], int(x))
            for i in range(length)
        ]
        assert bytes(expected).hex() == share


@pytest.mark.parametrize(
    "case", CASES[:3], ids=lambda case: f"{case['threshold']}-of-{case['n_holders']}"
)
def test_lagrange_weights_give_the_secret_back(case: dict[str, Any]) -> None:
    holders, weights = case["last_holders"], bytes.fromhex(case["weights_of_the_last"])
    for x, weight in zip(holders, weights, strict=True):
        product = 1
        for other in holders:
            if other != x:
                product = times(product, times(other, inverse(other ^ x)))
        assert product == weight
    shares = [bytes.fromhex(case["shares"][str(x)]) for x in holders]
    read = [0] * len(shares[0])
    for share, weight in zip(shares, weights, strict=True):
        read = [
            value ^ times(weight, byte) for value, byte in zip(read, share, strict=True)
        ]
    assert bytes(read).hex() == case["secret"]
