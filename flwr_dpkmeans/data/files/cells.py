"""What one cell of a table says: a number, a text, a date, or nothing.

Each cell is read by itself. On a deployed node that is a promise of privacy: no row may
decide how another row is read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Numbers = NDArray[np.float64]
Texts = list[str | None]

_TRUTH = {"true": 1.0, "false": 0.0}
_MARKERS = (
    "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a"
    " nan null"
)
MISSING = frozenset({"", "#N/A N/A", *_MARKERS.split()})
"""Texts that are missing cells in every kind of table: those of ``pandas.read_csv``."""

# 3,5 or 1.200,50; and what stands between two such commas where a file was split there.
_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.' ]*,\d+|\d+;[+-]?[\d.' ]+")
_PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# A cell without any of these is no number in Python's eyes, so nobody need look.
_MAYBE_NUMBER = r"\pN|(?i)inf|nan|true|false"
_SPELLINGS_OF_A_MARK = {" ": " \u00a0\u202f", "'": "'\u2019"}


@dataclass(frozen=True)
class NumberFormat:
    """How numbers are written.

    Attributes
    ----------
    decimal : str
        The decimal mark, ``"."`` or ``","``.
    thousands : str
        The mark between groups of three digits; empty if there is none.
    """

    decimal: str = "."
    thousands: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as Python writes them."""
        return self.decimal == "." and not self.thousands

    @property
    def marks(self) -> str:
        """Every spelling of the thousands mark, such as three kinds of space."""
        return _SPELLINGS_OF_A_MARK.get(self.thousands, self.thousands)

    @property
    def pattern(self) -> str:
        """Regular expression (RE2) of a whole number in this format.

        The last group has three digits: a decimal comma must not become a thousands
        mark. Those before it have three, or two as in India: 12,34,567.
        """
        decimal = re.escape(self.decimal)
        whole = r"\d+"
        if self.thousands:
            mark = f"[{re.escape(self.marks)}]"
            threes = rf"\d{{1,3}}({mark}\d{{3}})+"
            twos = rf"\d{{1,2}}({mark}\d{{2}})+{mark}\d{{3}}"
            whole = rf"({threes}|{twos}|\d+)"
        return rf"^[+-]?({whole}({decimal}\d*)?|{decimal}\d+)([eE][+-]?\d+)?$"


PLAIN = NumberFormat()


def number_of(cell: SupportsFloat | str) -> float:
    """Return the number in a cell, NaN if it holds none.

    ``1_000`` is none: ``pandas.to_numeric`` reads it as 1, and ``float`` as 1000.
    """
    if isinstance(cell, str) and "_" in cell:
        return math.nan
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf
    except (ArithmeticError, TypeError, ValueError):
        return math.nan


def plain_number(cell: str) -> float:
    """Return the number or truth value in a cell as it is written.

    NaN if there is none.
    """
    plain = cell.strip()  # float alone keeps the ASCII separators
    number = number_of(plain)
    return _TRUTH.get(plain.lower(), number)


def text_of(cell: object) -> str | None:
    """Return a Python object as a file would have it: 1.0 as 1, true in small letters.

    None where it is one of `MISSING`. Whatever the object is, this is no error, which
    would tell that it is there.
    """
    try:
        text = _written(cell)
    except Exception:  # of any object's own comparison or text
        return f"<{type(cell).__name__}>"
    return None if text in MISSING else text


def _written(cell: object) -> str:
    """An object as a file would have it; empty where it says that a cell is missing."""
    is_missing = cell is None or type(cell).__name__ == "NAType"
    if is_missing or bool(cell != cell):
        return ""
    if isinstance(cell, bool | np.bool_):
        return str(cell).lower()
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    if isinstance(cell, date):
        return cell.isoformat()
    return str(cell).strip()


def has_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number but for its decimal comma, such as 3,5."""
    return bool(_DECIMAL_COMMA.fullmatch(cell))


@lru_cache(maxsize=4096)
def iso_text(cell: str, date_format: str) -> str:
    """Return a date of a stated format as ISO 8601 text; any other cell as it is."""
    try:
        when = datetime.strptime(cell, date_format)
    except ValueError:
        return cell
    time_marks = ("%H", "%I", "%M", "%S")
    has_time = any(mark in date_format for mark in time_marks)
    if has_time:
        return when.isoformat()
    day = when.date()
    return day.isoformat()


@lru_cache(maxsize=64)
def _missing_array(markers: frozenset[str]) -> pa.Array:
    import pyarrow as pa

    texts = sorted(MISSING | markers)
    return pa.array(texts, pa.string())


def texts_in(cells: pa.Array, markers: frozenset[str] = frozenset()) -> Texts:
    """Return the cells of an Arrow array of strings, stripped, None where missing."""
    import pyarrow as pa

    if pa.types.is_floating(cells.type):  # nobody was to ask for their text
        numbers = cells.to_pylist()
        return list(map(text_of, numbers))
    encoded = cells.dictionary_encode()
    texts: Texts = []
    for cell in encoded.dictionary.to_pylist():
        text = text_of(cell)
        texts.append(None if text in markers else text)
    indices = encoded.indices.to_pylist()
    return [texts[index] for index in indices]


def numbers_in(
    cells: pa.Array,
    number_format: NumberFormat = PLAIN,
    markers: frozenset[str] = frozenset(),
) -> tuple[Numbers, int]:
    """Return the numbers in an Arrow array of strings, and how many cells are others.

    Cells are read together where all of them are plain numbers, which is fast, and
    otherwise in steps. Every step takes a cell for what `plain_number` takes it for, so
    that no cell decides about another one.

    Parameters
    ----------
    cells : pyarrow.Array of strings, (n,)
    number_format : NumberFormat
        How numbers are written.
    markers : frozenset of str
        Texts that stand for missing cells, beside `MISSING`.

    Returns
    -------
    numbers : ndarray, (n,)
        NaN where a cell is missing or no number.
    n_others : int
        How many cells are neither missing nor numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(cells.type):  # nulls are missing cells
        return cells.to_numpy(zero_copy_only=False), 0
    if number_format.is_plain and not markers:
        numbers = _cast(cells)
        if numbers is not None and not np.isnan(numbers).any():
            return numbers, 0
    gap = pa.scalar(None, pa.string())
    cells = pc.utf8_trim_whitespace(cells)
    is_missing = pc.is_in(cells, value_set=_missing_array(markers))
    cells = pc.if_else(is_missing, gap, cells)
    if number_format.is_plain:
        numbers = _cast(cells)
        n_nulls = cells.null_count
        if numbers is not None and np.isnan(numbers).sum() == n_nulls:
            return numbers, 0
    pattern = _PLAIN_NUMBER if number_format.is_plain else number_format.pattern
    is_number = pc.match_substring_regex(cells, pattern)
    written = pc.if_else(is_number, cells, gap)
    numbers = _cast(_plainly_written(written, number_format))
    assert numbers is not None  # what the pattern matches can be cast
    is_no_number = pc.invert(is_number)
    is_other = pc.and_kleene(is_no_number, pc.is_valid(cells))
    is_other = pc.fill_null(is_other, False)
    others = np.flatnonzero(np.asarray(is_other))
    odd_cells = cells.take(pa.array(others))
    odd_numbers, n_others = _odd_numbers(odd_cells, number_format)
    numbers = numbers.copy()
    numbers[others] = odd_numbers
    return numbers, n_others


def _cast(cells: pa.Array) -> Numbers | None:
    """Numbers of plainly written cells, NaN for nulls; None if one of them is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        floats = pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return None
    return np.asarray(floats.to_numpy(zero_copy_only=False))


def _plainly_written(cells: pa.Array, number_format: NumberFormat) -> pa.Array:
    """Numbers of the format's pattern as Python writes them."""
    import pyarrow.compute as pc

    for mark in number_format.marks:
        cells = pc.replace_substring(cells, mark, "")
    if number_format.decimal != ".":
        cells = pc.replace_substring(cells, number_format.decimal, ".")
    return cells


def _odd_numbers(cells: pa.Array, number_format: NumberFormat) -> tuple[Numbers, int]:
    """Read cells that are no plain numbers: truth values, infinities, or texts."""
    import pyarrow.compute as pc

    numbers = np.full(len(cells), math.nan)
    may_be_number = np.asarray(pc.match_substring_regex(cells, _MAYBE_NUMBER))
    for index in np.flatnonzero(may_be_number):
        text = cells[int(index)].as_py()
        has_digits = any(map(str.isdigit, text))
        # 3.5 among numbers such as 3,5 could be 35 to whoever wrote it.
        if number_format.is_plain or not has_digits:
            numbers[index] = plain_number(text)
    n_others = int(np.isnan(numbers).sum())
    return numbers, n_others
