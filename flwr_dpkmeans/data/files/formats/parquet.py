"""Parquet: one file, or all files of a folder and of the folders in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flwr_dpkmeans.data.files.formats.frames import arrow_table
from flwr_dpkmeans.data.files.raw_table import RawTable, block_rows
from flwr_dpkmeans.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".pq")
_BUFFER_BYTES = 1 << 16  # of each column; else whole groups of rows are in memory
_TABLE_FORMATS = {"_delta_log": "a Delta Lake table", ".hoodie": "an Apache Hudi table"}


def is_parquet_folder(path: Path) -> bool:
    """Whether a path is a folder with Parquet files somewhere in it."""
    if not path.is_dir():
        return False
    files, _ = folder_files(path)
    return len(files) > 0


def folder_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the Parquet files of a folder, sorted, and what is passed over.

    Files and folders that begin with a dot or an underscore are not data, as everywhere
    in Parquet's world.

    Raises
    ------
    DataError
        For a table format in which files also have deleted and replaced rows.
    """
    files: list[Path] = []
    passed_over: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        _require_plain_files(Path(parent), [*folders, *names])
        # In place: os.walk goes on with those that are left.
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in folders:
            if Path(parent, name).is_symlink():
                passed_over.append(f"the folder {name!r}, which is a link")
        for name in folders:
            if "=" in name:
                passed_over.append(f"the column that the folder's name {name!r} states")
        for name in sorted(names):
            path = Path(parent, name)
            if _is_hidden(name):
                continue
            if path.suffix.lower() in SUFFIXES:
                files.append(path)
            else:
                passed_over.append(f"the file {str(path.relative_to(folder))!r}")
    return sorted(files), passed_over


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _refuse(error: OSError) -> None:
    """Refuse a folder that this user cannot list.

    It would be passed over in silence.
    """
    raise DataError(
        f"the folder {str(error.filename)!r} cannot be listed ({type(error).__name__}),"
        " but all files of a table must be read: give this user the right to."
    )


def _require_plain_files(folder: Path, names: list[str]) -> None:
    """Refuse a folder whose files alone are not its table.

    Deleted rows are in them, too.
    """
    formats = [kind for name, kind in _TABLE_FORMATS.items() if name in names]
    metadata = folder / "metadata"
    if "metadata" in names and any(metadata.glob("*.metadata.json")):
        formats.append("an Apache Iceberg table")
    if formats:
        raise DataError(
            f"the folder {str(folder)!r} is {formats[0]}, whose files also have rows"
            " that are deleted or replaced: write its rows as Parquet files into a"
            " folder of their own."
        )


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
    first = next(iter(schemas.values()))
    texts = [_text_columns(schema, path) for schema in schemas.values()]
    # What is a number in one file and text in another is text in all; the numbers are
    # still their file's.
    some_text = frozenset().union(*texts)
    all_text = texts[0].intersection(*texts)
    mixed = some_text - all_text
    yield arrow_table(first.empty_table(), path, mixed)
    n_rows = block_rows(len(first))
    options = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False}
    for file in schemas:
        # Not pq.read_table, which opens the file as a data set, where directory names
        # may become columns.
        with pq.ParquetFile(file, **options) as opened:
            for batch in opened.iter_batches(batch_size=n_rows, use_threads=False):
                # Each file by its own types: one type for all would let a cell decide
                # about other files' rows.
                block = pa.Table.from_batches([batch])
                if len(schemas) > 1:
                    block = block.select(first.names)
                yield arrow_table(block, path, mixed)


def _text_columns(schema: pa.Schema, path: Path) -> frozenset[str]:
    """Names of the columns whose cells are no numbers."""
    empty = arrow_table(schema.empty_table(), path)
    names = [column.name for column in empty.columns if column.values is None]
    return frozenset(names)
