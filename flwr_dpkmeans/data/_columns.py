"""Find a named column of a file, and read one by whose values rows are split, text included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data._readers import RawTable, _first_row, _has_index
from flwr_dpkmeans.errors import DataError, nearest


def find_column(raw: RawTable, what: str, name: str, path: Path) -> int | None:
    """Find a column by name or, without names, by index; None for no name, or for an array beside the points."""
    names = [column.name for column in raw.columns]
    if not name or name in raw.other_arrays:
        return None
    if name in names:
        return names.index(name)
    if raw.named:
        raise DataError(f"{what} is {name!r}, but the table {str(path)!r} has no such column: {nearest(name, names)}")
    return _column_index(what, name, len(names), path)


def partition_values(raw: RawTable, name: str, path: Path) -> NDArray[np.generic]:
    """Return the column that rows are split by: numbers if it holds nothing else, text otherwise."""
    index = find_column(raw, "partition_column", name, path)
    if index is None:
        return _column_beside_the_points(path, name, raw)
    column = raw.columns[index]
    if column.values is not None and not column.n_unparsable:
        values: NDArray[np.generic] = column.values
        n_missing = int((~np.isfinite(column.values)).sum())
    else:
        cells = _csv_text(path, index, raw.named) if path.suffix.lower() == ".csv" else _parquet_text(path, column.name)
        values = np.array(["" if cell is None else cell for cell in cells], dtype=np.str_)
        n_missing = sum(cell is None for cell in cells)
    if n_missing:
        raise DataError(
            f"the partition column {name!r} of {str(path)!r} has {n_missing} rows with a value that is missing or "
            "infinite, but each row needs one: fill in these cells, or remove the rows."
        )
    return values


def _column_index(what: str, name: str, n_columns: int, path: Path) -> int:
    """Read the index of a column; negative ones count from the end."""
    try:
        index = int(name)
    except ValueError:
        index = n_columns
    if not -n_columns <= index < n_columns:
        raise DataError(
            f"{what} is {name!r}, but the table {str(path)!r} has no column names and {n_columns} columns: give an "
            f"index from '0' to '{n_columns - 1}'."
        )
    return index % n_columns


def _csv_text(path: Path, index: int, header: bool) -> list[str | None]:
    """Read one column of a CSV file as it is written; None where a cell is empty."""
    import pandas as pd

    first_row, separator = _first_row(path)
    position = index + 1 if header and _has_index(first_row) else index
    frame = pd.read_csv(
        path,
        sep=separator,
        header=0 if header else None,
        index_col=False,
        usecols=[position],
        dtype=str,
        skipinitialspace=True,
        encoding="utf-8-sig",
    )
    return _texts(frame.iloc[:, 0])


def _parquet_text(path: Path, name: str) -> list[str | None]:
    """Read one column of a Parquet file as text; None where a value is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            column = file.read(columns=[name]).column(name)
        return [None if cell is None else str(cell) for cell in column.cast(pa.string()).to_pylist()]
    except (pa.ArrowException, KeyError):
        pass
    # Outside of the handler: the chained error could carry a cell.
    raise DataError(
        f"the partition column {name!r} of {str(path)!r} holds neither numbers nor text, but rows can be split by "
        "these only: write the column as text."
    )


def array_beside_the_points(path: Path, name: str) -> NDArray[np.generic]:
    """Read an array of an archive as it is; an empty one for Python objects."""
    with np.load(path, allow_pickle=False) as archive:
        try:
            values: NDArray[Any] = archive[name]
        except ValueError:  # Python objects
            values = np.zeros((0, 0))
    return values


def _column_beside_the_points(path: Path, name: str, raw: RawTable) -> NDArray[np.generic]:
    """Read an array of an archive which has one value for each row of the points."""
    n_rows = len(raw.columns[0].values) if raw.columns[0].values is not None else 0
    values = array_beside_the_points(path, name)
    if values.shape != (n_rows,) or values.dtype.kind not in "biufUS":
        raise DataError(
            f"the partition column {name!r} is an array of {str(path)!r} that is not {n_rows} numbers or texts, but "
            "each row needs one: save it as an array of one value per row."
        )
    return values


def _texts(series: Any) -> list[str | None]:
    """The cells of a column of text; None where one is missing."""
    return [None if missing else str(cell) for cell, missing in zip(series, series.isna(), strict=True)]
