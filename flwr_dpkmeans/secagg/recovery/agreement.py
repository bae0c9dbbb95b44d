"""Locks that agreement opens: shares are of use to the server only among clients that were told the same.

A server that tells clients different cohorts or survivors could have each of them give away a few of its neighbours,
and together all masks of one client. Two locks stand against it, without a further round trip:

* a share of a self mask is padded with a ticket that the *owner* sends along with its vector. Owner and holder compute
  it from the cohort that they were told, so that only holders that were told the owner's cohort help to unmask it;
* everything that a client gives is locked with a fresh key, whose Shamir shares are padded with tickets that its
  neighbours send along with their own shares. They are computed from the survivors, so that a client's shares can be
  read only if as many of its neighbours as give a key back were told of the same survivors.

A ticket is an HMAC under a key that two neighbours agree on, and used once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flwr_dpkmeans.secagg.keys import KEY_BYTES, digest, keyed_tag
from flwr_dpkmeans.secagg.recovery.shamir import reconstruct

GIVEN_BYTES = 3 * KEY_BYTES
"""What a client gives for each neighbour: a locked share, a ticket, and a padded share of the lock's key."""


def survivors_digest(survivors: Iterable[int]) -> bytes:
    """SHA-256 of a set of node ids."""
    return digest("survivors", b"".join(node.to_bytes(8, "little") for node in sorted(survivors)))


def cohort_view(asked: tuple[int, int], transcript: bytes) -> bytes:
    """What an owner and a holder must have been told alike: the aggregation, the plan and the cohort."""
    return digest("cohort view", *asked, transcript)


def survivors_view(asked: tuple[int, int], transcript: bytes, survivors: Iterable[int]) -> bytes:
    """What neighbours that give shares must have been told alike: the same and the survivors."""
    return digest("survivors view", *asked, transcript, survivors_digest(survivors))


def ticket(key: bytes, sender: int, recipient: int, view: bytes) -> bytes:
    """What `sender` gives the server so that it can use what `recipient` pads with it."""
    return keyed_tag(key, sender, recipient, view)


def lock(opening: bytes, owner: int) -> bytes:
    """Hides the share of one owner's key until the opening is known."""
    return keyed_tag(opening, "lock", owner)


def combine(*parts: bytes) -> bytes:
    """Exclusive or of strings of 32 bytes; once more with one of them takes it away."""
    value = 0
    for part in parts:
        value ^= int.from_bytes(part, "little")
    return value.to_bytes(KEY_BYTES, "little")


def unlock(
    holder: int, given: Mapping[int, Mapping[int, bytes]], coordinates: Mapping[int, int], threshold: int
) -> dict[int, bytes]:
    """Read the shares that one client gave, with its neighbours' tickets.

    `given` is what everybody that gave shares sent for each neighbour, `GIVEN_BYTES` long; `coordinates` are of those
    neighbours of the holder that gave shares, of which `threshold` give the opening back. The share of each owner's key
    is still padded with the owner's ticket if it survived; where tickets are wrong it is noise.
    """
    parts = {
        coordinate: combine(given[holder][peer][2 * KEY_BYTES :], given[peer][holder][KEY_BYTES : 2 * KEY_BYTES])
        for peer, coordinate in list(coordinates.items())[:threshold]
    }
    opening = reconstruct(parts)
    return {owner: combine(sent[:KEY_BYTES], lock(opening, owner)) for owner, sent in given[holder].items()}
