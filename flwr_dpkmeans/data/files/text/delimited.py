"""Records of delimited text, as RFC 4180 has them: rows, whatever their cells hold.

Bytes are cut into records first, and only then into cells. A quote that does not close
costs its own line. One that the quote of a later line closes makes a cell of the lines
between, as cells may have lines: neighbouring tables differ by a record whose quotes
whoever wrote it doubled, and a line with an open quote is none (threats.md). A record
has at most `most_bytes` bytes; a cell that goes on for longer is passed over to its
end, so that its lines do not pass for records. What is decided for a record follows
from that record, and from what the reader was told of the file: on a deployed node no
row may decide about another one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cells import MISSING
from flwr_dpkmeans.data.files.text.quoting import (
    CellEnds,
    comment_pattern,
    whole_records,
)
from flwr_dpkmeans.data.files.text.record_patterns import (
    open_quote_pattern,
    record_pattern,
    rest_pattern,
)
from flwr_dpkmeans.data.files.text.records import RowShape
from flwr_dpkmeans.data.files.text.tally import PassedOver, Tally
from flwr_dpkmeans.resources import limits

_FAILED_COLUMN = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error"
)
# White space, and what MS-DOS ends a file with (Ctrl-Z).
_BLANKS = b" \t\v\f\n\x1a"


@dataclass(frozen=True, eq=False)
class CellBlock:
    """Some rows of a file.

    Attributes
    ----------
    columns : mapping of int to pyarrow.Array
        Cells of the wanted columns: strings as they are written, or numbers where all
        of them are plain ones and nobody wants them as text.
    records : ndarray, (n_rows,)
        Which of the file's records the rows are, from 0 on.
    """

    columns: Mapping[int, Sized] = field(repr=False)
    records: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class Wanted:
    """Which columns of a text are read.

    Attributes
    ----------
    columns : frozenset of int
        All of them.
    only_numbers : frozenset of int
        Those of which nobody will ask for the text.
    decimal : str
        The decimal mark of numbers.
    """

    columns: frozenset[int]
    only_numbers: frozenset[int] = frozenset()
    decimal: str = "."


class RecordReader:
    """Cuts text into records, and these into cells.

    Parameters
    ----------
    shape : RowShape
        Which cells of a record are a row.
    comment : str
        What lines of comments begin with; empty: there are none.
    tally : Tally
        Counts what becomes of the records.
    wanted : Wanted
        Which columns are read.
    again : callable
        Gives the same text from its beginning, to look for the end of a cell that is
        too long.
    """

    def __init__(
        self,
        shape: RowShape,
        comment: str,
        tally: Tally,
        wanted: Wanted,
        again: Callable[[], Iterator[bytes]],
    ) -> None:
        self._shape = shape
        self._cell_ends = CellEnds(again, shape.separator)
        self._n_consumed = 0
        self._cell_end = 0
        """Where, in bytes of the text, a cell ends that is passed over."""
        self._wanted = wanted
        self._plain = set(wanted.only_numbers)
        self._comment = comment_pattern(comment, shape.separator)
        self._tally = tally
        self._record = record_pattern(shape.separator)
        self._open_quote = open_quote_pattern(shape.separator)
        self._rest = rest_pattern(shape.separator)
        # A line of separators is a record, of cells in which nothing stands.
        self._blanks = _BLANKS.replace(shape.separator.encode(), b"")
        self._within_line = False
        self._expects_more = bool(shape.row_names)

    def empty(self) -> CellBlock:
        """Return a block without rows."""
        return self._block_of([], [])

    def blocks(self, chunks: Iterator[bytes]) -> Iterator[CellBlock]:
        """Yield the rows of a text, some after the others."""
        buffer = b""
        for chunk in chunks:
            buffer += chunk
            # Short pieces, as a decompressor gives them, are put together first.
            if len(buffer) < limits().text_bytes:
                continue
            block, n_bytes = self._block(buffer, at_end=False)
            buffer = buffer[n_bytes:]
            self._n_consumed += n_bytes
            yield block
        if buffer and not buffer.endswith(b"\n"):
            buffer += b"\n"
        while buffer:
            block, n_bytes = self._block(buffer, at_end=True)
            buffer = buffer[n_bytes:]
            self._n_consumed += n_bytes
            yield block

    def _block(
        self,
        buffer: bytes,
        *,
        at_end: bool,
    ) -> tuple[CellBlock, int]:
        """Rows of the whole records that a buffer begins with, and their length."""
        if self._within_line:  # of which the beginning was too long, and is gone
            return self.empty(), self._line_end(buffer, 0)
        if self._cell_end:
            return self.empty(), self._after_cell(buffer, at_end=at_end)
        n_bytes = whole_records(buffer, self._shape.separator, self._shape.most_bytes)
        if n_bytes and not self._comment:
            block = self._parsed(buffer[:n_bytes])
            if block is not None:
                return block, n_bytes
        return self._one_by_one(buffer, at_end=at_end)

    def _line_end(
        self,
        buffer: bytes,
        start: int,
    ) -> int:
        """Where a line ends that is no row.

        What is not there yet will be passed over, too.
        """
        end = buffer.find(b"\n", start) + 1
        self._within_line = not end
        return end or len(buffer)

    def _after_cell(
        self,
        buffer: bytes,
        *,
        at_end: bool,
    ) -> int:
        """Where the record ends that has the cell which is passed over.

        Or as much as is there of it.
        """
        start = self._cell_end - self._n_consumed
        is_whole = at_end or len(buffer) >= start + self._shape.most_bytes
        if not is_whole:
            return min(len(buffer), start)
        self._cell_end = 0
        rest = self._rest.match(buffer, start)
        return rest.end() if rest else self._line_end(buffer, start)

    def _parsed(self, records: bytes) -> CellBlock | None:
        """Rows of records that all have the same number of cells.

        None if they have not.

        Only speed depends on it: `_one_by_one` gives the same rows.
        """
        n_cells = self._shape.n_columns + self._expects_more
        if n_cells == 1 and _has_blank_line(records):
            return None
        if records.startswith(codecs.BOM_UTF8):  # which Arrow would drop
            return None
        if self._shape.separator == " " and _has_more_spaces(records):
            return None
        if self._expects_more:
            columns = self._without_names(
                _arrow_columns(records, self._shape.separator, n_cells)
            )
        else:
            columns = self._wanted_columns(records)
        if columns is None:
            return None
        n_rows = len(next(iter(columns.values()), ()))
        first = self._tally.n_records
        self._tally.n_records += n_rows
        return CellBlock(columns, np.arange(first, first + n_rows))

    def _wanted_columns(self, records: bytes) -> dict[int, Sized] | None:
        """Wanted columns, as numbers where all cells are plain ones.

        None for another width.
        """
        n_cells, separator = self._shape.n_columns, self._shape.separator
        wanted = self._wanted.columns or frozenset({0})
        while True:
            try:
                return _arrow_columns(
                    records,
                    separator,
                    n_cells,
                    wanted,
                    self._plain,
                    self._wanted.decimal,
                )
            except _NoPlainNumbers as error:
                self._plain.discard(error.column)

    def _without_names(
        self, columns: dict[int, Sized] | None
    ) -> dict[int, Sized] | None:
        """Columns of records that all have one cell more.

        None if that is not the same one.
        """
        import pyarrow.compute as pc

        if columns is None:
            return None
        n_rows = len(columns[0])
        if self._shape.row_names:
            self._tally.n_row_names += n_rows
            return {index - 1: cells for index, cells in columns.items() if index}
        is_blank = pc.equal(pc.utf8_trim_whitespace(columns.pop(len(columns) - 1)), "")
        if not pc.all(is_blank).as_py():
            return None
        self._tally.n_trailing += n_rows
        return columns

    def _one_by_one(
        self,
        buffer: bytes,
        *,
        at_end: bool,
    ) -> tuple[CellBlock, int]:
        """Rows of the whole records that a buffer begins with.

        Each looked at by itself.
        """
        rows, numbers = list[list[str]](), list[int]()
        most, start = self._shape.most_bytes, 0
        n_wider = 0
        while start < len(buffer):
            if self._comment and self._comment.match(buffer, start):
                start = self._line_end(buffer, start)
                continue
            stop = min(len(buffer), start + most)
            match = self._record.match(buffer, start, stop)
            if match is None:
                is_undecided = stop - start < most and not at_end
                if is_undecided:
                    break
                start = self._after_broken(buffer, start, stop)
                if self._cell_end:
                    break
                continue
            record, start = match[0], match.end()
            if not record.strip(self._blanks):
                continue
            n_before = self._tally.n_trailing + self._tally.n_row_names
            row = self._shape.row_of(record, self._tally)
            n_wider += self._tally.n_trailing + self._tally.n_row_names - n_before
            if isinstance(row, PassedOver):
                self._tally.passed_over[row] += 1
            else:
                rows.append(row)
                numbers.append(self._tally.n_records)
            self._tally.n_records += 1
        self._expects_more = 2 * n_wider > len(rows) or bool(self._shape.row_names)
        return self._block_of(rows, numbers), start

    def _after_broken(
        self,
        buffer: bytes,
        start: int,
        stop: int,
    ) -> int:
        """Where the next record may begin behind one that is none."""
        self._tally.n_records += 1
        line_end = buffer.find(b"\n", start, stop) + 1
        if not line_end:
            self._tally.passed_over[PassedOver.TOO_LONG] += 1
            return self._line_end(buffer, stop)
        is_whole_window = stop - start == self._shape.most_bytes
        open_quote = (
            self._open_quote.match(buffer, start, stop) if is_whole_window else None
        )
        if open_quote is not None:
            # Lines of one long cell must not pass for records: whoever writes the cell
            # would write as many rows as it has lines.
            within = self._n_consumed + open_quote.start(1) + 1
            end = self._cell_ends.behind(within)
            if end is not None:
                self._tally.passed_over[PassedOver.TOO_LONG] += 1
                self._cell_end = end
                return stop
        self._tally.passed_over[PassedOver.UNCLOSED] += 1
        return line_end

    def _block_of(
        self,
        rows: list[list[str]],
        numbers: list[int],
    ) -> CellBlock:
        import pyarrow as pa

        columns = {
            index: pa.array([row[index] for row in rows], pa.string())
            for index in self._wanted.columns
        }
        return CellBlock(columns, np.array(numbers, dtype=np.int64))


class _NoPlainNumbers(Exception):
    """A column has a cell that is no plain number."""

    def __init__(self, column: int) -> None:
        super().__init__(column)
        self.column = column


def _arrow_columns(
    records: bytes,
    separator: str,
    n_cells: int,
    wanted: Collection[int] | None = None,
    plain: Collection[int] = (),
    decimal: str = ".",
) -> dict[int, Sized] | None:
    """Columns of records with so many cells, strings or plain numbers.

    None for another width.

    `_NoPlainNumbers` where a column cannot be read as such, and is to be read as
    strings.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    indexes = sorted(range(n_cells) if wanted is None else wanted)
    types = {
        str(index): pa.float64() if index in plain else pa.string() for index in indexes
    }
    names = [str(index) for index in range(n_cells)]
    try:
        # Null values are those of numbers; texts stay as they are written.
        table = arrow_csv.read_csv(
            pa.BufferReader(records),
            arrow_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(records) + 1
            ),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=sorted(MISSING),
                strings_can_be_null=False,
                decimal_point=decimal,
            ),
        )
    except pa.ArrowInvalid as error:
        column = _FAILED_COLUMN.search(str(error))
        if column is None or int(column[1]) not in plain:
            return None
        raise _NoPlainNumbers(int(column[1])) from None
    columns = {index: table.column(str(index)).combine_chunks() for index in indexes}
    for index in plain:
        # A missing cell is null; nan(1) is NaN, but it is none: its text is to be
        # looked at.
        if index in columns and pc.any(pc.is_nan(columns[index])).as_py():
            raise _NoPlainNumbers(index)
    return columns


def _has_blank_line(records: bytes) -> bool:
    """Whether a line of white space is among them, which is no record of one cell."""
    return re.search(rb"^[ \t\v\f\x1a]*$", records[:-1], re.MULTILINE) is not None


def _has_more_spaces(records: bytes) -> bool:
    """Whether one cell is parted from another by several spaces, or begins a line."""
    return b"  " in records or b"\n " in records or records.startswith(b" ")
