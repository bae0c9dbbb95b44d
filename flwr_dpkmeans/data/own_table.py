"""A whole table of one's own, before any run.

Its columns, and a schema's file with their names.
"""

from __future__ import annotations

from pathlib import Path

from flwr_dpkmeans.data.columns.guess import DRAFT_WEIGHT, guess_column
from flwr_dpkmeans.data.files import reader as files
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.open_table import OpenTable, require_rows
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.text.text_file import text_suffix
from flwr_dpkmeans.data.files.whole_tables import one_block
from flwr_dpkmeans.errors import DataError


def open_table(
    path: str | Path,
    dialect: Dialect = UNSTATED,
    query: str = "",
) -> RawTable:
    """Return all columns of a source with all of their rows.

    Raises as `files.open_table` does.
    """
    opened = files.open_table(
        path,
        dialect,
        query=query,
        may_guess=True,
    )
    return whole(opened)


def whole(opened: OpenTable) -> RawTable:
    """Return all columns of an open table; a DataError without a row."""
    table = one_block(opened)
    require_rows(opened)
    return table


_HEADER = (
    "# Bounds and values are open: a table's own are private, so write what is public"
    " of each column's meaning.\n"
    '# Besides: missing = "drop", "centre" or "fill" (with fill = ...), and'
    " weight = 1.0. Delete ids and the like.\n"
    '# So that no column decides alone: with scale = "standard" private deviations are'
    " the units, so that loose bounds do not\n"
    '# switch a column off (at client level take "bounds");'
    f" weight = {DRAFT_WEIGHT:g} keeps categories and flags, which have\n"
    "# nothing between their values, from outweighing the numbers.\n"
    'scale = "standard"\n'
    "[columns]\n"
)


def draft(table: RawTable) -> tuple[str, list[str]]:
    """Draft a schema's file with the names and kinds of a table's columns.

    Bounds and values are open. Beside it, for the owner alone: what its cells would be
    read as, where that is not what they seem to be.
    """
    if not table.n_rows:
        raise DataError(
            f"{table} has no rows, but kinds are drafted from cells: give a table with"
            " a header and rows."
        )
    table.one_each([column.name for column in table.columns], "a schema")
    remarks = list[str]()
    if not table.named and text_suffix(table.path):
        names = ",".join(column.name for column in table.columns)
        remarks.append(
            "its first row is no header of different names, so it is data, and columns"
            f" are called {names}: add one, state --header yes, or let nodes read it"
            f" with header='no' and columns='{names}'"
        )
    lines = list[str]()
    for column in table.columns:
        guess = guess_column(column)
        lines.append(guess.line(column.name))
        remarks += [f"{column.name!r}: {remark}" for remark in guess.remarks]
    return _HEADER + "\n".join(lines) + "\n", remarks
