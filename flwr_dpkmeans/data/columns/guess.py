"""What the columns of a table seem to mean.

Kinds for a draft of a schema, and what its owner should look at.

Guesses are for the owner's own eyes; of cells, a draft that parties share has only
words that everybody uses.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.dates import days_of, hours_of
from flwr_dpkmeans.data.doubts.codes import are_codes, counts_up
from flwr_dpkmeans.data.doubts.column_words import (
    is_identifier_name,
    is_index_name,
    words_of,
)
from flwr_dpkmeans.data.doubts.looks import FEWEST_OF_AN_ID
from flwr_dpkmeans.data.files.cell_numbers import plain_number
from flwr_dpkmeans.data.files.raw_column import RawColumn

DRAFT_WEIGHT = 0.5
"""Of categories and flags: with 1, two or more of them hide kinds that numbers show.

With less, one that has kinds.
"""

_FOREIGN_NUMBER = re.compile(
    r"[-+]?[€$£]?\s?\d+([.,'’\s]\d+)*(e[-+]?\d+)?\s?[%€$£]?", re.IGNORECASE
)
_FOREIGN_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-](\d{2}){1,2}|\d{4}[./]\d{1,2}[./]\d{1,2})([ T].*)?"
)
_NUMBERED_TEXT = re.compile(r"[A-Za-z]+[-_ ]?\d+")
_WORDS_OF_FREE_TEXT = 4.0
_MOST_ROWS_OF_AN_ID = 50
"""Texts with a number that stand in more rows each are rather codes of wards than ids
of persons.
"""

_SENTINELS = (-1, -9, -99, -999, -9999, -99999, 99, 999, 9999, 99999, 999999)
_SKEWED = 4.0
"""How many times the middle the upper twentieth has to be."""
_HOUR_NAMES = frozenset(
    {"hour", "hr", "time", "stunde", "uhrzeit", "heure", "hora", "ora"}
)
_DAY_NAMES = frozenset({"weekday", "dayofweek", "wochentag", "dow"})

_YES_NO = (
    ("yes", "no"),
    ("y", "n"),
    ("ja", "nein"),
    ("j", "n"),
    ("oui", "non"),
    ("si", "no"),
    ("sí", "no"),
    ("sim", "não"),
    ("ja", "nej"),
    ("ja", "nee"),
    ("tak", "nie"),
    ("t", "f"),
    ("wahr", "falsch"),
    ("vrai", "faux"),
    ("vero", "falso"),
    ("positive", "negative"),
    ("positiv", "negativ"),
    ("pos", "neg"),
)
_SPELLINGS: tuple[Callable[[str], str], ...] = (str.lower, str.capitalize, str.upper)


def toml_text(text: str) -> str:
    """Return a text as TOML quotes it.

    That is JSON's way but for the control character DEL.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


@dataclass(frozen=True)
class Guess:
    """What a column seems to hold."""

    kind: Kind
    keys: str = ""
    """What a schema says of it besides, as TOML."""
    comment: str = ""
    """What stands behind its line of a draft."""
    remarks: tuple[str, ...] = ()
    """What its owner should look at."""
    is_left_out: bool = False
    """Whether its line of a draft is a comment."""

    def line(self, name: str) -> str:
        """Its line of a draft."""
        keys = f", {self.keys}" if self.keys else ""
        text = f'{toml_text(name)} = {{ kind = "{self.kind}"{keys} }}'
        text = f"# {text}" if self.is_left_out else text
        return f"{text}  # {self.comment}" if self.comment else text

    def with_remark(
        self,
        remark: str,
        *,
        is_left_out: bool = False,
    ) -> Guess:
        """The same with one more thing to look at."""
        return replace(
            self,
            remarks=(*self.remarks, remark),
            is_left_out=self.is_left_out or is_left_out,
        )


def guess_column(column: RawColumn) -> Guess:
    """What a column seems to hold, by its name and all of its cells."""
    # As the file's stated dialect has dates and numbers.
    texts = column.dates()
    cells = [text for text in texts if text is not None]
    is_present = np.array([text is not None for text in texts], dtype=bool)
    if not cells:
        remark = "all of its cells are missing: say what it holds, or delete its line"
        return Guess(Kind.NUMBER, "bounds = []", remarks=(remark,))
    guess = _of_cells(column, cells, column.numbers()[is_present])
    if len(set(cells)) == 1 < len(cells):
        guess = guess.with_remark(
            "all of its cells are equal here: unless they differ elsewhere, delete its"
            " line"
        )
    return _as_id(column.name, cells, guess)


def _of_cells(
    column: RawColumn,
    cells: Sequence[str],
    numbers: NDArray[np.float64],
) -> Guess:
    """What most of a column's cells are meant as.

    And which of them are not read as that.
    """
    flag = _flag(cells)
    if flag is not None:
        return flag
    if are_codes(cells):
        return _category(cells).with_remark(
            "cells begin with 0, as codes do: it is a category, if it is no number"
        )
    if column.values is None:
        dated = _dated(cells)
        if dated is not None:
            return dated
    cycle = _cycle(column.name, cells)
    if cycle is not None:
        return cycle
    are_numbers = (~np.isnan(numbers)).tolist()
    if _are_most(cells, are_numbers, _FOREIGN_NUMBER):
        remarks = _unread(cells, are_numbers, "number") + _remarks_on(
            numbers[np.isfinite(numbers)]
        )
        return Guess(Kind.NUMBER, "bounds = []", remarks=remarks)
    return _free_text(cells) or _category(cells)


def _free_text(cells: Sequence[str]) -> Guess | None:
    """What is written for people to read, and has lines or many words.

    Nothing to cluster by.
    """
    n_words = sum(len(cell.split()) for cell in cells) / len(cells)
    if not any("\n" in cell for cell in cells) and n_words < _WORDS_OF_FREE_TEXT:
        return None
    remark = "it looks like text for people to read: its line is a comment"
    return Guess(
        Kind.CATEGORY,
        "values = []",
        remarks=(remark,),
        is_left_out=True,
    )


def _remarks_on(numbers: NDArray[np.float64]) -> tuple[str, ...]:
    """What numbers, (n,), look like that mean something else.

    Or should be compared by their ratios.
    """
    sentinels = [value for value in _SENTINELS if _is_far_off(value, numbers)]
    remarks = tuple(
        f"{int((numbers == value).sum())} cells are {value}, far from all others: if"
        f" that says that one is missing, add missing_values = [{value}]"
        for value in sentinels
    )
    others = numbers[~np.isin(numbers, sentinels)]
    if len(others) >= FEWEST_OF_AN_ID and _is_skewed(others):
        remarks += (
            (
                "its largest values are many times its usual ones: with transform ="
                ' "log" ratios count, not differences'
            ),
        )
    return remarks


def _is_far_off(value: float, numbers: NDArray[np.float64]) -> bool:
    """Whether several numbers have the value.

    And it is farther from the others than these are from each other.
    """
    is_value = numbers == value
    others = numbers[~is_value]
    if is_value.sum() < 2 or not others.size:
        return False
    return bool(np.abs(others - value).min() > np.ptp(others))


def _is_skewed(numbers: NDArray[np.float64]) -> bool:
    """Whether numbers above 0 reach much farther up than down."""
    low, middle, high = np.quantile(numbers, (0.05, 0.5, 0.95))
    if numbers.min() < 0.0 or middle <= 0.0:
        return False
    return bool(high > _SKEWED * middle and high - middle > _SKEWED * (middle - low))


def _flag(cells: Sequence[str]) -> Guess | None:
    """A flag, where only 0 and 1, true and false, or words for yes and no occur."""
    texts, weight = set(cells), f"weight = {DRAFT_WEIGHT:g}"
    if {text.lower() for text in texts} <= {"true", "false"} or {
        plain_number(text) for text in texts
    } == {0.0, 1.0}:
        return Guess(Kind.FLAG, weight)
    pair = next(
        (pair for pair in _YES_NO if {text.lower() for text in texts} == set(pair)),
        None,
    )
    if pair is None:
        return None
    spellings = [spelt for spelt in _SPELLINGS if texts & set(map(spelt, pair))]
    meanings = {
        spelt(word): meaning
        for spelt in spellings
        for word, meaning in zip(pair, ("true", "false"), strict=True)
    }
    pairs = ", ".join(
        f"{toml_text(word)} = {meaning}" for word, meaning in meanings.items()
    )
    return Guess(Kind.FLAG, f"map = {{ {pairs} }}, {weight}")


def _category(cells: Sequence[str]) -> Guess:
    comment = "two values; or a flag with map" if len(set(cells)) == 2 else ""
    return Guess(Kind.CATEGORY, f"values = [], weight = {DRAFT_WEIGHT:g}", comment)


def _dated(cells: Sequence[str]) -> Guess | None:
    """A date, or a time of day."""
    are_times = [
        not (math.isnan(hours_of(cell)) or cell[:4].isdecimal()) for cell in cells
    ]
    if 2 * sum(are_times) > len(cells):
        remark = (
            "its cells are times of day, which begin again after 24 hours: it is a"
            " cycle"
        )
        return Guess(
            Kind.CYCLE,
            "period = 24",
            remarks=(remark, *_unread(cells, are_times, "time of day")),
        )
    are_dates = [not math.isnan(days_of(cell)) for cell in cells]
    if _are_most(cells, are_dates, _FOREIGN_DATE):
        return Guess(
            Kind.DATE, "bounds = []", remarks=_unread(cells, are_dates, "date")
        )
    return None


def _cycle(name: str, cells: Sequence[str]) -> Guess | None:
    """Hours or weekdays, by the name and whole numbers.

    Or since all hours occur and nothing else.
    """
    numbers = {plain_number(cell) for cell in cells}
    if not all(number.is_integer() for number in numbers):
        return None
    words = words_of(name)
    is_hour = bool(words) and (words[-1] in _HOUR_NAMES or words[0] == "hour")
    low, high = min(numbers), max(numbers)
    if numbers == set(range(24)) or (is_hour and low >= 0 and high <= 24):
        remark = (
            "its whole numbers look like hours, which begin again after 24: it is a"
            " cycle, if it is no duration"
        )
        return Guess(Kind.CYCLE, "period = 24", remarks=(remark,))
    if (
        _DAY_NAMES & {*words, "".join(words)}
        and low >= 0
        and high <= 7
        and not {0.0, 7.0} <= numbers
    ):
        start = "" if low == 0 else ", start = 1"
        remark = (
            "its whole numbers look like days of the week, which begin again after 7:"
            " it is a cycle"
        )
        return Guess(Kind.CYCLE, f"period = 7{start}", remarks=(remark,))
    return None


def _as_id(
    name: str,
    cells: Sequence[str],
    guess: Guess,
) -> Guess:
    """The same, left out where the column seems to number rows or persons."""
    n_different = len(set(cells))
    is_called_index = is_index_name(name) or name.lower() == "id"
    if is_called_index and _count_up(cells):
        return guess.with_remark(
            "it looks like an index of the rows: its line is a comment",
            is_left_out=True,
        )
    if n_different == len(cells):
        if len(cells) >= FEWEST_OF_AN_ID and _is_unlike_measures(
            name, guess.kind, cells
        ):
            remark = (
                "no two rows have the same value, so it looks like an id: its line is a"
                " comment"
            )
            return guess.with_remark(remark, is_left_out=True)
        return guess
    if n_different < FEWEST_OF_AN_ID or not _looks_like_persons(
        name, guess.kind, cells
    ):
        return guess
    most_equal = max(Counter(cells).values())
    remark = (
        "it looks like the id of a person, and several rows have the same id (at most"
        f" {most_equal}): persons with several rows are protected less at record level,"
        " by as many times; make one row of each, or choose a unit of privacy that has"
        " all of a person's rows; its line is a comment"
    )
    return guess.with_remark(remark, is_left_out=True)


def _is_unlike_measures(
    name: str,
    kind: Kind,
    cells: Sequence[str],
) -> bool:
    """Texts, or whole numbers without a gap or with the name of an id.

    Others may be measures that differ.
    """
    if kind is not Kind.NUMBER:
        return kind == Kind.CATEGORY
    return _count_up(cells) or (
        is_identifier_name(name) and all(map(str.isdecimal, cells))
    )


def _looks_like_persons(
    name: str,
    kind: Kind,
    cells: Sequence[str],
) -> bool:
    """Texts or whole numbers in a column that is called so, or texts with a number.

    There are few of each.
    """
    if kind not in (Kind.CATEGORY, Kind.NUMBER):
        return False
    if is_identifier_name(name):
        return kind == Kind.CATEGORY or all(map(str.isdecimal, cells))
    are_numbered = all(map(_NUMBERED_TEXT.fullmatch, cells))
    return are_numbered and len(cells) <= _MOST_ROWS_OF_AN_ID * len(set(cells))


def _count_up(cells: Sequence[str]) -> bool:
    return all(map(str.isdecimal, cells)) and counts_up(
        np.array(list(map(float, cells)))
    )


def _are_most(
    cells: Sequence[str],
    are_read: Sequence[bool],
    foreign: re.Pattern[str],
) -> bool:
    """Whether over half of the cells are read.

    Or are what a reader of another country would read.
    """
    are_foreign = [bool(foreign.fullmatch(cell)) for cell in cells]
    return 2 * sum(map(max, are_read, are_foreign)) > len(cells)


_WRITTEN = {
    "number": ("1200.5", "decimal, thousands, missing"),
    "date": ("2024-01-31", "dates, missing"),
    "time of day": ("23:59", "missing"),
}
"""How cells are read unless a file states another way, and with which keys it does."""


def _unread(
    cells: Sequence[str],
    is_read: Sequence[bool],
    what: str,
) -> tuple[str, ...]:
    """What an owner must state of the table."""
    unread = list(
        dict.fromkeys(
            cell for cell, read in zip(cells, is_read, strict=True) if not read
        )
    )
    if not unread:
        return ()
    n_unread = len(cells) - sum(is_read)
    example, keys = _WRITTEN[what]
    return (
        (
            f"{n_unread} of {len(cells)} cells, such as {unread[0]!r}, are not read as"
            f" a {what}, and count as missing: they are read like {example}, so state"
            f" how the file writes them ({keys}), or say with map what they mean"
        ),
    )
