"""Which rows of a party are one person's, and which of them count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
_MISSING = -1.0
_STEPS = 2**16
"""Steps of a weight of 1."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


class Counted(NamedTuple):
    """The rows that count, and by how much."""

    rows: Index
    """(n_counted,), ascending."""
    weights: NDArray[np.float64]
    """(n_counted,): multiples of 2^-16, which add up to 1 for each person."""


@dataclass(frozen=True, eq=False)
class Persons:
    """Which rows of one party's table are one person's.

    What becomes of a person's rows depends on these rows alone, so that another person
    more or less changes nothing of it [C16].

    Examples
    --------
    >>> ann, bob, nobody = (1.0, 2.0), (3.0, 4.0), (-1.0, 0.0)
    >>> persons = Persons(np.array([ann, bob, ann, nobody, nobody]))
    >>> persons.n_persons, len(persons.counted(1).rows)
    (4, 4)
    >>> persons.counted(5).weights.tolist()
    [0.5, 1.0, 0.5, 1.0, 1.0]
    """

    digests: NDArray[np.float64] = field(repr=False)
    """(n_rows, 2): two numbers of 48 bits, or -1 and 0 where nobody knows whose row it
    is. May also be `Rows`.
    """
    salt: int = field(default=0, repr=False)
    """Chooses among a person's rows, besides the key of the digests."""

    def __len__(self) -> int:
        return len(self.digests)

    def part(self, rows: Index) -> Persons:
        """Those of some rows, whose numbers ascend."""
        return Persons(self.digests[rows], self.salt)

    @property
    def n_persons(self) -> int:
        """How many there are: as private as the rows."""
        return len(self._sizes)

    def counted(self, most: int) -> Counted:
        """At most so many rows of each person, who weighs 1 in all."""
        rows = np.flatnonzero(self._ranks < most)
        n_taken = np.minimum(self._sizes, min(most, _STEPS))[self._codes[rows]]
        ranks = self._ranks[rows]
        # A share is rounded down to a step; the steps that are left go to a person's
        # first rows.
        steps = _STEPS // n_taken + (ranks < _STEPS % n_taken)
        is_counted = steps > 0
        return Counted(rows[is_counted], steps[is_counted] / _STEPS)

    @cached_property
    def _grouped(self) -> tuple[Index, Index, Index]:
        """Persons of the rows, places of the rows among a person's, persons' rows."""
        digests = np.asarray(self.digests)
        n_rows = len(digests)
        # Stable, so that a person's rows keep their order.
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        ordered = digests[order]
        is_first = np.ones(n_rows, dtype=bool)
        is_other = (ordered[1:] != ordered[:-1]).any(axis=1)
        is_first[1:] = is_other | (ordered[1:, 0] == _MISSING)
        persons = np.cumsum(is_first) - 1
        starts = np.flatnonzero(is_first)
        places = np.arange(n_rows) - starts[persons]
        draws = _drawn(ordered[:, 0], places, self.salt)
        by_draw = np.lexsort((draws, persons))
        ranks = np.empty(n_rows, dtype=np.int64)
        ranks[order[by_draw]] = places
        codes = np.empty(n_rows, dtype=np.int64)
        codes[order] = persons
        sizes = np.bincount(persons)
        return codes, ranks, sizes

    @property
    def _codes(self) -> Index:
        codes, _, _ = self._grouped
        return codes

    @property
    def _ranks(self) -> Index:
        _, ranks, _ = self._grouped
        return ranks

    @property
    def _sizes(self) -> Index:
        _, _, sizes = self._grouped
        return sizes


def _drawn(
    digests: NDArray[np.float64],
    places: Index,
    salt: int,
) -> NDArray[np.uint64]:
    """Draw a number for each row from its person's keyed digest, (n_rows,).

    By SplitMix64 (Steele, Lea, Flood 2014), whose stream begins at the digest.
    """
    salted = hashlib.blake2b(str(salt).encode(), digest_size=8).digest()
    start = np.uint64(int.from_bytes(salted, "big"))
    words = np.maximum(digests, 0.0).astype(np.uint64) ^ start
    words += (places.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FIRST_FACTOR
    words = (words ^ (words >> np.uint64(27))) * _SECOND_FACTOR
    return words ^ (words >> np.uint64(31))
