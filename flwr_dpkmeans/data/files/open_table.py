"""A table whose columns are clear, and what is done with them."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterator,
)
from dataclasses import dataclass, field

from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.errors import DataError

_Blocks = Callable[[], Iterator[RawTable]]


@dataclass(frozen=True)
class ColumnUse:
    """What a door will do with the columns of delimited text.

    Other tables say their types.

    Attributes
    ----------
    numbers : collection of str, or None
        Columns that are read as numbers; None: all.
    texts : collection of str, or None
        Columns that are text, whatever they hold; None: all.
    keeps_text : bool
        Whether the text of columns of numbers may be asked for, too; without it is
        faster.
    """

    numbers: Collection[str] | None = None
    texts: Collection[str] | None = ()
    keeps_text: bool = True

    def has_numbers(self, name: str) -> bool:
        """Whether a column is read as numbers."""
        return self.numbers is None or name in self.numbers

    def is_text(self, name: str) -> bool:
        """Whether a column is text, whatever it holds."""
        return self.texts is None or name in self.texts


EVERYTHING = ColumnUse()


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table whose columns are clear, and whose rows can be read.

    Attributes
    ----------
    reading : Reading
        What the source was taken for; what it says of records grows with `blocks`.
    """

    reading: Reading
    _read: Callable[[ColumnUse], Iterator[RawTable]] = field(repr=False)

    def blocks(self, use: ColumnUse = EVERYTHING) -> Iterator[RawTable]:
        """Yield some rows after the others: at least one block, perhaps without rows.

        Raises
        ------
        DataError
            One sentence without a value of a cell.
        """
        yield from self._read(use)

    @property
    def source(self) -> str:
        """What sentences call it."""
        return self.reading.source


def opened(reading: Reading, read: _Blocks) -> OpenTable:
    """A table that says its columns' types itself."""
    return OpenTable(reading, lambda use: read())


def require_rows(opened: OpenTable) -> None:
    """Refuse a file of which each record was passed over.

    Its user looks at all rows anyway.
    """
    reading = opened.reading
    n_records = reading.tally.n_records
    n_passed_over = reading.tally.n_passed_over
    if n_records > 0 and n_passed_over == n_records:
        doubt = reading.loudest_doubt()
        raise DataError(doubt.sentence)


def say_doubts(opened: OpenTable) -> None:
    """Log what the owner of a table should know of how it was read.

    On this machine only.
    """
    reading = opened.reading
    for doubt in reading.doubts():
        say_once(
            doubt.level,
            doubt.sentence,
        )
