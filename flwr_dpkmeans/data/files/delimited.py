"""Records of delimited text, as RFC 4180 has them.

a record is a row, whatever its cells hold.

Bytes are cut into records first, and only then into cells. A quote that does not close
costs its own line, never another record's. A record has at most `most_bytes` bytes; a
cell that goes on for longer is passed over to its end, so that its lines do not pass
for records. What is decided for a record follows from that record, and from what the
reader was told of the file: on a deployed node no row may decide about another one.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import re
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cells import MISSING

CHUNK_BYTES = 1 << 20
_FAILED_COLUMN = re.compile(
    r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error"
)
_RECORD_BYTES = 1 << 17
_BYTES_BEHIND_A_QUOTE = 64
_MOST_LOOKS = 50
"""How many cells that are too long have their end looked for.

Each look reads the file anew.
"""
_BYTES_PER_COLUMN = 64
_QUOTE, _NEWLINE = ord('"'), ord("\n")
# White space, and what MS-DOS ends a file with (Ctrl-Z).
_BLANKS = b" \t\v\f\n\x1a"

COMPRESSED: Mapping[str, Callable[[Path], Any]] = MappingProxyType(
    {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
)
"""What opens a compressed file, whose bytes it decompresses, by its last suffix."""


class PassedOver(StrEnum):
    """Why a record is no row."""

    UNCLOSED = "have a quote that does not close"
    TOO_LONG = "are longer than a record may be"
    TOO_FEW = "have fewer cells than there are columns"
    TOO_MANY = "have more cells than there are columns"
    ONE_MORE = "have one cell more than there are columns"


@dataclass
class Tally:
    """How many records a file has, and what became of them: for its owner only."""

    n_records: int = 0
    passed_over: Counter[PassedOver] = field(default_factory=Counter)
    n_trailing: int = 0
    """Records that end with a separator, behind which nothing stands."""
    n_row_names: int = 0
    """Records that begin with a name for which the header has no cell."""
    has_bad_bytes: bool = False
    """Whether bytes were found that are no text in the file's encoding."""

    @property
    def n_passed_over(self) -> int:
        """Number of records that are no rows."""
        return self.passed_over.total()


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

    columns: Mapping[int, Any] = field(repr=False)
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

    def row_of(self, record: bytes, tally: Tally) -> list[str] | PassedOver:
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


def record_pattern(separator: str) -> re.Pattern[bytes]:
    """Return the pattern of one whole record with the end of its line."""
    mark, cell = re.escape(separator.encode()), _cell_pattern(separator)
    return re.compile(cell + rb"(?:" + mark + cell + rb")*+\n")


def _open_quote_pattern(separator: str) -> re.Pattern[bytes]:
    """The pattern of a record that is within quotes where the text ends.

    Its group is the quote.

    A quote at the very end may be the first of two, or the one that closes the cell.
    """
    mark, cell = re.escape(separator.encode()), _cell_pattern(separator)
    return re.compile(
        rb"(?:"
        + cell
        + mark
        + rb")*"
        + _padding(separator)
        + rb'(")(?:[^"]++|"")*+"?\Z'
    )


def _rest_pattern(separator: str) -> re.Pattern[bytes]:
    """The pattern of the cells of a record behind one of them."""
    mark, cell = re.escape(separator.encode()), _cell_pattern(separator)
    return re.compile(_padding(separator) + rb"(?:" + mark + cell + rb")*+\n")


def _cell_pattern(separator: str) -> bytes:
    """The pattern of one cell.

    A cell that begins with a quote ends with one, in front of a separator or the line's
    end; quotes within it are doubled. Other cells may have quotes, as 5" has.
    """
    mark, spaces = re.escape(separator.encode()), _padding(separator)
    quoted = spaces + rb'"(?:[^"]++|"")*+"' + spaces + rb"(?=[" + mark + rb"\n])"
    plain = rb"(?!" + spaces + rb'")[^' + mark + rb"\n]*+"
    return rb"(?:" + quoted + rb"|" + plain + rb")"


def _padding(separator: str) -> bytes:
    """The pattern of spaces around a quoted cell that do not separate cells."""
    return rb"" if separator == " " else rb"[ ]*+"


def comment_pattern(comment: str, separator: str) -> re.Pattern[bytes] | None:
    """Return the pattern of how a line of comments begins; None if there are none."""
    if not comment:
        return None
    # A separator in front of the sign ends a cell, which a comment does not have.
    blanks = b" \t\v\f".replace(separator.encode(), b"")
    return re.compile(rb"[" + blanks + rb"]*+" + re.escape(comment.encode()))


def text_chunks(
    path: Path,
    encoding: str,
    tally: Tally,
) -> Generator[bytes, None, None]:
    """Yield a file's text as UTF-8, lines ending with a line feed, without byte order
    mark.

    Bytes that are no text become replacement characters: they spoil their own cell
    only.
    """
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    is_first, ends_with_return = True, False
    with open_bytes(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            # Whole ASCII needs no decoding, unless a character was cut in two before
            # it.
            if not (is_utf8 and chunk.isascii() and not decoder.getstate()[0]):
                chunk = _as_utf8(decoder.decode(chunk), tally)
            if is_first:
                chunk = chunk.removeprefix(codecs.BOM_UTF8)
                is_first = not chunk
            if ends_with_return:
                chunk = b"\r" + chunk
            ends_with_return = chunk.endswith(b"\r")
            yield _with_line_feeds(chunk.removesuffix(b"\r"))
    rest = _as_utf8(decoder.decode(b"", final=True), tally)
    if ends_with_return or rest:
        yield rest + b"\n"


def end_of_cell(
    chunks: Iterator[bytes],
    start: int,
    separator: str,
) -> int | None:
    """Return where a quoted cell ends that goes on at some place of a text, behind its
    quote.

    None where the next quote that is not doubled stands before anything but the end of
    a cell: then no quote closes the cell, and the first one was a slip.

    Parameters
    ----------
    chunks : iterator of bytes
        The text.
    start : int
        The place, in bytes, within the quotes.
    separator : str
    """
    closes = re.compile(
        _padding(separator) + rb"(?:[" + re.escape(separator.encode()) + rb"\n]|\Z)"
    )
    offset, rest = 0, b""
    for chunk in chain(chunks, [b""]):
        at_end = not chunk
        text = rest + chunk
        position = max(0, start - offset)
        # Behind a quote it takes some bytes to see what it is.
        last = len(text) if at_end else len(text) - _BYTES_BEHIND_A_QUOTE
        while (quote := text.find(b'"', position, max(position, last))) >= 0:
            if text[quote + 1 : quote + 2] == b'"':
                position = quote + 2
                continue
            return offset + quote + 1 if closes.match(text, quote + 1) else None
        start = max(start, offset + max(position, last))
        rest = text[max(0, start - offset) :]
        offset += len(text) - len(rest)
    return None


def without_beginning(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Yield what stands behind the first bytes of a text."""
    for chunk in chunks:
        yield chunk[n_bytes:]
        n_bytes = max(0, n_bytes - len(chunk))


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file whose bytes are decompressed if its suffix says so."""
    opener = COMPRESSED.get(path.suffix.lower())
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return opened


def _as_utf8(text: str, tally: Tally) -> bytes:
    tally.has_bad_bytes |= "\ufffd" in text
    return text.encode("utf-8", errors="replace")


def _with_line_feeds(chunk: bytes) -> bytes:
    if b"\r" not in chunk:
        return chunk
    return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


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
        self._again = again
        self._n_looks = 0
        self._n_consumed = 0
        self._cell_end = 0
        """Where, in bytes of the text, a cell ends that is passed over."""
        self._wanted = wanted
        self._plain = set(wanted.only_numbers)
        self._comment = comment_pattern(comment, shape.separator)
        self._tally = tally
        self._record = record_pattern(shape.separator)
        self._open_quote = _open_quote_pattern(shape.separator)
        self._rest = _rest_pattern(shape.separator)
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
            if len(buffer) < CHUNK_BYTES:
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

    def _block(self, buffer: bytes, *, at_end: bool) -> tuple[CellBlock, int]:
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

    def _line_end(self, buffer: bytes, start: int) -> int:
        """Where a line ends that is no row.

        What is not there yet will be passed over, too.
        """
        end = buffer.find(b"\n", start) + 1
        self._within_line = not end
        return end or len(buffer)

    def _after_cell(self, buffer: bytes, *, at_end: bool) -> int:
        """Where the record ends that has the cell which is passed over, or as much as
        is there of it.
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

    def _wanted_columns(self, records: bytes) -> dict[int, Any] | None:
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

    def _without_names(self, columns: dict[int, Any] | None) -> dict[int, Any] | None:
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

    def _one_by_one(self, buffer: bytes, *, at_end: bool) -> tuple[CellBlock, int]:
        """Rows of the whole records that a buffer begins with, each looked at by
        itself.
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
        if open_quote is not None and self._n_looks < _MOST_LOOKS:
            # Lines of one long cell must not pass for records: whoever writes the cell
            # would write as many rows as it has lines.
            self._n_looks += 1
            within = self._n_consumed + open_quote.start(1) + 1
            end = end_of_cell(self._again(), within, self._shape.separator)
            if end is not None:
                self._tally.passed_over[PassedOver.TOO_LONG] += 1
                self._cell_end = end
                return stop
        self._tally.passed_over[PassedOver.UNCLOSED] += 1
        return line_end

    def _block_of(self, rows: list[list[str]], numbers: list[int]) -> CellBlock:
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
) -> dict[int, Any] | None:
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
        table = arrow_csv.read_csv(
            pa.BufferReader(records),
            arrow_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(records) + 1
            ),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=sorted(
                    MISSING
                ),  # of numbers; texts stay as they are written
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


def whole_records(
    buffer: bytes,
    separator: str,
    most_bytes: int,
) -> int:
    """Return the length of the whole records that a buffer begins with.

    0 where a quote in them is not as RFC 4180 has it, or a record is too long: then
    records are to be looked at one by one.
    """
    end = buffer.rfind(b"\n") + 1
    if b'"' not in buffer and _has_short_lines(buffer, most_bytes):
        return end
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    newlines = np.flatnonzero(data == _NEWLINE)
    is_outside = np.searchsorted(quotes, newlines) % 2 == 0
    ends = newlines[is_outside]
    if not len(ends) or np.diff(ends, prepend=-1).max() > most_bytes:
        return 0
    quotes = quotes[quotes < ends[-1]]
    opening, closing = quotes[0::2], quotes[1::2]
    is_doubled = opening[1:] == closing[:-1] + 1
    before = np.where(opening > 0, data[opening - 1], _NEWLINE)
    begins = (before == ord(separator)) | (before == _NEWLINE)
    begins[1:] |= is_doubled
    after = data[closing + 1]
    closes = (after == ord(separator)) | (after == _NEWLINE)
    closes[:-1] |= is_doubled
    return int(ends[-1]) + 1 if begins.all() and closes.all() else 0


def _has_short_lines(buffer: bytes, most_bytes: int) -> bool:
    """Whether each stretch of half the length has a line's end, so that no line is
    longer.
    """
    step = most_bytes // 2
    starts = range(0, len(buffer) - step, step)
    return all(buffer.find(b"\n", start, start + step) >= 0 for start in starts)
