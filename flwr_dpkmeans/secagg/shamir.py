"""Shamir's shares of a secret (1979), over GF(2^8), the field of AES.

Its elements are bytes, its polynomial is x^8 + x^4 + x^3 + x + 1; minus is plus.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, ProtocolError

MOST_HOLDERS = 255
"""Holders have the coordinates 1 to 255; 0 is the secret's."""
_FIELD_SIZE = 256
_GROUP_SIZE = 255
"""Elements but zero, which are the powers of a generator."""
POLYNOMIAL = 0x11B
Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]


def share(
    secret: bytes,
    n_holders: int,
    threshold: int,
) -> list[bytes]:
    """Split a secret into shares, of which fewer than a threshold say nothing.

    Each byte is the constant term of its own random polynomial of degree
    ``threshold - 1``.

    Parameters
    ----------
    secret : bytes
        What is split.
    n_holders : int
        How many shares are made, at most 255.
    threshold : int
        How many of them give the secret back.

    Returns
    -------
    list of bytes
        Share number i belongs to coordinate i + 1 and is as long as the secret.
    """
    if not 1 <= threshold <= n_holders <= MOST_HOLDERS:
        raise LocalMisuseError(
            f"{n_holders} share-holders with a threshold of {threshold} were asked for,"
            f" but both must lie between 1 and {MOST_HOLDERS} and the threshold may not"
            " be larger: choose another graph."
        )
    length = len(secret)
    degree = threshold - 1
    entropy = os.urandom(degree * length)
    coefficients = _as_array(entropy).reshape(degree, length)
    coordinates = np.arange(1, n_holders + 1, dtype=np.uint8)
    values = np.zeros((n_holders, length), dtype=np.uint8)
    # Horner's rule, from the highest power to the secret.
    for coefficient in coefficients:
        values ^= coefficient
        values = multiply_rows(coordinates, values)
    values ^= _as_array(secret)
    return [row.tobytes() for row in values]


def _as_array(content: bytes) -> Bytes:
    return np.frombuffer(content, dtype=np.uint8)


def reconstruct(shares: Mapping[int, bytes]) -> bytes:
    """Interpolate the secret from shares by coordinate.

    The threshold's number of them is right, more are as well. With too few shares or a
    wrong one this is not the secret.
    """
    coordinates = tuple(shares)
    are_holders = all(1 <= coordinate <= MOST_HOLDERS for coordinate in coordinates)
    lengths = {len(content) for content in shares.values()}
    if not are_holders or len(lengths) != 1:
        raise ProtocolError(
            "shares of a key are missing, of different lengths or of unknown holders:"
            " restart the run."
        )
    rows = [_as_array(content) for content in shares.values()]
    weights = lagrange_weights(coordinates)
    weighted = multiply_rows(weights, np.stack(rows))
    secret: Bytes = np.bitwise_xor.reduce(weighted, axis=0)
    return secret.tobytes()


def lagrange_weights(coordinates: Sequence[int]) -> Bytes:
    """Compute weights with which shares at these coordinates give the value at 0."""
    points = np.asarray(coordinates, dtype=np.int64)
    powers, logarithms = _powers()
    # Minus is plus here, so the weight of share i is the product over the others of
    # x_j / (x_j + x_i).
    sums = np.bitwise_xor.outer(points, points)
    log_sums = logarithms[sums]
    np.fill_diagonal(log_sums, 0)
    log_points = logarithms[points]
    log_numerators = log_points.sum() - log_points
    log_denominators = log_sums.sum(axis=1)
    log_weights = log_numerators - log_denominators
    weights: Integers = powers[log_weights % _GROUP_SIZE]
    return weights.astype(np.uint8)


def multiply_rows(constants: Bytes, values: Bytes) -> Bytes:
    """Multiply each row of the values, of shape (n, m), by its constant."""
    row_starts = constants.astype(np.int64) * _FIELD_SIZE
    indices = row_starts[:, None] + values
    rows: Bytes = _products()[indices]
    return rows


@lru_cache(maxsize=1)
def _powers() -> tuple[Integers, Integers]:
    """Powers of the generator x + 1, and logarithms to its base; of 0 there is none."""
    powers = np.zeros(_GROUP_SIZE, dtype=np.int64)
    logarithms = np.zeros(_FIELD_SIZE, dtype=np.int64)
    value = 1
    for exponent in range(_GROUP_SIZE):
        powers[exponent] = value
        logarithms[value] = exponent
        # Times x + 1: a doubling and an addition.
        doubled = value << 1
        if doubled >= _FIELD_SIZE:
            doubled ^= POLYNOMIAL
        value ^= doubled
    return powers, logarithms


@lru_cache(maxsize=1)
def _products() -> Bytes:
    """The multiplication table, flat: a * b stands at 256 a + b."""
    powers, logarithms = _powers()
    log_products = np.add.outer(logarithms, logarithms)
    products: Integers = powers[log_products % _GROUP_SIZE]
    products[0, :] = 0
    products[:, 0] = 0
    return products.astype(np.uint8).ravel()
