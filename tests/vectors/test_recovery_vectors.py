"""An independent verifier of recovery.json: only AES comes from a library.

See `test_mask_vectors.py`.

The server's part is played backwards: from what the clients sent to the plain sum, and
every client's part forwards.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from test_mask_vectors import hkdf as hkdf_of
from test_mask_vectors import packed, sha256, words, x25519
from test_shamir_vectors import inverse, times

KNOWN: dict[str, Any] = json.loads(
    Path(__file__).with_name("recovery.json").read_text()
)
CLIENTS = {int(node): record for node, record in KNOWN["clients"].items()}
NODES = sorted(CLIENTS)
RUN, LATE, THRESHOLD = KNOWN["run_id"], KNOWN["late"], KNOWN["threshold"]
PLAN, STATE = bytes.fromhex(KNOWN["plan_digest"]), bytes.fromhex(KNOWN["state_digest"])
FIRST, LAST, N_ATTEMPTS = KNOWN["slots"]
N_SLOTS = (LAST - FIRST + 1) * N_ATTEMPTS
SURVIVORS = [node for node in NODES if node != LATE]
ASKED = (FIRST, 0)
LENGTH = len(KNOWN["recovered"])
BASE_POINT = (9).to_bytes(32, "little")


def derived(secret: bytes, purpose: str, *context: bytes | str | int) -> bytes:
    return hkdf_of(
        secret,
        packed(
            b"flwr-dpkmeans secure aggregation",
            KNOWN["protocol_version"],
            purpose,
            *context,
        ),
    )


def mac(key: bytes, *parts: bytes | str | int) -> bytes:
    return hmac.new(key, packed(*parts), hashlib.sha256).digest()


def xor(*parts: bytes) -> bytes:
    return (
        bytes(a ^ b for a, b in zip(*parts, strict=True))
        if len(parts) == 2
        else xor(xor(*parts[:2]), *parts[2:])
    )


def data(node: int, name: str) -> bytes:
    return bytes.fromhex(CLIENTS[node][name])


def part(node: int, name: str, other: int) -> bytes:
    return bytes.fromhex(CLIENTS[node][name][str(other)])


def seeds(node: int, place: int) -> tuple[bytes, bytes]:
    """Self-mask seed and private key of one aggregation."""
    masters = data(node, "masters")
    return (
        derived(masters[:32], "self seed", RUN, node, place),
        derived(masters[32:], "private key", RUN, node, place),
    )


@lru_cache
def run_public(node: int) -> bytes:
    return x25519(data(node, "private_key"), BASE_POINT)


@lru_cache
def run_key(a: int, b: int) -> bytes:
    a, b = min(a, b), max(a, b)
    return derived(x25519(data(a, "private_key"), run_public(b)), "pair", RUN, a, b)


@lru_cache
def slot_key(a: int, b: int) -> bytes:
    """Key of two clients for the first aggregation."""
    a, b = min(a, b), max(a, b)
    return derived(
        x25519(seeds(a, 0)[1], data(b, "public_keys")[:32]), "pair", RUN, a, b
    )


def roster_digest() -> bytes:
    return sha256(
        "roster",
        0,
        b"".join(node.to_bytes(8, "little") + run_public(node) for node in NODES),
    )


def transcript() -> bytes:
    # Everybody shared keys, so that the cohort of the first round is the roster.
    return sha256("transcript", PLAN, roster_digest())


def cohort_view() -> bytes:
    return sha256("cohort view", *ASKED, transcript())


def survivors_digest(nodes: list[int]) -> bytes:
    return sha256("survivors", b"".join(node.to_bytes(8, "little") for node in nodes))


def survivors_view() -> bytes:
    return sha256("survivors view", *ASKED, transcript(), survivors_digest(SURVIVORS))


def ticket(sender: int, recipient: int, view: bytes) -> bytes:
    return mac(
        derived(run_key(sender, recipient), "agreement"), sender, recipient, view
    )


def opened(giver: int, holder: int, purpose: str, box: bytes) -> bytes:
    context = sha256(purpose, RUN, giver, holder, roster_digest())
    return AESGCM(derived(run_key(giver, holder), purpose, context)).decrypt(
        box[:12], box[12:], context
    )


def coordinate(owner: int, holder: int) -> int:
    """Everybody is everybody's neighbour here.

    Holders are numbered in ascending order, without the owner.
    """
    return [node for node in NODES if node != owner].index(holder) + 1


def interpolated(shares: dict[int, bytes]) -> bytes:
    """The value at 0 of the polynomials through the shares."""
    total = bytes(len(next(iter(shares.values()))))
    for x, share in shares.items():
        weight = 1
        for other in shares:
            if other != x:
                weight = times(weight, times(other, inverse(other ^ x)))
        total = xor(total, bytes(times(weight, byte) for byte in share))
    return total


def summed(*vectors: list[int]) -> list[int]:
    return [sum(column) % 2**64 for column in zip(*vectors, strict=True)]


def negated(vector: list[int]) -> list[int]:
    return [-value for value in vector]


def self_mask(node: int, seed: bytes) -> list[int]:
    return words(derived(seed, "self", RUN, node, transcript()), ASKED, LENGTH)


def pair_mask(node: int, peer: int) -> list[int]:
    mask = words(derived(slot_key(node, peer), "mask", transcript()), ASKED, LENGTH)
    return mask if node < peer else negated(mask)


def blinding(author: int) -> list[int]:
    key = derived(data(author, "group_key"), "blind", RUN, author, transcript())
    return words(key, ASKED, LENGTH)


@pytest.mark.parametrize("node", NODES)
def test_public_keys_and_commitments(node: int) -> None:
    for place in range(N_SLOTS):
        seed, private = seeds(node, place)
        assert data(node, "public_keys")[32 * place :][:32] == x25519(
            private, BASE_POINT
        )
        assert data(node, "commitments")[32 * place :][:32] == sha256("self mask", seed)


@pytest.mark.parametrize("owner", NODES)
def test_boxes_hold_shares_of_all_keys_and_the_public_keys(owner: int) -> None:
    holders = [node for node in NODES if node != owner]
    boxes = {
        holder: opened(owner, holder, "shares", part(owner, "boxes", holder))
        for holder in holders
    }
    secret = b"".join(
        seeds(owner, place)[kind] for kind in (0, 1) for place in range(N_SLOTS)
    )
    for chosen in (holders[:THRESHOLD], holders[-THRESHOLD:]):
        assert (
            interpolated(
                {
                    coordinate(owner, node): boxes[node][: 64 * N_SLOTS]
                    for node in chosen
                }
            )
            == secret
        )
    assert (
        interpolated(
            {
                coordinate(owner, n): boxes[n][: 64 * N_SLOTS]
                for n in holders[: THRESHOLD - 1]
            }
        )
        != secret
    )
    assert {box[64 * N_SLOTS :] for box in boxes.values()} == {
        data(owner, "public_keys")
    }


def test_group_boxes_hold_the_authors_keys() -> None:
    digest = roster_digest()
    order = sorted(
        NODES,
        key=lambda node: hashlib.sha256(digest + node.to_bytes(8, "little")).digest(),
    )
    assert sorted(order[: KNOWN["max_silent"] + 2]) == KNOWN["authors"]
    for node in NODES:
        due = (
            [peer for peer in NODES if peer != node] if node in KNOWN["authors"] else []
        )
        assert sorted(int(peer) for peer in CLIENTS[node]["group_boxes"]) == due
        for peer in due:
            assert opened(node, peer, "box", part(node, "group_boxes", peer)) == data(
                node, "group_key"
            )


@pytest.mark.parametrize("node", NODES)
def test_masked_vectors_and_tickets(node: int) -> None:
    peers = [peer for peer in NODES if peer != node]
    masks = [
        self_mask(node, seeds(node, 0)[0]),
        *(pair_mask(node, peer) for peer in peers),
    ]
    if node in KNOWN["authors"]:
        masks.append(blinding(node))
    assert CLIENTS[node]["masked"] == summed(CLIENTS[node]["vector"], *masks)
    for peer in peers:
        assert part(node, "tickets", peer) == ticket(node, peer, cohort_view())


def test_tags() -> None:
    key = derived(
        b"".join(data(author, "group_key") for author in KNOWN["authors"]),
        "tag",
        RUN,
        roster_digest(),
    )
    first = sha256("survivors and state", survivors_digest([]), STATE)
    assert {CLIENTS[node]["tag"] for node in NODES} == {
        mac(key, RUN, *ASKED, first).hex()
    }
    last = sha256("survivors and state", survivors_digest(SURVIVORS), STATE)
    assert KNOWN["last_tag"] == mac(key, RUN, FIRST + 1, 0, last).hex()


def unlocked(holder: int) -> dict[int, bytes]:
    """What a survivor gave, with its neighbours' tickets."""
    parts = {}
    for peer in SURVIVORS:
        if peer != holder:
            given = part(peer, "given", holder)[32:64]
            assert given == ticket(peer, holder, survivors_view())
            parts[coordinate(holder, peer)] = xor(
                part(holder, "given", peer)[64:], given
            )
    opening = interpolated(dict(list(parts.items())[-THRESHOLD:]))
    return {
        owner: xor(part(holder, "given", owner)[:32], mac(opening, "lock", owner))
        for owner in NODES
        if owner != holder
    }


def test_given_shares_open_the_survivors_self_masks_and_the_late_ones_key() -> None:
    shares = {holder: unlocked(holder) for holder in SURVIVORS}
    total = summed(*(CLIENTS[node]["masked"] for node in SURVIVORS))
    for owner in NODES:
        holders = [node for node in SURVIVORS if node != owner]
        if owner == LATE:
            key = interpolated(
                {
                    coordinate(owner, node): shares[node][owner]
                    for node in holders[-THRESHOLD:]
                }
            )
            assert key == seeds(owner, 0)[1]
            total = summed(
                total, *(negated(pair_mask(node, owner)) for node in SURVIVORS)
            )
            continue
        padded = {
            node: xor(shares[node][owner], part(owner, "tickets", node))
            for node in holders
        }
        key = interpolated(
            {coordinate(owner, node): padded[node] for node in holders[-THRESHOLD:]}
        )
        assert key == seeds(owner, 0)[0]
        total = summed(total, negated(self_mask(owner, key)))
    assert total == KNOWN["recovered"]
    authors = [author for author in KNOWN["authors"] if author in SURVIVORS]
    plain = summed(*(CLIENTS[node]["vector"] for node in SURVIVORS))
    assert (
        summed(total, *(negated(blinding(author)) for author in authors))
        == plain
        == KNOWN["read"]
    )
