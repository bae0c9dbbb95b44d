"""What travels: frozen messages of the aggregation protocol, independent of any
transport, and their parts as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

NO_ROUND = -(2**31)
"""Index before any round.

Those of real rounds may be negative, as rounds that steer the plan are numbered up to
0.
"""
MAX_BOXES = 100_000
"""Most sealed boxes in one message, as each costs time.

As many as there are clients in the longest roster.
"""
_MARK = struct.Struct("<32s")
_NODE = struct.Struct("<Q")
_KEY = struct.Struct("<Q32s")
"""A node's X25519 public key, or a secret of 32 bytes that one has or gave."""
_CREDENTIAL = struct.Struct("<Q32s32s64s")
_BOX = struct.Struct("<QI")
"""What precedes a sealed box: its node and its length."""


class Stage(Enum):
    """Phase of the protocol that a message belongs to."""

    KEYS = "keys"
    SHARE = "share"
    SUM = "sum"
    UNMASK = "unmask"
    FINISH = "finish"
    STOP = "stop"


@dataclass(frozen=True)
class Silence:
    """Who did not answer, and what follows for the server's log."""

    nodes: tuple[int, ...]
    left_out: str | None
    """What they did not send, where the sum goes on without them.

    None: a new attempt was opened.
    """
    why: str = ""
    """What was wrong with what came, if that is why."""


@dataclass(frozen=True)
class OfAttempt:
    """What belongs to one aggregation.

    a client answers each (round, attempt) at most once.
    """

    round_index: int
    attempt: int

    @cached_property
    def asked(self) -> tuple[int, int]:
        return self.round_index, self.attempt


@dataclass(frozen=True)
class Release(OfAttempt):
    """A noised sum on its way to the clients; under blinding only clients can read it."""

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class SumRequest(OfAttempt):
    """The server asks for one round's vector."""

    roster: Roster | None = None
    """Given with the first request of each attempt."""
    release: Release | None = None
    """The noised sum of the round before.

    None in the first round and in a repeated one.
    """
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Group keys sealed for this client, once an attempt.

    Where sums are recovered, key shares, once a run.
    """
    state: bytes = field(default=b"", repr=False)
    """What the next statistic reads, where the server alone can compute it.

    The release is then empty.
    """
    credentials: Mapping[int, Credential] = field(default_factory=dict)
    """With the first roster of a run: what its members signed, if they have identities.
    """
    cohort: tuple[int, ...] = ()
    """Where sums are recovered: who is asked, ascending, instead of a roster."""
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered: sealed group keys, with the first request."""
    confirmations: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered and this client's neighbours have identities.

    Which survivors each was told, signed.
    """


@dataclass(frozen=True)
class SumReply(OfAttempt):
    """A client's masked vector."""

    masked: MaskedVector
    tag: bytes
    """Keyed tag of the client's state (empty in the first reply, when no key is shared
    yet).
    """
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Sealed group keys from a key author, once an attempt.

    Where sums are recovered, a ticket for each neighbour.
    """


@dataclass(frozen=True)
class FinishRequest:
    """The last noised sum; no vector is asked for any more.

    The rest is as in `SumRequest`.
    """

    release: Release
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    state: bytes = field(default=b"", repr=False)
    confirmations: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishReply:
    """The client has its result; the tag says that it is the same as everybody's."""

    tag: bytes


@dataclass(frozen=True)
class StopRequest:
    """The run is over without a result: why, in the server's words."""

    sentence: str


@dataclass(frozen=True)
class StopReply:
    """Heard."""


@dataclass(frozen=True)
class ShareRequest:
    """The server announces who agreed to the plan and asks for key shares; once a run."""

    roster: Roster
    """Node ids and public keys of the run."""
    credentials: Mapping[int, Credential] = field(default_factory=dict)
    """What its members signed, if they have identities."""


@dataclass(frozen=True)
class ShareReply:
    """A client's keys for every aggregation of the run, shared among its neighbours."""

    public_keys: bytes
    """X25519, 32 bytes for each aggregation in the order of `Slots`."""
    commitments: bytes
    """SHA-256 of each self-mask seed, likewise."""
    boxes: Mapping[int, bytes]
    """For each neighbour: its shares of every key, and the public keys again, which the
    server cannot change there.
    """
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    """From a key author: its group key, sealed for each other client."""


@dataclass(frozen=True)
class UnmaskRequest(OfAttempt):
    """The server names those whose vectors it has, and asks for the shares that take
    their masks away.
    """

    survivors: tuple[int, ...]
    """Ascending. Everybody else of the attempt's cohort is dropped: nobody can be both.
    """


@dataclass(frozen=True)
class UnmaskReply(OfAttempt):
    """One share for each neighbour: of its self mask if it survived, of its pairwise
    key if it was dropped.
    """

    shares: Mapping[int, bytes] = field(repr=False)
    """For each neighbour in the cohort: a locked share, a ticket, and a padded share of
    the key that opens the lock.
    """
    signature: bytes = b""
    """Of the survivors, by this client's identity, if it has one."""


def _entries(entry: struct.Struct, blob: bytes, what: str) -> Iterator[tuple[Any, ...]]:
    if len(blob) % entry.size:
        raise ProtocolError(
            f"{what} of {len(blob)} bytes is not a multiple of {entry.size}: message"
            " discarded."
        )
    return entry.iter_unpack(blob)


@lru_cache(maxsize=64)
def unpack_roster(attempt: int, blob: bytes) -> Roster:
    """Undo `Roster.packed`; order and repetitions are checked by `Roster`."""
    return Roster(attempt, tuple(_entries(_KEY, blob, "a roster")))


def pack_credentials(credentials: Mapping[int, Credential]) -> bytes:
    """Node id (8 bytes), identity (32), plan digest (32) and signature (64) end to end,
    in order of node id.
    """
    return b"".join(
        _CREDENTIAL.pack(
            node, credential.identity, credential.plan_digest, credential.signature
        )
        for node, credential in sorted(credentials.items())
    )


@lru_cache(maxsize=4)
def unpack_credentials(blob: bytes, most: int) -> Mapping[int, Credential]:
    """Undo `pack_credentials`, for at most as many nodes as the roster has that they
    came with.
    """
    step = _CREDENTIAL.size
    if len(blob) % step or len(blob) > most * step:
        raise ProtocolError(
            f"credentials of {len(blob)} bytes came with a roster of {most} clients,"
            f" but there may be {step} bytes for each at most: check the server's"
            " version."
        )
    entries = list(_CREDENTIAL.iter_unpack(blob))
    nodes = [entry[0] for entry in entries]
    if nodes != sorted(set(nodes)):
        # Against a second identity for one node, of which two readers could take
        # different ones.
        raise ProtocolError(
            "credentials are out of order or repeated: stop the run and check the"
            " server."
        )
    return MappingProxyType({node: Credential(*signed) for node, *signed in entries})


def pack_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """Node id (8 bytes), length (4 bytes) and box, end to end, in order of node id."""
    return b"".join(
        [_BOX.pack(node, len(box)) + box for node, box in sorted(boxes.items())]
    )


def unpack_boxes(blob: bytes) -> dict[int, bytes]:
    """Undo `pack_boxes`; a torn or repeated entry is a `ProtocolError`."""
    boxes: dict[int, bytes] = {}
    start, header = 0, _BOX.size
    while start < len(blob):
        # Against millions of empty boxes, which would keep a reader busy.
        if start + header > len(blob) or len(boxes) == MAX_BOXES:
            raise ProtocolError(
                f"sealed group keys are cut off, or more than {MAX_BOXES}: message"
                " discarded."
            )
        node, length = _BOX.unpack_from(blob, start)
        box = blob[start + header : start + header + length]
        if len(box) != length or node in boxes:
            raise ProtocolError(
                "sealed group keys are cut off or repeated: message discarded."
            )
        boxes[node] = box
        start += header + length
    return boxes


def pack_nodes(nodes: Iterable[int]) -> bytes:
    """Node ids, 8 bytes each, end to end."""
    return b"".join(map(_NODE.pack, nodes))


def unpack_nodes(blob: bytes) -> tuple[int, ...]:
    """Undo `pack_nodes`; order and repetitions are checked where the nodes are used."""
    return tuple([node for (node,) in _entries(_NODE, blob, "a set of nodes")])


@lru_cache(maxsize=16)
def pack_marks(marks: Collection[bytes]) -> bytes:
    """Hashes of 32 bytes end to end."""
    return b"".join(sorted(marks))


def unpack_marks(blob: bytes) -> frozenset[bytes]:
    """Undo `pack_marks`."""
    return frozenset([mark for (mark,) in _entries(_MARK, blob, "a set of marks")])
