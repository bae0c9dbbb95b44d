"""What both sides of recoverable sums derive alike: places of keys, masks, and locks that only agreement opens.

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
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, digest, keyed_tag, mask
from flwr_dpkmeans.secagg.recovery.shamir import reconstruct
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster

GIVEN_BYTES = 3 * KEY_BYTES
"""What a client gives for each neighbour: a locked share, a ticket, and a padded share of the lock's key."""
LEAST_AUTHORS = 2
"""Key authors that must survive, so that one with a bad random generator does not open the sum."""
MOST_SLOTS = 256
"""Aggregations that keys are shared for; each costs a client 96 bytes for every neighbour."""


@dataclass(frozen=True)
class Slots:
    """Every aggregation that a run may have, and has keys for: one X25519 pair and one self-mask seed each.

    Examples
    --------
    >>> Slots(0, 2, 2).place(1, 1)
    3
    """

    first_round: int
    last_round: int
    """Of the plan; where it is not final yet, the last round that it may have."""
    n_attempts: int
    """Attempts of each."""

    def __post_init__(self) -> None:
        if not (self.last_round >= self.first_round and self.n_attempts >= 1 and self.number <= MOST_SLOTS):
            raise PlanError(
                f"the plan may have {self.number} aggregations with all retries, but dropout='recover' shares keys for "
                f"at most {MOST_SLOTS}: lower max_retries or max_iter, or choose dropout='retry'."
            )

    @cached_property
    def number(self) -> int:
        """How many aggregations."""
        return (self.last_round - self.first_round + 1) * self.n_attempts

    def place(self, round_index: int, attempt: int) -> int:
        """Place of an aggregation in the order of keys; one that is not planned is a `ProtocolError`."""
        if not (self.first_round <= round_index <= self.last_round and 0 <= attempt < self.n_attempts):
            # Against a key that serves two aggregations: a dropout in one would open the other.
            raise ProtocolError(
                f"round {round_index}, attempt {attempt} has no keys in this run, which shared them for rounds "
                f"{self.first_round} to {self.last_round} and {self.n_attempts} attempt(s): stop the run."
            )
        return (round_index - self.first_round) * self.n_attempts + attempt


def piece(blob: bytes, place: int) -> bytes:
    """The 32 bytes at one place."""
    return blob[place * KEY_BYTES : (place + 1) * KEY_BYTES]


def least_survivors(n_sharers: int, max_silent: int, min_cohort: int) -> int:
    """Smallest number of clients whose sum may be opened."""
    return max(2, min_cohort, n_sharers - max_silent)


@lru_cache(maxsize=8)
def cohort_of(setup: Roster, attempt: int, node_ids: tuple[int, ...]) -> Roster:
    """Part of a roster; the clients of one process need the same one."""
    return Roster(attempt, tuple((node, setup.keys[node]) for node in node_ids))


def self_mask(seed: bytes, run_id: int, node_id: int, asked: tuple[int, int], transcript: bytes, length: int) -> Ring:
    """The mask that hides a vector whose pairwise masks were taken away, until it is known to have arrived."""
    return mask(seed, length, "self", run_id, node_id, *asked, transcript)


def pair_mask(pair_key: bytes, node_id: int, peer: int, asked: tuple[int, int], transcript: bytes, length: int) -> Ring:
    """What `node_id` adds to its vector for `peer`: the other adds the negative."""
    shared = mask(pair_key, length, "mask", *asked, transcript)
    return shared if node_id < peer else np.negative(shared)


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
        coordinate: combine(piece(given[holder][peer], 2), piece(given[peer][holder], 1))
        for peer, coordinate in list(coordinates.items())[:threshold]
    }
    opening = reconstruct(parts)
    return {owner: combine(piece(sent, 0), lock(opening, owner)) for owner, sent in given[holder].items()}
