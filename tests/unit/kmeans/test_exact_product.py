"""Products of matrices that no order of summation changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.kmeans.exact_product import MOST_TERMS, exact_product

Floats = NDArray[np.float64]


def matrices(m: int, scale: float = 1.0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(m)
    return generator.normal(size=(70, m)) * scale, generator.normal(size=(m, 5)) / scale


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e7])
@pytest.mark.parametrize("m", [1, 3, 200, 3000])
def test_any_order_of_terms_gives_the_same_bits(m: int, scale: float) -> None:
    left, right = matrices(m, scale)
    expected = exact_product(left, right)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(m)
        assert np.array_equal(exact_product(left[:, order], right[order]), expected)
    # BLAS takes other ways for few rows and columns.
    rows = np.unravel_index(np.abs(left).argmax(), left.shape)[:1]
    columns = np.unravel_index(np.abs(right).argmax(), right.shape)[1:]
    alone = exact_product(left[rows, :], right[:, columns])
    assert np.array_equal(alone, expected[np.ix_(rows, columns)])


@pytest.mark.parametrize("m", [1, 3, 200, 3000])
def test_it_is_nearly_the_exact_product(m: int) -> None:
    left, right = matrices(m)
    exact = [
        [sum(Fraction(a) * Fraction(b) for a, b in zip(row, column, strict=True))]
        for row, column in zip(left[:3], [right[:, 0]] * 3, strict=True)
    ]
    expected = np.array(exact, dtype=float)
    bits = 26 - (m - 1).bit_length() // 2
    tolerance = m * np.abs(left).max() * np.abs(right).max() * 2.0 ** (2 - 2 * bits)
    assert np.abs(exact_product(left, right)[:3, :1] - expected).max() <= tolerance


@pytest.mark.parametrize("m", [2, 64, 3000, 2**15])
def test_the_largest_sums_are_exact(m: int) -> None:
    """Entries of one sign, nearly 1 and whole steps of their coarse parts."""
    bits = (53 - (m - 1).bit_length()) // 2
    left = np.full((1, m), 1.0 - 2.0**-bits)
    expected = m * Fraction(left[0, 0]) ** 2
    assert Fraction(exact_product(left, left.T)[0, 0]) == expected


def test_too_many_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="1048577 products"):
        exact_product(np.ones((1, MOST_TERMS + 1)), np.ones((MOST_TERMS + 1, 1)))


def test_zeros_are_zero() -> None:
    assert not exact_product(np.zeros((2, 3)), np.ones((3, 2))).any()
    assert exact_product(np.zeros((2, 0)), np.zeros((0, 2))).shape == (2, 2)
