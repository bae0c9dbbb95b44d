"""The columns of a table that say whose a row is, and what it weighs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.schema import Schema

N_COLUMNS = 2
"""Numbers of a digest: two of 48 bits, which a file of floats holds as they are."""


@dataclass(frozen=True)
class UnitColumns:
    """The columns that say how rows count, of which none is clustered.

    By name or, without names, by index; empty: none.
    """

    person: str = ""
    """Says whose a row is."""
    key: bytes = field(default=b"", repr=False)
    """Hashes the cells of that column."""
    weight: str = ""
    """Says what a row weighs."""


NO_UNITS = UnitColumns()


def person_column_of(stated: str, schema: Schema | None) -> str:
    """Return the name of that column: as stated, or else the schema's."""
    if stated or schema is None:
        return stated
    return schema.person_column


def weight_column_of(stated: str, schema: Schema | None) -> str:
    """Return the name of that column: as stated, or else the schema's."""
    if stated or schema is None:
        return stated
    return schema.weight_column


def digests_of(raw: RawTable, units: UnitColumns) -> NDArray[np.float64] | None:
    """Hash the cells of a table's person column, (n_rows, 2); None without one.

    An array that is no column has no cells that could be read: each row is a person's
    of its own.
    """
    column = raw.column_of("person_column", units.person)
    if column is None:
        return None
    from flwr_dpkmeans.data.loading.person_ids import person_digests

    cells = column.text()
    if len(cells) != raw.n_rows:
        cells = [None] * raw.n_rows
    return person_digests(
        cells,
        units.key,
    )


def weights_of(raw: RawTable, units: UnitColumns) -> NDArray[np.float64] | None:
    """Read what rows weigh, (n_rows,); None without a column that says it.

    Cells that are no numbers are NaN, which counts as nothing.
    """
    return raw.numbers_of("weight_column", units.weight)
