"""Products of matrices by BLAS, equal bit for bit on all machines.

BLAS adds in an order that depends on processor and threads. Where no sum needs more
than the 53 bits of a float, no addition rounds, and every order gives the same bits.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray

_FLOAT_BITS = 53
MOST_TERMS = 2**20
"""More products of two parts leave each part too few bits."""


_BLOCK_ROWS = 256
"""Of the left factor, whose parts are in the processor's cache as they are used."""


def exact_product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply matrices (n, m) and (m, p), nearly, with the same bits everywhere.

    Each factor is cut into a coarse part, a multiple of a power of two, and a fine
    part, whose own rest is left out, as is the fine parts' product with each other.
    Parts have as many bits, b, as m products of two of them leave: 22 for m = 200, 20
    for 3,000. Entries of the product are wrong by at most m times 2^(2 - 2 b) times the
    largest entries of both factors.

    Raises
    ------
    ValueError
        If m is above 2^20.

    Examples
    --------
    >>> exact_product(np.array([[0.5, 2.0]]), np.array([[3.0], [0.25]]))
    array([[2.]])
    """
    n_rows, n_terms = left.shape
    if n_terms > MOST_TERMS:
        raise ValueError(
            f"{n_terms} products are added up, but at most {MOST_TERMS} may be:"
            " multiply narrower matrices."
        )
    # m products of at most 1, in steps of 2^-2b, are at most m * 2^2b steps.
    term_bits = max(n_terms - 1, 0).bit_length()
    bits = (_FLOAT_BITS - term_bits) // 2
    left_size = _power_of_two_above(left)
    right_size = _power_of_two_above(right)
    factor = _Parts(right.shape)
    factor.cut(right, right_size, bits)
    n_at_once = min(n_rows, _BLOCK_ROWS)
    rows = _Parts((n_at_once, n_terms))
    total = np.empty((n_rows, right.shape[1]))
    for start in range(0, n_rows, _BLOCK_ROWS):
        block = left[start : start + _BLOCK_ROWS]
        n_in_block = len(block)
        rows.cut(block, left_size, bits)
        coarse = rows.coarse[:n_in_block]
        fine = rows.fine[:n_in_block]
        end = start + n_in_block
        outcome = total[start:end]
        np.matmul(coarse, factor.fine, out=outcome)
        outcome += fine @ factor.coarse
        outcome *= 2.0**-bits
        outcome += coarse @ factor.coarse
        outcome *= left_size * right_size
    return total


class _Parts:
    """A matrix's coarse and fine parts, in memory that is used again.

    A large matrix's fresh memory costs more than its arithmetic.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.coarse = np.empty(shape)
        self.fine = np.empty(shape)

    def cut(self, matrix: FloatArray, size: float, bits: int) -> None:
        """Make a matrix of entries up to `size` multiples of 2^-bits, and the rest.

        The rest is multiplied by 2^bits and rounded likewise.
        """
        steps = 2.0**bits
        n_rows = len(matrix)
        coarse = self.coarse[:n_rows]
        fine = self.fine[:n_rows]
        np.multiply(matrix, steps / size, out=fine)
        np.rint(fine, out=coarse)
        fine -= coarse
        fine *= steps
        np.rint(fine, out=fine)
        coarse /= steps
        fine /= steps


def _power_of_two_above(matrix: FloatArray) -> float:
    """The least power of two that no entry exceeds; 1 of nothing but zeros."""
    lowest = float(matrix.min(initial=0.0))
    highest = float(matrix.max(initial=0.0))
    largest = max(-lowest, highest)
    if largest == 0.0:
        return 1.0
    _, exponent = math.frexp(largest)
    return math.ldexp(1.0, exponent)
