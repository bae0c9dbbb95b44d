"""Whether a file's first record is a header."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from flwr_dpkmeans.data.files.cell_numbers import has_decimal_comma, plain_number
from flwr_dpkmeans.data.files.cells import MISSING

MOSTLY = 0.9
Cells = Sequence[str]


# Below this width a first row 0, 1, ... is rather data than what pandas writes for a
# header.
_FEWEST_NUMBERED = 3


def guess_header(first: Cells, rows: Sequence[Cells]) -> tuple[bool, str]:
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
    n_names = len(names)
    numbers = list(map(str, range(n_names)))
    if n_names >= _FEWEST_NUMBERED and names == numbers:
        return True, "the first record, 0 to the number of columns, was taken for names"
    data = "the first record was taken for data: state header = true if it is names"
    if any(map(_is_number, names)):
        return False, data
    above_numbers = _names_above_numbers(cells, rows)
    present = [name for name in names if name]
    n_above = len(above_numbers)
    are_all_above_numbers = 0 < n_above == len(present)
    are_different = len(set(names)) == n_names
    words = [name for name in above_numbers if is_word(name)]
    has_plain_word = any(map(_is_plain_word, words))
    if has_plain_word and (are_different or are_all_above_numbers):
        return True, ""
    taken = "was taken for names: state header = false if it is data"
    if are_all_above_numbers and n_above > 1:
        return True, f"the first record, which stands above numbers, {taken}"
    are_words = all(map(is_word, names))
    if are_different and are_words and not _is_marker(names):
        if not above_numbers:
            return True, ""
        return True, f"the first record {taken}"
    return False, data


def _names_above_numbers(cells: Cells, rows: Sequence[Cells]) -> list[str]:
    """Cells of a first record that are not empty and stand above numbers."""
    n_cells = len(cells)
    whole_rows = [row for row in rows if len(row) == n_cells]
    names = []
    for index, name in enumerate(cells):
        column = [row[index] for row in whole_rows]
        if name and _holds_numbers(column):
            names.append(name)
    return names


def _is_number(cell: str) -> bool:
    """Whether a cell is a finite number or a truth value; infinity may be a name."""
    number = plain_number(cell)
    if math.isfinite(number):
        return True
    return has_decimal_comma(cell)


def is_word(cell: str) -> bool:
    """Whether a cell has a letter and is no number.

    ``>89`` may be censored, dates are data.
    """
    if not any(map(str.isalpha, cell)):
        return False
    number = plain_number(cell)
    return math.isnan(number)


def _is_plain_word(cell: str) -> bool:
    """Whether a word does not look like a censored number, such as "over 89"."""
    return not re.search(r"\s\d", cell)


def _is_marker(names: Cells) -> bool:
    """Whether all names are markers of missing cells.

    One may be a name ("Na" is sodium).
    """
    return set(names) <= MISSING


def _holds_numbers(cells: Cells) -> bool:
    """Whether hardly anything but numbers stands in a column."""
    stripped = map(str.strip, cells)
    present = [cell for cell in stripped if cell not in MISSING]
    n_numbers = sum(map(_is_number, present))
    if n_numbers == 0:
        return False
    return n_numbers >= MOSTLY * len(present)
