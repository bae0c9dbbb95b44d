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

from flwr_dpkmeans.data.doubts.identifiers import FEWEST_OF_AN_ID, counts_up
from flwr_dpkmeans.errors import column_names

MOST_LOOKED_AT = 2_000
"""Values of a column that decide whether all of them are looked at, and cells of a
column of text.
"""
_CODE = re.compile(r"0\d+")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|#")
_INDEX_NAME = re.compile(
    r"|unnamed: ?\d+|index|level_\d+|obs|row["
    r" _.]?(names?|id|nr|number|index)?|#|lfd\W*nr\W*"
)
_ID_WORDS = frozenset(
    {"id", "ids", "identifier", "uuid", "guid", "pid", "mrn", "ssn", "kennung"}
    | {
        "fallnummer",
        "fallnr",
        "patientennummer",
        "patientennr",
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
    }
    | {"employee", "student", "pupil", "donor", "resident", "respondent", "household"}
    | {"patienten", "patientin", "proband", "probanden", "fall"}
)
_NUMBER_WORDS = frozenset({"no", "nr", "num", "number", "code", "key", "nummer"})


class Doubt(StrEnum):
    """Why a column is doubtful."""

    INDEX = "index"
    IDENTIFIER = "identifier"
    REPEATED = "repeated"
    CODE = "code"
    CONSTANT = "constant"


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
}


def sentences_about(
    doubts: Iterable[tuple[int, Doubt]], names: Sequence[str] = ()
) -> list[str]:
    """Say of each kind of doubt which columns it is about, counted from 0 where there
    are no `names`.
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
    >>> doubts_about_texts(["01067", "04109", "80331"]), doubts_about_texts(["3.5", "0.7"])
    ((<Doubt.CODE: 'code'>,), ())
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
    """Whether texts are codes of digits, some of which begin with 0 as no number does."""
    return any(map(_CODE.fullmatch, cells)) and all(map(str.isdecimal, cells))


def is_identifier_name(name: object) -> bool:
    """Whether a column is called as identifiers are.

    `patient_id`, `PatientID`, `patientid`, `subject`, `case_no`.

    Examples
    --------
    >>> [is_identifier_name(name) for name in ("patient_id", "SubjectNo", "userid", "patient_age", "humid")]
    [True, True, True, False, False]
    """
    words = [word.lower() for word in _WORD.findall(str(name))]
    if not words:
        return False
    if words[-1] in _ID_WORDS or words[-1].removesuffix("id") in _PERSON_WORDS:
        return True
    return len(words) > 1 and words[-1] in _NUMBER_WORDS and words[-2] in _PERSON_WORDS


def _is_worth_a_look(name: object, first: NDArray[np.float64], n_rows: int) -> bool:
    """Whether a column's first values leave a doubt.

    Hardly any column of measures does.
    """
    if _is_constant(first):
        return True
    present = first[~np.isnan(first)]
    if not len(present) or not _is_whole(present):
        return False
    if _has_index_name(name) or is_identifier_name(name):
        return True
    return present.max() - present.min() < n_rows and _are_different(present)


def _index_or_identifier(name: object, values: NDArray[np.float64]) -> Doubt | None:
    """Whether values are an index or identifier.

    None occurs twice, and the name or the lack of gaps speaks for it.
    """
    if len(values) < FEWEST_OF_AN_ID or not _is_whole(values):
        return None
    if _has_index_name(name):
        return Doubt.INDEX if _are_different(values) else None
    if is_identifier_name(name):
        return Doubt.IDENTIFIER if _are_different(values) else None
    return Doubt.IDENTIFIER if counts_up(values) else None


def _has_index_name(name: object) -> bool:
    """Whether a column is called as indices are, also by an empty text.

    What is no text is no name.
    """
    return (
        isinstance(name, str)
        and _INDEX_NAME.fullmatch(name.strip().lower()) is not None
    )


def _is_constant(values: NDArray[np.float64]) -> bool:
    return len(values) > 0 and bool((values == values[0]).all())


def _is_whole(values: NDArray[np.float64]) -> bool:
    """Whether all values are whole numbers, and none is missing."""
    return bool((np.isfinite(values) & (np.rint(values) == values)).all())


def _are_different(values: NDArray[np.float64]) -> bool:
    return len(np.unique(values)) == len(values)
