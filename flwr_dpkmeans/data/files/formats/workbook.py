"""Workbooks, each of whose cells has a type of its own."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.files.column_titles import columns_of
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.formats.arrow_cells import numbers_in, texts_in
from flwr_dpkmeans.data.files.formats.foreign import (
    sheet_rows,
)
from flwr_dpkmeans.data.files.guarded import in_one_sentence
from flwr_dpkmeans.data.files.open_table import OpenTable, opened
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.files.text.header_guess import guess_header
from flwr_dpkmeans.data.files.text.headers import Beginning
from flwr_dpkmeans.errors import DataError


def open_workbook(
    path: Path,
    reading: Reading,
    may_guess: bool,
) -> OpenTable:
    """The first sheet of a workbook, whose header is found as that of text is."""
    try:
        rows, others = in_one_sentence(path, lambda: sheet_rows(path))
    except ImportError as error:
        rows = None
        missing = error.name or "openpyxl"
    if rows is None:
        raise DataError(
            f"the table {str(path)!r} is a workbook, but {missing} is not there to read"
            " it: pip install 'flwr-dpkmeans[excel]'."
        )
    reading.passed_over = tuple(f"the sheet {name!r}" for name in others)
    reading.why_passed_over = ": only the first sheet is read, so put the rows there"
    rows = rows[reading.dialect.skip_lines or 0 :]
    rows = [row for row in rows if any(cell is not None for cell in row)]
    texts = [[_name_of(cell) for cell in row] for row in rows[:200]]
    is_header = reading.dialect.header
    if is_header is None and not may_guess:
        is_header = True
    if is_header is None and texts:
        is_header, reading.why_header = guess_header(texts[0], texts[1:])
        reading.is_guessed = bool(reading.why_header)
    reading.dialect = reading.dialect.over(Dialect(header=bool(is_header)))
    beginning = Beginning(reading.dialect, tuple(texts[0]) if texts else (), 0)
    columns = columns_of(beginning, reading, len(beginning.first))
    body = rows[1:] if is_header else rows
    reading.tally.n_records = len(body)
    cells = {index: [row[index] for row in body] for index in columns}
    raw = [
        _sheet_column(name, cells[index], reading.dialect)
        for index, name in columns.items()
    ]
    table = RawTable(path, tuple(raw), named=bool(is_header))
    return opened(reading, lambda: iter([table]))


def _name_of(cell: Any) -> str:
    """What stands in a header's cell, where even NA is a name."""
    if cell is None:
        return ""
    return text_of(cell) or str(cell).strip()


def _sheet_column(
    name: str,
    cells: list[Any],
    dialect: Dialect,
) -> RawColumn:
    """A column of a workbook's cells, each of which has a type of its own."""
    import pyarrow as pa

    texts = [text_of(cell) or "" for cell in cells]
    is_text = [isinstance(cell, str) for cell in cells]
    # Numbers that are texts are written as the owner states; others are numbers
    # already.
    spelt = pa.array(
        [text if spelt else "" for text, spelt in zip(texts, is_text, strict=True)],
        pa.string(),
    )
    typed = pa.array(
        ["" if spelt else text for text, spelt in zip(texts, is_text, strict=True)],
        pa.string(),
    )
    of_spelt, n_spelt = numbers_in(spelt, dialect.number_format, dialect.markers)
    of_typed, n_typed = numbers_in(typed, markers=dialect.markers)
    values = np.where(is_text, of_spelt, of_typed)
    text = cache(partial(texts_in, pa.array(texts, pa.string()), dialect.markers))
    return RawColumn(
        name,
        values,
        n_spelt + n_typed,
        text,
        date_format=dialect.dates or "",
    )
