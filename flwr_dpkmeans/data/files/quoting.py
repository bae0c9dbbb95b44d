"""Where records and quoted cells end, as RFC 4180 has them.

A quote that does not close costs its own line, never another record's: on a deployed
node no row may decide about another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import numpy as np

_BYTES_BEHIND_A_QUOTE = 64
_QUOTE = ord('"')
_NEWLINE = ord("\n")


def record_pattern(separator: str) -> re.Pattern[bytes]:
    """Return the pattern of one whole record with the end of its line."""
    mark = re.escape(separator.encode())
    cell = _cell_pattern(separator)
    return re.compile(b"%b(?:%b%b)*+\n" % (cell, mark, cell))


def open_quote_pattern(separator: str) -> re.Pattern[bytes]:
    """The pattern of a record that is within quotes where the text ends.

    Its group is the quote.

    A quote at the very end may be the first of two, or the one that closes the cell.
    """
    mark = re.escape(separator.encode())
    cell = _cell_pattern(separator)
    cells_before = b"(?:%b%b)*" % (cell, mark)
    within_quotes = rb'(")(?:[^"]++|"")*+"?\Z'
    return re.compile(cells_before + _padding(separator) + within_quotes)


def rest_pattern(separator: str) -> re.Pattern[bytes]:
    """The pattern of the cells of a record behind one of them."""
    mark = re.escape(separator.encode())
    cell = _cell_pattern(separator)
    spaces = _padding(separator)
    return re.compile(b"%b(?:%b%b)*+\n" % (spaces, mark, cell))


def _cell_pattern(separator: str) -> bytes:
    """The pattern of one cell.

    A cell that begins with a quote ends with one, in front of a separator or the line's
    end; quotes within it are doubled. Other cells may have quotes, as 5" has.
    """
    mark = re.escape(separator.encode())
    spaces = _padding(separator)
    in_quotes = rb'"(?:[^"]++|"")*+"'
    quoted = b"%b%b%b(?=[%b\n])" % (spaces, in_quotes, spaces, mark)
    plain = b'(?!%b")[^%b\n]*+' % (spaces, mark)
    return b"(?:%b|%b)" % (quoted, plain)


def _padding(separator: str) -> bytes:
    """The pattern of spaces around a quoted cell that do not separate cells."""
    return rb"" if separator == " " else rb"[ ]*+"


def comment_pattern(comment: str, separator: str) -> re.Pattern[bytes] | None:
    """Return the pattern of how a line of comments begins; None if there are none."""
    if not comment:
        return None
    # A separator in front of the sign ends a cell, which a comment does not have.
    blanks = b" \t\v\f".replace(separator.encode(), b"")
    sign = re.escape(comment.encode())
    return re.compile(b"[%b]*+%b" % (blanks, sign))


def end_of_cell(
    chunks: Iterator[bytes],
    start: int,
    separator: str,
) -> int | None:
    """Return where a quoted cell ends that goes on somewhere in a text.

    That is behind its closing quote. None where the next quote that is not doubled
    stands before anything but the end of
    a cell: then no quote closes the cell, and the first one was a slip.

    Parameters
    ----------
    chunks : iterator of bytes
        The text.
    start : int
        The place, in bytes, within the quotes.
    separator : str
    """
    mark = re.escape(separator.encode())
    closes = re.compile(rb"%b(?:[%b\n]|\Z)" % (_padding(separator), mark))
    offset = 0
    rest = b""
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
    opening = quotes[0::2]
    closing = quotes[1::2]
    is_doubled = opening[1:] == closing[:-1] + 1
    cell_ends = (ord(separator), _NEWLINE)
    before = np.where(opening > 0, data[opening - 1], _NEWLINE)
    begins = np.isin(before, cell_ends)
    begins[1:] |= is_doubled
    after = data[closing + 1]
    closes = np.isin(after, cell_ends)
    closes[:-1] |= is_doubled
    if not begins.all() or not closes.all():
        return 0
    return int(ends[-1]) + 1


def _has_short_lines(buffer: bytes, most_bytes: int) -> bool:
    """Whether each stretch of half the length has a line's end.

    Then no line is longer.
    """
    step = most_bytes // 2
    starts = range(0, len(buffer) - step, step)
    return all(buffer.find(b"\n", start, start + step) >= 0 for start in starts)
