"""Who takes part in one attempt, who masks with whom, and who authors the group keys.

All three are functions of the roster alone, so that every party computes them by itself; the roster's digest is
bound into every mask key, so that parties with different rosters produce noise instead of a readable sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, digest

ALL_PAIRS_UP_TO = 32
"""Cohorts up to this size mask all pairs; larger ones along a sparse graph."""


@dataclass(frozen=True)
class Roster:
    """The clients of one attempt."""

    attempt: int
    """0 for the first attempt of a run, one more after each dropout."""
    members: tuple[tuple[int, bytes], ...]
    """In ascending order of node id, without repetition."""

    def __post_init__(self) -> None:
        ids = [node_id for node_id, _ in self.members]
        if len(ids) < 2:
            raise ProtocolError(f"a roster has {len(ids)} member(s), but masks need at least 2: start more clients.")
        if any(a >= b for a, b in pairwise(ids)) or self.attempt < 0:
            # Against one client that counts twice, or one set of clients with two digests.
            raise ProtocolError("a roster lists its nodes out of order or twice: stop the run and check the server.")
        if not 0 <= ids[0] <= ids[-1] < 2**64:
            raise ProtocolError("a roster has a node id outside 0 to 2^64 - 1: stop the run and check the server.")
        if any(len(key) != KEY_BYTES for _, key in self.members):
            raise ProtocolError(f"a roster has a public key that is not {KEY_BYTES} bytes long: check the server.")
        if len({key for _, key in self.members}) != len(ids):
            # Against a server whose key stands for several clients: it would know all masks between them.
            raise ProtocolError("a roster announces one public key for two nodes: stop the run and check the server.")

    @classmethod
    def of(cls, attempt: int, keys: dict[int, bytes]) -> Roster:
        """Build a roster from a mapping of node id to public key."""
        return cls(attempt, tuple(sorted(keys.items())))

    def without(self, attempt: int, missing: Iterable[int]) -> Roster:
        """Return the roster of a later attempt, without the `missing` nodes."""
        gone = set(missing)
        return Roster(attempt, tuple(member for member in self.members if member[0] not in gone))

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """Public key of each node."""
        return dict(self.members)

    @cached_property
    def node_ids(self) -> tuple[int, ...]:
        """Node ids in ascending order."""
        return tuple(node_id for node_id, _ in self.members)

    @cached_property
    def packed(self) -> bytes:
        """Node ids (8 bytes, little endian) and public keys (32 bytes) end to end."""
        return b"".join([node_id.to_bytes(8, "little") + key for node_id, key in self.members])

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over attempt, node ids and public keys."""
        return digest("roster", self.attempt, self.packed)

    @cached_property
    def hashed_order(self) -> tuple[int, ...]:
        """Node ids in an order that nobody chose: by SHA-256 of the roster's digest and the node id."""
        return _hashed_order(self.digest, self.node_ids)

    def authors(self, max_silent: int) -> tuple[int, ...]:
        """The key authors: the first ``max(2, max_silent + 2)`` nodes of the hashed order."""
        return self.hashed_order[: max(2, max_silent + 2)]

    def neighbours(self, node_id: int, max_silent: int) -> tuple[int, ...]:
        """The nodes with which `node_id` shares masks.

        Up to `ALL_PAIRS_UP_TO` members: everybody. Above: a Harary graph, the circulant graph in which every node
        of the hashed circle is joined to its ``c/2`` nearest on either side, ``c`` the least even number above
        `max_silent`. Its vertex connectivity is ``c`` (Harary 1962), so removing `max_silent` nodes leaves it
        connected, and no proper part of the remaining nodes' sum can be read.
        """
        everybody = len(self.members) - 1
        connectivity = (max_silent + 2) // 2 * 2
        return self.circle(node_id, everybody if everybody < ALL_PAIRS_UP_TO else connectivity)

    def circle(self, node_id: int, degree: int) -> tuple[int, ...]:
        """The `degree` (even) nearest nodes on the hashed circle, in ascending order, or everybody else."""
        size = len(self.members)
        if degree >= size - 1:
            return tuple([other for other in self.node_ids if other != node_id])
        position, order = self._positions[node_id], self.hashed_order
        near = (step for distance in range(1, degree // 2 + 1) for step in (distance, -distance))
        return tuple(sorted(order[(position + step) % size] for step in near))

    @cached_property
    def _positions(self) -> dict[int, int]:
        """Place of each node on the hashed circle."""
        return {node_id: place for place, node_id in enumerate(self.hashed_order)}


@lru_cache(maxsize=8)
def _hashed_order(roster_digest: bytes, node_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Order of a roster; kept for the few rosters in use, since all clients of one process need the same."""
    return tuple(sorted(node_ids, key=lambda i: hashlib.sha256(roster_digest + i.to_bytes(8, "little")).digest()))


@lru_cache(maxsize=8)
def transcript_of(plan_digest: bytes, roster_digest: bytes) -> bytes:
    """Digest of what all parties that mask with each other must agree on: the plan and the roster."""
    return digest("transcript", plan_digest, roster_digest)
