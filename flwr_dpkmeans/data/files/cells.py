"""What one cell of a table says: a number, a text, a date, or nothing.

Each cell is read by itself. On a deployed node that is a promise of privacy: no row may
decide how another row is read.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


Texts = list[str | None]


_MARKERS = (
    "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a"
    " nan null"
)


MISSING = frozenset({"", "#N/A N/A", *_MARKERS.split()})
"""Texts that are missing cells in every kind of table: those of ``pandas.read_csv``."""


def text_of(cell: object) -> str | None:
    """Return a Python object as a file would have it: 1.0 as 1, true in small letters.

    None where it is one of `MISSING`. Whatever the object is, this is no error, which
    would tell that it is there.
    """
    try:
        text = _written(cell)
    except Exception:  # of any object's own comparison or text
        return f"<{type(cell).__name__}>"
    return None if text in MISSING else text


def _written(cell: object) -> str:
    """An object as a file would have it; empty where it says that a cell is missing."""
    is_missing = cell is None or type(cell).__name__ == "NAType"
    if is_missing or bool(cell != cell):
        return ""
    if isinstance(cell, bool | np.bool_):
        return str(cell).lower()
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    if isinstance(cell, date):
        return cell.isoformat()
    return str(cell).strip()


@lru_cache(maxsize=4096)
def iso_text(cell: str, date_format: str) -> str:
    """Return a date of a stated format as ISO 8601 text; any other cell as it is.

    Cells stay cached until the process ends, as a node's does with its message.
    """
    try:
        when = datetime.strptime(cell, date_format)
    except ValueError:
        return cell
    time_marks = ("%H", "%I", "%M", "%S")
    has_time = any(mark in date_format for mark in time_marks)
    if has_time:
        return when.isoformat()
    day = when.date()
    return day.isoformat()
