"""Files that survive a crash: locks, whole lines, and names that stay.

A line is on the disk when `append` returns, all of it or as good as nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)
"""On Windows: line ends are written as they are."""


def read_all(descriptor: int) -> bytes:
    """Read a whole file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    chunks = []
    while chunk := os.read(descriptor, 1 << 24):
        chunks.append(chunk)
    return b"".join(chunks)


def append(
    descriptor: int,
    raw: bytes,
    complete: bytes,
    line: bytes,
) -> None:
    """Put a line onto the disk, all of it or as good as nothing.

    Parameters
    ----------
    descriptor : int
        The file, open to append, and locked.
    raw, complete : bytes
        What the file has, and its complete lines, each with its line end.
    line : bytes
        What is added after these.
    """
    undo_size = min(len(raw), len(complete))
    if undo_size < len(raw):
        # A crash left an unfinished line.
        os.ftruncate(descriptor, undo_size)
    missing_end = complete[len(raw) :]
    rest = memoryview(missing_end + line)
    try:
        while rest:
            n_written = os.write(descriptor, rest)
            rest = rest[n_written:]
    except OSError:
        # If this fails as well, a torn line stays, which readers drop.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, undo_size)
        raise
    os.fsync(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put new content into a file, which after a crash has the old or the new one.

    Whoever waits for the lock of the old file takes that of the new one (`locked`).
    """
    new_path = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY
    descriptor = os.open(new_path, flags, 0o600)
    try:
        append(descriptor, b"", b"", content)
    finally:
        os.close(descriptor)
    new_path.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names as durable as what is in the files.

    Windows can neither do this nor needs it.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, exclusive: bool) -> Iterator[int]:
    """Open a file, to append if the lock is exclusive, and wait for the lock.

    The path must still lead to it then.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if exclusive else os.O_RDONLY
    while True:
        descriptor = os.open(path, flags | BINARY, 0o600)
        try:
            lock(descriptor, exclusive=exclusive)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                yield descriptor
                return
        finally:
            # This unlocks it too.
            os.close(descriptor)


def lock(
    descriptor: int,
    *,
    exclusive: bool = True,
    wait: bool = True,
) -> bool:
    """Take the file's lock, which ends with the descriptor or the process.

    Without waiting, False if another has it.
    """
    if sys.platform == "win32":
        import msvcrt

        mode = msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK
        while True:
            # Windows locks forbid reading what they cover, so the locked byte lies
            # beyond every entry.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            # It gives up after ten seconds.
            with contextlib.suppress(OSError):
                msvcrt.locking(descriptor, mode, 1)
                return True
            if not wait:
                return False
    else:
        import fcntl

        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        mode = kind if wait else kind | fcntl.LOCK_NB
        try:
            fcntl.flock(descriptor, mode)
        except BlockingIOError:
            return False
        return True
