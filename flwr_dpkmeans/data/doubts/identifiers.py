"""What a table's columns look like that are clustered as numbers.

Ids, indices, constants.

For whoever owns the rows: nobody else hears of it, and no run ends by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEWEST_OF_AN_ID = 20
"""Values of an id or index, and rows of a constant.

Fewer may differ, or be alike, by chance.
"""
_ID_NAMES = frozenset(
    {
        "id",
        "pid",
        "mrn",
        "uuid",
        "guid",
        "patient",
        "person",
        "subject",
        "fallnummer",
        "patnr",
    }
)
_INDEX_NAMES = frozenset(
    {
        "",
        "id",
        "index",
        "idx",
        "obs",
        "row",
        "rownum",
        "rowname",
        "rownames",
        "rowid",
        "nr",
        "no",
    }
)
_WORD = re.compile(r"[A-Z]?[a-zäöüßéèê]+|[A-Z]+(?![a-z])|\d+")

_MOST_CELLS = 1 << 22
"""How many cells of a table are looked at: more of it may not be in memory."""


class Doubtful(NamedTuple):
    """Names of columns that look like something that is no measure."""

    ids: tuple[str, ...] = ()
    """They number rows, or persons."""
    constants: tuple[str, ...] = ()
    """All rows have one value."""


def words_of(name: str) -> list[str]:
    """The words of a name such as arrival_hour, arrivalHour or "Arrival hour", in small
    letters.
    """
    return [word.lower() for word in _WORD.findall(name)]


def is_called_id(name: str) -> bool:
    """Whether a name is that of persons' ids."""
    words = words_of(name)
    return bool(_ID_NAMES & {*words, "".join(words)})


def is_called_index(name: str) -> bool:
    """Whether a name is that of numbers of rows.

    Pandas writes one without a name as Unnamed: 0.
    """
    return name.lower() in _INDEX_NAMES or name.startswith("Unnamed:")


def counts_up(numbers: Array) -> bool:
    """Whether they are whole numbers, (n_rows,), of which each stands once and none is
    left out.
    """
    if not numbers.size or not (np.rint(numbers) == numbers).all():
        return False
    return bool(
        np.ptp(numbers) == len(numbers) - 1 and len(np.unique(numbers)) == len(numbers)
    )


def doubtful_columns(names: Sequence[str], parts: Iterable[Array]) -> Doubtful:
    """Which columns, by name, look like no measures in all tables, (n_rows, n_features)
    each, that are large enough.
    """
    most = max(FEWEST_OF_AN_ID, _MOST_CELLS // max(1, len(names)))
    tables = [np.asarray(part[:most]) for part in parts] if names else []
    large = [table for table in tables if len(table) >= FEWEST_OF_AN_ID]
    if not large:
        return Doubtful()
    ids = [
        name
        for index, name in enumerate(names)
        if all(_is_id(name, table[:, index]) for table in large)
    ]
    constants = [
        name for index, name in enumerate(names) if len({*_ends(large, index)}) == 1
    ]
    return Doubtful(tuple(ids), tuple(constants))


def _is_id(name: str, numbers: Array) -> bool:
    """Whether whole numbers have the name of an id, or count the rows."""
    if is_called_id(name):
        are_whole = bool((np.rint(numbers) == numbers).all())
        return are_whole and float(np.ptp(numbers)) >= FEWEST_OF_AN_ID
    return counts_up(numbers)


def _ends(tables: Iterable[Array], index: int) -> Iterable[float]:
    for table in tables:
        yield float(table[:, index].min())
        yield float(table[:, index].max())
