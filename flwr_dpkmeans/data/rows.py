"""Rows beyond memory: a table that is larger than `IN_MEMORY` bytes lies in a file of
its owner's, of which each block is mapped while it is looked at. Without a name the
file vanishes with the process, however that ends; with one it serves later processes,
as Flower starts one for each message, until `forget`.
"""

from __future__ import annotations

import math
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.log import placed_logger

_logger = placed_logger("flwr_dpkmeans.data")

Array = NDArray[np.float64]

IN_MEMORY = 1 << 24
_WINDOW = 1 << 16  # numbers that fit into a processor's cache together
_UNUSED_SECONDS = 3600.0
_SECONDS_BETWEEN_LINES = 10.0
# Not through a link, and without waiting for whoever writes into a pipe; Windows has
# neither.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, eq=False)
class Rows:
    """A table, (n, d), or a column, (n,), of which slices are arrays, made when they
    are asked for.

    Examples
    --------
    >>> rows = Rows((3, 2), lambda rows: np.arange(6.0).reshape(3, 2)[rows])
    >>> doubled = rows[:, 1].then(lambda block: 2.0 * block)
    >>> len(doubled), doubled[1:].tolist(), rows[np.array([0, 2])].tolist()
    (3, [6.0, 10.0], [[0.0, 1.0], [4.0, 5.0]])
    """

    shape: tuple[int, ...]
    read: Callable[[slice], Array] = field(repr=False)
    """``read(slice(start, stop))``, where 0 <= start <= stop <= n."""
    forget: Callable[[], None] = field(default=lambda: None, repr=False)
    """Deletes the file that serves later processes; can be called again."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """An array of a slice, or `Rows` of some columns, as ``rows[:, places]``, or of
        the rows of an ascending index: an array if they are few.
        """
        if isinstance(rows, slice):
            return self.read(slice(*rows.indices(len(self))[:2]))
        return (
            self.then(lambda block: block[rows])
            if isinstance(rows, tuple)
            else self._taken(rows)
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self[:], dtype=dtype)

    def then(self, change: Callable[[Any], Any]) -> Any:
        """What ``change(block) -> block`` makes of each block, row by row."""
        width = change(self.read(slice(0, 0))).shape[1:]
        return Rows(
            (len(self), *width), lambda rows: change(self.read(rows)), self.forget
        )

    def beside(self, others: Any) -> Any:
        """With other rows' columns behind one's own."""
        width = self.shape[1] + others.shape[1]
        return Rows(
            (len(self), width),
            lambda rows: np.hstack([self[rows], others[rows]]),
            self.forget,
        )

    def _taken(self, index: NDArray[np.int64]) -> Any:
        def read(rows: slice) -> Array:
            own = index[rows]
            found = np.empty((len(own), *self.shape[1:]))
            for window in windows(self.shape, own[0], own[-1] + 1) if len(own) else ():
                inside = slice(*np.searchsorted(own, (window.start, window.stop)))
                found[inside] = self.read(window)[own[inside] - window.start]
            return found

        taken = Rows((len(index), *self.shape[1:]), read, self.forget)
        return taken if is_large(taken.shape) else taken[:]


def is_large(shape: tuple[int, ...]) -> bool:
    """Whether a table of numbers is no array in memory."""
    return 8 * math.prod(shape) > IN_MEMORY


def windows(
    shape: tuple[int, ...],
    first: int = 0,
    last: int | None = None,
) -> Iterator[slice]:
    """Cut the rows of a table, or those from `first` to before `last`, into blocks that
    fit into a cache.
    """
    step, end = (
        max(1, _WINDOW // max(1, math.prod(shape[1:]))),
        shape[0] if last is None else last,
    )
    return (slice(start, min(end, start + step)) for start in range(first, end, step))


@dataclass(frozen=True)
class Store:
    """Where rows beyond memory are kept: in the system's temporary folder, or, by name,
    for later processes.
    """

    folder: Path | None = None
    name: str = ""
    keeps: bool = True
    """Whether anything may be written; if not, all rows are in memory."""

    def kept(self) -> Any:
        """What an earlier process kept under the name, or None.

        Files that no run has looked at for long go.
        """
        files = (
            {*self.folder.glob("*.rows")}
            if self.folder is not None and self.keeps
            else set[Path]()
        )
        own = [path for path in files if path.match(f"{self.name}-*-*.rows")]
        for old in files.difference(own):
            with suppress(OSError):  # another process may have been faster
                if time.time() - old.stat().st_mtime > _UNUSED_SECONDS:
                    old.unlink()
        with suppress(IndexError, OSError):
            n_rows, width = map(int, own[0].stem.split("-")[-2:])
            file = _opened_if_private(own[0])
            if file is None:
                _logger.warning(
                    "%s is left alone: it is another user's, or open to others", own[0]
                )
                return None
            if os.fstat(file.fileno()).st_size != 8 * n_rows * width:
                return own[0].unlink()  # cut short, as by a full disk
            own[0].touch()
            return _mapped(file, width, own[0])
        return None

    def forget(self) -> None:
        """Delete what processes have kept under names that begin so."""
        with suppress(OSError):
            for path in (
                self.folder.glob(f"{self.name}*.rows")
                if self.folder is not None
                else ()
            ):
                path.unlink(missing_ok=True)

    def keep(self, blocks: Iterable[Array], what: str) -> Any:
        """All rows of one or more blocks, (n_i, d).

        An array, or `Rows` where they are many.

        `what` is the table's name in this party's own log. A `DataError` says that they
        find no room.
        """
        few, size, n_rows, file, keeps, width = list[Array](), 0, 0, None, self.keeps, 0
        started = told = time.monotonic()
        try:
            for block in blocks:
                if block.shape[1] != (width := width or block.shape[1]):
                    raise DataError(
                        f"{what} was replaced as it was read, {width} columns by"
                        f" {block.shape[1]}: retry."
                    )
                few.append(block)
                size, n_rows, now = (
                    size + block.nbytes,
                    n_rows + len(block),
                    time.monotonic(),
                )
                if now > told + _SECONDS_BETWEEN_LINES:
                    told = now
                    _logger.info(
                        "%s: %d rows read, %.3g a second",
                        what,
                        n_rows,
                        n_rows / (now - started),
                    )
                if keeps and size > IN_MEMORY:
                    file = file or self._tried(what)
                    keeps = file is not None
                    while file is not None and few:
                        file.write(np.ascontiguousarray(few.pop(0)).data)
            if file is None:
                return few[0] if len(few) == 1 else np.concatenate(few)
            file.flush()
        except OSError as error:
            mend = (
                "free space there, or name another folder (a node's 'cache', else"
                " TMPDIR)"
            )
            raise DataError(
                f"rows beyond memory cannot be kept in {self._place(error)}: {mend}."
            ) from None
        path = (
            self.folder / f"{self.name}-{n_rows}-{width}.rows"
            if self.folder and self.name
            else None
        )
        if path is not None:
            with suppress(
                OSError
            ):  # another process was faster, or files here have no second name
                os.link(file.name, path)
        return _mapped(file, block.shape[1], path)

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


def _opened_if_private(path: Path) -> IO[bytes] | None:
    """Open a file that this user alone could have written, in a folder of which the
    same holds; else None.

    Where the folder is another user's, so may the file be, and its rows would stand in
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
    """Whether a file or folder is this user's, and nobody else may write to it or read
    it.
    """
    if sys.platform == "win32":  # knows neither owners as numbers nor such modes
        return True
    return facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _mapped(
    file: IO[bytes],
    width: int,
    path: Path | None,
) -> Rows:
    def read(rows: slice) -> Array:
        # Mapped anew, so that it leaves memory with the block.
        shape, offset = (rows.stop - rows.start, width), 8 * width * rows.start
        return (
            np.asarray(np.memmap(file, np.float64, "r", offset, shape))
            if shape[0]
            else np.empty(shape)
        )

    def forget() -> None:
        if path is not None:
            path.unlink(missing_ok=True)

    return Rows((file.seek(0, os.SEEK_END) // (8 * width), width), read, forget)
