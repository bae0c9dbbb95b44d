"""Protocol messages as Flower records, and back; everything that comes in is checked here.

Every phase travels as an ordinary ``train`` message (the last one as ``evaluate``) with one `ConfigRecord` named
`RECORD`; vectors travel as uint64 arrays in an `ArrayRecord` named `VECTOR_RECORD`. Keys and boxes are one blob each.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.planning import Plan
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import FinishReply, FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

RECORD = "dpkmeans"
VECTOR_RECORD = "dpkmeans.vector"
MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
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
    fields: dict[str, Any] = {"stage": stage.value}
    vector = None
    if plan is not None:
        fields["plan"] = plan
    if isinstance(request, SumRequest):
        fields["round"] = request.round_index
        fields["attempt"] = request.attempt
        if request.roster is not None:
            fields["roster"] = pack_roster(request.roster)
    if request is not None:
        if request.boxes:
            fields["boxes"] = pack_boxes(request.boxes)
        if request.release is not None:
            fields["release_round"] = request.release.round_index
            fields["release_attempt"] = request.release.attempt
            vector = request.release.values
    return _content(fields, vector)


def reply_content(reply: KeysReply | SumReply | FinishReply) -> RecordDict:
    """Build the content of one reply; nothing else ever leaves a client."""
    if isinstance(reply, KeysReply):
        return _content(
            {
                "status": Status.OK.value,
                "public_key": reply.public_key,
                "plan_digest": reply.plan_digest,
                "n_features": reply.n_features,
            }
        )
    if isinstance(reply, FinishReply):
        return _content({"status": Status.OK.value, "tag": reply.tag})
    fields: dict[str, Any] = {
        "status": Status.OK.value,
        "round": reply.round_index,
        "attempt": reply.attempt,
        "tag": reply.tag,
    }
    if reply.boxes:
        fields["boxes"] = pack_boxes(reply.boxes)
    return _content(fields, reply.masked.values)


def failure_content(status: Status, code: str, sentence: str) -> RecordDict:
    """Build a refusal: a fixed code and a sentence made of public values only."""
    return _content({"status": status.value, "code": code, "sentence": sentence})


def stage_of(content: RecordDict) -> Stage | None:
    """Phase of an incoming message; None if it is not of this protocol."""
    record = content.config_records.get(RECORD)
    if record is None:
        return None
    return _member(Stage, record.get("stage"), "stage")


def parse_sum_request(content: RecordDict) -> SumRequest:
    """Parse a request for a vector."""
    fields = _fields(content)
    attempt = _integer(fields, "attempt")
    roster = fields.get("roster")
    return SumRequest(
        round_index=_integer(fields, "round"),
        attempt=attempt,
        roster=None if roster is None else unpack_roster(attempt, _blob(roster, "roster")),
        release=_release(content),
        boxes=unpack_boxes(_blob(fields.get("boxes", b""), "boxes")),
    )


def parse_finish_request(content: RecordDict) -> FinishRequest:
    """Parse the last message."""
    release = _release(content)
    if release is None:
        raise ProtocolError("the last message carries no release: check the server's version.")
    return FinishRequest(release, unpack_boxes(_blob(_fields(content).get("boxes", b""), "boxes")))


def parse_keys_reply(content: RecordDict) -> KeysReply:
    """Parse a client's answer to the plan."""
    fields = _fields(content)
    key = _blob(fields.get("public_key"), "public_key")
    if len(key) != KEY_BYTES:
        raise ProtocolError(f"a client's public key has {len(key)} bytes instead of {KEY_BYTES}: reply discarded.")
    return KeysReply(key, _blob(fields.get("plan_digest"), "plan_digest"), _integer(fields, "n_features"))


def parse_sum_reply(content: RecordDict) -> SumReply:
    """Parse a masked vector."""
    fields = _fields(content)
    vector = _vector(content)
    if vector is None:
        raise ProtocolError("a client's reply carries no vector: reply discarded.")
    return SumReply(
        _integer(fields, "round"),
        _integer(fields, "attempt"),
        MaskedVector(vector),
        _blob(fields.get("tag"), "tag"),
        unpack_boxes(_blob(fields.get("boxes", b""), "boxes")),
    )


def parse_finish_reply(content: RecordDict) -> FinishReply:
    """Parse the last reply."""
    return FinishReply(_blob(_fields(content).get("tag"), "tag"))


def parse_failure(content: RecordDict) -> tuple[Status, str, str]:
    """Return status, code and sentence of a reply; the latter two are empty if all is well."""
    fields = _fields(content)
    status = _member(Status, fields.get("status"), "status")
    return status, str(fields.get("code", ""))[:100], str(fields.get("sentence", ""))[:1000]


def plan_blob(content: RecordDict) -> bytes | None:
    """The plan in a message, if it carries one."""
    blob = _fields(content).get("plan")
    return None if blob is None else _blob(blob, "plan")


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


def _content(fields: dict[str, Any], vector: Ring | None = None) -> RecordDict:
    """One config record and, if there is a vector, one array record."""
    content = RecordDict()
    content.config_records[RECORD] = ConfigRecord(fields)
    if vector is not None:
        content.array_records[VECTOR_RECORD] = ArrayRecord({"vector": Array(np.ascontiguousarray(vector, dtype=np.uint64))})
    return content


def _fields(content: RecordDict) -> Mapping[str, Any]:
    """The protocol's config record."""
    record = content.config_records.get(RECORD)
    if record is None:
        raise ProtocolError(f"a message carries no record {RECORD!r}: it is not of this protocol.")
    return record


def _release(content: RecordDict) -> Release | None:
    """The release in a message, if it carries one."""
    vector = _vector(content)
    if vector is None:
        return None
    fields = _fields(content)
    return Release(_integer(fields, "release_round"), _integer(fields, "release_attempt"), vector)


def _vector(content: RecordDict) -> Ring | None:
    """The uint64 vector in a message, if it carries one."""
    record = content.array_records.get(VECTOR_RECORD)
    if record is None:
        return None
    array = record.get("vector")
    if array is None or array.dtype != "uint64" or len(array.shape) != 1 or len(array.data) > MAX_BLOB_BYTES:
        raise ProtocolError("a vector is missing or is not a flat array of uint64: message discarded.")
    try:
        values = array.numpy()
    except Exception as error:  # a hostile buffer can make NumPy raise almost anything
        raise ProtocolError("a vector's bytes cannot be read: message discarded.") from error
    if values.dtype != np.uint64 or values.ndim != 1:
        raise ProtocolError("a vector is not a flat array of uint64: message discarded.")
    return np.asarray(values)


def _integer(fields: Mapping[str, Any], name: str) -> int:
    """An integer field."""
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError(f"field {name!r} is missing or is not an integer: message discarded.")
    return value


def _blob(value: object, name: str) -> bytes:
    """A bytes field of bounded length."""
    if not isinstance(value, bytes) or len(value) > MAX_BLOB_BYTES:
        raise ProtocolError(f"field {name!r} is missing, too long or is not bytes: message discarded.")
    return value


def _member(kind: Any, value: object, name: str) -> Any:
    """A member of an enumeration by its value."""
    for member in kind:
        if member.value == value:
            return member
    raise ProtocolError(f"field {name!r} has an unknown value: message discarded.")
