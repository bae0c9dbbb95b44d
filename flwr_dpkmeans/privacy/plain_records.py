"""Records as JSON can hold them: lists for tuples, None for an infinite cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

PlainRecord = dict[str, Any]
"""A record as JSON has it: plain values, lists and mappings, by the names of fields."""
_COSTS = ("epsilon", "epsilon_worst_case")
"""What may be infinite, as nothing else is."""


def plain_record(record: object) -> PlainRecord:
    """Return a record's fields as plain values, those of records in it as well."""
    text = json.dumps(vars(record), default=vars)
    plain: PlainRecord = json.loads(text, parse_constant=_without_infinity)
    return plain


def _without_infinity(constant: str) -> None:
    """Read an infinite cost as None; a value that is not a number is a `KeyError`."""
    if constant != "Infinity":
        raise KeyError(constant)


def restore_record(values: Mapping[str, object]) -> PlainRecord:
    """Undo `plain_record`, but for records in it."""
    restored: PlainRecord = {}
    for name, value in values.items():
        if isinstance(value, list):
            restored[name] = tuple(value)
        elif value is None and name in _COSTS:
            restored[name] = math.inf
        else:
            restored[name] = value
    return restored
