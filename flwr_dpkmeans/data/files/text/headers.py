"""The first lines of delimited text: its separator, its header, its first record.

A header is public: it may decide how the file is read. Rows may not, on a deployed
node; there the owner states whether the file has a header. In a simulation, a draft and
a prediction, whose user holds the file, the first rows are looked at where nothing is
stated, and it is said so.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.data.files.cells import MISSING, has_decimal_comma, plain_number
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.text.quoting import comment_pattern, record_pattern
from flwr_dpkmeans.data.files.text.records import cells_of
from flwr_dpkmeans.errors import DataError

SEPARATORS = (",", ";", "\t", "|")
# As spreadsheets read it, in any case; some programs write it within quotes.
_STATED_SEPARATOR = re.compile(rb'(?i:sep)=(.)[ ]*\n|"(?i:sep)=(.)"[ ]*\n')
MOST_HEADER_BYTES = 1 << 24
_LOOKED_AT = 200
_MOSTLY = 0.9
# Below this width a first row 0, 1, ... is rather data than what pandas writes for a
# header.
_FEWEST_NUMBERED = 3


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
    start, dialect = _preamble(text, stated, may_state=may_state)
    separator = dialect.separator
    if not separator:
        separator = _separator(
            text,
            start,
            dialect,
            is_header,
            may_guess,
        )
    dialect = dialect.over(Dialect(separator=separator))
    n_records = _LOOKED_AT if may_guess else 1
    records = first_records(
        text,
        start,
        separator,
        n_records,
        dialect.comment,
    )
    if not records and is_header is not False and text[start:].strip():
        raise DataError(
            f"the header of {source} has a quote that does not close, but names are"
            " read from it: close the quote, or state the separator if cells are cut"
            " at another one."
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
    start = 0
    for _ in range(stated.skip_lines or 0):
        start = _line_end(text, start)
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


def first_records(
    text: bytes,
    start: int,
    separator: str,
    n_records: int,
    comment: str | None = None,
) -> list[tuple[list[str], int]]:
    """Return the cells of the first records, and where each ends.

    Lines that are none are left out.
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
        match = pattern.match(text, start, start + MOST_HEADER_BYTES)
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
    may_guess: bool,
) -> str:
    """What cells are cut at: by the header, or by rows where those may be looked at."""
    separators = [separator for separator in SEPARATORS if separator != dialect.decimal]
    if is_header is False and not may_guess:
        return separators[0]
    if is_header:
        return _separator_of_header(text, start, separators)
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
) -> str:
    """What parts most names; the first of equally many."""
    widths = {}
    for separator in separators:
        records = first_records(
            text,
            start,
            separator,
            1,
        )
        widths[separator] = len(records[0][0]) if records else 0
    # A row may not close a quote of the header and so decide about the others: one line
    # is looked at.
    line = text[: _line_end(text, start)]
    if not any(widths.values()) and first_records(
        line,
        start,
        " ",
        1,
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
            _LOOKED_AT,
            comment,
        )
        widths = [len(cells) for cells, _ in records]
        if not widths:
            continue
        widths_below = widths[1:] if len(widths) > 1 else widths
        ((width, n_rows),) = Counter(widths_below).most_common(1)
        if width < 2 or n_rows < _MOSTLY * len(widths_below):
            continue
        n_more = width - widths[0]
        rank = (n_more == 0, width)
        if n_more in (0, 1) and rank > best_rank:
            best = separator
            best_rank = rank
    return best


def guess_header(
    first: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[bool, str]:
    """Guess whether a table's first record has names, by the rows below it.

    It has where words stand above columns of numbers, or where each cell is a different
    word. A guess that takes names for data fails aloud in the next step; the other one
    would lose a row in silence, so it needs evidence.

    Returns
    -------
    is_header : bool
    why : str
        A sentence's worth for the file's owner; empty where words above numbers leave
        no doubt.
    """
    cells = [cell.strip() for cell in first]
    has_index = len(cells) > 1 and not cells[0]
    names = cells[1:] if has_index else cells
    if len(names) >= _FEWEST_NUMBERED and names == list(map(str, range(len(names)))):
        return True, "the first record, 0 to the number of columns, was taken for names"
    data = "the first record was taken for data: state header = true if it is names"
    if any(map(_is_number, names)):
        return False, data
    above_numbers = _names_above_numbers(cells, rows)
    present = [name for name in names if name]
    are_all_above_numbers = len(present) > 0 and len(above_numbers) == len(present)
    are_different = len(set(names)) == len(names)
    words = [name for name in above_numbers if is_word(name)]
    has_plain_word = any(map(_is_plain_word, words))
    if has_plain_word and (are_different or are_all_above_numbers):
        return True, ""
    taken = "was taken for names: state header = false if it is data"
    if are_all_above_numbers and len(above_numbers) > 1:
        return True, f"the first record, which stands above numbers, {taken}"
    are_words = all(map(is_word, names))
    if are_different and are_words and not _is_marker(names):
        why = f"the first record {taken}" if above_numbers else ""
        return True, why
    return False, data


def _names_above_numbers(
    cells: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    """Cells of a first record that are not empty and stand above numbers."""
    whole_rows = [row for row in rows if len(row) == len(cells)]
    names = []
    for index, name in enumerate(cells):
        if name and _holds_numbers([row[index] for row in whole_rows]):
            names.append(name)
    return names


def _is_number(cell: str) -> bool:
    """Whether a cell is a finite number or a truth value; infinity may be a name."""
    return math.isfinite(plain_number(cell)) or has_decimal_comma(cell)


def is_word(cell: str) -> bool:
    """Whether a cell has a letter and is no number.

    ``>89`` may be censored, dates are data.
    """
    has_letter = any(letter.isalpha() for letter in cell)
    return has_letter and math.isnan(plain_number(cell))


def _is_plain_word(cell: str) -> bool:
    """Whether a word does not look like a censored number, such as "over 89"."""
    return not re.search(r"\s\d", cell)


def _is_marker(names: Sequence[str]) -> bool:
    """Whether all names are markers of missing cells.

    One may be a name ("Na" is sodium).
    """
    return set(names) <= MISSING


def _holds_numbers(cells: Sequence[str]) -> bool:
    """Whether hardly anything but numbers stands in a column."""
    present = [cell.strip() for cell in cells if cell.strip() not in MISSING]
    n_numbers = sum(map(_is_number, present))
    return n_numbers > 0 and n_numbers >= _MOSTLY * len(present)
