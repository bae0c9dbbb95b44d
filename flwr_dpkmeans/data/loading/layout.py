"""What the owner of a table states about its columns."""

from __future__ import annotations

import csv
from collections.abc import (
    Iterable,
    Sequence,
)
from dataclasses import dataclass, replace

from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.open_table import OpenTable
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reader import open_table
from flwr_dpkmeans.data.loading.unit_columns import NO_UNITS, UnitColumns
from flwr_dpkmeans.errors import ConfigurationError, DataError


@dataclass(frozen=True)
class Layout:
    """What a node's owner says of its table.

    Attributes
    ----------
    columns : tuple of str
        The columns that are clustered, by name. Of a file without names (.npy, .npz,
        text without header): the names of all its columns in their order; empty for an
        array whose columns have none.
    label_column : str
        Column of classes, by name (or, without names, by index), which is left out;
        empty: none.
    dialect : Dialect
        How a file of delimited text is written; it has a header unless this says
        otherwise.
    query : str
        What a database is asked for, where the table is the URL of one.
    units : UnitColumns
        Columns that say whose a row is and what it weighs, which are left out.
    """

    columns: tuple[str, ...] = ()
    label_column: str = ""
    dialect: Dialect = UNSTATED
    query: str = ""
    units: UnitColumns = NO_UNITS

    @classmethod
    def of(
        cls,
        columns: object,
        label_column: object = "",
        dialect: Dialect = UNSTATED,
        query: object = "",
    ) -> Layout:
        """Read it from scalars, as a node's configuration has them.

        Names separated by commas.
        """
        names = _names_in(str(columns))
        stripped = tuple(name.strip() for name in names if name.strip())
        return cls(
            stripped,
            str(label_column),
            dialect,
            str(query),
        )

    @property
    def has_header(self) -> bool:
        """Whether the first record of delimited text has names."""
        return self.dialect.header is not False

    def over(self, dialect: Dialect) -> Layout:
        """Return the same, with what its dialect leaves open taken from another one."""
        return replace(self, dialect=self.dialect.over(dialect))

    def open(
        self,
        source: object,
        more_names: Iterable[str] = (),
    ) -> OpenTable:
        """Open a table as a node does, which looks at no row to find out what it is.

        Its header has the layout's names, and those that somebody else states.
        """
        names = () if self.has_header else self.columns
        return open_table(
            source,
            self.dialect,
            query=self.query,
            names=names,
            names_in_header={
                *self.columns,
                self.label_column,
                self.units.person,
                self.units.weight,
                *more_names,
            },
        )


def _names_in(columns: str) -> list[str]:
    """Names between commas.

    One with a comma or a line break in it stands within quotes.
    """
    try:
        return next(csv.reader([columns], skipinitialspace=True), [])
    except csv.Error:
        problem = (
            "columns has a line break outside of quotes, or a name that is too long"
        )
    raise ConfigurationError(
        f"{problem}, but names stand between commas: quote names that have line breaks."
    )


UNSTATED_LAYOUT = Layout()
"""Of a table about whose columns nothing is stated."""


def renamed(raw: RawTable, names: Sequence[str]) -> RawTable:
    """A table without names gets those that its owner declares."""
    if raw.named or not names:
        return raw
    if len(names) != len(raw.columns):
        raise DataError(
            f"columns has {len(names)} names, but {raw} has {len(raw.columns)} columns:"
            " name all of them."
        )
    renamed = [
        replace(column, name=name)
        for name, column in zip(names, raw.columns, strict=True)
    ]
    return replace(raw, columns=tuple(renamed), named=True)
