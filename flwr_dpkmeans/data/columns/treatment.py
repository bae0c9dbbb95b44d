"""What becomes of cells that are missing or outside the bounds."""

from __future__ import annotations

from enum import StrEnum


class Missing(StrEnum):
    """What becomes of a row whose cell is missing, or is no value of the column."""

    DROP = "drop"
    FILL = "fill"
    CENTRE = "centre"


class Outside(StrEnum):
    """What becomes of a cell outside the bounds."""

    CLIP = "clip"
    MISSING = "missing"
