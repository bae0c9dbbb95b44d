"""Where records and quoted cells end, as RFC 4180 has them.

A quote that does not close costs its own line, not the next record's: on a deployed
node no row may decide about another one. Lines within quotes are one record's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.text.record_patterns import Pattern
from flwr_dpkmeans.data.files.text.separator_patterns import (
    mark_pattern,
    padding_pattern,
)

_QUOTE = ord('"')


_NEWLINE = ord("\n")


Bytes = NDArray[np.uint8]


Positions = NDArray[np.intp]


def comment_pattern(comment: str, separator: str) -> Pattern | None:
    """Return the pattern of how a line of comments begins; None if there are none."""
    if not comment:
        return None
    # A separator in front of the sign ends a cell, which a comment does not have.
    encoded = separator.encode()
    blanks = b" \t\v\f".replace(encoded, b"")
    sign = mark_pattern(comment)
    return re.compile(b"[%b]*+%b" % (blanks, sign))


class CellEnds:
    """Finds where quoted cells end that are too long for a record, cell after cell.

    A text is read once for all of them: were it read anew for each, so many such cells
    would take so long that something had to be done about the last ones.

    Parameters
    ----------
    again : callable
        Gives the text from its beginning.
    separator : str
    """

    def __init__(self, again: Callable[[], Iterator[bytes]], separator: str) -> None:
        mark = mark_pattern(separator)
        spaces = padding_pattern(separator)
        self._end_pattern = re.compile(rb"%b(?:[%b\n]|\Z)" % (spaces, mark))
        self._again = again
        self._restart()

    def _restart(self) -> None:
        self._chunks = self._again()
        self._text = b""
        """What has been read and may be asked for."""
        self._n_before = 0
        """Bytes of the text in front of that."""
        self._is_whole = False

    def behind(self, start: int) -> int | None:
        """Return where a quoted cell ends that goes on at a byte of the text.

        That is behind its closing quote. None where the next quote that is not doubled
        stands before anything but the end of a cell: then no quote closes the cell, and
        the first one was a slip.
        """
        if start < self._n_before:
            self._restart()
        position = start
        while True:
            # It takes one byte behind a quote to see whether it is doubled.
            last = len(self._text) - (not self._is_whole)
            quote, index = _next_quote(self._text, position - self._n_before, last)
            position = self._n_before + index
            if quote is not None:
                behind = quote + 1
                end = self._end_pattern.match(self._text, behind)
                if end is None:
                    return None
                if self._is_whole or end.end() < len(self._text):
                    return self._n_before + behind
            elif self._is_whole:
                return None
            self._read_on(position)

    def _read_on(self, position: int) -> None:
        """Read a chunk more; what stands in front of a byte is not asked for again."""
        n_done = min(len(self._text), position - self._n_before)
        chunk = next(self._chunks, None)
        self._is_whole = chunk is None
        self._text = self._text[n_done:] + (chunk or b"")
        self._n_before += n_done


def _next_quote(
    text: bytes,
    position: int,
    last: int,
) -> tuple[int | None, int]:
    """Find the first quote, before `last`, that is not doubled.

    Returns it, or None, and how far the text has been looked at.
    """
    while True:
        end = max(position, last)
        quote = text.find(b'"', position, end)
        if quote < 0:
            return None, end
        if text[quote + 1 : quote + 2] != b'"':
            return quote, position
        position = quote + 2


def whole_records(
    buffer: bytes,
    separator: str,
    most_bytes: int,
) -> int:
    """Return the length of the whole records that a buffer begins with.

    0 where a quote in them is not as RFC 4180 has it, or a record is too long: then
    records are to be looked at one by one.
    """
    if b'"' not in buffer and _has_short_lines(buffer, most_bytes):
        return buffer.rfind(b"\n") + 1
    data = np.frombuffer(buffer, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    newlines = np.flatnonzero(data == _NEWLINE)
    n_quotes_before = np.searchsorted(quotes, newlines)
    is_outside = n_quotes_before % 2 == 0
    ends = newlines[is_outside]
    if not len(ends):
        return 0
    lengths = np.diff(ends, prepend=-1)
    last_end = int(ends[-1])
    quotes = quotes[quotes < last_end]
    if lengths.max() > most_bytes:
        return 0
    if not _are_well_quoted(data, quotes, separator):
        return 0
    return last_end + 1


def _are_well_quoted(
    data: Bytes,
    quotes: Positions,
    separator: str,
) -> bool:
    """Whether each opening quote begins a cell, and each closing one ends it.

    `data` are whole records, and `quotes` the places of all quotes in them. A closing
    quote with an opening one behind it is a doubled quote.
    """
    opening = quotes[0::2]
    closing = quotes[1::2]
    behind = closing + 1
    is_doubled = opening[1:] == behind[:-1]
    cell_ends = (ord(separator), _NEWLINE)
    before = data[opening - 1]
    is_first = opening == 0
    begins = is_first | np.isin(before, cell_ends)
    begins[1:] |= is_doubled
    closes = np.isin(data[behind], cell_ends)
    closes[:-1] |= is_doubled
    return bool(begins.all() and closes.all())


def _has_short_lines(buffer: bytes, most_bytes: int) -> bool:
    """Whether each stretch of half the length has a line's end.

    Then no line is longer.
    """
    step = most_bytes // 2
    for start in range(0, len(buffer) - step, step):
        newline = buffer.find(b"\n", start, start + step)
        if newline < 0:
            return False
    return True
