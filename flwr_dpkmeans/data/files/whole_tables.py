"""All rows of a table as one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.files.open_table import ColumnUse, OpenTable
from flwr_dpkmeans.data.files.raw_column import RawColumn, joined_column
from flwr_dpkmeans.data.files.raw_table import RawTable

if TYPE_CHECKING:
    import pandas as pd


def whole_frame(
    table: OpenTable,
    *,
    names: Sequence[str] = (),
    rows: ArrayLike | None = None,
    columns: Collection[str] | None = None,
    left_out: str = "",
) -> pd.DataFrame:
    """Return a table, or some of its rows and columns, as one pandas data frame.

    `names` are for columns that have none; text stays as it is written. One column is
    `left_out`, by name or, without names, by index.
    """
    import pandas as pd

    # Numbers that are not written plainly are needed as numbers, too.
    numbers = () if table.reading.dialect.number_format.is_plain else None
    frames = []
    n_rows = 0
    for raw in table.blocks(ColumnUse(numbers, texts=None)):
        titles = list(names)
        if raw.named:
            titles = [column.name for column in raw.columns]
        cells = {}
        hidden = _index_of(left_out, titles, len(raw.columns))
        for index, column in enumerate(raw.columns):
            if index == hidden:
                continue
            if columns is None or not titles or titles[index] in columns:
                cells[index] = _plain_cells(column)
        frame = pd.DataFrame(cells)
        if titles:
            titles = [titles[index] for index in cells]
            frame = frame.set_axis(titles, axis=1)
        frame.index += n_rows
        n_rows += raw.n_rows
        if rows is not None:
            is_wanted = frame.index.isin(rows)
            frame = frame[is_wanted]
        frames.append(frame)
    whole = pd.concat(frames)
    if rows is None:
        return whole
    return whole.loc[rows]


def _index_of(
    name: str,
    titles: Sequence[str],
    n_columns: int,
) -> int | None:
    """Find a column by name or, where there are no names, by index."""
    if name in titles:
        return titles.index(name)
    is_index = name.removeprefix("-").isdecimal()
    if titles or not is_index:
        return None
    return int(name) % n_columns


def _plain_cells(column: RawColumn) -> Sequence[str | None] | NDArray[np.float64]:
    """Numbers, or text in which numbers and dates are written as everywhere."""
    if column.values is not None:
        return column.values
    texts = column.dates()
    if column.numeric is None:
        return texts
    cells = []
    for index, number in enumerate(column.numeric.tolist()):
        cells.append(texts[index] if math.isnan(number) else text_of(number))
    return cells


def one_block(table: OpenTable) -> RawTable:
    """Return all rows of a table as one."""
    blocks = list(table.blocks())
    first = blocks[0]
    columns_of_blocks = [block.columns for block in blocks]
    columns = []
    for parts in zip(*columns_of_blocks, strict=True):
        column = joined_column(parts)
        columns.append(column.as_text_without_numbers())
    return replace(first, columns=tuple(columns), records=None)
