"""Messages by the fields of their classes: which form each type has in a packet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_type_hints

from flwr_dpkmeans.errors import (
    ProtocolError,
)
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import packing
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.wire.packet import Packet

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
