"""Messages by the fields of their classes: which form each type has in a packet.

=========================  ============================================================
a field's type             travels as
=========================  ============================================================
``int``                    an entry of the header, always
``str``                    an entry of the header, unless it is empty
one of `BLOB_FORMS`        a blob under the field's name; left out where it is empty and
                           the field has a default
``MaskedVector``           the packet's vector
``Release``                the packet's vector, and two entries of the header
=========================  ============================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, TypeVar, get_args, get_type_hints

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import packed_parts
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.wire.packet import Packet

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MessageT = TypeVar("MessageT", bound="DataclassInstance")
FieldsSoFar = Mapping[str, object]
"""What has been read of a message so far, by the names of its fields."""
_HEADER_NAMES: Mapping[str, str] = MappingProxyType({"round_index": "round"})
_RELEASE_ROUND = "release_round"
_RELEASE_ATTEMPT = "release_attempt"


@dataclass(frozen=True)
class BlobForm:
    """How values of one type are written as bytes and read again."""

    write: Callable[..., bytes]
    """``write(value) -> blob``"""
    read: Callable[..., object]
    """``read(blob) -> value``, or ``read(blob, fields_so_far) -> value``."""
    reads_field: str = ""
    """Field that reading looks at, too, if the message has it: it must come before."""


def _read_roster(blob: bytes, fields_so_far: FieldsSoFar) -> Roster:
    """A roster of the attempt that the message names; 0 where it names none."""
    attempt = fields_so_far.get("attempt", 0)
    assert isinstance(attempt, int)
    return packed_parts.unpack_roster(attempt, blob)


def _read_credentials(
    blob: bytes, fields_so_far: FieldsSoFar
) -> Mapping[int, Credential]:
    """Credentials of at most as many clients as the message's roster has."""
    roster = fields_so_far.get("roster")
    n_members = 0
    if isinstance(roster, Roster):
        n_members = len(roster.members)
    return packed_parts.unpack_credentials(blob, n_members)


BLOB_FORMS: Mapping[object, BlobForm] = MappingProxyType(
    {
        bytes: BlobForm(bytes, bytes),
        frozenset[bytes]: BlobForm(packed_parts.pack_marks, packed_parts.unpack_marks),
        tuple[int, ...]: BlobForm(packed_parts.pack_nodes, packed_parts.unpack_nodes),
        Mapping[int, bytes]: BlobForm(
            packed_parts.pack_boxes, packed_parts.unpack_boxes
        ),
        Roster: BlobForm(attrgetter("packed"), _read_roster, reads_field="attempt"),
        Mapping[int, Credential]: BlobForm(
            packed_parts.pack_credentials, _read_credentials, reads_field="roster"
        ),
    }
)
"""Types that travel as blobs."""


@dataclass(frozen=True)
class MessageField:
    """One field of a message."""

    name: str
    kind: object
    """Its type, without None."""
    is_needed: bool
    """Whether it has no default."""

    @property
    def header_name(self) -> str:
        """What the header calls it."""
        return _HEADER_NAMES.get(self.name, self.name)


@lru_cache(maxsize=32)
def message_fields(kind: type[DataclassInstance]) -> tuple[MessageField, ...]:
    """Fields of a dataclass, in order.

    One that looks at a field behind it is a TypeError: it would be read without a
    limit, or not at all.
    """
    hints = get_type_hints(kind)
    described: list[MessageField] = []
    names_to_come = set(hints)
    for declared in fields(kind):
        hint = hints[declared.name]
        if isinstance(hint, UnionType):
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        names_to_come.discard(declared.name)
        form = BLOB_FORMS.get(hint)
        if form is not None and form.reads_field in names_to_come:
            raise TypeError(
                f"{kind.__name__}.{declared.name} must come behind {form.reads_field}"
            )
        has_value = declared.default is not MISSING
        has_factory = declared.default_factory is not MISSING
        is_needed = not (has_value or has_factory)
        described.append(MessageField(declared.name, hint, is_needed))
    return tuple(described)


# -- writing ---------------------------------------------------------------------------


def write_message(
    message: DataclassInstance | None,
    header: dict[str, object],
    parts: dict[str, object],
) -> Packet:
    """Write a message behind what is in every header and packet of its kind.

    Parameters
    ----------
    message : dataclass or None
        What is written, each field by its type.
    header : dict
        Entries of the header that are no fields; it is added to.
    parts : dict
        Other parts of the packet, by name; it is added to.
    """
    vector = None
    described = () if message is None else message_fields(type(message))
    for field in described:
        value = getattr(message, field.name)
        if field.kind is int:
            header[field.header_name] = value
        elif field.kind is str:
            if value:
                header[field.name] = value
        elif field.kind in BLOB_FORMS:
            if value or field.is_needed:
                parts[field.name] = BLOB_FORMS[field.kind].write(value)
        elif value is not None:
            vector = value.values
            if isinstance(value, messages.Release):
                header[_RELEASE_ROUND] = value.round_index
                header[_RELEASE_ATTEMPT] = value.attempt
    return Packet({"header": json.dumps(header), **parts}, vector)


# -- reading ---------------------------------------------------------------------------


def read_message(kind: type[MessageT], packet: Packet) -> MessageT:
    """Read a message's fields from a packet, each of its declared type.

    What is not of its type, or lacks, is a `ProtocolError`.
    """
    values: dict[str, object] = {}
    for field in message_fields(kind):
        if _is_there(field, packet):
            values[field.name] = _read_field(field, packet, values)
    construct: Callable[..., MessageT] = kind
    return construct(**values)


def _is_there(field: MessageField, packet: Packet) -> bool:
    """Whether a packet has a field; one without its vector is refused."""
    if field.kind in (int, str):
        return True
    if field.kind in BLOB_FORMS:
        return field.is_needed or field.name in packet.fields
    has_vector = packet.vector is not None
    if field.is_needed and not has_vector:
        what = "release" if field.kind is messages.Release else "vector"
        raise ProtocolError(
            f"a message carries no {what}, but must have one: message discarded."
        )
    return has_vector


def _read_field(
    field: MessageField,
    packet: Packet,
    fields_so_far: FieldsSoFar,
) -> object:
    """One field's value."""
    if field.kind is int:
        return packet.integer(field.header_name)
    if field.kind is str:
        return packet.text(field.name)
    if field.kind in BLOB_FORMS:
        form = BLOB_FORMS[field.kind]
        blob = packet.blob(field.name)
        if form.reads_field:
            return form.read(blob, fields_so_far)
        return form.read(blob)
    vector = packet.vector
    assert vector is not None
    if field.kind is messages.Release:
        round_index = packet.integer(_RELEASE_ROUND)
        attempt = packet.integer(_RELEASE_ATTEMPT)
        return messages.Release(round_index, attempt, vector)
    return messages.MaskedVector(vector)
