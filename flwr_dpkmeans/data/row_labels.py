"""What a caller gives beside a table's rows, such as classes or parties.

In the order of these rows.

pandas joins by the labels of rows, its index, so that whoever shuffles a frame and not
the series beside it still means the same rows. By position every second class would be
another row's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr_dpkmeans.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def row_labels(table: object) -> pd.Index | None:
    """Read the index of a pandas object, or of the series of a mapping.

    None of all else.
    """
    pandas = sys.modules.get("pandas")  # whoever holds a frame has imported it
    if pandas is None:
        return None
    if isinstance(table, Mapping):
        table = next(iter(table.values()), None)
    index = getattr(table, "index", None)
    return index if isinstance(index, pandas.Index) else None


def in_order_of(
    labels: pd.Index | None,
    values: Any,
    what: str,
) -> Any:
    """Put values, (n,), into the order of the rows that have these labels.

    Parameters
    ----------
    labels : pandas.Index or None
        Those of the table, as `row_labels` reads them.
    values : array-like
        One for each row. Without an index, or of another length than the table, they
        are returned as they are.
    what : str
        How a sentence calls the values.

    Raises
    ------
    DataError
        If the values' index has other labels than the table, or in another order some
        that occur twice.
    """
    beside = row_labels(values)
    if labels is None or beside is None or len(labels) != len(beside):
        return values
    if labels.equals(beside):
        return values
    by_position = f"give {what}.to_numpy() if its entries are in the order of the rows"
    if not labels.is_unique or not beside.is_unique:
        raise DataError(
            f"{what} has an index in another order than the table's, with labels that"
            " occur twice, but only labels that differ say which entry is whose:"
            f" {by_position}, or give both one index without repetitions."
        )
    positions = beside.get_indexer(labels)
    n_unknown = int((positions < 0).sum())
    if n_unknown:
        raise DataError(
            f"{what} has an index that lacks {n_unknown} of the {len(labels)} labels of"
            f" the table's rows, but entries and rows are matched by it: {by_position},"
            " or give both one index."
        )
    return values.take(positions) if values.ndim == 1 else values.iloc[positions]
