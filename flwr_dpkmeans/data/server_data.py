"""Load the public points that a server may hold beside its clients."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bundled import load_source
from flwr_dpkmeans.data.tables import Table, column_names, load_table, require_names, validate_points
from flwr_dpkmeans.errors import DataError


def load_server_points(source: object, label_column: str = "", *, ignored: Collection[str] = ()) -> NDArray[np.float64]:
    """Load and check the server's public points; see `load_server_table`, which keeps the names of their columns.

    Examples
    --------
    >>> load_server_points([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    return load_server_table(source, label_column, ignored=ignored).points


def load_server_table(source: object, label_column: str = "", *, ignored: Collection[str] = ()) -> Table:
    """Load and check the server's public points, with the names of their columns where they have some.

    Files are read as the clients' tables are: the same columns are left out (text, with a warning of the logger
    ``flwr_dpkmeans.data``), so that the server's features are those of the clients.

    Parameters
    ----------
    source : array-like of shape (m, d), Table, Path or str
        The points (a data frame has names), the path of a .csv, .npy, .npz or .parquet file, or a bundled name.
    label_column : str
        The column of a file to leave out, as in ``load_table``; must be empty if the points themselves are given.
    ignored : collection of str
        Names of columns of a file to leave out where it has them: a public file need not have the clients' labels.

    Returns
    -------
    Table
        Finite points of shape (m, d), m >= 1 and d >= 1, C-contiguous. An array that has this form already is kept as
        it is, and is never changed.

    Raises
    ------
    DataError
        If there is no row, a value is missing, infinite or no number, or the file cannot be read.
    ConfigurationError
        If the source is text, but neither a bundled data set nor a path.

    Examples
    --------
    >>> load_server_table("iris").names[0]
    'sepal length (cm)'
    """
    if isinstance(source, Table):
        table = source
    elif isinstance(source, str):
        table = load_source(source, label_column=label_column, ignored=ignored)
    elif isinstance(source, Path):
        table = load_table(source, label_column=label_column, ignored=ignored)
    elif label_column:
        raise DataError(
            f"label_column is {label_column!r}, but the server's points were given as an array: leave the column out "
            "of the array, and label_column empty."
        )
    else:
        points = validate_points(source)
        names = require_names(column_names(source), points.shape[1])
        table = Table(points, names, named=bool(names))
    if len(table.points) == 0:
        raise DataError("the server's data have 0 rows, but at least 1 is needed: give public points to the server.")
    return table
