"""A whole table of one's own, before any run: its columns, and a schema's file with their names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from flwr_dpkmeans.data import files
from flwr_dpkmeans.data.cells import plain_number
from flwr_dpkmeans.data.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.raw_table import RawColumn, RawTable
from flwr_dpkmeans.data.schema import Kind, days_of
from flwr_dpkmeans.data.tables import require_rows
from flwr_dpkmeans.errors import DataError

_FOREIGN_NUMBER = re.compile(r"[-+]?[€$£]?\s?\d+([.,'’\s]\d+)*(e[-+]?\d+)?\s?[%€$£]?", re.IGNORECASE)
_FOREIGN_DATE = re.compile(r"(\d{1,2}[./-]\d{1,2}[./-](\d{2}){1,2}|\d{4}[./]\d{1,2}[./]\d{1,2})([ T].*)?")
_CODE = re.compile(r"0\d+")
_FEWEST_OF_AN_ID = 20
"""Fewer rows than that may all differ by chance."""


def open_table(path: str | Path, dialect: Dialect = UNSTATED, query: str = "") -> RawTable:
    """Return all columns of a source with all of their rows; raises as `files.open_table` does."""
    return whole(files.open_table(path, dialect, query=query, may_guess=True))


def whole(opened: files.OpenTable) -> RawTable:
    """Return all columns of an open table; a DataError if none of its records is a row."""
    table = files.one_block(opened)
    require_rows(opened)
    return table


def toml_text(text: str) -> str:
    """Return a text as TOML quotes it, which is JSON's way but for the control character DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def draft(table: RawTable) -> tuple[str, list[str]]:
    """A schema's file with the names and kinds of a table's columns, whose bounds and values are open.

    Beside it, for the owner alone: what its cells would be read as, where that is not what they seem to be.
    """
    if not table.n_rows:
        raise DataError(f"{table} has no rows, but kinds are drafted from cells: give a table with a header and rows.")
    table.one_each([column.name for column in table.columns], "a schema")
    lines = [
        "# Bounds and values are open: a table's own are private, so write what is public of each column's meaning.",
        '# Besides: missing = "drop", "centre" or "fill" (with fill = ...), and weight = 1.0. Delete ids and the like.',
        "[columns]",
    ]
    told = []
    if not table.named and files.text_suffix(table.path):
        names = ",".join(column.name for column in table.columns)
        told.append(
            f"its first row is no header of different names, so it is data, and columns are called {names}: add "
            f"one, state --header yes, or let nodes read it with header='no' and columns='{names}'"
        )
    for column in table.columns:
        cells = [cell for cell in column.text() if cell is not None]
        kind, said = _kind(column, cells)
        rest = {Kind.FLAG: "", Kind.CATEGORY: ", values = []"}.get(kind, ", bounds = []")
        is_id = len({*cells}) == len(cells) >= _FEWEST_OF_AN_ID and _looks_like_id(kind, cells)
        if is_id:
            said += ["no two rows have the same value, so it looks like an id: its line is a comment"]
        line = f'{toml_text(column.name)} = {{ kind = "{kind}"{rest} }}'
        lines.append(f"# {line}" if is_id else line)
        told += [f"{column.name!r}: {one}" for one in said]
    return "\n".join(lines) + "\n", told


def _looks_like_id(kind: Kind, cells: Sequence[str]) -> bool:
    """Texts, or whole numbers without a gap; others may be measures that differ."""
    if kind is not Kind.NUMBER:
        return kind is Kind.CATEGORY
    numbers = [int(cell) for cell in cells if cell.isdecimal()]
    return len(numbers) == len(cells) and max(numbers) - min(numbers) == len(cells) - 1


def _kind(column: RawColumn, cells: Sequence[str]) -> tuple[Kind, list[str]]:
    """What most of a column's cells are meant as, and which of them are not read as that."""
    if not cells:
        return Kind.NUMBER, ["all of its cells are missing: say what it holds, or delete its line"]
    if {cell.lower() for cell in cells} <= {"true", "false"}:
        return Kind.FLAG, []
    if any(map(_CODE.fullmatch, cells)) and all(map(str.isdecimal, cells)):
        return Kind.CATEGORY, ["cells begin with 0, as codes do: it is a category, if it is no number"]
    dates = [not math.isnan(days_of(cell)) for cell in cells]
    foreign = [bool(_FOREIGN_DATE.fullmatch(cell)) for cell in cells]
    if column.values is None and 2 * sum(map(max, dates, foreign)) > len(cells):
        return Kind.DATE, _unread(cells, dates, "date", "2024-01-31")
    numbers = [not math.isnan(plain_number(cell)) for cell in cells]
    foreign = [bool(_FOREIGN_NUMBER.fullmatch(cell)) for cell in cells]
    if 2 * sum(map(max, numbers, foreign)) > len(cells):
        return Kind.NUMBER, _unread(cells, numbers, "number", "1200.5")
    return Kind.CATEGORY, []


def _unread(cells: Sequence[str], is_read: Sequence[bool], kind: str, example: str) -> list[str]:
    """What an owner must mend in the table."""
    unread = list(dict.fromkeys(cell for cell, read in zip(cells, is_read, strict=True) if not read))
    if not unread:
        return []
    n_unread = len(cells) - sum(is_read)
    return [
        f"{n_unread} of {len(cells)} cells, such as {unread[0]!r}, are not read as a {kind}, and count as missing: "
        f"write them like {example}"
    ]
