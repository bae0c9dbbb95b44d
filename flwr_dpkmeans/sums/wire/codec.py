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
from flwr_dpkmeans.secagg import messages, packing
from flwr_dpkmeans.secagg.credentials import SIGNATURE_BYTES, Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.wire.packet import Failure, Packet, Status, _text
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
    """Digest of its column names in the order that the run agrees on (`sums.checks.columns`).

    Empty without names.
    """

    @property
    def credential(self) -> Credential | None:
        """What the node signed, for the other clients.

        a malformed one is a `ProtocolError`.
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
class _Blob:
    """How values of one type travel, in messages, and are kept, in a client's memory."""

    write: Callable[[Any], bytes]
    read: Callable[..., Any]
    in_context: bool = False
    """Whether reading takes what has been read of the message before, too."""


_BLOBS: Mapping[Any, _Blob] = MappingProxyType(
    {
        bytes: _Blob(bytes, bytes),
        frozenset[bytes]: _Blob(packing.pack_marks, packing.unpack_marks),
        tuple[int, ...]: _Blob(packing.pack_nodes, packing.unpack_nodes),
        Mapping[int, bytes]: _Blob(packing.pack_boxes, packing.unpack_boxes),
        Roster: _Blob(
            attrgetter("packed"),
            lambda blob, before: packing.unpack_roster(before.get("attempt", 0), blob),
            True,
        ),
        Mapping[int, Credential]: _Blob(
            packing.pack_credentials,
            lambda blob, before: packing.unpack_credentials(
                blob, len(before["roster"].members) if "roster" in before else 0
            ),
            True,
        ),
    }
)


@lru_cache(maxsize=32)
def _fields_of(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name of each field, its type (if it may be None, the other one), and whether it
    must be there.
    """
    hints = get_type_hints(kind)
    kinds = {
        name: get_args(hint)[0] if isinstance(hint, UnionType) else hint
        for name, hint in hints.items()
    }
    needed = {
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    }
    return tuple(
        [(one.name, kinds[one.name], one.name in needed) for one in fields(kind)]
    )


def write_message(
    message: Any, header: dict[str, Any], parts: dict[str, Any]
) -> Packet:
    """A message after what is in every header and packet.

    Each field by its type, under its name.
    """
    vector = None
    for name, kind, needed in () if message is None else _fields_of(message.__class__):
        value = getattr(message, name)
        if kind is int:
            header[_HEADER_NAMES.get(name, name)] = value
        elif kind is str:
            header |= {name: value} if value else {}
        elif kind in _BLOBS:
            if value or needed:
                parts[name] = _BLOBS[kind].write(value)
        elif value is not None:
            vector = value.values
            header |= (
                zip(_RELEASED, value.attempt_id, strict=True)
                if kind is messages.Release
                else ()
            )
    return Packet({"header": json.dumps(header), **parts}, vector)


def read_message(message: Any, packet: Packet) -> Any:
    """Read a message's fields from a packet, each of its declared kind."""
    values: dict[str, Any] = {}
    for name, kind, needed in _fields_of(message):
        if kind is int:
            values[name] = packet.integer(_HEADER_NAMES.get(name, name))
        elif kind is str:
            values[name] = packet.header.get(name, "")
        elif kind in _BLOBS:
            if needed or name in packet.fields:
                form, blob = _BLOBS[kind], packet.blob(name)
                values[name] = (
                    form.read(blob, values) if form.in_context else form.read(blob)
                )
        elif packet.vector is None:
            if needed:
                what = "release" if kind is messages.Release else "vector"
                raise ProtocolError(
                    f"a message carries no {what}, but must have one: message"
                    " discarded."
                )
        elif kind is messages.Release:
            index, attempt = map(packet.integer, _RELEASED)
            values[name] = messages.Release(index, attempt, packet.vector)
        else:
            values[name] = kind(packet.vector)
    return message(**values)


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
    stage, header = packet.choice("stage", Stage), packet.header
    form, _ = MESSAGES[stage]
    plan = packet.blob("plan") if "plan" in packet.fields else b""
    versions = stated_versions(header) if form is None else None
    body = None if form is None else read_message(form, packet)
    return Request(stage, body, plan or None, header.get("run"), packet.wait, versions)


def encode_reply(stage: Stage, reply: Any) -> Packet:
    """One reply; nothing else ever leaves a client."""
    header: dict[str, Any] = {"status": Status.OK.value}
    if stage is Stage.KEYS:
        header |= vars(installed_versions())
    return write_message(reply, header, {})


def decode_reply(packet: Packet, stage: Stage, node: int) -> Any:
    """The reply to what was asked in a stage of the protocol.

    a key of another version is not parsed.
    """
    _, form = MESSAGES[stage]
    if stage is Stage.KEYS:
        require_same_versions(
            stated_versions(packet.header),
            sender=f"node {node}",
            receiver="the server",
        )
        return _checked_keys(read_message(form, packet))
    reply = read_message(form, packet)
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
    told = _text(failure.sentence, LONGEST_SENTENCE)
    return write_message(
        None,
        {"status": failure.status.value, "code": failure.code, "sentence": told},
        {},
    )


def _checked_keys(reply: KeysReply) -> KeysReply:
    """Refuse keys, digests and signatures that have not the form of one."""
    if len(reply.public_key) != KEY_BYTES:
        raise ProtocolError(
            f"a client's public key has {len(reply.public_key)} bytes instead of"
            f" {KEY_BYTES}: reply discarded."
        )
    if not isinstance(reply.columns, str) or not re.fullmatch(
        "([0-9a-f]{64})?", reply.columns
    ):
        raise ProtocolError(
            "a client's digest of columns is no SHA-256 in hexadecimal: reply"
            " discarded."
        )
    _ = reply.credential
    return reply
