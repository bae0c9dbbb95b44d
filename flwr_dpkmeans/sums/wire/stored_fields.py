"""A client's own memory as text and blobs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_type_hints

from flwr_dpkmeans.secagg.messages import packing
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.wire.message_fields import BlobForm, message_fields
from flwr_dpkmeans.sums.wire.packed_state import unpack_state


def _write_roster(roster: Roster) -> bytes:
    """A roster with its attempt."""
    attempt = roster.attempt.to_bytes(4, "little")
    return attempt + roster.packed


def _read_roster(blob: bytes) -> Roster:
    """Undo `_write_roster`."""
    attempt = int.from_bytes(blob[:4], "little")
    return packing.unpack_roster(attempt, blob[4:])


_BLOB_FORMS: Mapping[Any, BlobForm] = MappingProxyType(
    {
        State: BlobForm(attrgetter("packed"), unpack_state),
        Roster: BlobForm(_write_roster, _read_roster),
    }
)
"""What a client's memory has as blobs."""


@lru_cache(maxsize=8)
def _text_model(kind: Any, elsewhere: frozenset[str]) -> Any:
    """A model of those fields of a class that are no blobs, and do not come from
    `elsewhere`.
    """
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(kind)
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    definitions: dict[str, Any] = {}
    for field in message_fields(kind):
        is_blob = field.kind in _BLOB_FORMS
        if not is_blob and field.name not in elsewhere:
            hint = hints[field.name]
            definitions[field.name] = (hint, ...)
    name = str(kind.__name__)
    return create_model(name, __config__=config, **definitions)


def pack_fields(record: Any, *elsewhere: str) -> dict[str, Any]:
    """An object's fields as blobs, and one text under the name of its class.

    Fields that come from `elsewhere` are left out.
    """
    kind = record.__class__
    values = vars(record)
    model = _text_model(kind, frozenset(elsewhere))
    text_fields = model.model_construct(**values)
    text = text_fields.model_dump_json()
    stored = {kind.__name__: text}
    for field in message_fields(kind):
        form = _BLOB_FORMS.get(field.kind)
        value = values[field.name]
        if form is not None and value is not None:
            blob = form.write(value)
            stored[field.name] = blob
    return stored


def unpack_fields(
    kind: Any,
    stored: Mapping[str, Any],
    **elsewhere: Any,
) -> Any:
    """Undo `pack_fields`, with the fields that come from `elsewhere`."""
    model = _text_model(kind, frozenset(elsewhere))
    text = stored[kind.__name__]
    text_fields = model.model_validate_json(text)
    values = dict(elsewhere)
    values |= dict(text_fields)
    for field in message_fields(kind):
        form = _BLOB_FORMS.get(field.kind)
        if form is None:
            continue
        blob = stored.get(field.name)
        value = None
        if blob is not None:
            value = form.read(bytes(blob))
        values[field.name] = value
    return kind(**values)
