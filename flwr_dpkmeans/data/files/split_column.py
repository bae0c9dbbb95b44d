"""The column that rows are split by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_column import RawColumn, joined_column
from flwr_dpkmeans.data.files.raw_table import source_name
from flwr_dpkmeans.errors import DataError


def values_of(
    parts: Sequence[RawColumn],
    name: str,
    n_rows: int,
    source: object,
) -> NDArray[np.generic] | None:
    """Return the column that rows are split by, (n,): numbers if all are, else text.

    None without a column. A DataError where a row has no value.
    """
    if not parts:
        return None
    column = joined_column(parts)
    values: NDArray[np.generic] = column.numbers()
    is_finite = np.isfinite(values)
    is_numeric = column.values is not None and not column.n_unparsable
    if is_numeric or bool(is_finite.all()):
        n_missing = int((~is_finite).sum())
    else:
        cells = column.text()
        values = np.array([cell or "" for cell in cells], dtype=np.str_)
        n_missing = cells.count(None)
    table = repr(source_name(source))
    if values.shape != (n_rows,):
        raise DataError(
            f"the partition column {name!r} is an array of {table} that is not {n_rows}"
            " numbers or texts, but each row needs one: save it as an array of one"
            " value per row."
        )
    if n_missing:
        raise DataError(
            f"the partition column {name!r} of {table} has {n_missing} rows with a"
            " value that is missing or infinite, but each row needs one: fill in these"
            " cells, or remove the rows."
        )
    return values
