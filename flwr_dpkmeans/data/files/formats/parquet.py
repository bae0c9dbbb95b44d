"""Parquet: one file, or all files of a folder and of the folders in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flwr_dpkmeans.data.files.formats.frames import arrow_table
from flwr_dpkmeans.data.files.formats.parquet_folder import folder_files
from flwr_dpkmeans.data.files.raw_table import RawTable, block_rows
from flwr_dpkmeans.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


_BUFFER_BYTES = 1 << 16  # of each column; else whole groups of rows are in memory


def parquet_schemas(path: Path) -> dict[Path, pa.Schema]:
    """Return the types of columns, by file.

    All files of a folder have the same columns.
    """
    import pyarrow.parquet as pq

    files = [path]
    if path.is_dir():
        files, _ = folder_files(path)
    schemas = {file: pq.read_schema(file) for file in files}
    names = set()
    for schema in schemas.values():
        names.add(frozenset(schema.names))
    if len(names) > 1:
        raise DataError(
            f"the .parquet files in {str(path)!r} do not all have the same columns:"
            " make them so."
        )
    return schemas


def parquet_blocks(path: Path) -> Iterator[RawTable]:
    """Yield the rows of a file or folder, a first block without rows among them."""
    import pyarrow as pa

    try:
        yield from _blocks(path)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _blocks(path: Path) -> Iterator[RawTable]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = parquet_schemas(path)
    types = list(schemas.values())
    first = types[0]
    texts = [_text_columns(schema, path) for schema in types]
    # What is a number in one file and text in another is text in all; the numbers are
    # still their file's.
    some_text = frozenset().union(*texts)
    all_text = texts[0].intersection(*texts)
    mixed = some_text - all_text
    empty = first.empty_table()
    yield arrow_table(empty, path, mixed)
    n_rows = block_rows(len(first))
    options = {
        "buffer_size": _BUFFER_BYTES,
        "pre_buffer": False,
    }
    for file in schemas:
        # Not pq.read_table, which opens the file as a data set, where directory names
        # may become columns.
        with pq.ParquetFile(file, **options) as opened:
            batches = opened.iter_batches(
                batch_size=n_rows,
                use_threads=False,
            )
            for batch in batches:
                # Each file by its own types: one type for all would let a cell decide
                # about other files' rows.
                block = pa.Table.from_batches([batch])
                if len(schemas) > 1:
                    block = block.select(first.names)
                yield arrow_table(block, path, mixed)


def _text_columns(schema: pa.Schema, path: Path) -> frozenset[str]:
    """Names of the columns whose cells are no numbers."""
    empty = arrow_table(schema.empty_table(), path)
    names = []
    for column in empty.columns:
        if column.values is None:
            names.append(column.name)
    return frozenset(names)
