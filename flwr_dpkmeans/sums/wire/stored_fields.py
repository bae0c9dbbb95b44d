"""A client's own memory as text and blobs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_type_hints

from flwr_dpkmeans.secagg import packing
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.round import State, unpack_state
from flwr_dpkmeans.sums.wire.codec import _Blob, _fields_of

# What a client's memory has as blobs: rosters, with their attempts, and states.
_KEPT: Mapping[Any, _Blob] = MappingProxyType(
    {
        State: _Blob(attrgetter("packed"), unpack_state),
        Roster: _Blob(
            lambda roster: roster.attempt.to_bytes(4, "little") + roster.packed,
            lambda blob: packing.unpack_roster(
                int.from_bytes(blob[:4], "little"), blob[4:]
            ),
        ),
    }
)


@lru_cache(maxsize=8)
def _plain_fields(kind: Any, known: frozenset[str]) -> Any:
    """A model of those fields of a class that are no blobs, and not known elsewhere."""
    from pydantic import ConfigDict, create_model

    hints, in_text = (
        get_type_hints(kind),
        ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"),
    )
    names = [
        name
        for name, bare, _ in _fields_of(kind)
        if bare not in _KEPT and name not in known
    ]
    own: dict[str, Any] = {name: (hints[name], ...) for name in names}
    return create_model(str(kind.__name__), __config__=in_text, **own)


def pack_fields(record: Any, *known: str) -> dict[str, Any]:
    """An object's fields, but those that are known elsewhere.

    Blobs, and one text under the name of its class.
    """
    kind, values = record.__class__, vars(record)
    stored = {
        kind.__name__: (
            _plain_fields(kind, frozenset(known))
            .model_construct(**values)
            .model_dump_json()
        )
    }
    for name, bare, _ in _fields_of(kind):
        if bare in _KEPT and values[name] is not None:
            stored[name] = _KEPT[bare].write(values[name])
    return stored


def unpack_fields(kind: Any, stored: Mapping[str, Any], **known: Any) -> Any:
    """Undo `pack_fields`, with what is known elsewhere."""
    values = known | dict(
        _plain_fields(kind, frozenset(known)).model_validate_json(stored[kind.__name__])
    )
    for name, bare, _ in _fields_of(kind):
        if bare in _KEPT:
            values[name] = (
                _KEPT[bare].read(bytes(stored[name])) if name in stored else None
            )
    return kind(**values)
