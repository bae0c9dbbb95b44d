"""Columns that nobody means to cluster.

Identifiers, indices, codes and constants, by their names and values.

What is found here is for whoever owns the rows: a warning in a notebook, the local log
elsewhere. It follows from exact cells, so it never goes into a report, a model or a
message, and nothing that a node answers may depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.errors import column_names

FEWEST_OF_AN_ID = 20
"""Values of an identifier or index, and rows of a constant.

Fewer may differ, or be alike, by chance.
"""
MOST_LOOKED_AT = 2_000
"""Values of a column that decide whether all of them are looked at, and cells of a
column of text.
"""
_MOST_CELLS_OF_A_PARTY = 1 << 22
"""Of one party's table that are looked at: more of it may not be in memory."""
_CODE = re.compile(r"0\d+")
_WORD = re.compile(r"[A-Z]?[a-zäöüßéèê]+|[A-Z]+(?![a-z])|\d+|#")
_INDEX_NAME = re.compile(
    r"|unnamed: ?\d+|index|idx|level_\d+|obs|#|nr|no|lfd\W*nr\W*"
    r"|row[ _.]?(names?|id|nr|num|number|index)?"
)
_ID_WORDS = frozenset(
    {
        "id",
        "ids",
        "identifier",
        "uuid",
        "guid",
        "pid",
        "mrn",
        "ssn",
        "kennung",
        "fallnummer",
        "fallnr",
        "patientennummer",
        "patientennr",
        "patnr",
        "versichertennummer",
        "kundennummer",
    }
)
_PERSON_WORDS = frozenset(
    {
        "patient",
        "person",
        "subject",
        "participant",
        "case",
        "member",
        "customer",
        "client",
        "user",
        "account",
        "employee",
        "student",
        "pupil",
        "donor",
        "resident",
        "respondent",
        "household",
        "pat",
        "patienten",
        "patientin",
        "proband",
        "probanden",
        "fall",
    }
)
_NUMBER_WORDS = frozenset({"no", "nr", "num", "number", "code", "key", "nummer"})


class Doubt(StrEnum):
    """Why a column is doubtful."""

    INDEX = "index"
    IDENTIFIER = "identifier"
    REPEATED = "repeated"
    CODE = "code"
    CONSTANT = "constant"
    CONSTANT_HERE = "constant here"
    """At the party that looks; other parties' rows may differ."""


_SENTENCES = {
    Doubt.INDEX: (
        "what looks like an index is clustered in {columns}: it says where a row stands"
        " and nothing about it, so leave it out."
    ),
    Doubt.IDENTIFIER: (
        "what looks like an identifier is clustered in {columns}: there are no"
        " distances between its values, so leave it out."
    ),
    Doubt.REPEATED: (
        "what looks like an identifier has several rows for one value in {columns}: if"
        " these are persons, noise hides each of their rows and protects whoever has"
        " several of them less, so make one row for each person."
    ),
    Doubt.CODE: (
        "cells begin with 0, as codes do and numbers do not, in {columns}, but are read"
        " as numbers: make a category of it, or leave it out."
    ),
    Doubt.CONSTANT: (
        "all rows have one value in {columns}: it tells no clusters apart, so leave it"
        " out."
    ),
    Doubt.CONSTANT_HERE: (
        "all rows here have one value in {columns}: it tells no clusters apart, so"
        " leave it out, unless others' rows differ."
    ),
}


def sentences_about(
    doubts: Iterable[tuple[int, Doubt]], names: Sequence[str] = ()
) -> list[str]:
    """Say of each kind of doubt which columns it is about.

    They are counted from 0 where there are no `names`.
    """
    columns_of: dict[Doubt, list[int]] = {}
    for column, doubt in doubts:
        columns_of.setdefault(doubt, []).append(column)
    return [
        _SENTENCES[doubt].format(columns=column_names(columns, names))
        for doubt, columns in columns_of.items()
    ]


def doubts_about_tables(
    parts: Sequence[NDArray[np.float64]], names: Sequence[str] = ()
) -> list[tuple[int, Doubt]]:
    """Doubts about the columns of parties' tables, (n_i, d), by position.

    `names` are empty where there are none.

    Most columns are done with by some first rows. Of an index or identifier the largest
    party's values decide, whose own count may begin at each party, or those of all.
    """
    largest = max(parts, key=len)
    n_rows = sum(map(len, parts))
    if n_rows < FEWEST_OF_AN_ID:
        return []
    first = np.ascontiguousarray(largest[:MOST_LOOKED_AT].T)
    doubts = []
    for column, values in enumerate(first):
        name = names[column] if names else None
        if not _is_worth_a_look(name, values, n_rows):
            continue
        doubt = _index_or_identifier(name, largest[:, column])
        if doubt is not None:
            doubts.append((column, doubt))
            continue
        whole = np.concatenate([part[:, column] for part in parts])
        doubts += [(column, doubt) for doubt in doubts_about_numbers(name, whole)]
    return doubts


def doubts_about_own_table(
    table: NDArray[np.generic], names: Sequence[str]
) -> list[tuple[int, Doubt]]:
    """Doubts of a party that sees no other rows than those of its table, (n, d).

    There are none without `names`.
    """
    if not names:
        return []
    n_rows = max(FEWEST_OF_AN_ID, _MOST_CELLS_OF_A_PARTY // len(names))
    first_rows = np.asarray(table[:n_rows])  # all of it may not fit into memory
    here = {Doubt.CONSTANT: Doubt.CONSTANT_HERE}
    return [
        (column, here.get(doubt, doubt))
        for column, doubt in doubts_about_tables([first_rows], names)
    ]


def doubts_about_numbers(name: object, values: ArrayLike) -> tuple[Doubt, ...]:
    """Doubts about one column of numbers.

    Parameters
    ----------
    name : object
        What the column is called; a text, or anything else where it has no name.
    values : array-like, (n,)
        NaN where a cell is missing.

    Examples
    --------
    >>> doubts_about_numbers("Unnamed: 0", np.arange(50))
    (<Doubt.INDEX: 'index'>,)
    >>> doubts_about_numbers("age", np.random.default_rng(0).integers(20, 90, 500))
    ()
    """
    numbers = np.asarray(values, dtype=np.float64)
    n_rows = len(numbers)
    if n_rows < FEWEST_OF_AN_ID or not _is_worth_a_look(
        name, numbers[:MOST_LOOKED_AT], n_rows
    ):
        return ()
    if _is_constant(numbers):
        return (Doubt.CONSTANT,)
    doubt = _index_or_identifier(name, numbers)
    if doubt is not None:
        return (doubt,)
    present = numbers[~np.isnan(numbers)]
    is_repeated = (
        is_identifier_name(name)
        and _is_whole(present)
        and len(np.unique(present)) >= FEWEST_OF_AN_ID
    )
    return (Doubt.IDENTIFIER, Doubt.REPEATED) if is_repeated else ()


def doubts_about_texts(cells: Sequence[str]) -> tuple[Doubt, ...]:
    """Doubts about the texts of a column that is read as numbers.

    Examples
    --------
    >>> doubts_about_texts(["01067", "04109", "80331"])
    (<Doubt.CODE: 'code'>,)
    >>> doubts_about_texts(["3.5", "0.7"])
    ()
    """
    return (Doubt.CODE,) if are_codes(cells[:MOST_LOOKED_AT]) else ()


def doubts_about_persons(name: object, cells: Iterable[Any]) -> tuple[Doubt, ...]:
    """Doubts about a column that is not clustered, but may say whose rows they are.

    Examples
    --------
    >>> doubts_about_persons("patient_id", [f"P{number // 3}" for number in range(90)])
    (<Doubt.REPEATED: 'repeated'>,)
    """
    if not is_identifier_name(name):
        return ()
    present = [str(cell) for cell in cells if cell is not None and cell == cell]
    n_different = len(set(present))
    is_repeated = FEWEST_OF_AN_ID <= n_different < len(present)
    return (Doubt.REPEATED,) if is_repeated else ()


def are_codes(cells: Sequence[str]) -> bool:
    """Whether texts are codes of digits, some of which begin with 0."""
    return any(map(_CODE.fullmatch, cells)) and all(map(str.isdecimal, cells))


def counts_up(numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers, (n,), have no gap and none of them occurs twice."""
    if not len(numbers) or not _is_whole(numbers):
        return False
    has_no_gap = np.ptp(numbers) == len(numbers) - 1
    return bool(has_no_gap) and _are_different(numbers)


def words_of(name: str) -> list[str]:
    """Split a name such as arrival_hour, arrivalHour or "Arrival hour" into words.

    All of them are in small letters.
    """
    return [word.lower() for word in _WORD.findall(name)]


def is_identifier_name(name: object) -> bool:
    """Whether a column is called as identifiers are.

    `patient_id`, `PatientID`, `patientid`, `subject`, `case_no`.

    Examples
    --------
    >>> [is_identifier_name(name) for name in ("patient_id", "SubjectNo", "userid")]
    [True, True, True]
    >>> [is_identifier_name(name) for name in ("patient_age", "humid")]
    [False, False]
    """
    words = words_of(str(name))
    if not words:
        return False
    if words[-1] in _ID_WORDS or words[-1].removesuffix("id") in _PERSON_WORDS:
        return True
    if len(words) < 2 or words[-1] not in _NUMBER_WORDS:
        return False
    return words[-2] in _PERSON_WORDS or words[-2] in _ID_WORDS


def is_index_name(name: object) -> bool:
    """Whether a column is called as indices are, also by an empty text.

    What is no text is no name. Pandas writes an index without one as ``Unnamed: 0``.
    """
    if not isinstance(name, str):
        return False
    return _INDEX_NAME.fullmatch(name.strip().lower()) is not None


def _is_worth_a_look(
    name: object,
    first: NDArray[np.float64],
    n_rows: int,
) -> bool:
    """Whether a column's first values leave a doubt.

    Hardly any column of measures does.
    """
    if _is_constant(first):
        return True
    present = first[~np.isnan(first)]
    if not len(present) or not _is_whole(present):
        return False
    if is_index_name(name) or is_identifier_name(name):
        return True
    return present.max() - present.min() < n_rows and _are_different(present)


def _index_or_identifier(name: object, values: NDArray[np.float64]) -> Doubt | None:
    """Whether values are an index or identifier.

    None occurs twice, and the name or the lack of gaps speaks for it.
    """
    if len(values) < FEWEST_OF_AN_ID or not _is_whole(values):
        return None
    if is_index_name(name):
        return Doubt.INDEX if _are_different(values) else None
    if is_identifier_name(name):
        return Doubt.IDENTIFIER if _are_different(values) else None
    return Doubt.IDENTIFIER if counts_up(values) else None


def _is_constant(values: NDArray[np.float64]) -> bool:
    return len(values) > 0 and bool((values == values[0]).all())


def _is_whole(values: NDArray[np.float64]) -> bool:
    """Whether all values are whole numbers, and none is missing."""
    return bool((np.isfinite(values) & (np.rint(values) == values)).all())


def _are_different(values: NDArray[np.float64]) -> bool:
    return len(np.unique(values)) == len(values)
