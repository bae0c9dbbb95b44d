"""The bytes of text files: decompressed, as UTF-8, with line feeds."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from flwr_dpkmeans.data.files.text.tally import Tally
from flwr_dpkmeans.resources import limits

COMPRESSED: Mapping[str, Callable[[Path], Any]] = MappingProxyType(
    {
        ".gz": gzip.open,
        ".bz2": bz2.open,
        ".xz": lzma.open,
    }
)
"""What opens a compressed file, whose bytes it decompresses, by its last suffix."""


def text_chunks(
    path: Path,
    encoding: str,
    tally: Tally,
) -> Generator[bytes, None, None]:
    """Yield a file's text as UTF-8, with line feeds and without byte order mark.

    Bytes that are no text become replacement characters: they spoil their own cell
    only.
    """
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    is_first = True
    ends_with_return = False
    with open_bytes(path) as file:
        while chunk := file.read(limits().text_bytes):
            # Whole ASCII needs no decoding, unless a character was cut in two before
            # it.
            is_cut = bool(decoder.getstate()[0])
            if not is_utf8 or is_cut or not chunk.isascii():
                chunk = _as_utf8(decoder.decode(chunk), tally)
            if is_first:
                chunk = chunk.removeprefix(codecs.BOM_UTF8)
                is_first = not chunk
            if ends_with_return:
                chunk = b"\r" + chunk
            ends_with_return = chunk.endswith(b"\r")
            yield _with_line_feeds(chunk.removesuffix(b"\r"))
    last = decoder.decode(b"", final=True)
    rest = _as_utf8(last, tally)
    if ends_with_return or rest:
        yield rest + b"\n"


def without_beginning(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Yield what stands behind the first bytes of a text."""
    for chunk in chunks:
        yield chunk[n_bytes:]
        n_bytes = max(0, n_bytes - len(chunk))


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file whose bytes are decompressed if its suffix says so."""
    opener = COMPRESSED.get(path.suffix.lower())
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return opened


def _as_utf8(text: str, tally: Tally) -> bytes:
    tally.has_bad_bytes |= "\ufffd" in text
    return text.encode("utf-8", errors="replace")


def _with_line_feeds(chunk: bytes) -> bytes:
    if b"\r" not in chunk:
        return chunk
    chunk = chunk.replace(b"\r\n", b"\n")
    return chunk.replace(b"\r", b"\n")
