"""The one reader of tables: simulation, node, draft, check and prediction all open
files here.

`open_table` decides how a source is read and says so; `OpenTable.blocks` yields its
rows. What a door makes of the columns is the door's; what is a header, a record, a name
or a number is decided here alone, so that one file is one table at every door.
"""

from __future__ import annotations

import codecs
import lzma
import zipfile
import zlib
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from flwr_dpkmeans.data.files.arrays import npy_blocks, npz_blocks
from flwr_dpkmeans.data.files.cells import numbers_in, text_of, texts_in
from flwr_dpkmeans.data.files.delimited import CellBlock, RecordReader, Wanted
from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.encoded_text import (
    COMPRESSED,
    open_bytes,
    text_chunks,
    without_beginning,
)
from flwr_dpkmeans.data.files.foreign import (
    NAMED_READERS,
    WORKBOOKS,
    query_blocks,
    sheet_rows,
)
from flwr_dpkmeans.data.files.frames import frame_table
from flwr_dpkmeans.data.files.headers import (
    MOST_HEADER_BYTES,
    Beginning,
    guess_header,
    look_at,
)
from flwr_dpkmeans.data.files.parquet import (
    SUFFIXES,
    folder_files,
    is_parquet_folder,
    parquet_blocks,
)
from flwr_dpkmeans.data.files.raw_table import (
    RawColumn,
    RawTable,
    joined_column,
    source_name,
)
from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.files.records import RowShape, Tally
from flwr_dpkmeans.data.files.titles import hint_of
from flwr_dpkmeans.errors import DataError, DPKMeansError, LocalMisuseError

ResultT = TypeVar("ResultT")
_Blocks = Callable[[], Iterator[RawTable]]

UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What readers raise for a file of another format."""
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".psv")
_SEPARATOR_OF_SUFFIX = {".tsv": "\t", ".psv": "|"}
# UTF-32 stands before UTF-16, whose mark its own begins with.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NEED_A_MARK = ("utf-16", "utf-32")
_OTHER_CONTENT = {b"\x1f\x8b": "gzip", b"PK\3\4": "an Excel or zip file"}
_UNCOMPRESSED_SUFFIX = {"gzip": ".csv.gz", "an Excel or zip file": ".xlsx"}

READERS: Mapping[str, Callable[[Path], Iterator[RawTable]]] = MappingProxyType(
    {
        ".npy": npy_blocks,
        ".npz": npz_blocks,
        **dict.fromkeys(SUFFIXES, parquet_blocks),
        **NAMED_READERS,
    }
)
"""What reads files that say their columns' types themselves, by suffix."""
SHOWN_SUFFIXES = (
    *(".csv", ".tsv", ".csv.gz", ".npy", ".npz", ".parquet", ".xlsx"),
    *(".dta", ".sas7bdat", ".feather"),
)


@dataclass(frozen=True)
class ColumnUse:
    """What a door will do with the columns of delimited text.

    Other tables say their types.

    Attributes
    ----------
    numbers : collection of str, or None
        Columns that are read as numbers; None: all.
    texts : collection of str, or None
        Columns that are text, whatever they hold; None: all.
    keeps_text : bool
        Whether the text of columns of numbers may be asked for, too; without it is
        faster.
    """

    numbers: Collection[str] | None = None
    texts: Collection[str] | None = ()
    keeps_text: bool = True

    def has_numbers(self, name: str) -> bool:
        """Whether a column is read as numbers."""
        return self.numbers is None or name in self.numbers

    def is_text(self, name: str) -> bool:
        """Whether a column is text, whatever it holds."""
        return self.texts is None or name in self.texts


EVERYTHING = ColumnUse()


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A table whose columns are clear, and whose rows can be read.

    Attributes
    ----------
    reading : Reading
        What the source was taken for; what it says of records grows with `blocks`.
    """

    reading: Reading
    _read: Callable[[ColumnUse], Iterator[RawTable]] = field(repr=False)

    def blocks(self, use: ColumnUse = EVERYTHING) -> Iterator[RawTable]:
        """Yield some rows after the others: at least one block, perhaps without rows.

        Raises
        ------
        DataError
            One sentence without a value of a cell.
        """
        yield from self._read(use)

    @property
    def source(self) -> str:
        """What sentences call it."""
        return self.reading.source


def open_table(
    source: Any,
    dialect: Dialect = UNSTATED,
    *,
    query: str = "",
    names: Sequence[str] = (),
    may_guess: bool = False,
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
        return _opened(reading, lambda: iter([frame_table(source)]))
    if "://" in str(source):
        return _opened(reading, partial(query_blocks, str(source), query))
    path = Path(source).expanduser().absolute()
    if is_parquet_folder(path):
        reading.passed_over = tuple(folder_files(path)[1])
        return _opened(reading, partial(_guarded, path, parquet_blocks))
    located = locate_file(source, "table", DataError)
    suffix = text_suffix(located)
    if suffix:
        return _open_text(
            located,
            suffix,
            reading,
            names,
            may_guess,
        )
    if located.suffix.lower() in WORKBOOKS:
        return _open_workbook(located, reading, may_guess)
    if located.suffix.lower() not in READERS:
        raise DataError(_unknown_suffix(located, "table", SHOWN_SUFFIXES))
    read = READERS[located.suffix.lower()]
    return _opened(reading, partial(_guarded, located, read))


def _opened(reading: Reading, read: _Blocks) -> OpenTable:
    """A table that says its columns' types itself."""
    return OpenTable(reading, lambda use: read())


def text_suffix(path: Path) -> str:
    """Return the suffix of a file of delimited text, compressed or not.

    Empty for others.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in _TEXT_SUFFIXES else ""


def _open_text(
    path: Path,
    suffix: str,
    reading: Reading,
    names: Sequence[str],
    may_guess: bool,
) -> OpenTable:
    stated = reading.dialect
    reading.is_text = True
    if suffix in _SEPARATOR_OF_SUFFIX:
        stated = stated.over(Dialect(separator=_SEPARATOR_OF_SUFFIX[suffix]))
    encoding = _certain_encoding(path, stated)
    stated = stated.over(Dialect(encoding=encoding))
    text = in_one_sentence(path, lambda: _first_lines(path, stated))
    beginning = look_at(
        text,
        stated,
        may_guess=may_guess,
        source=f"the table {str(path)!r}",
    )
    _require_readable_header(path, beginning)
    reading.dialect = beginning.dialect
    reading.why_header = beginning.why
    reading.is_guessed = bool(beginning.why)
    if may_guess:
        reading.hint = hint_of(text, beginning)
    columns = _columns_of(
        beginning, reading, len(beginning.first) if may_guess else len(names)
    )
    file = _TextFile(
        path,
        beginning,
        reading,
        columns,
    )
    return OpenTable(reading, file.blocks)


def _first_lines(path: Path, dialect: Dialect) -> bytes:
    """A first chunk of text, and more of it as long as no line behind skipped ones is
    whole.
    """
    chunks = text_chunks(path, str(dialect.encoding), Tally())
    text, n_lines = b"", (dialect.skip_lines or 0) + 1
    for chunk in chunks:
        text += chunk
        if text.count(b"\n") >= n_lines or len(text) > MOST_HEADER_BYTES:
            break
    chunks.close()
    return text


def _certain_encoding(path: Path, stated: Dialect) -> str:
    """What is stated, or what a mark says, and otherwise UTF-8.

    Only a header is looked at: what a row begins with may not decide whether a node
    answers.
    """
    if stated.header is False:
        return stated.encoding or "utf-8"
    begins = b""
    with suppress(*UNREADABLE), open_bytes(path) as file:  # whoever reads it says so
        begins = b"".join(file.read(4).splitlines()[:1])
    marked = [
        encoding
        for mark, encoding in _BYTE_ORDER_MARKS.items()
        if begins.startswith(mark)
    ]
    if stated.encoding:
        _require_no_other_mark(path, stated.encoding, marked)
        return stated.encoding
    if marked:
        return marked[0]
    if path.suffix.lower() not in COMPRESSED:
        _require_text(path, begins)
    is_every_other_byte_zero = not any(begins[0::2]) or not any(begins[1::2])
    if 0 in begins and is_every_other_byte_zero:
        raise DataError(
            f"the table {str(path)!r} is UTF-16 without a mark that says so, but text"
            " is taken for UTF-8: state encoding = 'utf-16-le' or 'utf-16-be'."
        )
    return "utf-8"


def _require_no_other_mark(
    path: Path,
    encoding: str,
    marked: Sequence[str],
) -> None:
    """Refuse a header that is marked as of another encoding than is stated, or that
    lacks a mark.
    """
    if marked and not encoding.startswith(marked[0]):
        raise DataError(
            f"the table {str(path)!r} begins with the mark of {marked[0]}, but encoding"
            f" is {encoding!r}: leave encoding out."
        )
    if not marked and encoding in _NEED_A_MARK:
        raise DataError(
            f"the table {str(path)!r} begins without the mark that {encoding} needs,"
            f" but its bytes may stand in two orders: state encoding = '{encoding}-le'"
            f" or '{encoding}-be'."
        )


def _require_text(path: Path, begins: bytes) -> None:
    """Refuse what begins as another kind of file."""
    for mark, kind in _OTHER_CONTENT.items():
        if begins.startswith(mark):
            suffix = _UNCOMPRESSED_SUFFIX[kind]
            raise DataError(
                f"the table {str(path)!r} is {kind}, but its suffix says that it is"
                f" text: give it its own, such as {suffix}."
            )


def _require_readable_header(path: Path, beginning: Beginning) -> None:
    if beginning.dialect.header and any("\ufffd" in name for name in beginning.first):
        raise DataError(
            f"the header of the table {str(path)!r} is not {beginning.dialect.encoding}"
            " text, but names are read from it: state the encoding, on Windows mostly"
            " 'cp1252' (--encoding cp1252, or encoding = 'cp1252' under [file] in the"
            " schema), or save the file as UTF-8."
        )


def _columns_of(
    beginning: Beginning,
    reading: Reading,
    n_columns: int,
) -> dict[int, str]:
    """Names of the columns that are read, by their numbers.

    `n_columns` without a header.
    """
    if not beginning.dialect.header:
        return {index: f"x{index}" for index in range(n_columns)}
    first, n_cells = beginning.first, len(beginning.first)
    unnamed = _unnamed_at_ends(first) if n_cells > 1 else []
    reading.unnamed = tuple(index + 1 for index in unnamed)
    columns = {
        index: name or f"column {index + 1}"
        for index, name in enumerate(first)
        if index not in unnamed
    }
    reading.names = tuple(columns.values())
    return columns


def _unnamed_at_ends(names: Sequence[str]) -> list[int]:
    """Columns in front of the first one that has a name, as an index is, or behind the
    last.
    """
    named = [index for index, name in enumerate(names) if name]
    if not named:
        return list(range(len(names)))
    return [*range(named[0]), *range(named[-1] + 1, len(names))]


@dataclass(frozen=True, eq=False)
class _TextFile:
    """A file of delimited text."""

    path: Path
    beginning: Beginning
    reading: Reading
    columns: Mapping[int, str]

    @property
    def _shape(self) -> RowShape:
        dialect = self.beginning.dialect
        n_columns = len(self.beginning.first) if dialect.header else len(self.columns)
        return RowShape(str(dialect.separator), n_columns, dialect.row_names)

    def blocks(self, use: ColumnUse) -> Iterator[RawTable]:
        """Yield rows; what becomes of records is counted anew."""
        tally = self.reading.tally = Tally()
        dialect = self.beginning.dialect
        reader = RecordReader(
            self._shape,
            dialect.comment or "",
            tally,
            self._wanted(use),
            again=lambda: self._rows(Tally()),
        )
        yield self._table(reader.empty(), use)
        if not self._shape.n_columns:
            return
        blocks = reader.blocks(self._rows(tally))
        while True:
            block = in_one_sentence(self.path, lambda: next(blocks, None))
            if block is None:
                return
            if len(block.records):
                yield self._table(block, use)

    def _rows(self, tally: Tally) -> Iterator[bytes]:
        """The text behind its header."""
        chunks = text_chunks(self.path, str(self.beginning.dialect.encoding), tally)
        return without_beginning(chunks, self.beginning.n_bytes)

    def _wanted(self, use: ColumnUse) -> Wanted:
        """Which columns are read, and of which nobody will ask for the text."""
        dialect = self.beginning.dialect
        # Marks of thousands, and stated markers of missing cells, stand in texts only.
        is_plain = not dialect.thousands and not dialect.markers
        columns, only_numbers = set(), set()
        for index, name in self.columns.items():
            if use.has_numbers(name) or use.is_text(name):
                columns.add(index)
            if is_plain and not use.keeps_text and not use.is_text(name):
                only_numbers.add(index)
        return Wanted(
            frozenset(columns),
            frozenset(only_numbers & columns),
            dialect.decimal or ".",
        )

    def _table(
        self,
        block: CellBlock,
        use: ColumnUse,
    ) -> RawTable:
        columns = tuple(
            self._column(name, block.columns.get(index), use)
            for index, name in self.columns.items()
        )
        named = bool(self.beginning.dialect.header)
        return RawTable(
            self.path,
            columns,
            named,
            records=block.records,
        )

    def _column(
        self,
        name: str,
        cells: Any,
        use: ColumnUse,
    ) -> RawColumn:
        dialect = self.beginning.dialect
        dates = dialect.dates or ""
        if cells is None:  # nobody wants it: there is its name alone
            return RawColumn(name, None)
        text = cache(partial(texts_in, cells, dialect.markers))
        if not use.has_numbers(name):
            return RawColumn(
                name,
                None,
                text=text,
                date_format=dates,
            )
        values, n_others = numbers_in(cells, dialect.number_format, dialect.markers)
        if use.is_text(name):
            return RawColumn(
                name,
                None,
                text=text,
                numeric=values,
                date_format=dates,
            )
        return RawColumn(
            name,
            values,
            n_others,
            text,
            date_format=dates,
        )


def _open_workbook(
    path: Path,
    reading: Reading,
    may_guess: bool,
) -> OpenTable:
    """The first sheet of a workbook, whose header is found as that of text is."""
    try:
        rows, others = in_one_sentence(path, lambda: sheet_rows(path))
    except ImportError as error:
        rows = None
        missing = error.name or "openpyxl"
    if rows is None:
        raise DataError(
            f"the table {str(path)!r} is a workbook, but {missing} is not there to read"
            " it: pip install 'flwr-dpkmeans[excel]'."
        )
    reading.passed_over = tuple(f"the sheet {name!r}" for name in others)
    reading.why_passed_over = ": only the first sheet is read, so put the rows there"
    rows = rows[reading.dialect.skip_lines or 0 :]
    rows = [row for row in rows if any(cell is not None for cell in row)]
    texts = [[_name_of(cell) for cell in row] for row in rows[:200]]
    is_header = reading.dialect.header
    if is_header is None and not may_guess:
        is_header = True
    if is_header is None and texts:
        is_header, reading.why_header = guess_header(texts[0], texts[1:])
        reading.is_guessed = bool(reading.why_header)
    reading.dialect = reading.dialect.over(Dialect(header=bool(is_header)))
    beginning = Beginning(reading.dialect, tuple(texts[0]) if texts else (), 0)
    columns = _columns_of(beginning, reading, len(beginning.first))
    body = rows[1:] if is_header else rows
    reading.tally.n_records = len(body)
    cells = {index: [row[index] for row in body] for index in columns}
    raw = [
        _sheet_column(name, cells[index], reading.dialect)
        for index, name in columns.items()
    ]
    table = RawTable(path, tuple(raw), named=bool(is_header))
    return _opened(reading, lambda: iter([table]))


def _name_of(cell: Any) -> str:
    """What stands in a header's cell, where even NA is a name."""
    if cell is None:
        return ""
    return text_of(cell) or str(cell).strip()


def _sheet_column(
    name: str,
    cells: list[Any],
    dialect: Dialect,
) -> RawColumn:
    """A column of a workbook's cells, each of which has a type of its own."""
    import pyarrow as pa

    texts = [text_of(cell) or "" for cell in cells]
    is_text = [isinstance(cell, str) for cell in cells]
    # Numbers that are texts are written as the owner states; others are numbers
    # already.
    spelt = pa.array(
        [text if spelt else "" for text, spelt in zip(texts, is_text, strict=True)],
        pa.string(),
    )
    typed = pa.array(
        ["" if spelt else text for text, spelt in zip(texts, is_text, strict=True)],
        pa.string(),
    )
    of_spelt, n_spelt = numbers_in(spelt, dialect.number_format, dialect.markers)
    of_typed, n_typed = numbers_in(typed, markers=dialect.markers)
    values = np.where(is_text, of_spelt, of_typed)
    text = cache(partial(texts_in, pa.array(texts, pa.string()), dialect.markers))
    return RawColumn(
        name,
        values,
        n_spelt + n_typed,
        text,
        date_format=dialect.dates or "",
    )


def locate_file(
    path: str | Path,
    what: str,
    error: type[LocalMisuseError],
) -> Path:
    """Return the absolute path of an existing file.

    `what` names it in the error sentence.
    """
    try:
        located = Path(path).expanduser().absolute()
    except RuntimeError:  # "~someone" without such a user stays as it was written
        located = Path(path).absolute()
    if located.is_dir():
        mend = "give the path of the file"
        if what == "table":
            mend += ", or put .parquet files into it"
        raise error(
            f"the {what} {str(located)!r} is a directory, but it must be one file:"
            f" {mend}."
        )
    if not located.is_file():
        begins = ""
        if not Path(path).is_absolute() and located.is_relative_to(Path.cwd()):
            begins = f", which begins in the working directory, {str(Path.cwd())!r}"
        raise error(
            f"the {what} {str(located)!r} does not exist, but it must be a file on this"
            f" machine: correct the path{begins}."
        )
    return located


def reader_of(
    path: str | Path,
    what: str,
    readers: Mapping[str, ResultT],
    error: type[LocalMisuseError],
) -> tuple[Path, ResultT]:
    """Return a file's absolute path, and its reader by the suffix."""
    located = locate_file(path, what, error)
    suffix = located.suffix.lower()
    if suffix not in readers:
        raise error(_unknown_suffix(located, what, readers))
    return located, readers[suffix]


def _unknown_suffix(
    located: Path,
    what: str,
    suffixes: Iterable[str],
) -> str:
    """Say which suffixes can be read instead."""
    *others, last = suffixes
    return (
        f"the {what} {str(located)!r} has the suffix {located.suffix!r}, but only "
        f"{', '.join(others)} and {last} can be read: convert the file to one of these."
    )


def is_clustered(source: object) -> bool:
    """Whether a source is a cluster's table, as ``ray:///shared/rows``."""
    return str(source).startswith(("ray://", "dask://"))


def source_files(source: str | Path) -> list[Path]:
    """Return the files that a table's rows are in.

    Those of a folder, or the path itself.
    """
    path = Path(source).expanduser()
    return folder_files(path)[0] if path.is_dir() else [path]


def in_one_sentence(located: Path, step: Callable[[], ResultT]) -> ResultT:
    """Return the outcome of a step of reading; what fails becomes a `DataError`."""
    try:
        return step()
    except (DPKMeansError, ImportError):
        raise
    except (
        Exception
    ) as error:  # of any library; for a file of another format, it may be any
        problem = (
            f"the table {str(located)!r} cannot be read as {located.suffix.lower()}"
            f" ({type(error).__name__}), but its content must match its suffix (or, in"
            " a folder, be .parquet): check that it is complete, readable by this user"
            " and holds no pickled objects."
        )
    # Outside of the handler: the chained error could carry the bytes of a cell.
    raise DataError(problem)


def _guarded(
    path: Path, read: Callable[[Path], Iterator[RawTable]]
) -> Iterator[RawTable]:
    blocks = read(path)
    while True:
        block = in_one_sentence(path, partial(next, blocks, None))
        if block is None:
            return
        yield block


def whole_frame(
    table: OpenTable,
    *,
    names: Sequence[str] = (),
    rows: Any = None,
    columns: Collection[str] | None = None,
) -> Any:
    """Return a table, or some of its rows and columns, as one pandas data frame.

    `names` are for columns that have none; text stays as it is written.
    """
    import pandas as pd

    # Numbers that are not written plainly are needed as numbers, too.
    numbers = () if table.reading.dialect.number_format.is_plain else None
    frames, n_rows = [], 0
    for raw in table.blocks(ColumnUse(numbers, texts=None)):
        titles = [column.name for column in raw.columns] if raw.named else list(names)
        cells = {
            index: _plain_cells(column)
            for index, column in enumerate(raw.columns)
            if columns is None or not titles or titles[index] in columns
        }
        frame = pd.DataFrame(cells)
        if titles:
            frame = frame.set_axis([titles[index] for index in cells], axis=1)
        frame.index += n_rows
        n_rows += raw.n_rows
        frames.append(frame if rows is None else frame[frame.index.isin(rows)])
    whole = pd.concat(frames)
    return whole if rows is None else whole.loc[rows]


def _plain_cells(column: RawColumn) -> Any:
    """Numbers, or text in which numbers and dates are written as everywhere."""
    if column.values is not None:
        return column.values
    texts = column.dates()
    if column.numeric is None:
        return texts
    pairs = zip(texts, column.numeric.tolist(), strict=True)
    return [text if number != number else text_of(number) for text, number in pairs]


def one_block(table: OpenTable) -> RawTable:
    """Return all rows of a table as one."""
    first, *others = table.blocks()
    blocks = [first, *others]
    columns = [
        joined_column(parts).as_text_without_numbers()
        for parts in zip(*(block.columns for block in blocks), strict=True)
    ]
    return replace(first, columns=tuple(columns), records=None)
