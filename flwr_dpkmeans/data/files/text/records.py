"""Which cells of a record are a row, and what became of a file's records."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from flwr_dpkmeans.data.files.text.tally import PassedOver, Tally

_RECORD_BYTES = 1 << 17


_BYTES_PER_COLUMN = 64


@dataclass(frozen=True)
class RowShape:
    """Which cells of a record are a row.

    Attributes
    ----------
    separator : str
        One ASCII character.
    n_columns : int
        Cells of a row.
    row_names : bool or None
        Whether each record begins with one more cell, its name. None: a record with one
        cell more that begins with a quote does, as R writes it.
    """

    separator: str
    n_columns: int
    row_names: bool | None = None

    @property
    def most_bytes(self) -> int:
        """How long a record may be."""
        return _RECORD_BYTES + _BYTES_PER_COLUMN * self.n_columns

    def row_of(
        self,
        record: bytes,
        tally: Tally,
    ) -> list[str] | PassedOver:
        """Return the cells of a record that is a row, or why it is none."""
        cells = cells_of(record.decode(errors="replace"), self.separator)
        if cells is None:
            return PassedOver.TOO_LONG
        n_more = len(cells) - self.n_columns
        if n_more == 0 and not self.row_names:
            return cells
        if n_more == 1 and self.row_names is not True and not cells[-1].strip():
            tally.n_trailing += 1
            return cells[:-1]
        begins_quoted = record.lstrip().startswith(b'"')
        if n_more == 1 and (
            self.row_names or (self.row_names is None and begins_quoted)
        ):
            tally.n_row_names += 1
            return cells[1:]
        if n_more == 1:
            return PassedOver.ONE_MORE
        return PassedOver.TOO_MANY if n_more > 0 else PassedOver.TOO_FEW


def cells_of(record: str, separator: str) -> list[str] | None:
    """Return the cells of one record.

    None where one is longer than the csv module reads.
    """
    rows = csv.reader([record], delimiter=separator, skipinitialspace=True)
    try:
        return next(rows, [])
    except csv.Error:
        return None
