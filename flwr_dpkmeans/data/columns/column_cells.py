"""Cells as a column means them: others' texts replaced, each text read by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.written_cells import written
from flwr_dpkmeans.data.files.cell_numbers import plain_number
from flwr_dpkmeans.data.files.raw_column import RawColumn

Array = NDArray[np.float64]
Reader = Callable[[str], float]
Form = float | str
"""What equal cells have in common, see `written`."""


def each(reader: Reader, texts: Iterable[str | None]) -> Array:
    """What each text is read as; NaN where there is none."""
    values = list[float]()
    for text in texts:
        values.append(math.nan if text is None else reader(text))
    return np.array(values, dtype=float)


def replaced(
    cells: RawColumn,
    others: Mapping[Form, str | None],
    *,
    has_numbers: bool,
) -> RawColumn:
    """The cells, of which some have another text, or none.

    Numbers of others stay what they are.
    """
    texts = cells.text()
    new: dict[str | None, str | None] = {None: None}
    for text in set(texts):
        if text is not None:
            form = written(text)
            new[text] = others.get(form, text)
    new_texts = [new[text] for text in texts]
    numbers = None
    if has_numbers:
        is_new = [new[text] != text for text in texts]
        new_numbers = each(plain_number, new_texts)
        numbers = np.where(is_new, new_numbers, cells.numbers())
    return replace(
        cells,
        values=None,
        n_unparsable=0,
        text=lambda: new_texts,
        numeric=numbers,
    )


def without_numbers(
    cells: RawColumn,
    absent: Iterable[Form],
) -> RawColumn:
    """The cells of numbers, with gaps for those that say that one is missing.

    A file's numbers may not be there as they are written.
    """
    numbers = [form for form in absent if not isinstance(form, str)]
    values = cells.numbers() if cells.values is None else cells.values
    is_gap = np.isin(values, numbers)
    values = np.where(is_gap, math.nan, values)
    return replace(cells, values=values, numeric=values)
