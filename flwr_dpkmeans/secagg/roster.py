"""Who takes part in one attempt, who masks with whom, and who authors the group keys.

All of it is a function of the roster alone, so that every party computes it by itself;
the roster's digest is bound into every mask key, so that parties with different rosters
produce noise instead of a readable sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, digest

ALL_PAIRS_UP_TO = 32
"""Cohorts up to this size mask all pairs; larger ones along a sparse graph."""
FEWEST_AUTHORS = 2
"""Key authors of any run, so that one with a bad random generator opens no sum."""

NodeIds = tuple[int, ...]


@dataclass(frozen=True)
class Roster:
    """The clients of one attempt, with their public keys."""

    attempt: int
    """0 for the first attempt of a run, one more after each dropout."""
    members: tuple[tuple[int, bytes], ...]
    """Node ids and X25519 public keys, in ascending order, without repetition."""

    def __post_init__(self) -> None:
        """Refuse a roster that no honest server announces, by a `ProtocolError`."""
        ids = [node_id for node_id, _ in self.members]
        if len(ids) < 2:
            raise ProtocolError(
                f"a roster has {len(ids)} member(s), but masks need at least 2: start"
                " more clients."
            )
        if self.attempt < 0:
            # Against keys bound to an attempt that no plan has.
            raise ProtocolError(
                f"a roster is of attempt {self.attempt}, but attempts count from 0:"
                " stop the run and check the server."
            )
        is_ascending = all(first < second for first, second in pairwise(ids))
        if not is_ascending:
            # Against one client that counts twice, or one set of clients with two
            # digests.
            raise ProtocolError(
                "a roster lists its nodes out of order or twice: stop the run and check"
                " the server."
            )
        smallest = ids[0]
        largest = ids[-1]
        if smallest < 0 or largest >= 2**64:
            raise ProtocolError(
                "a roster has a node id outside 0 to 2^64 - 1: stop the run and check"
                " the server."
            )
        if any(len(key) != KEY_BYTES for _, key in self.members):
            raise ProtocolError(
                f"a roster has a public key that is not {KEY_BYTES} bytes long: check"
                " the server."
            )
        distinct_keys = {key for _, key in self.members}
        if len(distinct_keys) != len(ids):
            # Against a server whose key stands for several clients: it would know all
            # masks between them.
            raise ProtocolError(
                "a roster announces one public key for two nodes: stop the run and"
                " check the server."
            )

    @classmethod
    def of(cls, attempt: int, keys: Mapping[int, bytes]) -> Roster:
        """Build a roster from public keys by node id."""
        return cls(attempt, tuple(sorted(keys.items())))

    def without(self, attempt: int, missing: Iterable[int]) -> Roster:
        """Return the roster of a later attempt, without the missing nodes."""
        gone = set(missing)
        members = [(node, key) for node, key in self.members if node not in gone]
        return Roster(attempt, tuple(members))

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """Public keys by node id."""
        return dict(self.members)

    @cached_property
    def node_ids(self) -> NodeIds:
        """Node ids, ascending."""
        return tuple(node_id for node_id, _ in self.members)

    @cached_property
    def packed(self) -> bytes:
        """Node ids (8 bytes, little endian) and public keys (32 bytes) end to end."""
        packed_members = [_node_bytes(node_id) + key for node_id, key in self.members]
        return b"".join(packed_members)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the attempt and the members."""
        return digest("roster", self.attempt, self.packed)

    @cached_property
    def hashed_order(self) -> NodeIds:
        """Node ids in an order that nobody chose.

        By SHA-256 of the roster's digest and the node id.
        """
        return _hashed_order(self.digest, self.node_ids)

    @cached_property
    def _positions(self) -> dict[int, int]:
        """Index of each node in the hashed order."""
        return {node: index for index, node in enumerate(self.hashed_order)}

    def authors(self, max_silent: int) -> NodeIds:
        """Return the key authors: the first t + 2 nodes of the hashed order.

        At least two, and t + 2 so that two are left where t = `max_silent` of them fall
        silent.
        """
        n_authors = FEWEST_AUTHORS + max(0, max_silent)
        return self.hashed_order[:n_authors]

    def neighbours(self, node_id: int, max_silent: int) -> NodeIds:
        """Return the nodes with which one node shares masks, ascending."""
        degree = mask_degree(len(self.members), max_silent)
        return self.circle(node_id, degree)

    def circle(self, node_id: int, degree: int) -> NodeIds:
        """Return a node's nearest on the circle of the hashed order, ascending.

        Parameters
        ----------
        node_id : int
            The node in their middle.
        degree : int
            How many, even. Where there are no more nodes, everybody else.
        """
        size = len(self.members)
        if degree >= size - 1:
            return self.others_than(node_id)
        order = self.hashed_order
        position = self._positions[node_id]
        nearest = []
        for distance in range(1, degree // 2 + 1):
            after = (position + distance) % size
            before = (position - distance) % size
            nearest.append(order[after])
            nearest.append(order[before])
        return tuple(sorted(nearest))

    def others_than(self, node_id: int) -> NodeIds:
        """Return everybody else, ascending."""
        return tuple([other for other in self.node_ids if other != node_id])


def mask_degree(n_clients: int, max_silent: int) -> int:
    """Say with how many others a client shares masks, where there are so many.

    Up to `ALL_PAIRS_UP_TO` members: everybody. Above: those in a Harary graph of
    connectivity above `max_silent` (Harary 1962), which stays in one part without so
    many nodes, so that no part of the others' sum can be read.
    """
    if n_clients <= ALL_PAIRS_UP_TO:
        return n_clients - 1
    # The next even number: as many on either side of the circle, and at least one.
    half = max(0, max_silent) // 2 + 1
    return 2 * half


@lru_cache(maxsize=8)
def _hashed_order(roster_digest: bytes, node_ids: NodeIds) -> NodeIds:
    """Order the nodes of a roster.

    Cached for the few rosters in use, since all clients of a process need the same.
    """

    def hash_of(node_id: int) -> bytes:
        return hashlib.sha256(roster_digest + _node_bytes(node_id)).digest()

    return tuple(sorted(node_ids, key=hash_of))


def _node_bytes(node_id: int) -> bytes:
    return node_id.to_bytes(8, "little")


@lru_cache(maxsize=8)
def transcript_of(plan_digest: bytes, roster_digest: bytes) -> bytes:
    """Hash what parties that mask with each other must agree on: plan and roster."""
    return digest("transcript", plan_digest, roster_digest)
