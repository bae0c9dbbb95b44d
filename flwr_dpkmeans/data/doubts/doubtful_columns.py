"""Columns that nobody means to cluster.

Identifiers, indices, codes and constants, by their names and values.

What is found here is for whoever owns the rows: a warning in a notebook, the local log
elsewhere. It follows from exact cells, so it never goes into a report, a model or a
message, and nothing that a node answers may depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.doubts.doubt import Doubt
from flwr_dpkmeans.data.doubts.doubtful_cells import doubts_about_numbers
from flwr_dpkmeans.data.doubts.looks import (
    FEWEST_OF_AN_ID,
    MOST_LOOKED_AT,
    index_or_identifier,
    is_worth_a_look,
)

_MOST_CELLS_OF_A_PARTY = 1 << 22
"""Of one party's table that are looked at: more of it may not be in memory."""


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
        if not is_worth_a_look(name, values, n_rows):
            continue
        doubt = index_or_identifier(name, largest[:, column])
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
