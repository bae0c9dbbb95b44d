"""Patterns of what stands between cells and around quotes."""

from __future__ import annotations

import re


def mark_pattern(separator: str) -> bytes:
    """The pattern of a separator."""
    encoded = separator.encode()
    return re.escape(encoded)


def padding_pattern(separator: str) -> bytes:
    """The pattern of spaces around a quoted cell that do not separate cells."""
    return rb"" if separator == " " else rb"[ ]*+"
