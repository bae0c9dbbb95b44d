"""A whole table of one's own, before any run: its columns, and a schema's file with their names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr_dpkmeans.data.column_guess import DRAFT_WEIGHT, guess_column
from flwr_dpkmeans.data.readers import RawTable, joined_column, table_blocks, whole_csv
from flwr_dpkmeans.errors import DataError


def open_table(path: str | Path, header: bool | None = None, query: str = "") -> RawTable:
    """All columns of a source with all of their rows; raises as `table_blocks` does."""
    first, *others = table_blocks(path, None, query, partial(whole_csv, header=header))
    each = zip(first.columns, *(block.columns for block in others), strict=True)
    return replace(first, columns=tuple(map(joined_column, each)))


_HEADER = f"""\
# Bounds and values are open: a table's own are private, so write what is public of each column's meaning.
# Besides: missing = "drop", "centre" or "fill" (with fill = ...), and weight = 1.0. Delete ids and the like.
# So that no column decides alone: with scale = "standard" private deviations are the units, so that loose bounds do not
# switch a column off (at client level take "bounds"); weight = {DRAFT_WEIGHT:g} keeps categories and flags, which have
# nothing between their values, from outweighing the numbers.
scale = "standard"
[columns]
"""


def draft(table: RawTable) -> tuple[str, list[str]]:
    """A schema's file with the names and kinds of a table's columns, whose bounds and values are open.

    Beside it, for the owner alone: what its cells would be read as, where that is not what they seem to be.
    """
    if not table.n_rows:
        raise DataError(f"{table} has no rows, but kinds are drafted from cells: give a table with a header and rows.")
    table.one_each([column.name for column in table.columns], "a schema")
    remarks = list[str]()
    if not table.named and table.path.suffix == ".csv":
        names = ",".join(column.name for column in table.columns)
        remarks.append(
            f"its first row is no header of different names, so it is data, and columns are called {names}: add "
            f"one, or let nodes read it with header='no' and columns='{names}'"
        )
    lines = list[str]()
    for column in table.columns:
        guess = guess_column(column)
        lines.append(guess.line(column.name))
        remarks += [f"{column.name!r}: {remark}" for remark in guess.remarks]
    return _HEADER + "\n".join(lines) + "\n", remarks
