"""Names of a table's columns, some of which its writer left out."""

from __future__ import annotations

from collections.abc import Sequence

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
    cells = beginning.first
    unnamed = []
    if len(cells) > 1:
        unnamed = _unnamed_at_ends(cells)
    reading.unnamed = tuple(index + 1 for index in unnamed)
    columns = {}
    for index, name in enumerate(cells):
        if index not in unnamed:
            columns[index] = name if name else f"column {index + 1}"
    reading.names = tuple(columns.values())
    return columns


def _unnamed_at_ends(names: Sequence[str]) -> list[int]:
    """Columns in front of the first one that has a name, as an index is.

    Or behind the last.
    """
    n_names = len(names)
    named = [index for index, name in enumerate(names) if name]
    if not named:
        return list(range(n_names))
    in_front = range(named[0])
    behind = range(named[-1] + 1, n_names)
    return [*in_front, *behind]
