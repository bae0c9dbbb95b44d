"""Labels of the columns of frames, whatever they are."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_dpkmeans.errors import DataError, listed


def column_labels(points: object) -> list[object]:
    """Labels of a data frame's columns, whatever they are; none of an array's."""
    # pyarrow's `columns` are their cells.
    return list(getattr(points, "column_names", ()) or getattr(points, "columns", ()))


def require_same_labels(
    says: str,
    labels: Sequence[object],
    whose: str,
    others: Sequence[object],
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
