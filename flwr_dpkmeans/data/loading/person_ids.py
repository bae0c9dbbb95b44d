"""Ids of persons, which are hashed as they are read.

A person is what the cells of one column say, as they are written; a cell that is
missing is a person of its own row. Nothing of a cell is stored, logged or sent.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.errors import DataError

N_COLUMNS = 2
"""Numbers of a digest: two of 48 bits, which a file of floats holds as they are."""
SIMULATED_KEY = b"simulated"
"""Where one program holds all parties' rows anyway, and a seed repeats its runs."""

_DIGEST_BYTES = 12
_HALF = _DIGEST_BYTES // 2
_KEY_BYTES = 32
_MISSING = (-1.0, 0.0)


@dataclass(frozen=True)
class PersonColumn:
    """The column that says whose row it is, and the key that hashes its cells."""

    name: str = ""
    """By name or, without names, by index; empty: none."""
    key: bytes = field(default=b"", repr=False)


NO_PERSONS = PersonColumn()


def person_key() -> bytes:
    """Draw a key that hashes ids for one run."""
    return secrets.token_bytes(_KEY_BYTES)


def person_digests(cells: Iterable[str | None], key: bytes) -> NDArray[np.float64]:
    """Hash the cells of a person column, (n_rows,), with a key.

    Returns (n_rows, 2) whole numbers of 48 bits, or -1 and 0 where a cell is missing.
    """
    by_text: dict[str | None, tuple[float, float]] = {None: _MISSING}
    digests: list[tuple[float, float]] = []
    for cell in cells:
        if cell not in by_text:
            by_text[cell] = _hashed(str(cell), key)
        digests.append(by_text[cell])
    return np.array(digests, dtype=np.float64).reshape(-1, N_COLUMNS)


def _hashed(cell: str, key: bytes) -> tuple[float, float]:
    """Two numbers of 48 bits, which floats hold exactly."""
    text = cell.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, key=key, digest_size=_DIGEST_BYTES).digest()
    first = int.from_bytes(digest[:_HALF], "big")
    second = int.from_bytes(digest[_HALF:], "big")
    return float(first), float(second)


def id_texts(ids: ArrayLike) -> list[str | None]:
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


def require_one_each(n_ids: int, n_rows: int) -> None:
    """Refuse ids that are not one for each row of a table."""
    if n_ids != n_rows:
        raise DataError(
            f"persons has {n_ids} ids, but the table has {n_rows} rows: give one for"
            " each row."
        )
