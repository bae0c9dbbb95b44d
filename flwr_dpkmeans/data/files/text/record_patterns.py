"""Patterns of records and of their cells, as RFC 4180 has them."""

from __future__ import annotations

import re

from flwr_dpkmeans.data.files.text.separator_patterns import (
    mark_pattern,
    padding_pattern,
)

Pattern = re.Pattern[bytes]


def record_pattern(separator: str) -> Pattern:
    """Return the pattern of one whole record with the end of its line."""
    mark = mark_pattern(separator)
    cell = _cell_pattern(separator)
    more_cells = b"(?:%b%b)*+" % (mark, cell)
    return re.compile(cell + more_cells + b"\n")


def open_quote_pattern(separator: str) -> Pattern:
    """The pattern of a record that is within quotes where the text ends.

    Its group is the quote.

    A quote at the very end may be the first of two, or the one that closes the cell.
    """
    mark = mark_pattern(separator)
    cell = _cell_pattern(separator)
    spaces = padding_pattern(separator)
    cells_before = b"(?:%b%b)*" % (cell, mark)
    within_quotes = rb'(")(?:[^"]++|"")*+"?\Z'
    return re.compile(cells_before + spaces + within_quotes)


def rest_pattern(separator: str) -> Pattern:
    """The pattern of the cells of a record behind one of them."""
    mark = mark_pattern(separator)
    cell = _cell_pattern(separator)
    spaces = padding_pattern(separator)
    more_cells = b"(?:%b%b)*+" % (mark, cell)
    return re.compile(spaces + more_cells + b"\n")


def _cell_pattern(separator: str) -> bytes:
    """The pattern of one cell.

    A cell that begins with a quote ends with one, in front of a separator or the line's
    end; quotes within it are doubled. Other cells may have quotes, as 5" has.
    """
    mark = mark_pattern(separator)
    spaces = padding_pattern(separator)
    in_quotes = rb'"(?:[^"]++|"")*+"'
    at_end_of_cell = b"(?=[%b\n])" % mark
    quoted = spaces + in_quotes + spaces + at_end_of_cell
    begins_with_quote = b'%b"' % spaces
    plain = b"(?!%b)[^%b\n]*+" % (begins_with_quote, mark)
    return b"(?:%b|%b)" % (quoted, plain)
