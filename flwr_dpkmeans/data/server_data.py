"""Load the public points that a server may hold beside its clients."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.bundled import load_source
from flwr_dpkmeans.data.tables import load_table, validate_points
from flwr_dpkmeans.errors import DataError


def load_server_points(source: object, label_column: str = "", *, ignored: Collection[str] = ()) -> NDArray[np.float64]:
    """Load and check the server's public points.

    Files are read as the clients' tables are: the same columns are left out (text, with a warning of the logger
    ``flwr_dpkmeans.data``), so that the server's features are those of the clients.

    Parameters
    ----------
    source : array-like of shape (m, d), Path or str
        The points, the path of a .csv, .npy, .npz or .parquet file, or the name of a bundled data set.
    label_column : str
        The column of a file to leave out, as in ``load_table``; must be empty if the points themselves are given.
    ignored : collection of str
        Names of columns of a file to leave out where it has them: a public file need not have the clients' labels.

    Returns
    -------
    ndarray of float64, shape (m, d), m >= 1 and d >= 1
        Finite values, C-contiguous. An array that has this form already is returned itself, and is never changed.

    Raises
    ------
    DataError
        If there is no row, a value is missing, infinite or no number, or the file cannot be read.
    ConfigurationError
        If the source is text, but neither a bundled data set nor a path.

    Examples
    --------
    >>> load_server_points([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    >>> load_server_points("iris").shape
    (150, 4)
    """
    if isinstance(source, str):
        points = load_source(source, label_column=label_column, ignored=ignored).points
    elif isinstance(source, Path):
        points = load_table(source, label_column=label_column, ignored=ignored).points
    elif label_column:
        raise DataError(
            f"label_column is {label_column!r}, but the server's points were given as an array: leave the column out "
            "of the array, and label_column empty."
        )
    else:
        points = validate_points(source)
    if len(points) == 0:
        raise DataError("the server's data have 0 rows, but at least 1 is needed: give public points to the server.")
    return points
