"""Rows that are kept in a private file while they are in use."""

from __future__ import annotations

import math
import os
import re
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from flwr_dpkmeans.data.rows import Array, Rows
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.resources import limits

_logger = placed_logger("flwr_dpkmeans.data")


_UNUSED_SECONDS = 3600.0


_SECONDS_BETWEEN_LINES = 10.0


# Not through a link, and without waiting for whoever writes into a pipe; Windows has
# neither.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True)
class Store:
    """Where rows beyond memory are kept.

    In the system's temporary folder, or, by name, for later processes.
    """

    folder: Path | None = None
    name: str = ""
    keeps: bool = True
    """Whether anything may be written; if not, all rows are in memory."""

    def stored(self) -> Any:
        """What an earlier process kept under the name, or None.

        Files that no run has looked at for long go.
        """
        if self.folder is None or not self.keeps:
            return None
        file_name = re.compile(rf"{re.escape(self.name)}-(\d+)-(\d+)\.rows")
        newest, shape, last_use = None, (0, 0), -math.inf
        for path in self.folder.glob("*.rows"):
            with suppress(OSError):  # another process may have been faster
                used = path.lstat().st_mtime
                facts = file_name.fullmatch(path.name)
                if facts is None:
                    if time.time() - used > _UNUSED_SECONDS:
                        path.unlink()
                elif used > last_use:
                    newest, last_use = path, used
                    shape = int(facts[1]), int(facts[2])
        if newest is None:
            return None
        with suppress(OSError):
            return _stored_rows(newest, shape)
        return None

    def forget(self) -> None:
        """Delete what processes have kept under names that begin so."""
        if self.folder is None:
            return
        with suppress(OSError):
            for path in self.folder.glob(f"{self.name}*.rows"):
                path.unlink(missing_ok=True)

    def keep(
        self,
        blocks: Iterable[Array],
        what: str,
    ) -> Any:
        """All rows of one or more blocks, (n_i, d).

        An array, or `Rows` where they are many.

        `what` is the table's name in this party's own log. A `DataError` says that they
        find no room.
        """
        in_memory: list[Array] = []
        n_bytes = 0
        n_rows = 0
        file = None
        keeps = self.keeps
        for block in _of_one_width(blocks, what):
            in_memory.append(block)
            n_bytes += block.nbytes
            n_rows += len(block)
            if keeps and n_bytes > limits().table_bytes:
                if file is None:
                    file = self._tried(what)
                keeps = file is not None
                if file is not None:
                    self._write(file, in_memory)
                    in_memory.clear()
        if file is None:
            if len(in_memory) == 1:
                return in_memory[0]
            return np.concatenate(in_memory)
        self._write(file, [])
        path = None
        width = block.shape[1]
        if self.folder and self.name:
            path = self.folder / f"{self.name}-{n_rows}-{width}.rows"
            # Another process was faster, or files here have no second name.
            with suppress(OSError):
                os.link(file.name, path)
        return _mapped(file, width, path)

    def _write(
        self,
        file: IO[bytes],
        blocks: Iterable[Array],
    ) -> None:
        """Write blocks to the file, and all that waits for it."""
        try:
            for block in blocks:
                file.write(np.ascontiguousarray(block).data)
            file.flush()
        except OSError as error:
            mend = (
                "free space there, or name another folder (a node's 'cache', else"
                " TMPDIR)"
            )
            raise DataError(
                f"rows beyond memory cannot be kept in {self._place(error)}: {mend}."
            ) from None

    def _tried(self, what: str) -> IO[bytes] | None:
        """The file, or None where there can be none.

        An error would tell the server that there are so many rows.
        """
        try:
            return self._file()
        except OSError as error:
            _logger.warning(
                "%s: all rows are in memory, as none can be kept in %s",
                what,
                self._place(error),
            )
            return None

    def _place(self, error: OSError) -> str:
        return f"{str(self.folder or tempfile.gettempdir())!r} ({type(error).__name__})"

    def _file(self) -> IO[bytes]:
        """A file that only this user can open."""
        if self.folder is None:
            return tempfile.TemporaryFile()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        return tempfile.NamedTemporaryFile(dir=self.folder, suffix=".rows")


def _stored_rows(path: Path, shape: tuple[int, int]) -> Rows | None:
    """Map a file of so many rows and columns; None if it is not what it should be."""
    n_rows, width = shape
    file = _opened_if_private(path)
    if file is None:
        _logger.warning(
            "%s is left alone: it is another user's, or open to others", path
        )
        return None
    if os.fstat(file.fileno()).st_size != 8 * n_rows * width:
        file.close()
        path.unlink()  # cut short, as by a full disk
        return None
    path.touch()
    return _mapped(file, width, path)


def _opened_if_private(path: Path) -> IO[bytes] | None:
    """Open a file that this user alone could have written, else None.

    The same must hold of its folder. Where the folder is another user's, so may the
    file be, and its rows would stand in
    for this party's own.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | _AS_IT_IS), "rb")
    # Of what was opened, not of its name: that may lead to something else by now.
    facts = os.fstat(file.fileno())
    if (
        stat.S_ISREG(facts.st_mode)
        and _is_private(facts)
        and _is_private(path.parent.stat())
    ):
        return file
    file.close()
    return None


def _is_private(facts: os.stat_result) -> bool:
    """Whether a file or folder is this user's, and closed to everybody else."""
    if sys.platform == "win32":  # knows neither owners as numbers nor such modes
        return True
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _of_one_width(blocks: Iterable[Array], what: str) -> Iterator[Array]:
    """Blocks of a table, whose width does not change.

    This party's own log says, from time to time, how fast a long one is read.
    """
    started = last_line = time.monotonic()
    n_rows = 0
    width = None
    for block in blocks:
        if width is None:
            width = block.shape[1]
        if block.shape[1] != width:
            raise DataError(
                f"{what} was replaced as it was read, {width} columns by"
                f" {block.shape[1]}: retry."
            )
        n_rows += len(block)
        now = time.monotonic()
        if now > last_line + _SECONDS_BETWEEN_LINES:
            last_line = now
            per_second = n_rows / (now - started)
            _logger.info("%s: %d rows read, %.3g a second", what, n_rows, per_second)
        yield block


def _mapped(
    file: IO[bytes],
    width: int,
    path: Path | None,
) -> Rows:
    def read(rows: slice) -> Array:
        # Mapped anew, so that it leaves memory with the block.
        n_rows = rows.stop - rows.start
        shape = (n_rows, width)
        if not n_rows:
            return np.empty(shape)
        offset = 8 * width * rows.start
        return np.asarray(np.memmap(file, np.float64, "r", offset, shape))

    def forget() -> None:
        if path is not None:
            path.unlink(missing_ok=True)

    # Everything that reads the file holds `read`.
    weakref.finalize(read, file.close)
    return Rows((file.seek(0, os.SEEK_END) // (8 * width), width), read, forget)
