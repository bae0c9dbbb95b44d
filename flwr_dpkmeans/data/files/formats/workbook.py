"""Workbooks, each of whose cells has a type of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.files.column_titles import columns_of
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.formats.arrow_cells import numbers_in, texts_in
from flwr_dpkmeans.data.files.formats.foreign import sheet_rows
from flwr_dpkmeans.data.files.guarded import in_one_sentence
from flwr_dpkmeans.data.files.open_table import OpenTable, opened
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.files.text.header_guess import guess_header
from flwr_dpkmeans.data.files.text.headers import ROWS_LOOKED_AT, Beginning
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
    rows = [row for row in rows if not _is_empty(row)]
    texts = [list(map(_name_of, row)) for row in rows[:ROWS_LOOKED_AT]]
    is_header = reading.dialect.header
    if is_header is None and not may_guess:
        is_header = True
    if is_header is None and texts:
        is_header, reading.why_header = guess_header(texts[0], texts[1:])
        reading.is_guessed = bool(reading.why_header)
    stated = Dialect(header=bool(is_header))
    reading.dialect = reading.dialect.over(stated)
    first = texts[0] if texts else []
    beginning = Beginning(
        reading.dialect,
        tuple(first),
        0,
    )
    columns = columns_of(beginning, reading, len(first))
    body = rows[1:] if is_header else rows
    reading.tally.n_records = len(body)
    raw = []
    for index, name in columns.items():
        cells = [row[index] for row in body]
        column = _sheet_column(name, cells, reading.dialect)
        raw.append(column)
    table = RawTable(path, tuple(raw), named=bool(is_header))
    return opened(reading, lambda: iter([table]))


def _is_empty(row: Sequence[object]) -> bool:
    """Whether no cell of a row holds anything."""
    return all(cell is None for cell in row)


def _name_of(cell: object) -> str:
    """What stands in a header's cell, where even NA is a name."""
    if cell is None:
        return ""
    text = text_of(cell)
    if text:
        return text
    return str(cell).strip()


def _sheet_column(
    name: str,
    cells: Sequence[object],
    dialect: Dialect,
) -> RawColumn:
    """A column of a workbook's cells, each of which has a type of its own."""
    import pyarrow as pa

    texts = []
    spelt = []
    typed = []
    # Numbers that are texts are written as the owner states; others are numbers
    # already.
    for cell in cells:
        text = text_of(cell) or ""
        is_text = isinstance(cell, str)
        texts.append(text)
        spelt.append(text if is_text else "")
        typed.append("" if is_text else text)
    kind = pa.string()
    markers = dialect.markers
    of_spelt, n_spelt = numbers_in(
        pa.array(spelt, kind),
        dialect.number_format,
        markers,
    )
    of_typed, n_typed = numbers_in(pa.array(typed, kind), markers=markers)
    are_texts = [isinstance(cell, str) for cell in cells]
    values = np.where(are_texts, of_spelt, of_typed)
    read_texts = cache(
        partial(
            texts_in,
            pa.array(texts, kind),
            markers,
        )
    )
    return RawColumn(
        name,
        values,
        n_spelt + n_typed,
        read_texts,
        date_format=dialect.dates or "",
    )
