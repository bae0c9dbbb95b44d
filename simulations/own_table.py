"""A whole table of one's own, before any run: its columns, and a schema's file with their names."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr_dpkmeans.data.readers import RawTable, joined_column, table_blocks, whole_csv
from flwr_dpkmeans.data.schema import Kind, days_of


def open_table(path: str | Path, header: bool | None = None, query: str = "") -> RawTable:
    """All columns of a source with all of their rows; raises as `table_blocks` does."""
    first, *others = table_blocks(path, None, query, partial(whole_csv, header=header))
    each = zip(first.columns, *(block.columns for block in others), strict=True)
    return replace(first, columns=tuple(map(joined_column, each)))


def draft(table: RawTable) -> str:
    """A schema's file with the names and kinds of a table's columns, whose bounds and values are open."""
    lines = [
        "# Bounds and values are open: a table's own are private, so write what is public of each column's meaning.",
        '# Besides: missing = "drop", "centre" or "fill" (with fill = ...), and weight = 1.0. Delete ids and the like.',
        "[columns]",
    ]
    for column in table.columns:
        cells = {cell.lower() for cell in column.text() if cell is not None}
        dated = bool(cells) and not any(math.isnan(days_of(cell)) for cell in cells)
        commas = column.has_decimal_commas()
        kind = Kind.NUMBER if column.values is not None or commas else Kind.DATE if dated else Kind.CATEGORY
        kind = Kind.FLAG if cells and cells <= {"true", "false"} else kind
        rest = {Kind.FLAG: "", Kind.CATEGORY: ", values = []"}.get(kind, ", bounds = []")
        note = "  # decimal commas: write 3.5, not 3,5, in the table" if commas else ""
        lines.append(f'{json.dumps(column.name, ensure_ascii=False)} = {{ kind = "{kind}"{rest} }}{note}')
    return "\n".join(lines) + "\n"
