"""What stands in a column, and what its distances are measured in."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What stands in a column."""

    NUMBER = "number"
    FLAG = "flag"
    CATEGORY = "category"
    DATE = "date"
    CYCLE = "cycle"


class Transform(StrEnum):
    """What distances of a number are measured in."""

    NONE = "none"
    LOG = "log"
