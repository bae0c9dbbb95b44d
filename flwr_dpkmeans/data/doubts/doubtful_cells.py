"""What a column's cells say against it as a measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flwr_dpkmeans.data.doubts.codes import are_codes
from flwr_dpkmeans.data.doubts.column_words import is_identifier_name
from flwr_dpkmeans.data.doubts.doubt import Doubt
from flwr_dpkmeans.data.doubts.looks import (
    FEWEST_OF_AN_ID,
    MOST_LOOKED_AT,
    index_or_identifier,
    is_worth_a_look,
)
from flwr_dpkmeans.data.doubts.whole_numbers import is_constant, is_whole


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
    if n_rows < FEWEST_OF_AN_ID or not is_worth_a_look(
        name, numbers[:MOST_LOOKED_AT], n_rows
    ):
        return ()
    if is_constant(numbers):
        return (Doubt.CONSTANT,)
    doubt = index_or_identifier(name, numbers)
    if doubt is not None:
        return (doubt,)
    present = numbers[~np.isnan(numbers)]
    is_repeated = (
        is_identifier_name(name)
        and is_whole(present)
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
