"""Rosters, credentials, sets of nodes and sealed boxes as bytes, and back."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.signing import IDENTITY_BYTES, SIGNATURE_BYTES

MAX_BOXES = 100_000
"""Most sealed boxes in one message, as each costs time: as many as there are clients in the longest roster."""
MARK_BYTES = 32
_ID_BYTES = 8
_BOX = struct.Struct("<QI")
"""What precedes a sealed box: its node and its length."""


def pack_roster(roster: Roster) -> bytes:
    """Node ids (8 bytes) and public keys (32 bytes) end to end."""
    return b"".join([struct.pack("<Q", node_id) + key for node_id, key in roster.members])


@lru_cache(maxsize=64)
def unpack_roster(attempt: int, blob: bytes) -> Roster:
    """Undo `pack_roster`; order and repetitions are checked by `Roster`."""
    step = _ID_BYTES + KEY_BYTES
    if len(blob) % step:
        raise ProtocolError(f"a roster of {len(blob)} bytes is not a multiple of {step}: check the server's version.")
    members = tuple(
        (struct.unpack_from("<Q", blob, start)[0], blob[start + _ID_BYTES : start + step])
        for start in range(0, len(blob), step)
    )
    return Roster(attempt, members)


def pack_credentials(credentials: Mapping[int, Credential]) -> bytes:
    """Node id (8 bytes), identity (32), plan digest (32) and signature (64) end to end, in order of node id."""
    return b"".join(
        struct.pack("<Q", node) + credential.identity + credential.plan_digest + credential.signature
        for node, credential in sorted(credentials.items())
    )


@lru_cache(maxsize=4)
def unpack_credentials(blob: bytes, most: int) -> Mapping[int, Credential]:
    """Undo `pack_credentials`, for at most as many nodes as the roster has that they came with."""
    step = _ID_BYTES + IDENTITY_BYTES + KEY_BYTES + SIGNATURE_BYTES
    if len(blob) % step or len(blob) > most * step:
        raise ProtocolError(
            f"credentials of {len(blob)} bytes came with a roster of {most} clients, but there may be {step} bytes for "
            "each at most: check the server's version."
        )
    credentials: dict[int, Credential] = {}
    previous = -1
    for start in range(0, len(blob), step):
        node, identity, digest, signature = struct.unpack_from("<Q32s32s64s", blob, start)
        if node <= previous:
            raise ProtocolError("credentials are out of order or repeated: stop the run and check the server.")
        credentials[node], previous = Credential(identity, digest, signature), node
    return MappingProxyType(credentials)


def pack_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """Node id (8 bytes), length (4 bytes) and box, end to end, in order of node id."""
    return b"".join([_BOX.pack(node, len(box)) + box for node, box in sorted(boxes.items())]) if boxes else b""


def unpack_boxes(blob: bytes) -> dict[int, bytes]:
    """Undo `pack_boxes`; a torn or repeated entry is a `ProtocolError`."""
    boxes: dict[int, bytes] = {}
    start, header = 0, _BOX.size
    while start < len(blob):
        if start + header > len(blob) or len(boxes) == MAX_BOXES:
            raise ProtocolError(f"sealed group keys are cut off, or more than {MAX_BOXES}: message discarded.")
        node, length = _BOX.unpack_from(blob, start)
        box = blob[start + header : start + header + length]
        if len(box) != length or node in boxes:
            raise ProtocolError("sealed group keys are cut off or repeated: message discarded.")
        boxes[node] = box
        start += header + length
    return boxes


def pack_nodes(nodes: Iterable[int]) -> bytes:
    """Node ids, 8 bytes each, end to end."""
    return b"".join([struct.pack("<Q", node) for node in nodes])


@lru_cache(maxsize=16)
def pack_marks(marks: Collection[bytes]) -> bytes:
    """Hashes of 32 bytes end to end."""
    return b"".join(sorted(marks))


def unpack_marks(blob: bytes) -> frozenset[bytes]:
    """Undo `pack_marks`."""
    if len(blob) % MARK_BYTES:
        raise ProtocolError(f"marks have {len(blob)} bytes, which is not a multiple of {MARK_BYTES}: reply discarded.")
    return frozenset(blob[start : start + MARK_BYTES] for start in range(0, len(blob), MARK_BYTES))


def unpack_nodes(blob: bytes) -> tuple[int, ...]:
    """Undo `pack_nodes`; order and repetitions are checked where the nodes are used."""
    if len(blob) % _ID_BYTES:
        raise ProtocolError(f"a set of nodes has {len(blob)} bytes, which is not a multiple of {_ID_BYTES}: discarded.")
    return struct.unpack(f"<{len(blob) // _ID_BYTES}Q", blob)
