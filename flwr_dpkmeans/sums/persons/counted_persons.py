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


class _Groups(NamedTuple):
    """Rows by their persons, who are numbered."""

    persons: Index
    """(n_rows,)"""
    ranks: Index
    """(n_rows,): the number of a row among its person's, in the order of a draw."""
    sizes: Index
    """(n_persons,): how many rows each has."""


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
        return len(self._groups.sizes)

    def counted(self, most: int) -> Counted:
        """At most so many rows of each person, who weighs 1 in all."""
        groups = self._groups
        rows = np.flatnonzero(groups.ranks < most)
        ranks = groups.ranks[rows]
        of_rows = groups.persons[rows]
        limit = min(most, _STEPS)
        n_of_each = np.minimum(groups.sizes, limit)
        n_taken = n_of_each[of_rows]
        # A share is rounded down to a step; the steps that are left go to a person's
        # first rows.
        has_one_more = ranks < _STEPS % n_taken
        steps = _STEPS // n_taken + has_one_more
        is_counted = steps > 0
        weights = steps[is_counted] / _STEPS
        return Counted(rows[is_counted], weights)

    @cached_property
    def _groups(self) -> _Groups:
        """Rows by their persons."""
        digests = np.asarray(self.digests)
        first_numbers, second_numbers = digests.T
        # Stable, so that a person's rows keep their order.
        order = np.lexsort((second_numbers, first_numbers))
        ordered = digests[order]
        is_first = _first_of_persons(ordered)
        persons = np.cumsum(is_first) - 1
        starts = np.flatnonzero(is_first)
        numbers = np.arange(len(digests)) - starts[persons]
        draws = _drawn(
            ordered[:, 0],
            numbers,
            self.salt,
        )
        by_draw = np.lexsort((draws, persons))
        return _Groups(
            persons=_unsorted(persons, order),
            ranks=_unsorted(numbers, order[by_draw]),
            sizes=np.bincount(persons),
        )


def _first_of_persons(ordered: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether sorted rows, (n_rows, 2), are the first ones of persons."""
    rows = ordered[1:]
    is_other = (rows != ordered[:-1]).any(axis=1)
    is_missing = rows[:, 0] == _MISSING
    is_first = np.ones(
        len(ordered),
        dtype=bool,
    )
    is_first[1:] = is_other | is_missing
    return is_first


def _unsorted(values: Index, order: Index) -> Index:
    """Values of sorted rows, (n_rows,), in the order that the rows had."""
    unsorted = np.empty_like(values)
    unsorted[order] = values
    return unsorted


def _drawn(
    digests: NDArray[np.float64],
    numbers: Index,
    salt: int,
) -> NDArray[np.uint64]:
    """Draw a number for each row from its person's keyed digest, (n_rows,).

    By SplitMix64 (Steele, Lea, Flood 2014), whose stream begins at the digest.
    """
    encoded = str(salt).encode()
    salted = hashlib.blake2b(encoded, digest_size=8)
    start = int.from_bytes(salted.digest(), "big")
    # Of a row without a person, -1, the lowest.
    seeds = np.maximum(digests, 0.0).astype(np.uint64)
    words = seeds ^ np.uint64(start)
    steps = numbers.astype(np.uint64) + np.uint64(1)
    words += steps * _GOLDEN
    words ^= words >> np.uint64(30)
    words *= _FIRST_FACTOR
    words ^= words >> np.uint64(27)
    words *= _SECOND_FACTOR
    return words ^ (words >> np.uint64(31))
