"""The first lines of delimited text: its separator, its header, its first record.

A header is public: it may decide how the file is read. Rows may not, on a deployed
node; there the owner states whether the file has a header, and it has as many lines as
the stated names take: else one row more could close a quote that the header leaves
open, and those above it would be names. In a simulation, a draft and
a prediction, whose user holds the file, the first rows are looked at where nothing is
stated, and it is said so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.text.header_guess import MOSTLY, guess_header
from flwr_dpkmeans.data.files.text.quoting import comment_pattern
from flwr_dpkmeans.data.files.text.record_patterns import record_pattern
from flwr_dpkmeans.data.files.text.records import cells_of
from flwr_dpkmeans.errors import DataError

SEPARATORS = (",", ";", "\t", "|")


# As spreadsheets read it, in any case; some programs write it within quotes.
_STATED_SEPARATOR = re.compile(rb'(?i:sep)=(.)[ ]*\n|"(?i:sep)=(.)"[ ]*\n')


ROWS_LOOKED_AT = 200
"""Rows by which a header is guessed."""
MOST_HEADER_BYTES = 1 << 24


@dataclass(frozen=True)
class Beginning:
    """How a text begins.

    Attributes
    ----------
    dialect : Dialect
        What was stated, and what the first lines showed: separator and header are
        stated now.
    first : tuple of str
        Cells of the first record; none in an empty file.
    n_bytes : int
        Length of what stands before the rows.
    why : str
        Why the first record is taken for names, or for data; empty where it was stated.
    """

    dialect: Dialect
    first: tuple[str, ...]
    n_bytes: int
    why: str = ""


def look_at(
    text: bytes,
    stated: Dialect,
    *,
    may_guess: bool,
    source: str,
    most_header_lines: int | None = None,
) -> Beginning:
    """Find out how a text begins.

    Parameters
    ----------
    text : bytes
        The header at least, or some first records, in UTF-8 with line feeds.
    stated : Dialect
        What the file's owner states.
    may_guess : bool
        Whether rows may be looked at where no header is stated; else there is one.
    source : str
        What sentences call the file.
    most_header_lines : int, optional
        Lines that a header has at most.

    Raises
    ------
    DataError
        For a header with a quote that does not close.
    """
    is_header = stated.header
    if is_header is None and not may_guess:
        is_header = True
    # A line that states a separator may be a row, which may not decide about the
    # others.
    may_state = may_guess or is_header is True
    if is_header is not True:
        most_header_lines = None
    start, dialect = _preamble(text, stated, may_state=may_state)
    separator = dialect.separator
    if not separator:
        separator = _separator(
            text,
            start,
            dialect,
            is_header,
            may_guess=may_guess,
            most_header_lines=most_header_lines,
        )
    dialect = dialect.over(Dialect(separator=separator))
    n_records = ROWS_LOOKED_AT if may_guess else 1
    records = first_records(
        text,
        start,
        separator,
        n_records,
        dialect.comment,
        most_lines=most_header_lines,
    )
    if not records and is_header is not False and text[start:].strip():
        raise DataError(
            f"the header of {source} has a quote that does not close, but names are"
            " read from it: close the quote, or state the separator if cells are cut"
            " at another one, or the column's name if it has a line break."
        )
    if not records:
        dialect = dialect.over(Dialect(header=bool(is_header)))
        return Beginning(dialect, (), start)
    cells, end = records[0]
    why = ""
    if is_header is None:
        rows = [row for row, _ in records[1:]]
        is_header, why = guess_header(cells, rows)
    dialect = dialect.over(Dialect(header=is_header))
    first = tuple(cell.strip() for cell in cells)
    n_bytes = end if is_header else start
    return Beginning(
        dialect,
        first,
        n_bytes,
        why,
    )


def _preamble(
    text: bytes,
    stated: Dialect,
    *,
    may_state: bool,
) -> tuple[int, Dialect]:
    """Where the header, or the first record, begins.

    And a separator that a line may state.
    """
    start = _end_of_lines(text, 0, stated.skip_lines or 0)
    line = _STATED_SEPARATOR.match(text, start)
    if may_state and line is not None:
        mark = line[line.lastindex or 0]
        if mark.isascii():
            stated = stated.over(Dialect(separator=mark.decode()))
            start = line.end()
    comment = comment_pattern(stated.comment or "", stated.separator or "\t")
    while start < len(text):
        end = _line_end(text, start)
        is_blank = not text[start:end].strip()
        is_comment = comment is not None and comment.match(text, start)
        if not is_blank and not is_comment:
            break
        start = end
    return start, stated


def _line_end(text: bytes, start: int) -> int:
    """Where the next line begins, or the text ends."""
    index = text.find(b"\n", start)
    return len(text) if index < 0 else index + 1


def _end_of_lines(text: bytes, start: int, n_lines: int) -> int:
    """Where so many lines end."""
    for _ in range(n_lines):
        start = _line_end(text, start)
    return start


def first_records(
    text: bytes,
    start: int,
    separator: str,
    n_records: int,
    comment: str | None = None,
    *,
    most_lines: int | None = None,
) -> list[tuple[list[str], int]]:
    """Return the cells of the first records, and where each ends.

    Lines that are none are left out. A record has at most `most_lines`.
    """
    records: list[tuple[list[str], int]] = []
    pattern = record_pattern(separator)
    comments = comment_pattern(comment or "", separator)
    if not text.endswith(b"\n"):
        text += b"\n"
    while start < len(text) and len(records) < n_records:
        if comments is not None and comments.match(text, start):
            start = _line_end(text, start)
            continue
        stop = start + MOST_HEADER_BYTES
        if most_lines is not None:
            stop = min(stop, _end_of_lines(text, start, most_lines))
        match = pattern.match(text, start, stop)
        if match is None:
            if not records:
                return []
            start = _line_end(text, start)
            continue
        start = match.end()
        cells = cells_of(match[0].decode(errors="replace"), separator)
        if cells and match[0].strip():
            records.append((cells, start))
    return records


def _separator(
    text: bytes,
    start: int,
    dialect: Dialect,
    is_header: bool | None,
    *,
    may_guess: bool,
    most_header_lines: int | None,
) -> str:
    """What cells are cut at: by the header, or by rows where those may be looked at."""
    separators = [separator for separator in SEPARATORS if separator != dialect.decimal]
    if is_header is False and not may_guess:
        return separators[0]
    if is_header:
        return _separator_of_header(text, start, separators, most_header_lines)
    by_rows = _separator_of_rows(
        text,
        start,
        separators,
        dialect.comment,
    )
    return by_rows or _separator_of_header(text, start, separators)


def _separator_of_header(
    text: bytes,
    start: int,
    separators: Sequence[str],
    most_lines: int | None = None,
) -> str:
    """What parts most names; the first of equally many."""
    widths = {}
    for separator in separators:
        records = first_records(
            text,
            start,
            separator,
            1,
            most_lines=most_lines,
        )
        widths[separator] = len(records[0][0]) if records else 0
    # A row may not close a quote of the header and so decide about the others: one line
    # is looked at.
    if not any(widths.values()) and first_records(
        text,
        start,
        " ",
        1,
        most_lines=1,
    ):
        return " "  # between names in quotes, as R's write.table has them
    return max(separators, key=lambda separator: widths[separator])


def _separator_of_rows(
    text: bytes,
    start: int,
    separators: Sequence[str],
    comment: str | None,
) -> str | None:
    """What cuts nearly all of the first rows into equally many cells, the most.

    The first record may have one cell less, that of rows' names; but what cuts it into
    as many as the rows comes first, or commas of 60,5;170 would be separators. None if
    nothing does.
    """
    best = None
    best_rank = (False, 1)
    for separator in separators:
        records = first_records(
            text,
            start,
            separator,
            ROWS_LOOKED_AT,
            comment,
        )
        widths = [len(cells) for cells, _ in records]
        if not widths:
            continue
        widths_below = widths[1:] if len(widths) > 1 else widths
        ((width, n_rows),) = Counter(widths_below).most_common(1)
        if width < 2 or n_rows < MOSTLY * len(widths_below):
            continue
        n_more = width - widths[0]
        rank = (n_more == 0, width)
        if n_more in (0, 1) and rank > best_rank:
            best = separator
            best_rank = rank
    return best
