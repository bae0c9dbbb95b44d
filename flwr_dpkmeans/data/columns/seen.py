"""What was read of a table's columns: for its owner alone."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_column import RawColumn

MOST_OUTSIDE = 0.25
"""Part of a column's cells outside its bounds above which its owner is asked for
another unit.
"""
_MOST_SPELLINGS = 1000
_SAMPLE = 8192
"""How many values a median is of."""


class Spread(NamedTuple):
    """Smallest and largest value of a column, and a sample of all of them."""

    low: float
    high: float
    sample: NDArray[np.float64]
    ranks: NDArray[np.float64]
    """A random number for each value of the sample: it has those with the least."""

    @property
    def median(self) -> float:
        """Median of the sample."""
        return float(np.median(self.sample))

    def plus(self, other: Spread) -> Spread:
        """Return the spread of both parts of a column."""
        low = min(self.low, other.low)
        high = max(self.high, other.high)
        sample = np.concatenate([self.sample, other.sample])
        ranks = np.concatenate([self.ranks, other.ranks])
        return _sampled(
            low,
            high,
            sample,
            ranks,
        )

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Spread | None:
        """Return the spread of values, (n_rows,), without NaNs; None if all are."""
        finite = values[~np.isnan(values)]
        if not finite.size:
            return None
        # The same table has the same sample.
        seed = zlib.crc32(finite.tobytes())
        generator = np.random.default_rng(seed)
        ranks = generator.random(finite.size)
        low = float(finite.min())
        high = float(finite.max())
        return _sampled(
            low,
            high,
            finite,
            ranks,
        )


def _sampled(
    low: float,
    high: float,
    values: NDArray[np.float64],
    ranks: NDArray[np.float64],
) -> Spread:
    least = np.argsort(ranks, kind="stable")[:_SAMPLE]
    return Spread(
        low,
        high,
        values[least],
        ranks[least],
    )


class Seen(NamedTuple):
    """How many cells of a column are what, and how unknown ones are spelt.

    For the table's owner alone.
    """

    name: str
    n_read: int
    n_missing: int
    n_unknown: int
    n_outside: int
    """Of those that were read, how many lie outside the bounds."""
    spellings: tuple[str, ...]
    """Of unknown cells, the most frequent first.

    Empty where a file's numbers are not kept as they are written.
    """
    spread: Spread | None = None
    """Of the values in units, where they were asked for."""

    @property
    def looks_foreign(self) -> bool:
        """Whether so many cells lie outside that they may be of another unit."""
        return self.n_outside > MOST_OUTSIDE * self.n_read

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return self.n_read + self.n_missing + self.n_unknown

    def plus(self, other: Seen) -> Seen:
        """Return what was seen in both parts of a column."""
        spellings = tuple(dict.fromkeys(self.spellings + other.spellings))
        spreads = [part.spread for part in (self, other) if part.spread is not None]
        return Seen(
            self.name,
            n_read=self.n_read + other.n_read,
            n_missing=self.n_missing + other.n_missing,
            n_unknown=self.n_unknown + other.n_unknown,
            n_outside=self.n_outside + other.n_outside,
            spellings=spellings[:_MOST_SPELLINGS],
            spread=reduce(Spread.plus, spreads) if spreads else None,
        )

    @classmethod
    def of(
        cls,
        cells: RawColumn,
        gaps: NDArray[np.int64],
        n_outside: int,
        n_rows: int,
    ) -> Seen:
        """Count the cells of a column.

        Parameters
        ----------
        cells : RawColumn
        gaps : ndarray, (n_gaps,)
            Rows whose cell is missing or unknown.
        n_outside : int
            How many cells lie outside the bounds.
        n_rows : int
            Of the table.
        """
        # A number that the column may not hold is no empty cell, also where nothing
        # says how it was written.
        unknown = gaps
        if cells.values is not None:
            unknown = gaps[np.isfinite(cells.values[gaps])]
        written = cells.text() if len(unknown) else []
        texts = [written[row] for row in unknown] if written else []
        spelt = Counter(text for text in texts if text is not None)
        n_spelt = spelt.total() if cells.values is None else len(unknown)
        n_unknown = cells.n_unparsable + n_spelt
        return cls(
            cells.name,
            n_read=n_rows - len(gaps),
            n_missing=len(gaps) - n_unknown,
            n_unknown=n_unknown,
            n_outside=n_outside,
            spellings=tuple(text for text, _ in spelt.most_common()),
        )


def added(blocks: Iterable[Sequence[Seen]]) -> list[Seen]:
    """Return what was read of each column of a table that came in blocks."""
    return [reduce(Seen.plus, parts) for parts in zip(*blocks, strict=True)]
