"""A schema, or the path of one, where bounds may stand."""

from __future__ import annotations

from pathlib import Path

from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.schema_toml import read_toml


def schema_of(value: object) -> Schema | None:
    """A schema, or a file of one, where bounds may stand; None for other bounds."""
    if isinstance(value, Schema):
        return value
    if not isinstance(value, str | Path) or Path(value).suffix.lower() != ".toml":
        return None
    try:
        is_schema = "columns" in read_toml(value)
    except (OSError, ValueError):
        read_ranges(value)  # has a sentence
        return None
    return Schema.load(value) if is_schema else None
