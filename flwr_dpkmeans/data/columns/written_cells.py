"""What stated cells and texts mean: equal values have one form."""

from __future__ import annotations

import re

from flwr_dpkmeans.data.files.cell_numbers import plain_number
from flwr_dpkmeans.data.files.cells import text_of

Value = str | bool | int | float


_NUMBER = re.compile(
    r"-?(0|[1-9]\d{0,14})(\.\d+)?(e[+-]\d+)?|true|false",
    re.ASCII | re.IGNORECASE,
)


def written(value: object) -> float | str:
    """What equal values of a category have in common.

    1, "1" and "1.0" are one number, but "01" is a text.
    """
    text = text_of(value)
    if text is None:
        return ""
    if _NUMBER.fullmatch(text):
        return plain_number(text)
    return text


def number_or_zero(value: Value) -> float:
    """A stated number, or 0 for a text."""
    if isinstance(value, str):
        return 0.0
    return float(value)
