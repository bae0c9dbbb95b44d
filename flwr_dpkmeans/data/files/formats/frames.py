"""Columns of data frames, mappings and Arrow tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Sized
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Of a pandas or Dask frame: its index, which has no name.
_INDEX_COLUMNS = ("__index_level_", "__null_dask_index__")


def frame_table(frame: object) -> RawTable:
    """Return the columns of a mapping or a data frame.

    Frames are pandas, polars, and what has an Arrow stream or the interchange protocol.
    """
    import pandas as pd

    if isinstance(frame, Mapping):
        frame = _mapped(frame)
    if isinstance(frame, pd.DataFrame):
        return _pandas_table(frame)
    if hasattr(frame, "__arrow_c_stream__"):
        return arrow_table(_as_arrow(frame), Path())
    if hasattr(frame, "to_pandas"):
        return _pandas_table(frame.to_pandas())
    if hasattr(frame, "__dataframe__"):
        return _pandas_table(pd.api.interchange.from_dataframe(frame))
    raise DataError(
        f"the table is of type {type(frame).__name__}, but a schema tells columns by "
        "name: give a data frame, or a mapping of names to columns."
    )


def _as_arrow(frame: object) -> pa.Table:
    """What Arrow makes of a frame with a stream."""
    import pyarrow as pa

    # The stream of polars has texts that Arrow cannot take apart.
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    return pa.table(frame)


def _pandas_table(frame: pd.DataFrame) -> RawTable:
    columns = []
    for index, name in enumerate(frame.columns):
        series = frame.iloc[:, index]
        columns.append(_pandas_column(str(name), series))
    return RawTable(Path(), tuple(columns), named=True)


def _mapped(columns: Mapping[str, object]) -> pd.DataFrame:
    """A data frame of a mapping; of lists cell by cell, or pandas chose one type."""
    import pandas as pd

    sized = [cells for cells in columns.values() if _is_sized(cells)]
    series = [cells for cells in sized if isinstance(cells, pd.Series)]
    index = series[0].index if series else None
    try:
        lengths = set(map(len, sized))
        is_one_index = all(cells.index.equals(index) for cells in series)
        if len(lengths) <= 1 and is_one_index:
            parts = {}
            for name, cells in columns.items():
                parts[name] = _cell_by_cell(cells, index)
            return pd.DataFrame(parts)
    except (TypeError, ValueError):
        pass
    raise DataError(
        "a table of columns by name is none: give columns of one length, and of one"
        " index."
    )


def _is_sized(cells: object) -> TypeGuard[Sized]:
    """Whether what stands for a column has a length."""
    return hasattr(cells, "__len__") and not isinstance(cells, str)


def _cell_by_cell(cells: object, index: pd.Index | None) -> object:
    """A list as a series of objects; all else, and floats, as they are."""
    import pandas as pd

    if isinstance(cells, str) or not isinstance(cells, Sequence):
        return cells
    if set(map(type, cells)) == {float}:
        return cells
    return pd.Series(cells, dtype=object, index=index)


def _pandas_column(name: str, series: pd.Series) -> RawColumn:
    """Numbers as they are, all else cell by cell."""
    if type(series.dtype).__name__ == "ArrowDtype":
        # Not by way of Python, whose dates lack the year 10000.
        return _arrow_column(name, series.array.__arrow_array__(), Path())
    if series.dtype.kind == "c":
        # One cell that is no real number made complex numbers of all.
        series = series.map(_real_part).astype(object)
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        values = series.to_numpy(dtype=np.float64)
        return RawColumn.of_cells(name, series.to_numpy(), values)
    if dtype.kind == "O":
        return RawColumn.of_cells(name, series.to_numpy())
    cells = series.astype(object).where(series.notna(), None)
    return RawColumn.of_cells(name, cells)


def _real_part(cell: complex) -> float | None:
    return cell.real if cell.imag == 0.0 else None


def arrow_table(
    table: pa.Table,
    path: Path,
    texts: Collection[str] = (),
) -> RawTable:
    """Return the columns of an Arrow table; those named in `texts` are text."""
    columns = []
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if name.startswith(_INDEX_COLUMNS):
            continue
        column = _arrow_column(
            name,
            cells,
            path,
            is_text=name in texts,
        )
        columns.append(column)
    return RawTable(path, tuple(columns), named=True)


def _arrow_column(
    name: str,
    cells: pa.ChunkedArray,
    path: Path,
    *,
    is_text: bool = False,
) -> RawColumn:
    text = cache(
        partial(
            _arrow_text,
            cells,
            name,
            path,
        )
    )
    numeric = _arrow_values(cells)
    values = None if is_text else numeric
    return RawColumn(
        name,
        values,
        text=text,
        numeric=numeric,
    )


def _arrow_values(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """The numbers of a column by its stored type; None if the type is no number."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    # Without one value (null) it is missing rather than text.
    kinds = (
        pa.types.is_null,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
    )
    if not any(is_kind(column.type) for is_kind in kinds):
        return None
    floats = column.cast(pa.float64(), safe=False)
    return np.asarray(floats.to_numpy(), dtype=np.float64)


def _arrow_text(
    column: pa.ChunkedArray,
    name: str,
    path: Path,
) -> list[str | None]:
    """The cells of a column as text; None where one is missing."""
    import pyarrow as pa

    # Durations, and what others have made of numbers, are numbers of an unknown unit.
    is_foreign = isinstance(column.type, pa.BaseExtensionType)
    if not is_foreign and not pa.types.is_duration(column.type):
        try:
            return _arrow_written(column)
        except pa.ArrowException:
            pass
    # Outside of the handler: the chained error could carry a cell.
    of_file = f" of {str(path)!r}" if path.name else ""
    raise DataError(
        f"the column {name!r}{of_file} holds neither numbers nor text, but rows can be "
        "split, or encoded, by these only: write the column as text, or leave it out."
    )


def _arrow_written(column: pa.ChunkedArray) -> list[str | None]:
    import pyarrow as pa

    # An unknown time zone is an error whatever rows there are.
    pa.nulls(1, column.type).cast(pa.string())
    # Bytes may be no UTF-8.
    written = column.cast(pa.string(), safe=False).cast(pa.binary())
    texts = list(map(_decoded, written.to_pylist()))
    if not pa.types.is_floating(column.type):
        return texts
    # A gap makes floats of whole numbers, and Arrow writes large ones as 1e15.
    for index, number in enumerate(column.to_pylist()):
        if number is not None and number.is_integer():
            texts[index] = text_of(number)
    return texts


def _decoded(cell: bytes | None) -> str | None:
    """A cell's text as a file would have it; None where it is missing."""
    if cell is None:
        return None
    return text_of(cell.decode(errors="replace"))
