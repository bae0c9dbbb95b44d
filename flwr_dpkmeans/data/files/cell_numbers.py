"""The number in a cell, read by itself."""

from __future__ import annotations

import math
import re
from typing import SupportsFloat

_TRUTH = {"true": 1.0, "false": 0.0}


# 3,5 or 1.200,50; and what stands between two such commas where a file was split there.
_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.' ]*,\d+|\d+;[+-]?[\d.' ]+")


def number_of(cell: SupportsFloat | str) -> float:
    """Return the number in a cell, NaN if it holds none.

    ``1_000`` is none: ``pandas.to_numeric`` reads it as 1, and ``float`` as 1000.
    """
    if isinstance(cell, str) and "_" in cell:
        return math.nan
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf
    except (ArithmeticError, TypeError, ValueError):
        return math.nan


def plain_number(cell: str) -> float:
    """Return the number or truth value in a cell as it is written.

    NaN if there is none.
    """
    plain = cell.strip()  # float alone keeps the ASCII separators
    number = number_of(plain)
    return _TRUTH.get(plain.lower(), number)


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number but for its decimal comma, such as 3,5."""
    return bool(_DECIMAL_COMMA.fullmatch(cell))
