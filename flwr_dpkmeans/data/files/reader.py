"""The one reader of tables.

Simulation, node, draft, check and prediction all open files here.

`open_table` decides how a source is read and says so; `OpenTable.blocks` yields its
rows. What a door makes of the columns is the door's; what is a header, a record, a name
or a number is decided here alone, so that one file is one table at every door.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from types import MappingProxyType

from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.formats.foreign import (
    NAMED_READERS,
    WORKBOOKS,
    query_blocks,
)
from flwr_dpkmeans.data.files.formats.frames import frame_table
from flwr_dpkmeans.data.files.formats.parquet import parquet_blocks
from flwr_dpkmeans.data.files.formats.parquet_folder import (
    SUFFIXES,
    folder_files,
    is_parquet_folder,
)
from flwr_dpkmeans.data.files.guarded import in_one_sentence
from flwr_dpkmeans.data.files.located import locate_file, unknown_suffix
from flwr_dpkmeans.data.files.open_table import OpenTable, opened
from flwr_dpkmeans.data.files.raw_table import RawTable, source_name
from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.files.text.text_file import open_text, text_suffix
from flwr_dpkmeans.errors import DataError


def _array_blocks(path: Path) -> Iterator[RawTable]:
    """Blocks of NumPy's files, whose reader is loaded with one of them only."""
    from flwr_dpkmeans.data.files.formats.arrays import npy_blocks, npz_blocks

    read = npz_blocks if path.suffix.lower() == ".npz" else npy_blocks
    return read(path)


READERS: Mapping[str, Callable[[Path], Iterator[RawTable]]] = MappingProxyType(
    {
        ".npy": _array_blocks,
        ".npz": _array_blocks,
        **dict.fromkeys(SUFFIXES, parquet_blocks),
        **NAMED_READERS,
    }
)
"""What reads files that say their columns' types themselves, by suffix."""


SHOWN_SUFFIXES = (
    *(".csv", ".tsv", ".csv.gz", ".npy", ".npz", ".parquet", ".xlsx"),
    *(".dta", ".sas7bdat", ".feather"),
)


def open_table(
    source: object,
    dialect: Dialect = UNSTATED,
    *,
    query: str = "",
    names: Sequence[str] = (),
    may_guess: bool = False,
    names_in_header: Collection[str] | None = None,
) -> OpenTable:
    """Find out how a table is read.

    Parameters
    ----------
    source : path, URL, or data frame
        A file, a folder of Parquet files, the URL of a database, or what `frame_table`
        takes.
    dialect : Dialect
        What is stated of a file of delimited text.
    query : str
        What a database is asked for.
    names : sequence of str
        Of the columns of delimited text without header, all of them in their order.
    may_guess : bool
        Whether rows may be looked at to find out what is not stated: never on a
        deployed node, where one row would then decide how others are read.
    names_in_header : collection of str, optional
        Names that the header of delimited text is to have. It then has no more line
        breaks than they have: on a deployed node no row may close a quote of it.

    Returns
    -------
    OpenTable

    Raises
    ------
    DataError
        One sentence, if the source is missing or of no known format.
    """
    reading = Reading(source_name(source), dialect)
    if not isinstance(source, str | Path):
        return opened(reading, lambda: iter([frame_table(source)]))
    if "://" in str(source):
        return opened(reading, partial(query_blocks, str(source), query))
    path = Path(source).expanduser().absolute()
    if is_parquet_folder(path):
        reading.passed_over = tuple(folder_files(path)[1])
        return opened(reading, partial(_guarded, path, parquet_blocks))
    located = locate_file(source, "table", DataError)
    suffix = text_suffix(located)
    if suffix:
        return open_text(
            located,
            suffix,
            reading,
            names,
            may_guess,
            names_in_header,
        )
    if located.suffix.lower() in WORKBOOKS:
        # What no other table needs is loaded with a workbook only.
        from flwr_dpkmeans.data.files.formats.workbook import open_workbook

        return open_workbook(located, reading, may_guess)
    if located.suffix.lower() not in READERS:
        raise DataError(unknown_suffix(located, "table", SHOWN_SUFFIXES))
    read = READERS[located.suffix.lower()]
    return opened(reading, partial(_guarded, located, read))


def _guarded(
    path: Path, read: Callable[[Path], Iterator[RawTable]]
) -> Iterator[RawTable]:
    blocks = read(path)
    while True:
        block = in_one_sentence(path, partial(next, blocks, None))
        if block is None:
            return
        yield block
