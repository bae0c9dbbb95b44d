"""A column that makes most of the distances between the centres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.schema import Scale
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.clear_centres import (
    Array,
    Cautions,
    clear_clusters,
)

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

_FEWEST_COLUMNS = 3
_MOST = 0.5
"""Part of the centres' squared distances above which one column decides."""
_MOST_OF_FEW = 0.9
"""The same of few differences."""
_MANY_DIFFERENCES = 10
"""Columns times independent differences of centres; of random ones few have a column of
half.
"""
_AT_ENDS = (Kind.FLAG, Kind.CATEGORY)
"""Kinds whose values are only at the ends of their range."""


def domination_cautions(model: Model) -> Cautions:
    """Warn of a column that makes most of the distances between the centres.

    The clusters are then parts of it.

    A flag or a category is only at the ends of its range, so that it outweighs numbers
    of the same weight. Among few numbers and clusters a number often makes half of the
    distances, and nothing is wrong.
    """
    schema = model.schema
    names = list(model.names)
    widths = [1] * len(names)
    are_numbers = [True] * len(names)
    if schema is not None:
        columns = schema.clustered.columns
        names = [column.name for column in columns]
        widths = [len(column.features) for column in columns]
        are_numbers = [column.kind not in _AT_ENDS for column in columns]
    clear = model.scaled[clear_clusters(model)]
    if len(names) < _FEWEST_COLUMNS or len(clear) < 2:
        return ()
    parts = _parts_of_distances(clear, widths)
    largest = int(parts.argmax())
    part = float(parts[largest])
    n_differences = len(names) * (len(clear) - 1)
    is_of_few = are_numbers[largest] and n_differences < _MANY_DIFFERENCES
    most = _MOST_OF_FEW if is_of_few else _MOST
    if part <= most:
        return ()
    mend = ", or wider bounds, or all columns scale = 'standard' in a schema"
    # Bounds do not say how far a column reaches where deviations do.
    if schema is not None and schema.scale == Scale.STANDARD:
        mend = ""
    sentence = report_sentence(
        "dominated",
        column=repr(names[largest]),
        part=part,
        mend=mend,
    )
    return (sentence,)


def _parts_of_distances(centres: Array, widths: Sequence[int]) -> Array:
    """Parts of the squared distances of all pairs of centres that each column makes.

    `widths` are numbers of features of the columns.
    """
    differences = centres - centres.mean(axis=0)
    # Of all pairs of centres, but for a factor.
    squares = np.square(differences).sum(axis=0)
    least = np.finfo(float).tiny
    total = max(float(squares.sum()), least)
    first_features = np.cumsum([0, *widths[:-1]])
    sums = np.add.reduceat(squares, first_features)
    return np.asarray(sums / total)
