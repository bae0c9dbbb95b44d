"""Parts of messages as bytes: rosters, credentials, sealed boxes, nodes and marks.

All numbers are little endian. What is read is of whoever sent it: lengths, order and
repetitions are checked before anything is computed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.roster import NodeIds, Roster

MAX_BOXES = 100_000
"""Most sealed boxes in one message, as each costs time.

As many as there are clients in the longest roster.
"""
_MARK = struct.Struct("<32s")
_NODE = struct.Struct("<Q")
_MEMBER = struct.Struct("<Q32s")
"""A node and its X25519 public key."""
_CREDENTIAL = struct.Struct("<Q32s32s64s")
"""A node, its identity, the digest of its plan, and its signature."""
_BOX_HEAD = struct.Struct("<QI")
"""What precedes a sealed box: its node and its length."""


def _require_whole_entries(
    entry: struct.Struct,
    blob: bytes,
    what: str,
) -> None:
    if len(blob) % entry.size != 0:
        raise ProtocolError(
            f"{what} of {len(blob)} bytes is not a multiple of {entry.size}: message"
            " discarded."
        )


@lru_cache(maxsize=64)
def unpack_roster(attempt: int, blob: bytes) -> Roster:
    """Undo `Roster.packed`; order and repetitions are checked by `Roster`."""
    _require_whole_entries(_MEMBER, blob, "a roster")
    return Roster(attempt, tuple(_MEMBER.iter_unpack(blob)))


def pack_credentials(credentials: Mapping[int, Credential]) -> bytes:
    """Join credentials, in order of node id.

    For each: node id (8 bytes), identity (32), plan digest (32) and signature (64).
    """
    packed = []
    for node, credential in sorted(credentials.items()):
        entry = _CREDENTIAL.pack(
            node,
            credential.identity,
            credential.plan_digest,
            credential.signature,
        )
        packed.append(entry)
    return b"".join(packed)


@lru_cache(maxsize=4)
def unpack_credentials(blob: bytes, n_members: int) -> Mapping[int, Credential]:
    """Undo `pack_credentials`, of as many nodes at most as their roster has."""
    step = _CREDENTIAL.size
    if len(blob) % step != 0 or len(blob) > n_members * step:
        raise ProtocolError(
            f"credentials of {len(blob)} bytes came with a roster of {n_members}"
            f" clients, but there may be {step} bytes for each at most: check the"
            " server's version."
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
    credentials = {node: Credential(*signed) for node, *signed in entries}
    return MappingProxyType(credentials)


def pack_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """Join boxes, in order of node id: node id (8 bytes), length (4 bytes) and box."""
    packed = []
    for node, box in sorted(boxes.items()):
        packed.append(_BOX_HEAD.pack(node, len(box)))
        packed.append(box)
    return b"".join(packed)


def unpack_boxes(blob: bytes) -> dict[int, bytes]:
    """Undo `pack_boxes`; a torn or repeated entry is a `ProtocolError`."""
    boxes: dict[int, bytes] = {}
    position = 0
    while position < len(blob):
        start = position + _BOX_HEAD.size
        # Against millions of empty boxes, which would keep a reader busy.
        if start > len(blob) or len(boxes) == MAX_BOXES:
            raise ProtocolError(
                f"sealed boxes are cut off, or more than {MAX_BOXES}: message"
                " discarded."
            )
        node, length = _BOX_HEAD.unpack_from(blob, position)
        position = start + length
        box = blob[start:position]
        if len(box) != length or node in boxes:
            raise ProtocolError(
                "sealed boxes are cut off or repeated: message discarded."
            )
        boxes[node] = box
    return boxes


def pack_nodes(nodes: Iterable[int]) -> bytes:
    """Join node ids, 8 bytes each."""
    return b"".join([_NODE.pack(node) for node in nodes])


def unpack_nodes(blob: bytes) -> NodeIds:
    """Undo `pack_nodes`; order and repetitions are checked where nodes are used."""
    _require_whole_entries(_NODE, blob, "a set of nodes")
    return tuple([node for (node,) in _NODE.iter_unpack(blob)])


@lru_cache(maxsize=16)
def pack_marks(marks: frozenset[bytes]) -> bytes:
    """Join hashes of 32 bytes, sorted."""
    return b"".join(sorted(marks))


def unpack_marks(blob: bytes) -> frozenset[bytes]:
    """Undo `pack_marks`."""
    _require_whole_entries(_MARK, blob, "a set of marks")
    return frozenset([mark for (mark,) in _MARK.iter_unpack(blob)])
