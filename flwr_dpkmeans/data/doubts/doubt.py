"""Why a column may be no measure, and how that is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from flwr_dpkmeans.errors import column_names


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
        " several of them less, so say whose row each is (persons of a fit,"
        " person-column of a node or schema), or make one row for each person."
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
