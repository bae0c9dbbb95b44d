"""A ledger's two files: the lines, and beside them the head, which says how many lines there are.

Both are only ever appended to, and only their complete lines count. Whoever reads or writes either of them holds the
lock of the first one, so the two are always looked at together.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from flwr_dpkmeans.errors import BudgetError

_BINARY = getattr(os, "O_BINARY", 0)
_ROOM = 2**16
"""Bytes on the disk below which no run begins; an entry and its head take about 500."""


@dataclass(frozen=True)
class Head:
    """How many entries a ledger has, and the checksum of the last one: a line of the head file."""

    entries: int
    checksum: str


def head_path(path: Path) -> Path:
    """Path of the head file of a ledger."""
    return path.with_name(path.name + ".head")


def read_both(path: Path) -> tuple[bytes, bytes]:
    """Read ledger and head file under a shared lock; a ledger without entries may have neither."""
    head = b""
    for _ in range(2):
        try:
            with _locked(path, os.O_RDONLY, exclusive=False) as descriptor:
                return read_all(descriptor), read_head(path)
        except FileNotFoundError:
            if not path.parent.is_dir():  # a disk that is gone is not an empty ledger
                raise
            head = read_head(path)
            if not head:
                break
            # A first charge makes the ledger before its head: if it began just now, the second look finds both.
    return b"", head


def read_head(path: Path) -> bytes:
    """Read the head file of a ledger; empty if there is none."""
    try:
        return head_path(path).read_bytes()
    except FileNotFoundError:
        return b""


def parse_head(raw: bytes) -> Head | None:
    """Return what the last complete line of a head file says, None without one; ValueError if it is damaged."""
    end = raw.rfind(b"\n") + 1
    if not end:
        return None
    line = raw[raw.rfind(b"\n", 0, end - 1) + 1 : end]
    try:
        head = Head(**json.loads(line))
        if type(head.entries) is int and re.fullmatch("[0-9a-f]{64}", head.checksum) and _head_line(head) == line:
            return head
    except (TypeError, RecursionError) as error:
        raise ValueError("the line is not a head") from error
    raise ValueError("the line is not a head as it is written")


def append_head(path: Path, head: Head) -> None:
    """Put a new head in force: on the disk, after what a crash may have left unfinished has been cut off."""
    place = head_path(path)
    descriptor = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT | _BINARY, 0o600)
    try:
        raw = read_all(descriptor)
        size = raw.rfind(b"\n") + 1
        if size < len(raw):
            os.ftruncate(descriptor, size)
        append(descriptor, _head_line(head), undo_size=size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if not size:
        _sync_folder(place.parent)


def require_writable(path: Path) -> None:
    """Raise OSError if ledger or head cannot be written, or made, or the disk has no room for them."""
    for place in (path, head_path(path)):
        try:
            os.close(os.open(place, os.O_RDWR | os.O_APPEND | _BINARY))
        except FileNotFoundError:
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
    if shutil.disk_usage(path.parent).free < _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_locked(path: Path) -> contextlib.AbstractContextManager[int]:
    """Open the lines for appending under an exclusive lock, and make the file if need be."""
    return _locked(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, exclusive=True)


def read_all(descriptor: int) -> bytes:
    """Read a whole file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    chunks = []
    while chunk := os.read(descriptor, 1 << 24):
        chunks.append(chunk)
    return b"".join(chunks)


def append(descriptor: int, data: bytes, undo_size: int) -> None:
    """Write all of the data at the end, or as good as nothing."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):  # if this fails as well, a torn line stays, which readers drop
            os.ftruncate(descriptor, undo_size)
        raise


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn a failing disk into a refusal: without a ledger nothing may be released."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BudgetError(
            f"the ledger {path} cannot be used ({reason}), and without it nothing may be released: make the file "
            "readable and writable."
        ) from error


def _head_line(head: Head) -> bytes:
    return json.dumps(asdict(head)).encode() + b"\n"


@contextlib.contextmanager
def _locked(path: Path, flags: int, *, exclusive: bool) -> Iterator[int]:
    """Open a file and wait for its lock; the file must still be the one at its path then."""
    while True:
        descriptor = os.open(path, flags | _BINARY, 0o600)
        try:
            _lock(descriptor, exclusive)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield descriptor
                return
        finally:
            os.close(descriptor)  # this unlocks it too


def _sync_folder(folder: Path) -> None:
    """Make names as durable as what is in the files; Windows can neither do this nor needs it."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, exclusive: bool) -> None:
    """Wait for the file's lock, which ends with the descriptor or the process."""
    if sys.platform == "win32":
        import msvcrt

        while True:
            # Windows locks forbid reading what they cover, so the locked byte lies beyond every entry.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            with contextlib.suppress(OSError):  # it gives up after ten seconds
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
