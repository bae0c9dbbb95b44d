"""Rows that are finite numbers, of what an app's loader returns."""

from __future__ import annotations

import numbers
import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.arrays_of import as_array
from flwr_dpkmeans.data.frame_names import frame_columns
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Encoded
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.log import placed_logger

logger = placed_logger("flwr_dpkmeans.client")
_COMPLEX, _FLOAT, _OBJECT = "c", "f", "O"
_NUMBERS = "biuf"
"""Kinds of NumPy's types."""


def client_of(data: ArrayLike | Encoded, folder: Path) -> KMeansClient:
    """A client with the rows of a table that are finite numbers, or that a schema has
    encoded.
    """
    if isinstance(data, Encoded):
        return KMeansClient(data.points, output_dir=folder, schema=data.schema)
    if isinstance(data, Rows):
        return KMeansClient(data, output_dir=folder)
    array = _listed(data) if isinstance(data, list | tuple) else as_array(data)
    kind = array.dtype.kind if array.ndim == 2 else ""
    if kind not in (_COMPLEX, _FLOAT, _OBJECT):
        return KMeansClient(data, output_dir=folder)
    numbers_only = _real_numbers(array)
    is_row_finite = _are_finite(numbers_only).all(axis=1)
    if kind == _FLOAT and is_row_finite.all():
        return KMeansClient(data, output_dir=folder)
    if not is_row_finite.all():
        which = "rows" if is_row_finite.any() else "ALL rows, each"
        logger.warning("left out %s with a value that is no finite number", which)
    return KMeansClient(
        numbers_only[is_row_finite],
        output_dir=folder,
        feature_names=frame_columns(data),
    )


def _real_numbers(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Cells as real numbers, where they are some."""
    kind = array.dtype.kind
    if kind == _OBJECT:
        # Columns differ in type, or have gaps.
        objects: NDArray[np.generic] = np.frompyfunc(_real, 1, 1)(array)
        return objects
    if kind == _COMPLEX:
        # One cell that is no real number has made complex numbers of all.
        array = np.where(array.imag == 0.0, array.real, np.nan)
    # Long floats may be larger than the largest one.
    with np.errstate(over="ignore"):
        return array.astype(np.float64)


def _are_finite(array: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Whether each cell is a finite number."""
    if array.dtype.kind == _OBJECT:
        answers = np.frompyfunc(_is_finite, 1, 1)(array)
        return np.asarray(answers, dtype=np.bool_)
    return np.asarray(np.isfinite(array))


def _listed(rows: Sequence[object]) -> NDArray[np.generic]:
    """Lists as NumPy reads them or, where a cell is no number, or a row of another
    length, each row by itself.

    NumPy makes text of all cells for one, or refuses all rows; rows of another length
    than most are gaps.
    """
    with suppress(DataError):
        array = as_array(rows)
        if array.dtype.kind in _NUMBERS:
            return array
    lists = [list(row) if _has_cells(row) else [] for row in rows]
    if not any(lists):
        return as_array(rows)
    width = statistics.mode([len(row) for row in lists if row])
    table = np.full((len(lists), width), None)
    for index, cells in enumerate(lists):
        if len(cells) != width:
            continue
        for column, cell in enumerate(cells):
            if isinstance(cell, np.ndarray) and cell.ndim == 0:
                cell = cell.item()
            table[index, column] = cell
    return table


def _has_cells(row: object) -> TypeGuard[Iterable[object]]:
    if isinstance(row, np.ndarray):
        return row.ndim > 0
    return isinstance(row, Sequence) and not isinstance(row, str)


def _real(cell: object) -> object:
    """A complex number that is none, which one cell has made of a whole column, as the
    real one.
    """
    if isinstance(cell, numbers.Complex) and cell.imag == 0:
        return cell.real
    return cell


def _is_finite(cell: object) -> bool:
    if isinstance(cell, np.generic):
        # Of few bits, it would be held against infinity instead of the largest float.
        cell = cell.item() if cell.dtype.kind in _NUMBERS else None
    if not isinstance(cell, numbers.Real):
        return False
    size: Any = abs(cell)
    # NaN is no larger and no smaller than anything.
    return bool(size <= sys.float_info.max)
