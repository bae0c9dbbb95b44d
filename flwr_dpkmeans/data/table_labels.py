"""Labels of the columns of frames, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flwr_dpkmeans.errors import (
    DataError,
    listed,
)


def column_labels(points: object) -> list[Any]:
    """Labels of a data frame's columns, whatever they are; none of an array's."""
    # pyarrow's `columns` are their cells.
    return list(getattr(points, "column_names", ()) or getattr(points, "columns", ()))


def require_same_labels(
    says: str,
    labels: Sequence[Any],
    whose: str,
    others: Sequence[Any],
) -> None:
    """Refuse columns that are labelled in another way than as many others'.

    Positions would be wrong.
    """
    if len(labels) == len(others) and list(labels) != list(others):
        raise DataError(
            f"{says} {listed(map(repr, labels))}, but those of {whose} are"
            f" {listed(map(repr, others))}: put them in the same order, or make the"
            " names text, as in frame.columns.astype(str)."
        )
