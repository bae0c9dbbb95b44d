"""A client's own memory as text and blobs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from flwr_dpkmeans.secagg.messages import packed_parts
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.wire.message_fields import BlobForm, message_fields
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import BaseModel

RecordT = TypeVar("RecordT", bound="DataclassInstance")
StoredFields = dict[str, Any]
"""A JSON text under the name of an object's class (CamelCase), and blobs by the names
of fields (snake_case), as a transport gives them back.
"""
_ATTEMPT = struct.Struct("<I")


def _write_roster(roster: Roster) -> bytes:
    """A roster behind its attempt."""
    return _ATTEMPT.pack(roster.attempt) + roster.packed


def _read_roster(blob: bytes) -> Roster:
    """Undo `_write_roster`."""
    (attempt,) = _ATTEMPT.unpack_from(blob)
    members = blob[_ATTEMPT.size :]
    return packed_parts.unpack_roster(attempt, members)


_BLOB_FORMS: Mapping[object, BlobForm] = MappingProxyType(
    {
        State: BlobForm(attrgetter("packed"), unpack_state),
        Roster: BlobForm(_write_roster, _read_roster),
    }
)
"""What a client's memory has as blobs."""


@lru_cache(maxsize=8)
def _text_model(
    kind: type[DataclassInstance], without: frozenset[str]
) -> type[BaseModel]:
    """Make a model of a class's fields that are no blobs, without some others."""
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(kind)
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    definitions: dict[str, Any] = {}
    for field in message_fields(kind):
        is_blob = field.kind in _BLOB_FORMS
        if not is_blob and field.name not in without:
            hint = hints[field.name]
            definitions[field.name] = (hint, ...)
    return create_model(kind.__name__, __config__=config, **definitions)


def pack_fields(
    record: DataclassInstance, *, without: tuple[str, ...] = ()
) -> StoredFields:
    """An object's fields as blobs, and one text under the name of its class.

    Fields `without` which it is to be stored are left out.
    """
    kind = type(record)
    values = vars(record)
    model = _text_model(kind, frozenset(without))
    # Values of other fields are ignored.
    text_fields = model.model_construct(**values)
    stored: StoredFields = {kind.__name__: text_fields.model_dump_json()}
    for field in message_fields(kind):
        form = _BLOB_FORMS.get(field.kind)
        value = values[field.name]
        if form is not None and value is not None:
            stored[field.name] = form.write(value)
    return stored


def unpack_fields(
    kind: type[RecordT], stored: StoredFields, **other_values: object
) -> RecordT:
    """Undo `pack_fields`, with the values of the fields that it left out."""
    model = _text_model(kind, frozenset(other_values))
    text_fields = model.model_validate_json(stored[kind.__name__])
    # A model gives its fields' names and values.
    values = other_values | dict(text_fields)
    for field in message_fields(kind):
        form = _BLOB_FORMS.get(field.kind)
        if form is None:
            continue
        blob = stored.get(field.name)
        value = None
        if blob is not None:
            # A transport may have made another type of buffer of it.
            value = form.read(bytes(blob))
        values[field.name] = value
    construct: Callable[..., RecordT] = kind
    return construct(**values)
