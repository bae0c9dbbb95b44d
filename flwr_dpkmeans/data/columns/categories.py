"""Which of a category's values a cell is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.written_cells import written
from flwr_dpkmeans.data.files.cell_numbers import plain_number

_LARGEST_WHOLE = 2**53
"""Larger numbers are compared as text."""


def positions_among(
    values: Sequence[str | float],
    texts: Sequence[str | None],
) -> NDArray[np.float64]:
    """Position of each text, (n_rows,), among the values; NaN if it is none of them."""
    # Not by pandas: older releases take texts for equal that are so up to a NUL, other
    # rows' with them.
    of_texts = dict[float | str, int]()
    of_numbers = dict[float, int]()
    for position, value in enumerate(values):
        form = written(value)
        of_texts[form] = position
        if isinstance(value, str):
            continue
        if abs(value) < _LARGEST_WHOLE:
            of_numbers[value] = position

    positions: dict[str | None, float] = {None: math.nan}
    for text in set(texts):
        if text is None:
            continue
        number = plain_number(text)
        position_of_number = of_numbers.get(number, math.nan)
        form = written(text)
        positions[text] = of_texts.get(form, position_of_number)
    positions_of_rows = [positions[text] for text in texts]
    return np.array(positions_of_rows, dtype=float)
