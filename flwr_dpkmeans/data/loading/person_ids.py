"""Ids of persons, which are hashed as they are read.

A person is what the cells of one column say, as they are written; a cell that is
missing is a person of its own row. Nothing of a cell is stored, logged or sent.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.files.cells import text_of
from flwr_dpkmeans.errors import DataError

SIMULATED_KEY = b"simulated"
"""Where one program holds all parties' rows anyway, and a seed repeats its runs."""

_DIGEST_BYTES = 12
_HALF = _DIGEST_BYTES // 2
_KEY_BYTES = 32
_Digest = tuple[float, float]
_MISSING: _Digest = (-1.0, 0.0)


def person_key() -> bytes:
    """Draw a key that hashes ids for one run."""
    return secrets.token_bytes(_KEY_BYTES)


def person_digests(cells: Iterable[str | None], key: bytes) -> NDArray[np.float64]:
    """Hash the cells of a person column, (n_rows,), with a key.

    Returns (n_rows, 2) whole numbers of 48 bits, or -1 and 0 where a cell is missing.
    """
    by_text: dict[str | None, _Digest] = {None: _MISSING}
    digests: list[_Digest] = []
    for cell in cells:
        if cell not in by_text:
            by_text[cell] = _hashed(str(cell), key)
        digests.append(by_text[cell])
    numbers = np.array(digests, dtype=np.float64)
    return numbers.reshape(-1, len(_MISSING))


def _hashed(cell: str, key: bytes) -> _Digest:
    """Two numbers of 48 bits, which floats hold exactly."""
    text = cell.encode("utf-8", "surrogatepass")
    hashed = hashlib.blake2b(
        text,
        key=key,
        digest_size=_DIGEST_BYTES,
    )
    digest = hashed.digest()
    return _number(digest[:_HALF]), _number(digest[_HALF:])


def _number(digits: bytes) -> float:
    return float(int.from_bytes(digits, "big"))


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
