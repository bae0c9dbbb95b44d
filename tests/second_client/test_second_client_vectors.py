"""The second client's keys, streams, boxes and masks are those of masks.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from second_client import crypto
from second_client.algorithm import coming_moves

FILE = Path(__file__).parents[1] / "vectors" / "masks.json"
KNOWN: dict[str, Any] = json.loads(FILE.read_text())
RUN = KNOWN["run_id"]
PLAN_DIGEST = bytes.fromhex(KNOWN["plan_digest"])
PARTIES = {int(node): party for node, party in KNOWN["parties"].items()}
PUBLIC = {node: bytes.fromhex(party["public_key"]) for node, party in PARTIES.items()}


def private_of(node: int) -> bytes:
    return bytes.fromhex(PARTIES[node]["private_key"])


def members_of(record: dict[str, Any]) -> dict[int, bytes]:
    """The cohort that answered."""
    return {int(node): PUBLIC[int(node)] for node in record["clients"]}


def roster_digest(attempt: int, members: dict[int, bytes]) -> bytes:
    """The digest of a cohort's roster."""
    entries = [node.to_bytes(8, "little") + members[node] for node in sorted(members)]
    return crypto.digest("roster", attempt, b"".join(entries))


@pytest.mark.parametrize("entry", KNOWN["derivations"], ids=lambda e: e["purpose"])
def test_keys(entry: dict[str, Any]) -> None:
    context = [
        bytes.fromhex(part) if isinstance(part, str) else part
        for part in entry["context"]
    ]
    secret = bytes.fromhex(entry["secret"])
    assert crypto.derive(secret, entry["purpose"], *context).hex() == entry["key"]


@pytest.mark.parametrize("entry", KNOWN["streams"], ids=lambda e: str(e["asked"]))
def test_streams(entry: dict[str, Any]) -> None:
    key, length = bytes.fromhex(entry["key"]), len(entry["words"])
    words = crypto.stream(key, *entry["asked"], length)
    assert words.tolist() == entry["words"]


def test_rosters() -> None:
    for node in PARTIES:
        assert crypto.public_key(private_of(node)) == PUBLIC[node]
    cohorts = [members_of(KNOWN["run"]["attempts"][index]) for index in (0, 2)]
    for roster, members in zip(KNOWN["run"]["rosters"], cohorts, strict=True):
        of_roster = roster_digest(roster["attempt"], members)
        assert of_roster.hex() == roster["digest"]
        order = crypto.hashed_order(of_roster, members)
        assert order == roster["hashed_order"]
        assert order[:2] == roster["authors"]


@pytest.mark.parametrize("index", range(len(KNOWN["run"]["attempts"])))
def test_masked_vectors_boxes_and_tags(index: int) -> None:
    record = KNOWN["run"]["attempts"][index]
    attempt, members = record["attempt"], members_of(record)
    of_roster = roster_digest(attempt, members)
    order = crypto.hashed_order(of_roster, members)
    authors = sorted(order[:2])
    transcript = crypto.digest("transcript", PLAN_DIGEST, of_roster)
    group_keys = {
        author: bytes.fromhex(PARTIES[author]["group_keys"][attempt])
        for author in authors
    }
    length = len(KNOWN["noise"])
    for node in members:
        total = [value % 2**64 for value in PARTIES[node]["vector"]]
        for peer in crypto.neighbours(order, node, 0):
            pair_key = crypto.pair_key(private_of(node), PUBLIC[peer], RUN, node, peer)
            key = crypto.derive(pair_key, "mask", transcript)
            words = crypto.stream(key, record["round"], attempt, length)
            sign = 1 if node < peer else -1
            total = added(total, words.tolist(), sign)
        if node in authors:
            key = crypto.derive(group_keys[node], "blind", RUN, node, transcript)
            words = crypto.stream(key, record["round"], attempt, length)
            total = added(total, words.tolist(), 1)
        client = record["clients"][str(node)]
        assert total == client["masked"]
        for peer, sealed in client["boxes"].items():
            box = bytes.fromhex(sealed)
            scope = (RUN, attempt, node, int(peer), of_roster)
            context = crypto.digest("box", *scope)
            pair_key = crypto.pair_key(
                private_of(int(peer)), PUBLIC[node], RUN, int(peer), node
            )
            assert crypto.unseal(pair_key, box, context) == group_keys[node]
            nonce = box[: crypto.NONCE_BYTES]
            assert crypto.seal(pair_key, group_keys[node], context, nonce) == box


def added(total: list[int], words: list[int], sign: int) -> list[int]:
    """A sum in the ring."""
    pairs = zip(total, words, strict=True)
    return [(value + sign * word) % 2**64 for value, word in pairs]


def test_the_last_tag() -> None:
    roster = KNOWN["run"]["rosters"][1]
    secret = b"".join(
        [
            bytes.fromhex(PARTIES[author]["group_keys"][1])
            for author in sorted(roster["authors"])
        ]
    )
    of_roster = bytes.fromhex(roster["digest"])
    key = crypto.derive(secret, "tag", RUN, of_roster)
    state = bytes.fromhex(KNOWN["state_digest"])
    for read in KNOWN["run"]["read"].values():
        assert crypto.tag(key, RUN, 3, 1, state).hex() == read["tag"]


def test_centroids_that_coincide_are_not_each_others_neighbours() -> None:
    # The file of vectors has none, and a run of 400 clusters on a line has some.
    centroids = np.array([[0.0, 0.0], [0.0, 0.0], [8.0, 0.0]])
    moves = np.array([[4.0, 2.0], [4.0, 2.0], [1.0, 3.0]])
    merged = coming_moves(centroids[1:], moves[1:])
    coming = coming_moves(centroids, moves)
    assert coming[0].tolist() == coming[1].tolist() == merged[0].tolist()
    assert coming_moves(centroids[:2], moves[:2]).tolist() == [[0, 0], [0, 0]]
