"""Tables that one process needs again and again: parsed once, kept while their file stays the same."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from flwr_dpkmeans.data.bundled import BUNDLED, load_source
from flwr_dpkmeans.data.tables import Table

MOST_TABLES = 2
"""Tables kept in a process: the points, and the same ones with their labels."""


def load_source_once(source: str, *, label_column: str = "", partition_column: str = "") -> Table:
    """Load a data source as `load_source` does, but parse it only once in a process.

    Each worker of a simulation plays many clients and answers many messages with one file. At most two tables are
    kept, and a file that has changed (time of change or size) is read again.

    Parameters
    ----------
    source : str
        A bundled name or a path.
    label_column, partition_column : str
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
    return _parsed(source, label_column, partition_column, _stamp(source))


def _stamp(source: str) -> tuple[str, int, int]:
    """Which file a path means here, and which state of it; empty for what is no file."""
    path = Path(source).expanduser()
    if source in BUNDLED or not path.is_file():
        return "", 0, 0
    status = path.stat()
    return str(path.absolute()), status.st_mtime_ns, status.st_size


@lru_cache(maxsize=MOST_TABLES)
def _parsed(source: str, label_column: str, partition_column: str, stamp: tuple[str, int, int]) -> Table:
    """Parse; `stamp` is a part of the key only."""
    del stamp
    table = load_source(source, label_column=label_column, partition_column=partition_column)
    table.points.flags.writeable = False
    if table.partition_values is not None:
        table.partition_values.flags.writeable = False
    return table
