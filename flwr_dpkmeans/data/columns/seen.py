"""What was read of a table's columns: for its owner alone."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.raw_table import RawColumn

MOST_OUTSIDE = 0.25
"""Part of a column's cells outside its bounds above which its owner is asked for
another unit.
"""
_MOST_SPELLINGS = 1000
_SAMPLE = 8192
"""How many values a median is of."""


class Spread(NamedTuple):
    """Smallest and largest value of a column, and a sample of all of them, whatever the
    table's size.
    """

    low: float
    high: float
    sample: NDArray[np.float64]
    ranks: NDArray[np.float64]
    """A random number for each value of the sample: it has those with the least."""

    @property
    def median(self) -> float:
        """Of the sample."""
        return float(np.median(self.sample))

    def plus(self, other: Spread) -> Spread:
        """The same of both."""
        sample = np.concatenate([self.sample, other.sample])
        ranks = np.concatenate([self.ranks, other.ranks])
        return _sampled(
            min(self.low, other.low), max(self.high, other.high), sample, ranks
        )

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Spread | None:
        """Of values, (n_rows,), of which some are NaN; None if all are."""
        finite = values[~np.isnan(values)]
        if not finite.size:
            return None
        # The same table has the same sample.
        generator = np.random.default_rng(zlib.crc32(finite.tobytes()))
        return _sampled(
            float(finite.min()),
            float(finite.max()),
            finite,
            generator.random(finite.size),
        )


def _sampled(
    low: float, high: float, values: NDArray[np.float64], ranks: NDArray[np.float64]
) -> Spread:
    least = np.argsort(ranks, kind="stable")[:_SAMPLE]
    return Spread(low, high, values[least], ranks[least])


class Seen(NamedTuple):
    """How many cells of a column are what, and how those are spelt that it may not
    hold: for its owner alone.
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
        """Of the table."""
        return self.n_read + self.n_missing + self.n_unknown

    def plus(self, other: Seen) -> Seen:
        """The same of both."""
        spellings = tuple(dict.fromkeys(self.spellings + other.spellings))[
            :_MOST_SPELLINGS
        ]
        n_read, n_missing, n_unknown, n_outside = map(
            sum, zip(self[1:5], other[1:5], strict=True)
        )
        spreads = [part.spread for part in (self, other) if part.spread is not None]
        spread = reduce(Spread.plus, spreads) if spreads else None
        return Seen(
            self.name, n_read, n_missing, n_unknown, n_outside, spellings, spread
        )

    @classmethod
    def of(
        cls, cells: RawColumn, gaps: NDArray[np.int64], n_outside: int, n_rows: int
    ) -> Seen:
        """`gaps` are the rows whose cell is missing or unknown."""
        # A number that the column may not hold is no empty cell, also where nothing
        # says how it was written.
        unknown = (
            gaps if cells.values is None else gaps[np.isfinite(cells.values[gaps])]
        )
        written = cells.text() if len(unknown) else []
        spelt = Counter(
            text
            for row in (unknown if written else ())
            if (text := written[row]) is not None
        )
        n_unknown = cells.n_unparsable + (
            spelt.total() if cells.values is None else len(unknown)
        )
        spellings = tuple(text for text, _ in spelt.most_common())
        return cls(
            cells.name,
            n_rows - len(gaps),
            len(gaps) - n_unknown,
            n_unknown,
            n_outside,
            spellings,
        )


def added(blocks: Iterable[Sequence[Seen]]) -> list[Seen]:
    """What was read of each column of a table that came in blocks."""
    return [reduce(Seen.plus, parts) for parts in zip(*blocks, strict=True)]
