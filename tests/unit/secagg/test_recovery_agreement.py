"""Tickets and locks: what each is bound to, and that shares open with the right ones
only.
"""

from __future__ import annotations

import pytest

from flwr_dpkmeans.secagg.agreement import (
    cohort_view,
    combine,
    lock,
    pair_mask,
    self_mask,
    survivors_digest,
    survivors_view,
    ticket,
    unlock,
)
from flwr_dpkmeans.secagg.ciphers import mask
from flwr_dpkmeans.secagg.keys import digest
from flwr_dpkmeans.secagg.shamir import share

KEY = bytes(range(32))


def test_views_are_bound_to_everything_that_was_told() -> None:
    views = [
        cohort_view((1, 0), b"transcript"),
        cohort_view((2, 0), b"transcript"),
        cohort_view((1, 1), b"transcript"),
        cohort_view((1, 0), b"another"),
        survivors_view((1, 0), b"transcript", (1, 2)),
        survivors_view((2, 0), b"transcript", (1, 2)),
        survivors_view((1, 1), b"transcript", (1, 2)),
        survivors_view((1, 0), b"another", (1, 2)),
        survivors_view((1, 0), b"transcript", (1, 3)),
        survivors_view((1, 0), b"transcript", ()),
    ]
    assert len(set(views)) == len(views)
    assert survivors_view((1, 0), b"transcript", (2, 1)) == views[4]
    assert survivors_digest((1, 256)) != survivors_digest((257, 0))


def test_survivors_are_hashed_in_ascending_order_and_8_bytes() -> None:
    expected = digest("survivors", b"\x02\x01" + bytes(6) + b"\xff" * 8)
    assert (
        survivors_digest((258, 2**64 - 1))
        == survivors_digest((2**64 - 1, 258))
        == expected
    )


def test_tickets_and_locks_serve_once() -> None:
    made = [
        ticket(KEY, 1, 2, b"view"),
        ticket(KEY, 2, 1, b"view"),
        ticket(KEY, 1, 3, b"view"),
        ticket(KEY, 1, 2, b"other"),
        ticket(bytes(32), 1, 2, b"view"),
        lock(KEY, 1),
        lock(KEY, 2),
        lock(bytes(32), 1),
    ]
    assert len(set(made)) == len(made)
    assert {len(one) for one in made} == {32}


def test_combine_takes_away_what_it_added() -> None:
    assert combine(combine(KEY, lock(KEY, 1)), lock(KEY, 1)) == KEY
    assert combine(KEY, KEY) == bytes(32)
    assert combine(KEY, b"") == KEY


def test_a_self_mask_is_bound_to_its_aggregation_and_transcript() -> None:
    masks = {
        self_mask(*arguments, 2).tobytes()
        for arguments in (
            (KEY, 7, 1, (1, 0), b"transcript"),
            (bytes(32), 7, 1, (1, 0), b"transcript"),
            (KEY, 8, 1, (1, 0), b"transcript"),
            (KEY, 7, 2, (1, 0), b"transcript"),
            (KEY, 7, 1, (2, 0), b"transcript"),
            (KEY, 7, 1, (1, 1), b"transcript"),
            (KEY, 7, 1, (1, 0), b"another"),
        )
    }
    assert len(masks) == 7


def test_the_lower_node_adds_what_the_other_takes_away() -> None:
    lower, higher = (
        pair_mask(KEY, *nodes, (3, 1), b"transcript", 4) for nodes in ((7, 8), (8, 7))
    )
    assert lower.tolist() == mask(KEY, (3, 1), 4, "mask", b"transcript").tolist()
    assert (lower + higher).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("n_agreeing", range(6))
def test_shares_open_with_a_threshold_of_equal_tickets(n_agreeing: int) -> None:
    # One holder with five neighbours, of which some were told the same; three are
    # needed.
    holder, peers, opening = 9, (1, 2, 3, 4, 5), bytes(range(100, 132))
    parts = share(opening, 5, 3)
    tickets = {peer: ticket(KEY, peer, holder, b"view") for peer in peers}
    sent = {
        peer: (
            combine(KEY, lock(opening, peer)) + bytes(32) + combine(part, tickets[peer])
        )
        for peer, part in zip(peers, parts, strict=True)
    }
    given = {holder: sent}
    for peer in peers:
        told = b"view" if peer <= n_agreeing else b"other"
        given[peer] = {holder: bytes(32) + ticket(KEY, peer, holder, told) + bytes(32)}
    read = unlock(holder, given, {peer: peer for peer in peers}, 3)
    assert all((share_of == KEY) is (n_agreeing >= 3) for share_of in read.values())
    assert set(read) == set(peers)
