"""What a column's cells say against it as a measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

Doubts = tuple[Doubt, ...]


def doubts_about_numbers(name: object, values: ArrayLike) -> Doubts:
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
    if n_rows < FEWEST_OF_AN_ID:
        return ()
    first = numbers[:MOST_LOOKED_AT]
    if not is_worth_a_look(name, first, n_rows):
        return ()
    if is_constant(numbers):
        return (Doubt.CONSTANT,)
    doubt = index_or_identifier(name, numbers)
    if doubt is not None:
        return (doubt,)
    is_missing = np.isnan(numbers)
    present = numbers[~is_missing]
    if not is_identifier_name(name) or not is_whole(present):
        return ()
    different = np.unique(present)
    if len(different) < FEWEST_OF_AN_ID:
        return ()
    return Doubt.IDENTIFIER, Doubt.REPEATED


def doubts_about_texts(cells: Sequence[str]) -> Doubts:
    """Doubts about the texts of a column that is read as numbers.

    Examples
    --------
    >>> doubts_about_texts(["01067", "04109", "80331"])
    (<Doubt.CODE: 'code'>,)
    >>> doubts_about_texts(["3.5", "0.7"])
    ()
    """
    first = cells[:MOST_LOOKED_AT]
    if are_codes(first):
        return (Doubt.CODE,)
    return ()


def doubts_about_persons(name: object, cells: Iterable[object]) -> Doubts:
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
    if is_repeated:
        return (Doubt.REPEATED,)
    return ()
