"""Tables that one process needs again and again: parsed once, kept while their file stays the same."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bundled import BUNDLED, TARGET_COLUMN, load_bundled, load_source
from flwr_dpkmeans.data.labels import as_classes, load_label_values
from flwr_dpkmeans.data.tables import Table

MOST_TABLES = 2
"""Tables kept in a process."""


def load_source_once(
    source: str,
    *,
    label_column: str = "",
    partition_column: str = "",
    columns: tuple[str, ...] = (),
    header: bool | None = None,
) -> Table:
    """Load a data source as `load_source` does, but parse it only once in a process.

    Each worker of a simulation plays many clients and answers many messages with one file. At most two tables are
    kept, and a file that has changed (time of change or size) is read again.

    Parameters
    ----------
    source : str
        A bundled name or a path.
    label_column, partition_column, columns, header
        As in `load_source`.

    Returns
    -------
    Table
        Shared by all callers, so its arrays are read-only.

    Raises
    ------
    ConfigurationError, DataError
        As `load_source`; failures are not remembered.

    Examples
    --------
    >>> load_source_once("iris") is load_source_once("iris")
    True
    """
    return _parsed(source, label_column, partition_column, columns, header, _stamp(source))


def load_labels(source: str, column: str, n_rows: int, header: bool | None = None) -> NDArray[np.int64]:
    """Load the classes of a table's rows, once in a process, whatever the column holds.

    Parameters
    ----------
    source : str
        A bundled name, whose labels are its target, or a path.
    column : str
        Of a file.
    n_rows : int
        Rows of the table.
    header : bool, optional
        As in `load_source`.

    Returns
    -------
    ndarray of int64, (n_rows,)
        -1 where there is no class (see `as_classes`); shared, so read-only.

    Raises
    ------
    DataError
        If the file cannot be read as a table or has no such column.

    Examples
    --------
    >>> load_labels("iris", "", 150)[[0, 149]].tolist()
    [0, 2]
    """
    return _labels(source, column, n_rows, header, _stamp(source))


@lru_cache(maxsize=1)
def _labels(
    source: str, column: str, n_rows: int, header: bool | None, stamp: tuple[str, int, int]
) -> NDArray[np.int64]:
    """Parse; `stamp` is a part of the key only."""
    del stamp
    values = (
        load_label_values(source, column, header)
        if source not in BUNDLED
        else load_bundled(source, partition_column=TARGET_COLUMN).partition_values
    )
    labels = as_classes(values, n_rows)
    labels.flags.writeable = False
    return labels


def _stamp(source: str) -> tuple[str, int, int]:
    """Which file a path means here, and which state of it; empty for what is no file."""
    path = Path(source).expanduser()
    if source in BUNDLED or not path.is_file():
        return "", 0, 0
    status = path.stat()
    return str(path.absolute()), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=MOST_TABLES)
def _parsed(
    source: str,
    label_column: str,
    partition_column: str,
    columns: tuple[str, ...],
    header: bool | None,
    stamp: tuple[str, int, int],
) -> Table:
    """Parse; `stamp` is a part of the key only."""
    del stamp
    table = load_source(
        source, label_column=label_column, partition_column=partition_column, columns=columns, header=header
    )
    table.points.flags.writeable = False
    if table.partition_values is not None:
        table.partition_values.flags.writeable = False
    return table
