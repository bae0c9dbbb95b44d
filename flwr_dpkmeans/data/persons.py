"""Which rows of a party are one person's, and which of them count.

A person is what the cells of one column say, as they are written; a cell that is
missing is a person of its own row. Cells are hashed with a key as they are read, and
nothing of them is stored, logged or sent.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.errors import DataError

Digests = NDArray[np.float64]
Index = NDArray[np.int64]
N_COLUMNS = 2
"""Numbers of a digest: two of 48 bits, which a file of floats holds as they are."""
SIMULATED_KEY = b"simulated"
"""Where one program holds all parties' rows anyway, and a seed repeats its runs."""

_DIGEST_BYTES = 12
_HALF = _DIGEST_BYTES // 2
_KEY_BYTES = 32
_MISSING = -1.0
_STEPS = 2**16
"""Steps of a weight of 1."""
_WORD = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class PersonColumn:
    """The column that says whose row it is, and the key that hashes its cells."""

    name: str = ""
    """By name or, without names, by index; empty: none."""
    key: bytes = field(default=b"", repr=False)


NO_PERSONS = PersonColumn()


class Counted(NamedTuple):
    """The rows that count, and by how much."""

    rows: Index
    """(n_counted,), ascending."""
    weights: NDArray[np.float64]
    """(n_counted,): multiples of 2^-16, which add up to 1 for each person."""


def person_digests(cells: Iterable[str | None], key: bytes) -> Digests:
    """Hash the cells of a person column, (n_rows,), with a key.

    Returns (n_rows, 2) whole numbers of 48 bits, or -1 where a cell is missing.
    """
    by_text: dict[str, tuple[float, float]] = {}
    digests: list[tuple[float, float]] = []
    for cell in cells:
        if cell is None:
            digests.append((_MISSING, 0.0))
            continue
        numbers = by_text.get(cell)
        if numbers is None:
            numbers = _hashed(cell, key)
            by_text[cell] = numbers
        digests.append(numbers)
    return np.array(digests, dtype=np.float64).reshape(-1, N_COLUMNS)


def _hashed(cell: str, key: bytes) -> tuple[float, float]:
    """Two numbers of 48 bits, which floats hold exactly."""
    text = cell.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, key=key, digest_size=_DIGEST_BYTES).digest()
    first = int.from_bytes(digest[:_HALF], "big")
    second = int.from_bytes(digest[_HALF:], "big")
    return float(first), float(second)


@dataclass(frozen=True, eq=False)
class Persons:
    """Which rows of one party's table are one person's.

    What becomes of a person's rows depends on these rows alone, so that another person
    more or less changes nothing of it [C16].

    Examples
    --------
    >>> persons = Persons.of(["ann", "bob", "ann", None, None], b"key")
    >>> persons.n_persons, len(persons.counted(1).rows)
    (4, 4)
    >>> persons.counted(5).weights.tolist()
    [0.5, 1.0, 0.5, 1.0, 1.0]
    """

    digests: Digests | Rows = field(repr=False)
    """(n_rows, 2), as `person_digests` makes them."""
    salt: int = field(default=0, repr=False)
    """Chooses among a person's rows, besides the key of the digests."""

    @classmethod
    def of(
        cls,
        cells: Iterable[str | None],
        key: bytes,
        salt: int = 0,
    ) -> Persons:
        """Make it of the cells of a person column."""
        return cls(person_digests(cells, key), salt)

    def __len__(self) -> int:
        return len(self.digests)

    def part(self, rows: Index) -> Persons:
        """Those of some rows, whose numbers ascend."""
        return Persons(self.digests[rows], self.salt)

    @classmethod
    def of_ids(
        cls,
        ids: ArrayLike | Persons,
        n_rows: int,
        column: PersonColumn = NO_PERSONS,
        salt: int = 0,
    ) -> Persons:
        """Make it of one id for each row, of whatever type.

        Parameters
        ----------
        ids : array-like, (n_rows,), or Persons
            None, NaN and empty texts are missing. Texts are compared as they are
            written, but for blanks around them; whole numbers as their digits.
        n_rows : int
            How many rows there are.
        column : PersonColumn
            Has the key; without one a new key is drawn.
        salt : int
            Chooses among a person's rows, besides the key.

        Raises
        ------
        DataError
            Where there is not one for each row.
        """
        if isinstance(ids, Persons):
            persons = ids
        else:
            key = column.key or secrets.token_bytes(_KEY_BYTES)
            persons = cls.of(id_texts(ids), key, salt)
        if len(persons) != n_rows:
            raise DataError(
                f"persons has {len(persons)} ids, but there are {n_rows} rows: give one"
                " for each row."
            )
        return persons

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


def id_texts(ids: object) -> list[str | None]:
    """Ids, (n_rows,), as a file would have them; None where one is missing."""
    array = np.asarray(ids)
    if array.ndim != 1:
        raise DataError(
            f"persons has shape {array.shape}, but it must have one id for each row:"
            " give one column."
        )
    # An array of texts would make texts of numbers among them.
    cells = list(ids) if isinstance(ids, list | tuple) else array.tolist()
    return [text_of(cell) for cell in cells]


def _drawn(
    digests: NDArray[np.float64],
    places: Index,
    salt: int,
) -> NDArray[np.uint64]:
    """Draw a number for each row from its person's keyed digest, (n_rows,).

    By SplitMix64 (Steele, Lea, Flood 2014), whose stream begins at the digest.
    """
    salted = hashlib.blake2b(str(salt).encode(), digest_size=8).digest()
    start = np.uint64(int.from_bytes(salted, "big") & _WORD)
    words = np.maximum(digests, 0.0).astype(np.uint64) ^ start
    words += (places.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _FIRST_FACTOR
    words = (words ^ (words >> np.uint64(27))) * _SECOND_FACTOR
    return words ^ (words >> np.uint64(31))
