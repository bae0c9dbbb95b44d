"""Whether a column is looked at, and whether it is an index or identifier."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.doubts.codes import counts_up
from flwr_dpkmeans.data.doubts.column_words import is_identifier_name, is_index_name
from flwr_dpkmeans.data.doubts.doubt import Doubt
from flwr_dpkmeans.data.doubts.whole_numbers import are_different, is_constant, is_whole

MOST_LOOKED_AT = 2_000
"""Values of a column that decide whether all of them are looked at, and cells of a
column of text.
"""
FEWEST_OF_AN_ID = 20
"""Values of an identifier or index, and rows of a constant.

Fewer may differ, or be alike, by chance.
"""


def is_worth_a_look(
    name: object,
    first: NDArray[np.float64],
    n_rows: int,
) -> bool:
    """Whether a column's first values leave a doubt.

    Hardly any column of measures does.
    """
    if is_constant(first):
        return True
    present = first[~np.isnan(first)]
    if not len(present) or not is_whole(present):
        return False
    if is_index_name(name) or is_identifier_name(name):
        return True
    return present.max() - present.min() < n_rows and are_different(present)


def index_or_identifier(name: object, values: NDArray[np.float64]) -> Doubt | None:
    """Whether values are an index or identifier.

    None occurs twice, and the name or the lack of gaps speaks for it.
    """
    if len(values) < FEWEST_OF_AN_ID or not is_whole(values):
        return None
    if is_index_name(name):
        return Doubt.INDEX if are_different(values) else None
    if is_identifier_name(name):
        return Doubt.IDENTIFIER if are_different(values) else None
    return Doubt.IDENTIFIER if counts_up(values) else None
