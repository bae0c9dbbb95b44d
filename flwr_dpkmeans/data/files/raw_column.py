"""One column of a file, as numbers, text or both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cell_numbers import plain_number
from flwr_dpkmeans.data.files.cells import iso_text, text_of

Numbers = NDArray[np.float64]
Texts = list[str | None]


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column of a table.

    Attributes
    ----------
    name : str
        As the file has it.
    values : ndarray, (n,), or None
        Its numbers, NaN where a cell is none; None for a column of text.
    n_unparsable : int
        How many cells among numbers are text.
    text : callable
        Reads the cells as they are written, None where one is missing.
    numeric : ndarray, (n,), or None
        Numbers of a column that is text only in another file of the same folder, which
        may not decide how these are read.
    date_format : str
        How dates are written beside ISO 8601; empty: not stated.
    """

    name: str
    values: Numbers | None = field(repr=False)
    n_unparsable: int = 0
    text: Callable[[], Texts] = field(default=list, repr=False)
    numeric: Numbers | None = field(default=None, repr=False)
    date_format: str = ""

    @classmethod
    def of_cells(
        cls,
        name: str,
        cells: Iterable[object],
        values: Numbers | None = None,
    ) -> RawColumn:
        """Make a column of Python objects, each read by itself without `values`."""

        def texts() -> Texts:
            return list(map(text_of, cells))

        return cls(name, values, text=cache(texts))

    def as_text_without_numbers(self) -> RawColumn:
        """Return it as text if there is text in it, and not a single number."""
        if self.values is None or not self.n_unparsable:
            return self
        if not bool(np.isnan(self.values).all()):
            return self
        return replace(self, values=None, n_unparsable=0)

    def numbers(self) -> Numbers:
        """Return its numbers, also those written as text; NaN where a cell is none."""
        numbers = self.values if self.numeric is None else self.numeric
        if numbers is not None:
            return numbers
        read = list[float]()
        for cell in self.text():
            read.append(math.nan if cell is None else plain_number(cell))
        return np.array(read, dtype=float)

    def dates(self) -> Texts:
        """Return its cells as text, those of the stated date format as ISO 8601."""
        cells = self.text()
        if not self.date_format:
            return cells
        form = self.date_format
        return [None if cell is None else iso_text(cell, form) for cell in cells]


def joined_column(parts: Sequence[RawColumn]) -> RawColumn:
    """Return one column of the cells of all parts."""
    if len(parts) == 1:
        return parts[0]
    values = [part.values for part in parts if part.values is not None]
    whole = None
    if len(values) == len(parts):
        whole = np.concatenate(values)

    def texts() -> Texts:
        cells: Texts = []
        for part in parts:
            cells += part.text()
        return cells

    first = parts[0]
    return RawColumn(
        first.name,
        whole,
        sum(part.n_unparsable for part in parts),
        cache(texts),
        date_format=first.date_format,
    )
