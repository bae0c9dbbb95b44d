"""Tables in NumPy's files, whose columns have no names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable, block_rows
from flwr_dpkmeans.errors import DataError


def npy_blocks(path: Path) -> Iterator[RawTable]:
    """Yield the rows of a .npy file.

    It is mapped anew for each block, which then leaves memory.
    """
    shape = np.load(path, mmap_mode="r").shape
    n_rows = shape[0] if shape else 1
    step = block_rows(math.prod(shape[1:]))
    for start in range(0, max(1, n_rows), step):
        array = np.load(path, mmap_mode="r")
        rows = array[start : start + step] if array.ndim == 2 else array
        yield _array_table(rows, path)


def npz_blocks(path: Path) -> Iterator[RawTable]:
    """Yield the points of a .npz archive.

    The array ``X``, or the only one of two dimensions.
    """
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: _array_of(archive, name) for name in archive.files}
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if "X" in arrays:
        matrices = ["X"]
    if len(matrices) != 1:
        raise DataError(
            f"the archive {str(path)!r} has {len(matrices)} two-dimensional arrays and"
            " none named 'X', but one must hold the points: save them under the name"
            " 'X', as in numpy.savez(path, X=points)."
        )
    points = arrays.pop(matrices[0])
    beside = []
    for name, array in arrays.items():
        numbers = array.astype(np.float64) if array.dtype.kind in "biuf" else None
        beside.append(RawColumn.of_cells(name, array.ravel(), numbers))
    yield _array_table(points, path, tuple(beside))


def _array_of(
    archive: Mapping[str, NDArray[np.generic]], name: str
) -> NDArray[np.generic]:
    """An array as it is.

    One without dimensions for Python objects, which are not loaded.
    """
    try:
        return np.asarray(archive[name])
    except ValueError:
        return np.zeros(())


def _array_table(
    array: NDArray[np.generic],
    path: Path,
    beside: tuple[RawColumn, ...] = (),
) -> RawTable:
    if array.ndim != 2:
        raise DataError(
            f"the array of {str(path)!r} has {array.ndim} dimensions, but it must have"
            " 2 (rows and features): save it after array.reshape(n_rows, -1)."
        )
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"the array of {str(path)!r} has dtype {array.dtype}, but it must hold real"
            " numbers: save it after array.astype('float64')."
        )
    floats = array.astype(np.float64)
    columns = [
        RawColumn.of_cells(f"x{index}", array[:, index], floats[:, index])
        for index in range(array.shape[1])
    ]
    return RawTable(
        path,
        tuple(columns),
        named=False,
        beside=beside,
    )
