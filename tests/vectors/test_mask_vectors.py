"""An independent verifier of masks.json: Python integers, HKDF and X25519 by hand.

Only AES comes from a library.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KNOWN: dict[str, Any] = json.loads(Path(__file__).with_name("masks.json").read_text())
RUN_ID = KNOWN["run_id"]
PLAN_DIGEST = bytes.fromhex(KNOWN["plan_digest"])
STATE_DIGEST = bytes.fromhex(KNOWN["state_digest"])
PARTIES = {int(node): party for node, party in KNOWN["parties"].items()}
ATTEMPTS = KNOWN["run"]["attempts"]
LENGTH = len(KNOWN["noise"])
RING = 2**64


def packed(*parts: bytes | str | int) -> bytes:
    """Length (8 bytes), one letter for the kind, the part.

    Integers are 16 bytes in two's complement.
    """
    out = b""
    for part in parts:
        if isinstance(part, int):
            body = b"i" + (part % 2**128).to_bytes(16, "little")
        elif isinstance(part, str):
            body = b"s" + part.encode("utf-8")
        else:
            body = b"b" + part
        out += len(body).to_bytes(8, "little") + body
    return out


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes: one block of the expansion."""
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def derived(secret: bytes, purpose: str, *context: bytes | str | int) -> bytes:
    return hkdf(
        secret,
        packed(
            b"flwr-dpkmeans secure aggregation",
            KNOWN["protocol_version"],
            purpose,
            *context,
        ),
    )


def sha256(*parts: bytes | str | int) -> bytes:
    return hashlib.sha256(packed(*parts)).digest()


def x25519(private: bytes, u_coordinate: bytes) -> bytes:
    """Montgomery ladder of RFC 7748, section 5."""
    p = 2**255 - 19
    scalar = int.from_bytes(private, "little")
    scalar = (scalar & ~7 & (2**255 - 1)) | 2**254
    x1 = (int.from_bytes(u_coordinate, "little") & (2**255 - 1)) % p
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        swap = scalar >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = (x2 + z2) % p, (x2 - z2) % p, (x3 + z3) % p, (x3 - z3) % p
        aa, bb, da, cb = a * a % p, b * b % p, d * a % p, c * b % p
        e = (aa - bb) % p
        x3, z3 = pow(da + cb, 2, p), x1 * pow(da - cb, 2, p) % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, p - 2, p) % p).to_bytes(32, "little")


def counter_blocks(round_index: int, attempt: int, length: int) -> list[bytes]:
    """Round (8 bytes) and attempt (4 bytes), little endian, then the counters 2, 3, ...
    (4 bytes, big endian).
    """
    nonce = (round_index % 2**64).to_bytes(8, "little") + attempt.to_bytes(4, "little")
    return [nonce + (i + 2).to_bytes(4, "big") for i in range((length + 1) // 2)]


def words(key: bytes, asked: Sequence[int], length: int) -> list[int]:
    """AES-256 of the counter blocks, cut into little-endian 64-bit words."""
    block_cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    key_stream = b"".join(map(block_cipher.update, counter_blocks(*asked, length)))
    return [
        int.from_bytes(key_stream[8 * i : 8 * i + 8], "little") for i in range(length)
    ]


def public_key(node: int) -> bytes:
    return bytes.fromhex(PARTIES[node]["public_key"])


def pair_key(a: int, b: int) -> bytes:
    shared = x25519(bytes.fromhex(PARTIES[a]["private_key"]), public_key(b))
    return derived(shared, "pair", RUN_ID, min(a, b), max(a, b))


def members(record: dict[str, Any]) -> list[int]:
    return sorted(int(node) for node in record["clients"])


def roster_digest(record: dict[str, Any]) -> bytes:
    joined = b"".join(
        node.to_bytes(8, "little") + public_key(node) for node in members(record)
    )
    return sha256("roster", record["attempt"], joined)


def hashed_order(record: dict[str, Any]) -> list[int]:
    digest = roster_digest(record)
    return sorted(
        members(record),
        key=lambda node: hashlib.sha256(digest + node.to_bytes(8, "little")).digest(),
    )


def group_key(author: int, attempt: int) -> bytes:
    return bytes.fromhex(PARTIES[author]["group_keys"][attempt])


def transcript(record: dict[str, Any]) -> bytes:
    return sha256("transcript", PLAN_DIGEST, roster_digest(record))


def blinding(record: dict[str, Any], author: int) -> list[int]:
    attempt = record["attempt"]
    key = derived(
        group_key(author, attempt), "blind", RUN_ID, author, transcript(record)
    )
    return words(key, (record["round"], attempt), LENGTH)


def expected_masked(record: dict[str, Any], node: int) -> list[int]:
    total = list(PARTIES[node]["vector"])
    for peer in members(record):
        if peer == node:
            continue
        key = derived(pair_key(node, peer), "mask", transcript(record))
        sign, masks = (
            1 if node < peer else -1,
            words(key, (record["round"], record["attempt"]), LENGTH),
        )
        total = [value + sign * mask for value, mask in zip(total, masks, strict=True)]
    if node in hashed_order(record)[:2]:
        total = [
            value + blind
            for value, blind in zip(total, blinding(record, node), strict=True)
        ]
    return [value % RING for value in total]


def tag_key(record: dict[str, Any]) -> bytes:
    authors = sorted(hashed_order(record)[:2])
    joined = b"".join(group_key(author, record["attempt"]) for author in authors)
    return derived(joined, "tag", RUN_ID, roster_digest(record))


def tag(record: dict[str, Any], round_index: int, attempt: int) -> bytes:
    message = packed(RUN_ID, round_index, attempt, STATE_DIGEST)
    return hmac.new(tag_key(record), message, hashlib.sha256).digest()


@pytest.mark.parametrize("case", KNOWN["derivations"], ids=lambda case: case["purpose"])
def test_hkdf_labels(case: dict[str, Any]) -> None:
    context = [
        bytes.fromhex(part) if isinstance(part, str) else part
        for part in case["context"]
    ]
    assert (
        derived(bytes.fromhex(case["secret"]), case["purpose"], *context).hex()
        == case["key"]
    )


@pytest.mark.parametrize("case", KNOWN["streams"], ids=lambda case: case["key"][:8])
def test_streams(case: dict[str, Any]) -> None:
    assert (
        words(bytes.fromhex(case["key"]), case["asked"], len(case["words"]))
        == case["words"]
    )


def test_no_block_is_encrypted_twice_under_one_key() -> None:
    """All rounds and attempts of some runs, at their limits, by enumeration."""
    rounds, attempts = (
        (-(2**31), -256, -2, -1, 0, 1, 2, 255, 256, 2**31),
        (0, 1, 2, 255, 256, 2**31),
    )
    blocks = [
        block for r in rounds for a in attempts for block in counter_blocks(r, a, 40)
    ]
    # 20 blocks each, and two that GCM has for its tag: of zeros, and of the nonce with
    # 1.
    reserved = {bytes(16)} | {
        counter_blocks(r, a, 1)[0][:12] + bytes((0, 0, 0, 1))
        for r in rounds
        for a in attempts
    }
    assert len(set(blocks) | reserved) == len(blocks) + len(reserved) == 20 * 60 + 61
    assert (
        2 + 2**28 // 16 < 2**32
    )  # no message is long enough for the counter to come round


def test_public_keys() -> None:
    base_point = (9).to_bytes(32, "little")
    for party in PARTIES.values():
        assert (
            x25519(bytes.fromhex(party["private_key"]), base_point).hex()
            == party["public_key"]
        )


@pytest.mark.parametrize("index", [0, 1])
def test_rosters(index: int) -> None:
    known = KNOWN["run"]["rosters"][index]
    record = next(
        record for record in ATTEMPTS if record["attempt"] == known["attempt"]
    )
    assert roster_digest(record).hex() == known["digest"]
    assert hashed_order(record) == known["hashed_order"]
    assert hashed_order(record)[:2] == known["authors"]


@pytest.mark.parametrize(
    "record",
    ATTEMPTS,
    ids=lambda record: f"round{record['round']}-attempt{record['attempt']}",
)
def test_masked_vectors(record: dict[str, Any]) -> None:
    for node in members(record):
        assert (
            expected_masked(record, node) == record["clients"][str(node)]["masked"]
        ), node


@pytest.mark.parametrize(
    "record",
    ATTEMPTS,
    ids=lambda record: f"round{record['round']}-attempt{record['attempt']}",
)
def test_aggregate_is_the_plain_sum_under_the_authors_streams(
    record: dict[str, Any],
) -> None:
    vectors = [PARTIES[node]["vector"] for node in members(record)]
    vectors += [blinding(record, author) for author in hashed_order(record)[:2]]
    assert [sum(column) % RING for column in zip(*vectors, strict=True)] == record[
        "aggregate"
    ]
    noised = [
        (a + b) % RING for a, b in zip(record["aggregate"], KNOWN["noise"], strict=True)
    ]
    assert noised == record["release"]


@pytest.mark.parametrize(
    "record", [ATTEMPTS[0], ATTEMPTS[2]], ids=["attempt0", "attempt1"]
)
def test_boxes_hold_the_group_keys(record: dict[str, Any]) -> None:
    authors = hashed_order(record)[:2]
    for node in members(record):
        boxes = record["clients"][str(node)]["boxes"]
        assert sorted(int(recipient) for recipient in boxes) == (
            [peer for peer in members(record) if peer != node]
            if node in authors
            else []
        )
        for recipient, box in boxes.items():
            digest = roster_digest(record)
            context = sha256(
                "box", RUN_ID, record["attempt"], node, int(recipient), digest
            )
            cipher = AESGCM(derived(pair_key(node, int(recipient)), "box", context))
            sealed = bytes.fromhex(box)
            assert cipher.decrypt(sealed[:12], sealed[12:], context) == group_key(
                node, record["attempt"]
            )


def test_tags() -> None:
    first, second, third = ATTEMPTS
    for node in members(first):
        assert first["clients"][str(node)]["tag"] == ""
        assert second["clients"][str(node)]["tag"] == tag(first, 2, 0).hex()
    for node in members(third):
        # The new attempt's keys are still on their way, so its first tag is under the
        # old one's.
        assert third["clients"][str(node)]["tag"] == tag(first, 2, 1).hex()
        assert KNOWN["run"]["read"][str(node)]["tag"] == tag(third, 3, 1).hex()


def test_clients_read_the_noised_sum() -> None:
    survivors = members(ATTEMPTS[2])
    columns = [PARTIES[node]["vector"] for node in survivors] + [KNOWN["noise"]]
    expected = [sum(column) % RING for column in zip(*columns, strict=True)]
    assert all(
        KNOWN["run"]["read"][str(node)]["values"] == expected for node in survivors
    )
