"""Clients of one process, which compute together what two of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr_dpkmeans.secagg.ciphers import stream
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.roster import Roster

_MOST_WORDS = 1 << 22
"""Of masks of which one end waits for the other.

Four times as many, as clients are asked along the circle.
"""


@dataclass(frozen=True)
class Paired(Retry):
    """A client whose peers are all in this process: what the first of two computes, the
    second looks up.

    X25519 gives both the same (RFC 7748, section 6.1), and the key that follows from it
    names the run and both ids. Masks and their keys are functions of arguments that
    both have.
    """

    agreed: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Keys of pairs of which one has asked so far, by both public keys, and what
    `_shared` computed of arguments.
    """

    def _agreed_keys(
        self,
        roster: Roster,
        peers: Iterable[int],
        pair_keys: Mapping[int, bytes],
    ) -> dict[int, bytes]:
        new_peers = [
            peer for peer in peers if peer not in pair_keys and peer != self.node_id
        ]
        public_key = roster.keys[self.node_id]
        pairs: dict[int, bytes] = {}
        for peer in new_peers:
            ordered = sorted((public_key, roster.keys[peer]))
            pairs[peer] = b"".join(ordered)
        looked_up = {
            peer: self.agreed.pop(pair)
            for peer, pair in pairs.items()
            if pair in self.agreed
        }
        present = {**pair_keys, **looked_up}
        keys = super()._agreed_keys(roster, new_peers, present)
        for peer, pair in pairs.items():
            if peer not in looked_up:
                self.agreed[pair] = keys[peer]
        return keys

    def _shared(self, compute: Callable[..., Any], *arguments: Any) -> Any:
        # Both have as many neighbours and come to the same answer here, so that nothing
        # is left over.
        if compute is stream:
            length = arguments[-1]
            n_words = length * len(self.pair_keys) ** 2
            if n_words > _MOST_WORDS:
                return compute(*arguments)
        key = (compute, *arguments)
        if key in self.agreed:
            return self.agreed.pop(key)
        self.agreed[key] = compute(*arguments)
        return self.agreed[key]
