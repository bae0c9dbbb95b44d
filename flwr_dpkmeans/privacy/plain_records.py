"""Records as JSON can hold them: lists for tuples, None for an infinite cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_COSTS = ("epsilon", "epsilon_worst_case")
"""What may be infinite, as nothing else is."""


def plain_record(record: Any) -> dict[str, Any]:
    """Return a record's fields as plain values, those of records in it as well."""
    text = json.dumps(vars(record), default=vars)
    without_infinity = {"Infinity": None}.__getitem__
    return dict(json.loads(text, parse_constant=without_infinity))


def restore_record(values: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `plain_record`, but for records in it."""
    restored: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            restored[name] = tuple(value)
        elif value is None and name in _COSTS:
            restored[name] = math.inf
        else:
            restored[name] = value
    return restored
