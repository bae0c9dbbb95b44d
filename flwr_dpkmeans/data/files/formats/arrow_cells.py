"""Cells of Arrow arrays, read together where that is the same."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.data.files.cell_numbers import plain_number
from flwr_dpkmeans.data.files.cells import MISSING, Numbers, Texts, text_of
from flwr_dpkmeans.data.files.number_format import PLAIN, NumberFormat

if TYPE_CHECKING:
    import pyarrow as pa


_PLAIN_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


# A cell without any of these is no number in Python's eyes, so nobody need look.
_MAYBE_NUMBER = r"\pN|(?i)inf|nan|true|false"


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
        texts_of_numbers = map(text_of, numbers)
        return list(texts_of_numbers)
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
        if numbers is not None:
            is_gap = np.isnan(numbers)
            if not is_gap.any():
                return numbers, 0
    text_kind = pa.string()
    gap = pa.scalar(None, text_kind)
    cells = pc.utf8_trim_whitespace(cells)
    missing_texts = _missing_array(markers)
    is_missing = pc.is_in(cells, value_set=missing_texts)
    cells = pc.if_else(is_missing, gap, cells)
    if number_format.is_plain:
        numbers = _cast(cells)
        n_nulls = cells.null_count
        if numbers is not None:
            is_gap = np.isnan(numbers)
            if is_gap.sum() == n_nulls:
                return numbers, 0
    pattern = number_format.pattern
    if number_format.is_plain:
        pattern = _PLAIN_NUMBER
    is_number = pc.match_substring_regex(cells, pattern)
    written = pc.if_else(is_number, cells, gap)
    plain = _plainly_written(written, number_format)
    numbers = _cast(plain)
    assert numbers is not None  # what the pattern matches can be cast
    numbers = numbers.copy()
    is_no_number = pc.invert(is_number)
    is_there = pc.is_valid(cells)
    is_other = pc.and_kleene(is_no_number, is_there)
    is_other = pc.fill_null(is_other, False)
    flags = np.asarray(is_other)
    others = np.flatnonzero(flags)
    indices = pa.array(others)
    odd_cells = cells.take(indices)
    odd_numbers, n_others = _odd_numbers(odd_cells, number_format)
    numbers[others] = odd_numbers
    return numbers, n_others


def _cast(cells: pa.Array) -> Numbers | None:
    """Numbers of plainly written cells, NaN for nulls; None if one of them is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = pa.float64()
    try:
        floats = pc.cast(cells, kind)
    except pa.ArrowInvalid:
        return None
    numbers = floats.to_numpy(zero_copy_only=False)
    return np.asarray(numbers)


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

    n_cells = len(cells)
    numbers = np.full(n_cells, math.nan)
    may_be_number = pc.match_substring_regex(cells, _MAYBE_NUMBER)
    looked_at = np.flatnonzero(np.asarray(may_be_number))
    for index in looked_at:
        text = cells[int(index)].as_py()
        has_digits = any(map(str.isdigit, text))
        # 3.5 among numbers such as 3,5 could be 35 to whoever wrote it.
        if number_format.is_plain or not has_digits:
            numbers[index] = plain_number(text)
    is_other = np.isnan(numbers)
    n_others = int(is_other.sum())
    return numbers, n_others
