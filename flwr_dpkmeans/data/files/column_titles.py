"""Names of a table's columns, some of which its writer left out."""

from __future__ import annotations

from collections.abc import (
    Sequence,
)

from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.files.text.headers import Beginning


def columns_of(
    beginning: Beginning,
    reading: Reading,
    n_columns: int,
) -> dict[int, str]:
    """Names of the columns that are read, by their numbers.

    `n_columns` without a header.
    """
    if not beginning.dialect.header:
        return {index: f"x{index}" for index in range(n_columns)}
    first, n_cells = beginning.first, len(beginning.first)
    unnamed = _unnamed_at_ends(first) if n_cells > 1 else []
    reading.unnamed = tuple(index + 1 for index in unnamed)
    columns = {
        index: name or f"column {index + 1}"
        for index, name in enumerate(first)
        if index not in unnamed
    }
    reading.names = tuple(columns.values())
    return columns


def _unnamed_at_ends(names: Sequence[str]) -> list[int]:
    """Columns in front of the first one that has a name, as an index is, or behind the
    last.
    """
    named = [index for index, name in enumerate(names) if name]
    if not named:
        return list(range(len(names)))
    return [*range(named[0]), *range(named[-1] + 1, len(names))]
