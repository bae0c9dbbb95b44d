"""What both sides of recoverable sums compute alike: masks, and locks on shares.

A client gives one share for each neighbour: of its self mask if it survived, of its
pairwise key if it is gone. Locks stand against a server that tells clients different
cohorts or survivors: shares open only by agreement; ``protocol.md``, "Recoverable
sums".

==============  =========================================================
a part          is
==============  =========================================================
ticket          a keyed tag of a view, under a key that two clients share
lock            a pad from an opening, which the giver draws
locked share    share + lock [+ the owner's ticket for its cohort]
padded share    share of the opening + a neighbour's ticket for the survivors
==============  =========================================================

Plus is exclusive or. A neighbour that was told something else gives another ticket, and
what is padded with it stays noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice

import numpy as np

from flwr_dpkmeans.secagg.ciphers import AttemptId, mask
from flwr_dpkmeans.secagg.keys import KEY_BYTES, digest, keyed_tag, piece
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import NodeIds, Roster
from flwr_dpkmeans.secagg.shamir import reconstruct

UNMASK_BYTES = 3 * KEY_BYTES
"""What a client gives for each neighbour.

A locked share, a ticket, and a padded share of the lock's opening.
"""
Shares = Mapping[int, Mapping[int, bytes]]
"""By the client that holds or gives them, and the client whose keys they are of."""
_LOCKED_SHARE = 0
_TICKET = 1
_PADDED_SHARE = 2


@lru_cache(maxsize=8)
def cohort_of(
    sharers: Roster,
    attempt: int,
    node_ids: NodeIds,
) -> Roster:
    """Return a part of those that shared keys.

    Cached, since the clients of one process need the same one.
    """
    keys = sharers.keys
    members = [(node, keys[node]) for node in node_ids]
    return Roster(attempt, tuple(members))


def self_mask(
    seed: bytes,
    run_id: int,
    node_id: int,
    attempt_id: AttemptId,
    transcript: bytes,
    length: int,
) -> Ring:
    """Expand the mask that hides a vector until it is known to have arrived.

    Pairwise masks alone would be taken away from a vector that is late.
    """
    return mask(
        seed,
        attempt_id,
        length,
        "self",
        run_id,
        node_id,
        transcript,
    )


def pair_mask(
    pair_key: bytes,
    node_id: int,
    peer: int,
    attempt_id: AttemptId,
    transcript: bytes,
    length: int,
) -> Ring:
    """Expand what one node adds to its vector for a peer, which adds the negative."""
    words = mask(
        pair_key,
        attempt_id,
        length,
        "mask",
        transcript,
    )
    if node_id < peer:
        return words
    return np.negative(words)


def survivors_digest(survivors: Iterable[int]) -> bytes:
    """Hash a set of node ids with SHA-256."""
    packed = [node.to_bytes(8, "little") for node in sorted(survivors)]
    return digest("survivors", b"".join(packed))


def cohort_view(attempt_id: AttemptId, transcript: bytes) -> bytes:
    """Hash what the owner and the holder of a share must have been told alike.

    The aggregation, the plan and the cohort.
    """
    return digest("cohort view", *attempt_id, transcript)


def survivors_view(
    attempt_id: AttemptId,
    transcript: bytes,
    survivors: Iterable[int],
) -> bytes:
    """Hash what neighbours that give shares must have been told alike.

    The same as in `cohort_view`, and the survivors.
    """
    named = survivors_digest(survivors)
    return digest(
        "survivors view",
        *attempt_id,
        transcript,
        named,
    )


def ticket(
    key: bytes,
    sender: int,
    recipient: int,
    view: bytes,
) -> bytes:
    """Make what a sender gives the server to use what a recipient pads with it."""
    return keyed_tag(
        key,
        sender,
        recipient,
        view,
    )


def lock(opening: bytes, owner: int) -> bytes:
    """Make the pad that hides a share of one owner's key until the opening is known."""
    return keyed_tag(opening, "lock", owner)


def combine(*parts: bytes) -> bytes:
    """Add strings of 32 bytes by exclusive or; one added once more is taken away."""
    value = 0
    for part in parts:
        value ^= int.from_bytes(part, "little")
    return value.to_bytes(KEY_BYTES, "little")


def unlock(
    holder: int,
    replies: Shares,
    coordinates: Mapping[int, int],
    threshold: int,
) -> dict[int, bytes]:
    """Open the shares that one client gave, with tickets of its neighbours.

    Parameters
    ----------
    holder : int
        Who gave the shares.
    replies : Shares
        What each client gave for each neighbour.
    coordinates : mapping of int to int
        Coordinates of the holder's neighbours that gave shares as well.
    threshold : int
        How many of them open the lock.

    Returns
    -------
    dict of int to bytes
        A share for each neighbour. It is still padded with the owner's ticket if the
        owner survived; with a wrong ticket it is noise.
    """
    opening_shares = {}
    for peer, coordinate in islice(coordinates.items(), threshold):
        padded = piece(replies[holder][peer], _PADDED_SHARE)
        peer_ticket = piece(replies[peer][holder], _TICKET)
        opening_shares[coordinate] = combine(padded, peer_ticket)
    opening = reconstruct(opening_shares)
    shares = {}
    for owner, parts in replies[holder].items():
        locked = piece(parts, _LOCKED_SHARE)
        shares[owner] = combine(locked, lock(opening, owner))
    return shares
