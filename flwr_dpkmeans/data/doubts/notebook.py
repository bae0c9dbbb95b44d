"""What a notebook's tables say against clustering them as they are.

For whoever holds all of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.doubts import party_units
from flwr_dpkmeans.data.doubts.column_words import is_identifier_name
from flwr_dpkmeans.data.doubts.doubt import Doubt, sentences_about
from flwr_dpkmeans.data.doubts.doubtful_cells import (
    doubts_about_persons,
    doubts_about_texts,
)
from flwr_dpkmeans.data.doubts.doubtful_columns import doubts_about_tables
from flwr_dpkmeans.data.doubts.looks import MOST_LOOKED_AT
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.table_labels import column_labels

_MOST_CELLS = 20_000
"""Of each table's column that are looked at for persons."""


def doubts_of_rows(
    parts: Sequence[NDArray[np.float64]],
    names: Sequence[str],
    parties: Sequence[str],
    schema: Schema | None = None,
) -> list[str]:
    """Say which columns of tables, (n_i, d), are no measures or of another unit.

    Of a schema's points those are looked at that are numbers.
    """
    if schema is not None:
        numbers = _number_features(schema)
        if not numbers:
            return []
        # A copy, but it takes hardly longer than the encoding.
        parts = [part[:, numbers] for part in parts]
        names = [names[feature] for feature in numbers]
    if not parts:
        return []
    doubts = doubts_about_tables(parts, names)
    sentences = sentences_about(doubts, names)
    slips = party_units.other_units(parts)
    sentences += party_units.sentences_about(slips, parties, names)
    return sentences


def doubts_of_frames(
    frames: Sequence[object],
    schema: Schema,
    *,
    persons_known: bool = False,
) -> list[str]:
    """Say which numbers are written as codes, and where persons have several rows.

    Numbers are a schema's, persons are looked for in all other columns. Whether a
    person has several rows is seen within one table: numbers may begin anew in each.
    Where it is known whose rows these are, nothing is said of persons.
    """
    labels = _labels(frames[0])
    names = list(map(str, labels))
    kinds = {column.name: column.kind for column in schema.columns}
    doubts: list[tuple[int, Doubt]] = []
    for position, name in enumerate(names):
        for frame in frames:
            kind = kinds.get(name)
            reasons = _doubts_of_column(frame, name, kind)
            if persons_known:
                reasons = tuple(set(reasons) - {Doubt.REPEATED})
            doubts += [(position, doubt) for doubt in reasons]
    return sentences_about(dict.fromkeys(doubts), names)


def _doubts_of_column(
    frame: object,
    name: str,
    kind: Kind | None,
) -> tuple[Doubt, ...]:
    """Doubts about one column of a table; `kind` is None if no schema names it."""
    if kind is Kind.NUMBER:
        return doubts_about_texts(_texts(frame, name))
    if kind is None and is_identifier_name(name):
        return doubts_about_persons(name, _cells(frame, name))
    return ()


def _number_features(schema: Schema) -> list[int]:
    """Positions of a schema's numbers among the features of its points."""
    numbers: list[int] = []
    for column, features in schema.features_of_columns:
        if column.kind is Kind.NUMBER:
            numbers += range(features.start, features.stop)
    return numbers


def _labels(frame: object) -> list[object]:
    """What a mapping or a frame calls its columns."""
    if isinstance(frame, Mapping):
        return list(frame)
    return column_labels(frame)


def _texts(frame: object, name: str) -> list[str]:
    """First cells of a column that are texts."""
    cells = _cells(frame, name, MOST_LOOKED_AT)
    return [cell for cell in cells if isinstance(cell, str)]


def _cells(
    frame: Any,
    name: str,
    most: int = _MOST_CELLS,
) -> list[object]:
    """First cells of a column.

    None of a table that cannot be looked at so, which is no error here.
    """
    with suppress(Exception):
        labels = {}
        for label in reversed(_labels(frame)):
            labels[str(label)] = label
        column = frame[labels[name]]
        first = column.head(most) if hasattr(column, "head") else column[:most]
        if hasattr(first, "to_pylist"):
            return list(first.to_pylist())
        return list(first)
    return []
