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
_COMPLEX = "c"
_FLOAT = "f"
_OBJECT = "O"
_MAY_BE_GAPS = (_COMPLEX, _FLOAT, _OBJECT)
_NUMBERS = "biuf"
"""Kinds of NumPy's types."""


def client_of(data: ArrayLike | Encoded, folder: Path) -> KMeansClient:
    """A client with the rows of a table that are finite numbers.

    Or that a schema has encoded.
    """
    if isinstance(data, Encoded):
        return KMeansClient(
            data.points,
            output_dir=folder,
            schema=data.schema,
        )
    if isinstance(data, Rows):
        return KMeansClient(data, output_dir=folder)
    array = _listed(data) if isinstance(data, list | tuple) else as_array(data)
    kind = array.dtype.kind
    is_table = array.ndim == 2
    if not is_table or kind not in _MAY_BE_GAPS:
        return KMeansClient(data, output_dir=folder)
    numbers_only = _real_numbers(array)
    is_cell_finite = _are_finite(numbers_only)
    is_row_finite = is_cell_finite.all(axis=1)
    all_finite = bool(is_row_finite.all())
    if kind == _FLOAT and all_finite:
        return KMeansClient(data, output_dir=folder)
    if not all_finite:
        which = "rows" if is_row_finite.any() else "ALL rows, each"
        logger.warning(
            "left out %s with a value that is no finite number",
            which,
        )
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
        to_real = np.frompyfunc(_real, 1, 1)
        objects: NDArray[np.generic] = to_real(array)
        return objects
    if kind == _COMPLEX:
        # One cell that is no real number has made complex numbers of all.
        is_real = array.imag == 0.0
        array = np.where(is_real, array.real, np.nan)
    # Long floats may be larger than the largest one.
    with np.errstate(over="ignore"):
        return array.astype(np.float64)


def _are_finite(array: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Whether each cell is a finite number."""
    if array.dtype.kind == _OBJECT:
        to_answer = np.frompyfunc(_is_finite, 1, 1)
        answers = to_answer(array)
        return np.asarray(answers, dtype=np.bool_)
    return np.asarray(np.isfinite(array))


def _listed(rows: Sequence[object]) -> NDArray[np.generic]:
    """Lists as NumPy reads them, or each row by itself.

    By itself where a cell is no number, or a row has another length.

    NumPy makes text of all cells for one, or refuses all rows; rows of another length
    than most are gaps.
    """
    with suppress(DataError):
        array = as_array(rows)
        if array.dtype.kind in _NUMBERS:
            return array
    lists: list[list[object]] = []
    for row in rows:
        cells = list(row) if _has_cells(row) else []
        lists.append(cells)
    widths = [len(cells) for cells in lists if cells]
    if not widths:
        return as_array(rows)
    width = statistics.mode(widths)
    shape = (len(lists), width)
    table = np.full(shape, None)
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
    """A complex number that is none, which one cell has made of a whole column.

    As the real one.
    """
    if isinstance(cell, numbers.Complex) and cell.imag == 0:
        return cell.real
    return cell


def _is_finite(cell: object) -> bool:
    if isinstance(cell, np.generic):
        # Of few bits, it would be held against infinity instead of the largest float.
        is_number = cell.dtype.kind in _NUMBERS
        cell = cell.item() if is_number else None
    if not isinstance(cell, numbers.Real):
        return False
    size: Any = abs(cell)
    # NaN is no larger and no smaller than anything.
    return bool(size <= sys.float_info.max)
