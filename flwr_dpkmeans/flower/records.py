"""Protocol messages as Flower records, and back; everything that comes in is checked here.

Every phase travels as an ordinary ``train`` message (the last one as ``evaluate``) with one `ConfigRecord` named
`RECORD`: a JSON header of scalars, and blobs. Vectors travel as uint64 arrays in an `ArrayRecord` named
`VECTOR_RECORD`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.plan import Plan
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import FinishReply, FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

RECORD = "dpkmeans"
VECTOR_RECORD = "dpkmeans.vector"
MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
MAX_HEADER_CHARACTERS = 10_000
MAX_INTEGER = 2**31
VECTOR_LAYOUT = "flwr-dpkmeans.little-endian"
"""Serialisation of vectors: raw 64-bit words, so that nothing has to be parsed."""
_ID_BYTES = 8


class Stage(Enum):
    """Phase of the protocol that a message belongs to."""

    KEYS = "keys"
    SUM = "sum"
    FINISH = "finish"


class Status(Enum):
    """Outcome of a request, as the client reports it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class KeysReply:
    """A client's answer to the plan.

    Parameters
    ----------
    public_key : bytes
        X25519, fresh for the run.
    plan_digest : bytes
        Of the plan it agreed to.
    n_features : int
        Width of its table: schema, the same whatever the rows are.
    """

    public_key: bytes
    plan_digest: bytes
    n_features: int


@lru_cache(maxsize=1)
def _plan_adapter() -> Any:
    """Parser and serialiser of plans (pydantic compiles it once)."""
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)


def dump_plan(plan: Plan) -> bytes:
    """Serialise a plan as JSON."""
    return bytes(_plan_adapter().dump_json(plan))


def plan_digest(blob: bytes) -> bytes:
    """SHA-256 of a plan as it travelled."""
    return hashlib.sha256(blob).digest()


@lru_cache(maxsize=64)
def load_plan(blob: bytes) -> Plan:
    """Parse a plan; anything but a well-formed plan is a `ProtocolError`."""
    from pydantic import ValidationError

    try:
        plan: Plan = _plan_adapter().validate_json(blob, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(f"the plan is malformed at {place!r}: use the same version of flwr-dpkmeans.") from error
    return plan


def request_content(
    stage: Stage,
    *,
    plan: bytes | None = None,
    request: SumRequest | FinishRequest | None = None,
) -> RecordDict:
    """Build the content of one message to one client."""
    header: dict[str, Any] = {"stage": stage.value}
    blobs: dict[str, bytes] = {}
    vector = None
    if plan is not None:
        blobs["plan"] = plan
    if isinstance(request, SumRequest):
        header |= {"round": request.round_index, "attempt": request.attempt}
        if request.roster is not None:
            blobs["roster"] = pack_roster(request.roster)
    if request is not None:
        if request.boxes:
            blobs["boxes"] = pack_boxes(request.boxes)
        if request.state:
            blobs["state"] = request.state
        if request.release is not None:
            header |= {"release_round": request.release.round_index, "release_attempt": request.release.attempt}
            vector = request.release.values
    return _content(header, blobs, vector)


def reply_content(reply: KeysReply | SumReply | FinishReply) -> RecordDict:
    """Build the content of one reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    if isinstance(reply, KeysReply):
        header |= {"n_features": reply.n_features}
        return _content(header, {"public_key": reply.public_key, "plan_digest": reply.plan_digest})
    if isinstance(reply, FinishReply):
        return _content(header, {"tag": reply.tag})
    header |= {"round": reply.round_index, "attempt": reply.attempt}
    blobs = {"tag": reply.tag}
    if reply.boxes:
        blobs["boxes"] = pack_boxes(reply.boxes)
    return _content(header, blobs, reply.masked.values)


def failure_content(status: Status, code: str, sentence: str) -> RecordDict:
    """Build a refusal: a fixed code and a sentence made of public values only."""
    return _content({"status": status.value, "code": code, "sentence": sentence}, {})


def stage_of(content: RecordDict) -> Stage | None:
    """Phase of an incoming message; None if it is not of this protocol."""
    if RECORD not in content:
        return None
    stage: Stage = _member(Stage, _header(content).get("stage"), "stage")
    return stage


def parse_sum_request(content: RecordDict) -> SumRequest:
    """Parse a request for a vector."""
    header = _header(content)
    attempt = _integer(header, "attempt")
    roster = _blob(content, "roster", b"")
    return SumRequest(
        round_index=_integer(header, "round"),
        attempt=attempt,
        roster=unpack_roster(attempt, roster) if roster else None,
        release=_release(content),
        boxes=unpack_boxes(_blob(content, "boxes", b"")),
        state=_blob(content, "state", b""),
    )


def parse_finish_request(content: RecordDict) -> FinishRequest:
    """Parse the last message."""
    release = _release(content)
    if release is None:
        raise ProtocolError("the last message carries no release: check the server's version.")
    return FinishRequest(release, unpack_boxes(_blob(content, "boxes", b"")), _blob(content, "state", b""))


def parse_keys_reply(content: RecordDict) -> KeysReply:
    """Parse a client's answer to the plan."""
    key = _blob(content, "public_key")
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"a client's public key has {len(key)} bytes instead of {KEY_BYTES}: reply discarded.")
    return KeysReply(key, _blob(content, "plan_digest"), _integer(_header(content), "n_features"))


def parse_sum_reply(content: RecordDict) -> SumReply:
    """Parse a masked vector."""
    header = _header(content)
    vector = _vector(content)
    if vector is None:
        raise ProtocolError("a client's reply carries no vector: reply discarded.")
    return SumReply(
        _integer(header, "round"),
        _integer(header, "attempt"),
        MaskedVector(vector),
        _blob(content, "tag"),
        unpack_boxes(_blob(content, "boxes", b"")),
    )


def parse_finish_reply(content: RecordDict) -> FinishReply:
    """Parse the last reply."""
    return FinishReply(_blob(content, "tag"))


def parse_failure(content: RecordDict) -> tuple[Status, str, str]:
    """Return status, code and sentence of a reply; the latter two are empty if all is well."""
    header = _header(content)
    status = _member(Status, header.get("status"), "status")
    return status, _printable(header.get("code"), 100), _printable(header.get("sentence"), 1000)


def plan_blob(content: RecordDict) -> bytes | None:
    """The plan in a message, if it carries one."""
    return _blob(content, "plan", b"") or None


def pack_roster(roster: Roster) -> bytes:
    """Node ids (8 bytes) and public keys (32 bytes) end to end."""
    return b"".join(struct.pack("<Q", node_id) + key for node_id, key in roster.members)


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


def pack_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """Node id (8 bytes), length (4 bytes) and box, end to end, in order of node id."""
    return b"".join(struct.pack("<QI", node, len(box)) + box for node, box in sorted(boxes.items()))


def unpack_boxes(blob: bytes) -> dict[int, bytes]:
    """Undo `pack_boxes`; a torn or repeated entry is a `ProtocolError`."""
    boxes: dict[int, bytes] = {}
    start = 0
    header = struct.calcsize("<QI")
    while start < len(blob):
        if start + header > len(blob):
            raise ProtocolError("sealed group keys are cut off: message discarded.")
        node, length = struct.unpack_from("<QI", blob, start)
        box = blob[start + header : start + header + length]
        if len(box) != length or node in boxes:
            raise ProtocolError("sealed group keys are cut off or repeated: message discarded.")
        boxes[node] = box
        start += header + length
    return boxes


def _content(header: dict[str, Any], blobs: Mapping[str, bytes], vector: Ring | None = None) -> RecordDict:
    """One config record (a JSON header and blobs) and, if there is a vector, one array record."""
    fields: dict[str, Any] = {"header": json.dumps(header), **blobs}
    content = RecordDict({RECORD: ConfigRecord(fields)})
    if vector is not None:
        data = np.ascontiguousarray(vector, dtype="<u8").tobytes()
        array = Array(dtype="uint64", shape=(len(vector),), stype=VECTOR_LAYOUT, data=data)
        content[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return content


def _record(content: RecordDict) -> Mapping[str, Any]:
    """The protocol's config record."""
    # Flower's typed views (config_records) copy the whole dictionary each time, so records are looked up directly.
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError(f"a message carries no record {RECORD!r}: it is not of this protocol.")
    return record


def _header(content: RecordDict) -> Mapping[str, Any]:
    """The JSON header of a message."""
    text = _record(content).get("header")
    if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
        raise ProtocolError("a message's header is missing or too long: message discarded.")
    return _parsed_header(text)


@lru_cache(maxsize=16)
def _parsed_header(text: str) -> Mapping[str, Any]:
    """A header is looked at several times while one message is handled, so the last few are kept."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message's header is not JSON: message discarded.") from error
    if not isinstance(header, dict):
        raise ProtocolError("a message's header is not a mapping: message discarded.")
    return MappingProxyType(header)


def _release(content: RecordDict) -> Release | None:
    """The release in a message, if it carries one."""
    vector = _vector(content)
    if vector is None:
        return None
    header = _header(content)
    return Release(_integer(header, "release_round"), _integer(header, "release_attempt"), vector)


def _vector(content: RecordDict) -> Ring | None:
    """The uint64 vector in a message, if it carries one."""
    record = content.get(VECTOR_RECORD)
    if record is None:
        return None
    if not isinstance(record, ArrayRecord):
        raise ProtocolError("a vector is not an array record: message discarded.")
    array = record.get("vector")
    if array is None or (array.dtype, array.stype) != ("uint64", VECTOR_LAYOUT):
        raise ProtocolError("a vector is missing or is not of 64-bit ring elements: message discarded.")
    if len(array.data) > MAX_BLOB_BYTES or len(array.data) % 8 or tuple(array.shape) != (len(array.data) // 8,):
        raise ProtocolError("a vector's length does not match its shape, or is too long: message discarded.")
    return np.frombuffer(array.data, dtype="<u8").astype(np.uint64, copy=False)


def _integer(header: Mapping[str, Any], name: str) -> int:
    """An integer of the header."""
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_INTEGER:
        raise ProtocolError(f"field {name!r} is missing or is not a small integer: message discarded.")
    return value


def _printable(value: object, longest: int) -> str:
    """Another party's text for a log: bounded, and without control characters."""
    text = value[:longest] if isinstance(value, str) else ""
    return "".join(character if character.isprintable() else "?" for character in text)


def _blob(content: RecordDict, name: str, default: bytes | None = None) -> bytes:
    """A bytes field of bounded length."""
    value = _record(content).get(name, default)
    if not isinstance(value, bytes) or len(value) > MAX_BLOB_BYTES:
        raise ProtocolError(f"field {name!r} is missing, too long or is not bytes: message discarded.")
    return value


def _member(kind: Any, value: object, name: str) -> Any:
    """A member of an enumeration by its value."""
    for member in kind:
        if member.value == value:
            return member
    raise ProtocolError(f"field {name!r} has an unknown value: message discarded.")
