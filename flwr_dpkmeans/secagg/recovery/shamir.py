"""Shamir's secret sharing over GF(2^8), many bytes at a time.

Flower's helpers share 16 bytes at a time in interpreted Python, several seconds for one client's keys of a run; this
does the same for all keys of a run together in a hundredth of one. The field is that of AES (x^8 + x^4 + x^3 + x + 1).
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

Bytes = NDArray[np.uint8]
_POLYNOMIAL = 0x11B


def share(secret: bytes, n_holders: int, threshold: int) -> list[bytes]:
    """Split a secret so that `threshold` shares give it back and fewer say nothing about it.

    Each byte is the constant term of its own polynomial of degree ``threshold - 1``, whose other coefficients come
    from the operating system's entropy (Shamir 1979).

    Share number i belongs to coordinate i + 1 and is as long as the secret.
    """
    if not 1 <= threshold <= n_holders <= MOST_HOLDERS:
        raise LocalMisuseError(
            f"{n_holders} share-holders with a threshold of {threshold} were asked for, but both must lie between 1 "
            f"and {MOST_HOLDERS} and the threshold may not be larger: choose another graph."
        )
    length = len(secret)
    coefficients = np.frombuffer(os.urandom((threshold - 1) * length), dtype=np.uint8).reshape(threshold - 1, length)
    holders = np.arange(1, n_holders + 1, dtype=np.uint8)
    values = np.zeros((n_holders, length), dtype=np.uint8)
    for coefficient in coefficients:
        values = _times(holders, values ^ coefficient)
    values ^= np.frombuffer(secret, dtype=np.uint8)
    return [row.tobytes() for row in values]


def reconstruct(shares: Mapping[int, bytes]) -> bytes:
    """Interpolate the secret from shares by coordinate; the threshold's number of them is right, more are as well.

    With too few shares or a wrong one this is not the secret.
    """
    if not shares or not all(1 <= x <= MOST_HOLDERS for x in shares) or len({len(s) for s in shares.values()}) != 1:
        raise ProtocolError("shares of a key are missing, of different lengths or of unknown holders: restart the run.")
    coordinates = tuple(shares)
    table = np.stack([np.frombuffer(part, dtype=np.uint8) for part in shares.values()])
    weighted = _times(lagrange_weights(coordinates), table)
    return bytes(np.bitwise_xor.reduce(weighted, axis=0).tobytes())


def lagrange_weights(coordinates: Sequence[int]) -> Bytes:
    """Weights with which shares at these coordinates add up to the value at 0."""
    x = np.asarray(coordinates, dtype=np.int64)
    exponents, logarithms = _powers()
    # In a field of characteristic 2 minus is plus, so the weight is the product over the others of x_j / (x_j + x_i).
    sums = logarithms[x[:, None] ^ x[None, :]]
    np.fill_diagonal(sums, 0)
    own = logarithms[x]
    weights = exponents[(own.sum() - own - sums.sum(axis=1)) % MOST_HOLDERS]
    return np.asarray(weights, dtype=np.uint8)


def _times(constants: Bytes, values: Bytes) -> Bytes:
    """Multiply each row of values by its constant."""
    rows = constants.astype(np.int64)[:, None] << 8
    return np.asarray(_products().take(rows | values))


@lru_cache(maxsize=1)
def _powers() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Powers of the generator, and logarithms to its base (that of 0 is not used)."""
    exponents, logarithms = np.zeros(255, dtype=np.int64), np.zeros(256, dtype=np.int64)
    value = 1  # the generator is x + 1: every factor is a doubling and an addition
    for power in range(255):
        exponents[power], logarithms[value] = value, power
        doubled = value << 1
        value = (doubled ^ (_POLYNOMIAL if doubled & 0x100 else 0)) ^ value
    return exponents, logarithms


@lru_cache(maxsize=1)
def _products() -> Bytes:
    """The multiplication table, flat: a * b stands at 256 a + b."""
    exponents, logarithms = _powers()
    table = exponents[(logarithms[:, None] + logarithms[None, :]) % 255].astype(np.uint8)
    table[0, :] = 0
    table[:, 0] = 0
    return np.asarray(table.ravel())
