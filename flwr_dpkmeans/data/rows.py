"""Rows beyond memory: whatever looks at a table takes slices of it, and a slice is read when it is asked for.

A table that is larger than `IN_MEMORY` bytes lies in a file that its owner alone can read, and each block of it is
mapped while it is looked at. Without a name the file vanishes with the process, however that ends. With a name it
serves later processes, as Flower starts one for each message, until `forget`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.log import placed_logger

_logger = placed_logger("flwr_dpkmeans.data")

Array = NDArray[np.float64]

IN_MEMORY = 1 << 24
"""Bytes up to which a table is an array."""
_WINDOW = 1 << 16
"""Numbers that are looked at together."""
_UNUSED_SECONDS = 3600.0
_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True, eq=False)
class Rows:
    """A table, (n, d), or a column, (n,), that is no array; its slices are. NumPy's functions take all of it at once.

    Examples
    --------
    >>> rows = Rows((3, 2), lambda rows: np.arange(6.0).reshape(3, 2)[rows])
    >>> doubled = rows.then(lambda block: 2.0 * block[:, 1])
    >>> len(doubled), doubled[1:].tolist(), rows.take(np.array([0, 2])).tolist()
    (3, [6.0, 10.0], [[0.0, 1.0], [4.0, 5.0]])
    """

    shape: tuple[int, ...]
    read: Callable[[slice], Array] = field(repr=False)
    """``read(slice(start, stop))``, where 0 <= start <= stop <= n."""
    forget: Callable[[], None] = field(default=lambda: None, repr=False)
    """Deletes the file that they are kept in for later processes; can be called again."""

    @property
    def ndim(self) -> int:
        """1 or 2."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        return self.read(slice(*rows.indices(len(self))[:2]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self[:], dtype=dtype)

    def then(self, change: Callable[[Any], Any]) -> Any:
        """What ``change(block) -> block`` makes of each block, row by row."""
        width = change(self.read(slice(0, 0))).shape[1:]
        return Rows((len(self), *width), lambda rows: change(self.read(rows)), self.forget)

    def beside(self, others: Any) -> Any:
        """With other rows' columns behind one's own."""
        width = self.shape[1] + others.shape[1]
        return Rows((len(self), width), lambda rows: np.hstack([self[rows], others[rows]]), self.forget)

    def take(self, index: NDArray[np.int64]) -> Any:
        """Some rows, whose numbers ascend: an array if they are few."""

        def read(rows: slice) -> Array:
            own = index[rows]
            found = np.empty((len(own), *self.shape[1:]))
            for window in windows(self.shape, *(own[[0, -1]] + (0, 1) if len(own) else (0, 0))):
                inside = slice(*np.searchsorted(own, (window.start, window.stop)))
                found[inside] = self.read(window)[own[inside] - window.start]
            return found

        taken = Rows((len(index), *self.shape[1:]), read, self.forget)
        return taken if is_large(taken.shape) else taken[:]


def is_large(shape: tuple[int, ...]) -> bool:
    """Whether a table of numbers is no array in memory."""
    return 8 * math.prod(shape) > IN_MEMORY


def windows(shape: tuple[int, ...], first: int = 0, last: int | None = None) -> Iterator[slice]:
    """Cut the rows of a table, or those from `first` to before `last`, into blocks that fit into a cache."""
    step, end = max(1, _WINDOW // max(1, math.prod(shape[1:]))), shape[0] if last is None else last
    return (slice(start, min(end, start + step)) for start in range(first, end, step))


def as_rows(points: Any) -> Rows:
    """A table whose slices may be changed."""
    return points if isinstance(points, Rows) else Rows(points.shape, points.__getitem__)


def split_columns(points: Any, place: int) -> tuple[Any, Any]:
    """The columns before a place, and the others."""
    if isinstance(points, Rows):
        return points.then(lambda block: block[:, :place]), points.then(lambda block: block[:, place:])
    return points[:, :place], points[:, place:]


def taken(values: Any, index: NDArray[np.int64]) -> Any:
    """Some rows of an array or of `Rows`, whose numbers ascend."""
    return values.take(index) if isinstance(values, Rows) else values[index]


@dataclass(frozen=True)
class Store:
    """Where rows beyond memory are kept: in the system's temporary folder, or, by name, for later processes."""

    folder: Path | None = None
    name: str = ""
    keeps: bool = True
    """Whether anything may be written; if not, all rows are in memory."""

    @property
    def path(self) -> Path | None:
        """Of the file that has a name."""
        return self.folder / f"{self.name}.rows" if self.folder and self.name and self.keeps else None

    def known(self) -> tuple[Array, dict[str, Any]] | None:
        """What an earlier process kept under the name, and what it said of it."""
        try:
            assert self.path is not None
            file = self.path.open("rb")
            os.utime(file.fileno())
        except (AssertionError, OSError):
            return None
        return _mapped(file, self.path)

    def keep(self, blocks: Iterable[Array], known: Callable[[], dict[str, Any]] = dict, what: str = "") -> Array:
        """All rows of one or more blocks, (n_i, d): an array, or `Rows` where they are many.

        `known` is asked at the end for what is to be found again beside the rows, in JSON; `what` is the table's name
        in the log. A `DataError` says that they find no room.
        """
        few, size, n_rows, file, pace = list[Array](), 0, 0, None, Pace(f"read {what}")
        for block in blocks:
            few.append(block)
            size, n_rows = size + block.nbytes, n_rows + len(block)
            if self.keeps and size > IN_MEMORY:
                file = file or self._file()
                pace.tell(n_rows)
                self._write(file, few)
        if file is None:
            return few[0] if len(few) == 1 else np.concatenate(few)
        pace.tell(n_rows, ended=True)
        said = json.dumps({"known": known(), "shape": (n_rows, *block.shape[1:])}).encode()
        self._write(file, [np.frombuffer(said + len(said).to_bytes(8, "little"), dtype=np.uint8)])
        file.flush()
        if self.path is not None:
            with suppress(OSError):  # another process was faster, or the system cannot name it: it serves this one
                os.link(f"/proc/self/fd/{file.fileno()}", self.path, follow_symlinks=True)
        rows: Any = _mapped(file, self.path)[0]
        return rows  # type: ignore[no-any-return]

    def _file(self) -> BinaryIO:
        """A file without a name, which only this user could open; files that no run has looked at for long go."""
        try:
            if self.folder is not None:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.folder.chmod(0o700)
                for old in self.folder.glob("*.rows"):
                    if time.time() - old.stat().st_mtime > _UNUSED_SECONDS:
                        old.unlink(missing_ok=True)
            return tempfile.TemporaryFile(dir=self.folder)
        except OSError as error:
            raise self._no_room(error) from None

    def _write(self, file: BinaryIO, blocks: list[Array]) -> None:
        try:
            while blocks:
                np.ascontiguousarray(blocks.pop(0)).tofile(file)
        except OSError as error:
            raise self._no_room(error) from None

    def _no_room(self, error: OSError) -> DataError:
        return DataError(
            f"rows beyond memory cannot be kept in {str(self.folder or tempfile.gettempdir())!r} "
            f"({type(error).__name__}): free space there, or name another folder (a node's 'cache', else TMPDIR)."
        )


def _mapped(file: BinaryIO, path: Path | None) -> tuple[Any, dict[str, Any]]:
    """The rows in a file, and what is said of them at its end."""
    file.seek(-8, os.SEEK_END)
    size = int.from_bytes(file.read(8), "little")
    file.seek(-8 - size, os.SEEK_END)
    said = json.loads(file.read(size))
    n_rows, *rest = said["shape"]

    def read(rows: slice) -> Array:
        # Mapped anew, so that it leaves memory with the block.
        shape, offset = (rows.stop - rows.start, *rest), 8 * rows.start * math.prod(rest)
        return np.asarray(np.memmap(file, np.float64, "r", offset, shape)) if shape[0] else np.empty(shape)

    def forget() -> None:
        if path is not None:
            path.unlink(missing_ok=True)

    return Rows((n_rows, *rest), read, forget), said["known"]


class Pace:
    """Says in this party's own log, every few seconds, how far a pass over many rows has come."""

    def __init__(self, what: str) -> None:
        self._what, self._start = what, time.monotonic()
        self._next = self._start + _SECONDS_BETWEEN_LINES

    def tell(self, n_rows: int, *, ended: bool = False) -> None:
        """So many rows are done."""
        now = time.monotonic()
        if ended or now > self._next:
            self._next = now + _SECONDS_BETWEEN_LINES
            each = n_rows / max(1e-9, now - self._start)
            _logger.log(logging.INFO, "%s: %d rows, %.3g rows a second", self._what, n_rows, each)
