"""Delimited text: how a file is written, and its rows."""

from __future__ import annotations

import codecs
from collections.abc import (
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from flwr_dpkmeans.data.files.column_titles import columns_of
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.formats.arrow_cells import numbers_in, texts_in
from flwr_dpkmeans.data.files.guarded import UNREADABLE, in_one_sentence
from flwr_dpkmeans.data.files.open_table import ColumnUse, OpenTable
from flwr_dpkmeans.data.files.raw_column import RawColumn
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reading import Reading
from flwr_dpkmeans.data.files.text.delimited import CellBlock, RecordReader, Wanted
from flwr_dpkmeans.data.files.text.encoded_text import (
    COMPRESSED,
    open_bytes,
    text_chunks,
    without_beginning,
)
from flwr_dpkmeans.data.files.text.headers import MOST_HEADER_BYTES, Beginning, look_at
from flwr_dpkmeans.data.files.text.records import RowShape
from flwr_dpkmeans.data.files.text.tally import Tally
from flwr_dpkmeans.data.files.titles import hint_of
from flwr_dpkmeans.errors import DataError

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


def text_suffix(path: Path) -> str:
    """Return the suffix of a file of delimited text, compressed or not.

    Empty for others.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in _TEXT_SUFFIXES else ""


def open_text(
    path: Path,
    suffix: str,
    reading: Reading,
    names: Sequence[str],
    may_guess: bool,
    names_in_header: Collection[str] | None = None,
) -> OpenTable:
    """Open a text file with its separator, header and columns resolved."""
    stated = reading.dialect
    reading.is_text = True
    if suffix in _SEPARATOR_OF_SUFFIX:
        stated = stated.over(Dialect(separator=_SEPARATOR_OF_SUFFIX[suffix]))
    encoding = _certain_encoding(path, stated)
    stated = stated.over(Dialect(encoding=encoding))
    text = in_one_sentence(path, lambda: _first_lines(path, stated))
    most_header_lines = None
    if names_in_header is not None:
        most_header_lines = 1 + sum(name.count("\n") for name in names_in_header)
    beginning = look_at(
        text,
        stated,
        may_guess=may_guess,
        source=f"the table {str(path)!r}",
        most_header_lines=most_header_lines,
    )
    _require_readable_header(path, beginning)
    reading.dialect = beginning.dialect
    reading.why_header = beginning.why
    reading.is_guessed = bool(beginning.why)
    if may_guess:
        reading.hint = hint_of(text, beginning)
    columns = columns_of(
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
    """A first chunk of text.

    And more of it as long as no line behind skipped ones is whole.
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
    """Refuse a header that is marked as of another encoding than is stated.

    Or that lacks a mark.
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
        cells: object,
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
