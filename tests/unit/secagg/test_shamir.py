"""Secret sharing over GF(2^8): the field, what shares give back, and what they do not
say.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machine import replace_entropy

from flwr_dpkmeans.errors import LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg.shamir import (
    lagrange_weights,
    multiply_rows,
    reconstruct,
    share,
)


def product(a: int, b: int) -> int:
    """Shift and add, reduced at every step, without the module's logarithms."""
    total = 0
    while b:
        total ^= a if b & 1 else 0
        a = (a << 1) ^ (0x11B if a & 0x80 else 0)
        b >>= 1
    return total


def test_every_product_of_the_field() -> None:
    elements = np.arange(256, dtype=np.uint8)
    table = multiply_rows(elements, np.tile(elements, (256, 1)))
    assert all(table[a, b] == product(a, b) for a in range(256) for b in range(256))


def test_rows_are_multiplied_by_their_constants() -> None:
    rows = multiply_rows(
        np.array([3, 0, 255], dtype=np.uint8),
        np.array([[1, 2], [7, 9], [0, 80]], dtype=np.uint8),
    )
    assert rows.tolist() == [[3, 6], [0, 0], [0, product(255, 80)]]


@settings(max_examples=60)
@given(data=st.data(), secret=st.binary(max_size=70))
def test_any_threshold_of_shares_gives_the_secret_back(
    data: st.DataObject, secret: bytes
) -> None:
    n_holders = data.draw(st.integers(1, 255))
    threshold = data.draw(st.integers(1, n_holders))
    shares = share(secret, n_holders, threshold)
    assert [len(part) for part in shares] == [len(secret)] * n_holders
    chooser = random.Random(data.draw(st.integers(0, 99)))
    holders = chooser.sample(
        range(1, n_holders + 1), chooser.randint(threshold, n_holders)
    )
    assert reconstruct({x: shares[x - 1] for x in holders}) == secret


@pytest.mark.parametrize("threshold", [2, 3, 5])
def test_every_choice_of_holders(threshold: int) -> None:
    shares = share(b"secret", 6, threshold)
    for size in range(1, 7):
        for holders in itertools.combinations(range(1, 7), size):
            read = reconstruct({x: shares[x - 1] for x in holders})
            # Six bytes agree by accident with a probability of 2^-48.
            assert (read == b"secret") is (size >= threshold)


@pytest.mark.parametrize("threshold", [2, 3])
def test_fewer_shares_are_uniform_whatever_the_secret(
    monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    # All coefficients, one after the other: exact, not sampled. Two shares of three for
    # 2^16 polynomials.
    n_polynomials = 256 ** (threshold - 1)
    every = np.array(
        list(itertools.product(range(256), repeat=threshold - 1)), dtype=np.uint8
    ).T
    replace_entropy(monkeypatch, lambda n_bytes: every.tobytes())
    for secret in (0, 1, 0x80, 255):
        shares = share(bytes([secret]) * n_polynomials, 4, threshold)
        for holders in itertools.combinations(range(4), threshold - 1):
            seen = Counter(zip(*(shares[holder] for holder in holders), strict=True))
            assert len(seen) == n_polynomials
            assert set(seen.values()) == {1}


def test_every_byte_has_fresh_coefficients() -> None:
    shares = [share(bytes(64), 3, 3) for _ in range(2)]
    assert shares[0] != shares[1]
    assert len(set(shares[0][0])) > 20


def test_one_wrong_share_changes_what_is_read() -> None:
    shares = dict(enumerate(share(b"secret", 5, 3), start=1))
    for wrong in (1, 3, 5):
        holders = {1, 3, 5}
        changed = bytes([shares[wrong][0] ^ 1]) + shares[wrong][1:]
        assert (
            reconstruct({x: changed if x == wrong else shares[x] for x in holders})
            != b"secret"
        )


@pytest.mark.parametrize(
    ("n_holders", "threshold"), [(0, 0), (3, 0), (3, 4), (256, 3), (-1, -1)]
)
def test_impossible_numbers_are_refused(n_holders: int, threshold: int) -> None:
    with pytest.raises(LocalMisuseError, match="share-holders with a threshold"):
        share(b"secret", n_holders, threshold)


@pytest.mark.parametrize(
    "shares",
    [
        {}, {0: b"a"}, {256: b"a"}, {-1: b"a"}, {1: b"a", 2: b"ab"}, {1: b"a", 0: b"a"},
        {256: b"a", 255: b"a"},
    ],
)  # fmt: skip
def test_impossible_shares_are_refused(shares: dict[int, bytes]) -> None:
    with pytest.raises(ProtocolError, match="of different lengths or of unknown"):
        reconstruct(shares)


def test_weights_of_all_holders() -> None:
    weights = lagrange_weights(range(1, 256))
    # The sum over the whole field without 0 of any polynomial of lower degree is its
    # value at 0.
    assert set(weights.tolist()) == {1}
