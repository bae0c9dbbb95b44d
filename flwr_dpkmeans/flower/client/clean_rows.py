"""Rows that are finite numbers, of what an app's loader returns."""

from __future__ import annotations

import numbers
import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.points import as_array, frame_columns
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Encoded
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.log import placed_logger

logger = placed_logger("flwr_dpkmeans.client")


def client_of(data: ArrayLike | Encoded, folder: Path) -> KMeansClient:
    """A client with the rows of a table that are finite numbers, or that a schema has
    encoded.
    """
    if isinstance(data, Encoded):
        return KMeansClient(data.points, output_dir=folder, schema=data.schema)
    if isinstance(data, Rows):
        return KMeansClient(data, output_dir=folder)
    array = _listed(data) if isinstance(data, list | tuple) else as_array(data)
    # Objects: columns differ in type, or have gaps.
    kind = array.dtype.kind if array.ndim == 2 else ""
    if kind == "c":  # one cell that is none made complex numbers of all
        array = np.where(array.imag == 0.0, array.real, np.nan)
    with np.errstate(over="ignore"):  # long ones
        array = array.astype(np.float64) if kind in ("c", "f") else array
    if kind == "O":
        array = np.frompyfunc(_real, 1, 1)(array)
    is_finite: Any = np.frompyfunc(_is_finite, 1, 1) if kind == "O" else np.isfinite
    if kind not in ("c", "f", "O") or (
        (kept := is_finite(array).astype(bool).all(axis=1)).all() and kind == "f"
    ):
        return KMeansClient(data, output_dir=folder)
    if not kept.all():
        logger.warning(
            "left out %s with a value that is no finite number",
            "rows" if kept.any() else "ALL rows, each",
        )
    return KMeansClient(
        array[kept], output_dir=folder, feature_names=frame_columns(data)
    )


def _listed(rows: Sequence[Any]) -> NDArray[Any]:
    """Lists as NumPy reads them or, where a cell is no number, or a row of another
    length, each row by itself.

    NumPy makes text of all cells for one, or refuses all rows; rows of another length
    than most are gaps.
    """
    with suppress(DataError):
        if (array := as_array(rows)).dtype.kind in "biuf":
            return array
    lists = [list(row) if _has_cells(row) else [] for row in rows]
    if not any(lists):
        return as_array(rows)
    width = statistics.mode([len(row) for row in lists if row])
    table = np.full((len(lists), width), None)
    for place, cells in enumerate(lists):
        for column, cell in enumerate(cells if len(cells) == width else ()):
            table[place, column] = (
                cell.item() if isinstance(cell, np.ndarray) and not cell.ndim else cell
            )
    return table


def _has_cells(row: Any) -> bool:
    return (
        bool(row.ndim)
        if isinstance(row, np.ndarray)
        else isinstance(row, Sequence) and not isinstance(row, str)
    )


def _real(cell: Any) -> Any:
    """A complex number that is none, which one cell has made of a whole column, as the
    real one.
    """
    return cell.real if isinstance(cell, numbers.Complex) and cell.imag == 0 else cell


def _is_finite(cell: Any) -> bool:
    if isinstance(cell, np.generic):
        # Of few bits, it would be held against infinity instead of the largest float.
        cell = cell.item() if cell.dtype.kind in "biuf" else None
    number: Any = cell if isinstance(cell, numbers.Real) else np.nan
    return bool(number == number and abs(number) <= sys.float_info.max)
