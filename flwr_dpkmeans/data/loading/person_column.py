"""The column of a table that says whose row it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.schema import Schema

N_COLUMNS = 2
"""Numbers of a digest: two of 48 bits, which a file of floats holds as they are."""


@dataclass(frozen=True)
class PersonColumn:
    """The column that says whose row it is, and the key that hashes its cells."""

    name: str = ""
    """By name or, without names, by index; empty: none."""
    key: bytes = field(default=b"", repr=False)


NO_PERSONS = PersonColumn()


def person_column_of(stated: str, schema: Schema | None) -> str:
    """Return the name of that column: as stated, or else the schema's."""
    if stated or schema is None:
        return stated
    return schema.person_column


def digests_of(raw: RawTable, person: PersonColumn) -> NDArray[np.float64] | None:
    """Hash the cells of a table's person column, (n_rows, 2); None without one.

    An array that is no column has no cells that could be read: each row is a person's
    of its own.
    """
    column = raw.column_of("person_column", person.name)
    if column is None:
        return None
    from flwr_dpkmeans.data.loading.person_ids import person_digests

    cells = column.text()
    if len(cells) != raw.n_rows:
        cells = [None] * raw.n_rows
    return person_digests(cells, person.key)
