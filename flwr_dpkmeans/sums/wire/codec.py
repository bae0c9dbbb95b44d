"""Requests and replies, and how they become packets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_type_hints

from flwr_dpkmeans.errors import (
    ProtocolError,
)
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import SIGNATURE_BYTES, Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage, packing
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.wire.packet import Failure, Packet, Status, shown_text
from flwr_dpkmeans.sums.wire.versions import (
    Versions,
    installed_versions,
    require_same_versions,
    stated_versions,
)

LONGEST_SENTENCE = 800
"""Characters of a refusal, some of which the header spells with 12."""


# Requests and replies: what they are, and how they travel.


@dataclass(frozen=True)
class Request:
    """What a server asks one client."""

    stage: Stage
    body: Any = None
    """None in the key phase, which asks with the plan alone."""
    plan: bytes | None = field(default=None, repr=False)
    """The plan, or a later one that takes its place."""
    run_id: int | None = None
    """None: it does not say."""
    wait: float | None = None
    versions: Versions | None = None
    """Stated with the plan, and checked before the plan is parsed, whose format may be
    another.
    """


@dataclass(frozen=True)
class KeysReply:
    """A client's answer to the plan."""

    public_key: bytes
    """X25519, fresh for the run."""
    plan_digest: bytes
    n_features: int
    """Width of its table: schema, the same whatever the rows are."""
    identity: bytes = b""
    signature: bytes = b""
    """Ed25519 public key and signature of all this, from a node that has an identity.

    Else empty.
    """
    marks: frozenset[bytes] = frozenset()
    """From a node that pins identities: `pin_mark` of each, so that the server can tell
    a cohort that this node would refuse before anybody pays for it; else empty.
    """
    columns: str = ""
    """Digest of its column names in the order that the run agrees on.

    Empty without names.
    """

    @property
    def credential(self) -> Credential | None:
        """What the node signed, for the other clients; a malformed one is a
        `ProtocolError`.
        """
        if not self.identity and not self.signature:
            return None
        return Credential(self.identity, self.plan_digest, self.signature)


MESSAGES: Mapping[Stage, tuple[Any, type[Any]]] = MappingProxyType(
    {
        Stage.KEYS: (None, KeysReply),
        Stage.SHARE: (messages.ShareRequest, messages.ShareReply),
        Stage.SUM: (messages.SumRequest, messages.SumReply),
        Stage.UNMASK: (messages.UnmaskRequest, messages.UnmaskReply),
        Stage.FINISH: (messages.FinishRequest, messages.FinishReply),
        Stage.STOP: (messages.StopRequest, messages.StopReply),
    }
)
"""Body of a request and reply of each stage."""
_RELEASED = ("release_round", "release_attempt")
_HEADER_NAMES: Mapping[str, str] = MappingProxyType({"round_index": "round"})


@dataclass(frozen=True)
class BlobForm:
    """How values of one type travel in messages, or stand in a client's memory."""

    write: Callable[[Any], bytes]
    read: Callable[..., Any]
    in_context: bool = False
    """Whether reading takes what has been read of the message before, too."""


def _read_roster(blob: bytes, before: Mapping[str, Any]) -> Roster:
    """A roster of the attempt that the message names."""
    return packing.unpack_roster(before.get("attempt", 0), blob)


def _read_credentials(
    blob: bytes,
    before: Mapping[str, Any],
) -> Mapping[int, Credential]:
    """Credentials of at most as many clients as the message's roster has."""
    most = 0
    if "roster" in before:
        most = len(before["roster"].members)
    return packing.unpack_credentials(blob, most)


_BLOB_FORMS: Mapping[Any, BlobForm] = MappingProxyType(
    {
        bytes: BlobForm(bytes, bytes),
        frozenset[bytes]: BlobForm(packing.pack_marks, packing.unpack_marks),
        tuple[int, ...]: BlobForm(packing.pack_nodes, packing.unpack_nodes),
        Mapping[int, bytes]: BlobForm(packing.pack_boxes, packing.unpack_boxes),
        Roster: BlobForm(attrgetter("packed"), _read_roster, in_context=True),
        Mapping[int, Credential]: BlobForm(
            packing.pack_credentials, _read_credentials, in_context=True
        ),
    }
)


@dataclass(frozen=True)
class MessageField:
    """One field of a message."""

    name: str
    kind: Any
    """Its type, or where it may be None the other one."""
    is_needed: bool


@lru_cache(maxsize=32)
def message_fields(kind: Any) -> tuple[MessageField, ...]:
    """Fields of a dataclass, in order."""
    hints = get_type_hints(kind)
    described = []
    for field_ in fields(kind):
        hint = hints[field_.name]
        if isinstance(hint, UnionType):
            hint = get_args(hint)[0]
        has_default = (
            field_.default is not MISSING or field_.default_factory is not MISSING
        )
        described.append(MessageField(field_.name, hint, not has_default))
    return tuple(described)


def write_message(
    message: Any,
    header: dict[str, Any],
    parts: dict[str, Any],
) -> Packet:
    """A message after what is in every header and packet, each field by its type."""
    vector = None
    described = () if message is None else message_fields(message.__class__)
    for field_ in described:
        name = field_.name
        value = getattr(message, name)
        if field_.kind is int:
            header[_HEADER_NAMES.get(name, name)] = value
        elif field_.kind is str:
            if value:
                header[name] = value
        elif field_.kind in _BLOB_FORMS:
            if value or field_.is_needed:
                parts[name] = _BLOB_FORMS[field_.kind].write(value)
        elif value is not None:
            vector = value.values
            if field_.kind is messages.Release:
                header |= zip(_RELEASED, value.attempt_id, strict=True)
    return Packet({"header": json.dumps(header), **parts}, vector)


def read_message(kind: Any, packet: Packet) -> Any:
    """Read a message's fields from a packet, each of its declared kind."""
    values: dict[str, Any] = {}
    for field_ in message_fields(kind):
        if _is_there(field_, packet):
            values[field_.name] = _read_field(field_, packet, values)
    return kind(**values)


def _is_there(field_: MessageField, packet: Packet) -> bool:
    """Whether a packet has a field; one without its vector is refused."""
    if field_.kind in (int, str):
        return True
    if field_.kind in _BLOB_FORMS:
        return field_.is_needed or field_.name in packet.fields
    if packet.vector is None and field_.is_needed:
        what = "release" if field_.kind is messages.Release else "vector"
        raise ProtocolError(
            f"a message carries no {what}, but must have one: message discarded."
        )
    return packet.vector is not None


def _read_field(
    field_: MessageField,
    packet: Packet,
    before: Mapping[str, Any],
) -> Any:
    """One field's value; `before` has those that were read so far."""
    name = field_.name
    if field_.kind is int:
        return packet.integer(_HEADER_NAMES.get(name, name))
    if field_.kind is str:
        return packet.header.get(name, "")
    if field_.kind in _BLOB_FORMS:
        form = _BLOB_FORMS[field_.kind]
        blob = packet.blob(name)
        return form.read(blob, before) if form.in_context else form.read(blob)
    if field_.kind is messages.Release:
        index, attempt = (packet.integer(key) for key in _RELEASED)
        assert packet.vector is not None
        return messages.Release(index, attempt, packet.vector)
    return field_.kind(packet.vector)


def encode_request(request: Request) -> Packet:
    """One message to one client; with a run id, clients in other runs refuse it."""
    header: dict[str, Any] = {"stage": request.stage.value}
    if request.run_id is not None:
        header["run"] = request.run_id
    if request.stage is Stage.KEYS:
        header |= vars(installed_versions())
    parts: dict[str, Any] = {} if request.plan is None else {"plan": request.plan}
    if request.wait is not None:
        parts["wait"] = request.wait
    return write_message(request.body, header, parts)


def decode_request(packet: Packet) -> Request:
    """Undo `encode_request`."""
    stage = packet.choice("stage", Stage)
    kind, _ = MESSAGES[stage]
    versions = None
    body = None
    if kind is None:
        versions = stated_versions(packet.header)
    plan = packet.blob("plan") if "plan" in packet.fields else b""
    if kind is not None:
        body = read_message(kind, packet)
    return Request(
        stage=stage,
        body=body,
        plan=plan or None,
        run_id=packet.header.get("run"),
        wait=packet.wait,
        versions=versions,
    )


def encode_reply(stage: Stage, reply: Any) -> Packet:
    """One reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    if stage is Stage.KEYS:
        header |= vars(installed_versions())
    return write_message(reply, header, {})


def decode_reply(
    packet: Packet,
    stage: Stage,
    node: int,
) -> Any:
    """The reply to what was asked in a stage of the protocol; a key of another version
    is not parsed.
    """
    _, kind = MESSAGES[stage]
    if stage is Stage.KEYS:
        require_same_versions(
            stated_versions(packet.header),
            sender=f"node {node}",
            receiver="the server",
        )
        return _checked_keys(read_message(kind, packet))
    reply = read_message(kind, packet)
    if stage is Stage.UNMASK and len(reply.signature) not in (0, SIGNATURE_BYTES):
        raise ProtocolError(
            f"a client signed the survivors with {len(reply.signature)} bytes"
            f" instead of {SIGNATURE_BYTES}: reply discarded."
        )
    if stage is Stage.FINISH and packet.vector is not None:
        # A late reply to a request for a vector has a tag as well, of an older
        # state.
        raise ProtocolError(
            "a client's reply carries a vector that was not asked for: it is late,"
            " and discarded."
        )
    return reply


def encode_failure(failure: Failure) -> Packet:
    """A refusal in the place of a reply."""
    header = {
        "status": failure.status.value,
        "code": failure.code,
        "sentence": shown_text(failure.sentence, LONGEST_SENTENCE),
    }
    return write_message(None, header, {})


def _checked_keys(reply: KeysReply) -> KeysReply:
    """Refuse keys, digests and signatures that have not the form of one."""
    if len(reply.public_key) != KEY_BYTES:
        raise ProtocolError(
            f"a client's public key has {len(reply.public_key)} bytes instead of"
            f" {KEY_BYTES}: reply discarded."
        )
    is_text = isinstance(reply.columns, str)
    if not is_text or not re.fullmatch("([0-9a-f]{64})?", reply.columns):
        raise ProtocolError(
            "a client's digest of columns is no SHA-256 in hexadecimal: reply"
            " discarded."
        )
    _ = reply.credential
    return reply
