"""An independent verifier of identities.json.

Ed25519 by hand (RFC 8032, section 5.1), in Python integers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from test_mask_vectors import packed

KNOWN: dict[str, Any] = json.loads(
    Path(__file__).with_name("identities.json").read_text()
)
PARTIES = {int(node): party for node, party in KNOWN["parties"].items()}
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
Point = tuple[int, int, int, int]
NEUTRAL: Point = (0, 1, 1, 0)


def added(a: Point, b: Point) -> Point:
    """Sum of two points of the twisted Edwards curve.

    x = X/Z, y = Y/Z, xy = T/Z (section 5.1.4).
    """
    (x1, y1, z1, t1), (x2, y2, z2, t2) = a, b
    minus, plus = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    product, twice = 2 * D * t1 * t2 % P, 2 * z1 * z2 % P
    e, f, g, h = plus - minus, twice - product, twice + product, plus + minus
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(scalar: int, point: Point) -> Point:
    """A multiple of a point, by doubling and adding."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = added(total, point)
        point = added(point, point)
        scalar >>= 1
    return total


def decoded(blob: bytes) -> Point:
    """A point from its 32 bytes: y, and the lowest bit of x."""
    number = int.from_bytes(blob, "little")
    y, sign = number % 2**255, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert (x * x - square) % P == 0
    x = P - x if x % 2 != sign else x
    return x, y, 1, x * y % P


def encoded(point: Point) -> bytes:
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


BASE = decoded((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def secrets_of(private: bytes) -> tuple[int, bytes]:
    """Secret scalar and prefix of a private key."""
    digest = hashlib.sha512(private).digest()
    scalar = int.from_bytes(digest[:32], "little")
    return (scalar & ~7 & (2**255 - 1)) | 2**254, digest[32:]


def hashed(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


def signature_of(private: bytes, message: bytes) -> bytes:
    scalar, prefix = secrets_of(private)
    nonce = hashed(prefix, message) % ORDER
    commitment = encoded(times(nonce, BASE))
    challenge = hashed(commitment, encoded(times(scalar, BASE)), message)
    return commitment + ((nonce + challenge * scalar) % ORDER).to_bytes(32, "little")


def holds(public: bytes, signature: bytes, message: bytes) -> bool:
    """The verification equation: S B = R + h A."""
    challenge = hashed(signature[:32], public, message) % ORDER
    right = added(decoded(signature[:32]), times(challenge, decoded(public)))
    return encoded(times(int.from_bytes(signature[32:], "little"), BASE)) == encoded(
        right
    )


def message_of(purpose: str, case: dict[str, Any]) -> bytes:
    facts: tuple[bytes | str | int, ...]
    if purpose == "keys":
        facts = (bytes.fromhex(case["plan_digest"]), bytes.fromhex(case["public_key"]))
    else:
        facts = (
            case["round"],
            case["attempt"],
            bytes.fromhex(case["survivors_digest"]),
        )
    label = "flwr-dpkmeans identity"
    return packed(
        label,
        KNOWN["protocol_version"],
        purpose,
        case["run_id"],
        case["node_id"],
        *facts,
    )


CASES = [
    (purpose, case) for purpose in ("keys", "survivors") for case in KNOWN[purpose]
]


def test_the_verifier_knows_the_standards_first_answer() -> None:
    """RFC 8032, section 7.1, test 1: an empty message."""
    private = bytes.fromhex(
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    )
    public = bytes.fromhex(
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    signature = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595b"
        "be24655141438e7a100b"
    )
    assert encoded(times(secrets_of(private)[0], BASE)) == public
    assert signature_of(private, b"") == signature
    assert holds(public, signature, b"")
    assert not holds(public, signature, b"?")


def test_public_keys() -> None:
    for party in PARTIES.values():
        scalar, _ = secrets_of(bytes.fromhex(party["private_key"]))
        assert encoded(times(scalar, BASE)).hex() == party["public_key"]


@pytest.mark.parametrize(
    ("purpose", "case"),
    CASES,
    ids=[f"{purpose}{i}" for i, (purpose, _) in enumerate(CASES)],
)
def test_signatures(purpose: str, case: dict[str, Any]) -> None:
    party = PARTIES[case["node_id"]]
    message = message_of(purpose, case)
    assert (
        signature_of(bytes.fromhex(party["private_key"]), message).hex()
        == case["signature"]
    )
    assert holds(
        bytes.fromhex(party["public_key"]), bytes.fromhex(case["signature"]), message
    )


def test_the_purposes_are_kept_apart() -> None:
    """No two of the signed messages are equal, nor is one the beginning of another."""
    messages = [message_of(purpose, case) for purpose, case in CASES]
    assert not any(a.startswith(b) for a in messages for b in messages if a is not b)
