"""All rows of a table as one."""

from __future__ import annotations

from collections.abc import (
    Collection,
    Sequence,
)
from dataclasses import replace
from typing import Any

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.files.open_table import ColumnUse, OpenTable
from flwr_dpkmeans.data.files.raw_table import (
    RawColumn,
    RawTable,
    joined_column,
)


def whole_frame(
    table: OpenTable,
    *,
    names: Sequence[str] = (),
    rows: Any = None,
    columns: Collection[str] | None = None,
) -> Any:
    """Return a table, or some of its rows and columns, as one pandas data frame.

    `names` are for columns that have none; text stays as it is written.
    """
    import pandas as pd

    # Numbers that are not written plainly are needed as numbers, too.
    numbers = () if table.reading.dialect.number_format.is_plain else None
    frames, n_rows = [], 0
    for raw in table.blocks(ColumnUse(numbers, texts=None)):
        titles = [column.name for column in raw.columns] if raw.named else list(names)
        cells = {
            index: _plain_cells(column)
            for index, column in enumerate(raw.columns)
            if columns is None or not titles or titles[index] in columns
        }
        frame = pd.DataFrame(cells)
        if titles:
            frame = frame.set_axis([titles[index] for index in cells], axis=1)
        frame.index += n_rows
        n_rows += raw.n_rows
        frames.append(frame if rows is None else frame[frame.index.isin(rows)])
    whole = pd.concat(frames)
    return whole if rows is None else whole.loc[rows]


def _plain_cells(column: RawColumn) -> Any:
    """Numbers, or text in which numbers and dates are written as everywhere."""
    if column.values is not None:
        return column.values
    texts = column.dates()
    if column.numeric is None:
        return texts
    pairs = zip(texts, column.numeric.tolist(), strict=True)
    return [text if number != number else text_of(number) for text, number in pairs]


def one_block(table: OpenTable) -> RawTable:
    """Return all rows of a table as one."""
    first, *others = table.blocks()
    blocks = [first, *others]
    columns = [
        joined_column(parts).as_text_without_numbers()
        for parts in zip(*(block.columns for block in blocks), strict=True)
    ]
    return replace(first, columns=tuple(columns), records=None)
