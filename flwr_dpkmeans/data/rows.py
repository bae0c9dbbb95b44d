"""Rows beyond memory, in a file of their owner's.

A table that is larger than `ResourceLimits.table_bytes` lies in a file, of which each
block is mapped while it is looked at. Without a name the file vanishes with the
process, however that ends; with one it serves later processes, as Flower starts one for
each message, until `forget`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.resources import limits

Array = NDArray[np.float64]
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """A table, (n, d), or a column, (n,).

    Of which slices are arrays, made when they are asked for.

    Examples
    --------
    >>> rows = Rows((3, 2), lambda rows: np.arange(6.0).reshape(3, 2)[rows])
    >>> doubled = rows[:, 1].then(lambda block: 2.0 * block)
    >>> len(doubled), doubled[1:].tolist(), rows[np.array([0, 2])].tolist()
    (3, [6.0, 10.0], [[0.0, 1.0], [4.0, 5.0]])
    """

    shape: Shape
    read: Callable[[slice], Array] = field(repr=False)
    """``read(slice(start, stop))``, where 0 <= start <= stop <= n."""
    forget: Callable[[], None] = field(default=lambda: None, repr=False)
    """Deletes the file that serves later processes; can be called again."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """An array of a slice, or `Rows` of some columns, as ``rows[:, places]``.

        Or of the rows of an ascending index: an array if they are few.
        """
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            _require(step == 1)
            end = max(start, stop)
            window = slice(start, end)
            return self.read(window)
        if isinstance(rows, tuple):
            rows_of_all = rows[0]
            _require(isinstance(rows_of_all, slice))
            _require(rows_of_all == slice(None))
            return self.then(lambda block: block[rows])
        index = np.asarray(rows)
        if len(index) > 0:
            steps = np.diff(index)
            _require(index.dtype.kind in "iu")
            _require(bool(np.all(steps >= 0)))
            _require(index[0] >= 0)
            _require(index[-1] < len(self))
        return self._taken(index)

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,
    ) -> Array:
        whole = self[:]
        return np.array(whole, dtype=dtype)

    def then(self, change: Callable[[Any], Any]) -> Any:
        """What ``change(block) -> block`` makes of each block, row by row."""
        nothing = self.read(slice(0, 0))
        width = change(nothing).shape[1:]
        shape = (len(self), *width)

        def read(rows: slice) -> Array:
            block = self.read(rows)
            changed: Array = change(block)
            return changed

        return Rows(
            shape,
            read,
            self.forget,
        )

    def beside(self, others: Array | Rows) -> Rows:
        """With other rows' columns behind one's own."""
        width = self.shape[1] + others.shape[1]
        shape = (len(self), width)

        def read(rows: slice) -> Array:
            blocks = [self[rows], others[rows]]
            return np.hstack(blocks)

        return Rows(
            shape,
            read,
            self.forget,
        )

    def _taken(self, index: NDArray[np.int64]) -> Array | Rows:
        """Rows of an ascending index."""
        width = self.shape[1:]

        def read(rows: slice) -> Array:
            wanted = index[rows]
            n_wanted = len(wanted)
            table = np.empty((n_wanted, *width))
            if n_wanted == 0:
                return table
            first = wanted[0]
            last = wanted[-1] + 1
            for window in windows(self.shape, first, last):
                limits_of_window = (window.start, window.stop)
                ends = np.searchsorted(wanted, limits_of_window)
                inside = slice(*ends)
                in_window = wanted[inside] - window.start
                block = self.read(window)
                table[inside] = block[in_window]
            return table

        shape = (len(index), *width)
        taken = Rows(shape, read, self.forget)
        if is_large(shape):
            return taken
        whole = slice(0, len(index))
        return taken.read(whole)


def _require(can_be_read: bool) -> None:
    """Raise for an index that blocks cannot answer one after the other.

    Against rows that nobody asked for, or that are none: what memory held before.
    """
    if not can_be_read:
        raise LocalMisuseError(
            "rows beyond memory are read from the first to the last: take a slice"
            " without a step, all rows of some columns, or an ascending index."
        )


def is_large(shape: Shape) -> bool:
    """Whether a table of numbers is no array in memory."""
    n_bytes = 8 * math.prod(shape)
    return n_bytes > limits().table_bytes


def windows(
    shape: Shape,
    first: int = 0,
    last: int | None = None,
) -> Iterator[slice]:
    """Cut rows of a table, from `first` to before `last`, into blocks.

    Each of them fits into a cache; by default these are all rows.
    """
    n_columns = max(1, math.prod(shape[1:]))
    n_rows = limits().window_numbers // n_columns
    step = max(1, n_rows)
    end = shape[0] if last is None else last
    for start in range(first, end, step):
        stop = min(end, start + step)
        yield slice(start, stop)
