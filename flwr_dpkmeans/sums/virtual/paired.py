"""Clients of one process, which compute together what two of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster

_MOST_WORDS = 1 << 22
"""Of masks of which one end waits for the other.

Four times as many, as clients are asked along the circle.
"""


PreparedName = tuple[int, AttemptId, bytes, int]
"""A client's id, the aggregation, its transcript and the number of words."""
PreparedMasks = tuple[bytes, Ring]
"""Keys of a client's masks, end to end, and the masks' sum."""


@dataclass
class Awaited:
    """What the first of two clients has computed, until the second takes it out."""

    pair_keys: dict[bytes, bytes] = field(
        default_factory=dict,
        repr=False,
    )
    """By both public keys."""
    mask_keys: dict[tuple[bytes, bytes], bytes] = field(
        default_factory=dict,
        repr=False,
    )
    """By pair key and transcript."""
    masks: dict[tuple[bytes, AttemptId, int], Ring] = field(
        default_factory=dict,
        repr=False,
    )
    """By mask key, aggregation and number of words."""
    prepared: dict[PreparedName, PreparedMasks] = field(
        default_factory=dict,
        repr=False,
    )
    """What clients of a group are about to add."""

    def __len__(self) -> int:
        n_keys = len(self.pair_keys) + len(self.mask_keys)
        return n_keys + len(self.masks) + len(self.prepared)


@dataclass(frozen=True)
class Paired(Retry):
    """A client whose peers are all in this process.

    What the first of two computes, the second looks up.

    X25519 gives both the same (RFC 7748, section 6.1), and the key that follows from it
    names the run and both ids. Masks and their keys are functions of arguments that
    both have. Both have as many neighbours and come to the same answer here, so that
    nothing is left over.
    """

    awaited: Awaited = field(default_factory=Awaited, repr=False)
    """Of all clients of the run."""

    def _agreed_keys(
        self,
        roster: Roster,
        peers: Iterable[int],
        pair_keys: Mapping[int, bytes],
    ) -> dict[int, bytes]:
        public_key = roster.keys[self.node_id]
        awaited = self.awaited.pair_keys
        present = dict(pair_keys)
        first_of_pair: dict[int, bytes] = {}
        for peer in peers:
            if peer in pair_keys or peer == self.node_id:
                continue
            peer_key = roster.keys[peer]
            both_keys = min(public_key, peer_key) + max(public_key, peer_key)
            if both_keys in awaited:
                present[peer] = awaited.pop(both_keys)
            else:
                first_of_pair[peer] = both_keys
        agreed = super()._agreed_keys(roster, first_of_pair, present)
        for peer, both_keys in first_of_pair.items():
            awaited[both_keys] = agreed[peer]
        return agreed

    def _masks(
        self,
        transcript: bytes,
        length: int,
    ) -> PreparedMasks:
        prepared = self.awaited.prepared
        name = (self.node_id, self.attempt_id, transcript, length)
        if name in prepared:
            return prepared.pop(name)
        return super()._masks(transcript, length)

    def _mask_key(self, pair_key: bytes, transcript: bytes) -> bytes:
        awaited = self.awaited.mask_keys
        name = (pair_key, transcript)
        if name in awaited:
            return awaited.pop(name)
        mask_key = super()._mask_key(pair_key, transcript)
        awaited[name] = mask_key
        return mask_key

    def _mask(self, mask_key: bytes, length: int) -> Ring:
        n_waiting_words = length * len(self.pair_keys) ** 2
        if n_waiting_words > _MOST_WORDS:
            return super()._mask(mask_key, length)
        awaited = self.awaited.masks
        name = (mask_key, self.attempt_id, length)
        if name in awaited:
            return awaited.pop(name)
        words = super()._mask(mask_key, length)
        awaited[name] = words
        return words
