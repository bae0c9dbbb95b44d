"""What tells one table from another, without a look at any single row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.rows import Rows

_FACTORS = (
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
_SHIFT = np.uint64(29)
"""Of splitmix64, so that sums of values that differ little differ in all bits."""


class RowFacts(NamedTuple):
    """Of one table; for its own node only, as they follow from its rows."""

    n_rows: int
    columns: tuple[str, ...]
    """Their names, or only their number where they have none."""
    contents: tuple[int, ...]
    """Of each column, a sum that is the same for the same values in any order.

    Empty for rows beyond memory, which would have to be read for it.
    """

    @classmethod
    def of(cls, points: NDArray[np.float64] | Rows, names: Sequence[str]) -> RowFacts:
        """Look at points, (n, d), whose columns may have names."""
        width = points.shape[1]
        columns = tuple(names)
        if not columns:
            columns = (f"{width} columns",)
        contents: list[int] = []
        if not isinstance(points, Rows):
            for index in range(width):
                values = points[:, index]
                contents.append(_content(values))
        n_rows = len(points)
        return cls(
            n_rows,
            columns,
            tuple(contents),
        )


def _content(values: NDArray[np.float64]) -> int:
    """Add up a mixed word of each value.

    Of float32, as a reader's last digits may change with its version; adding 0.0 makes
    one zero of both.
    """
    rounded = values.astype(np.float32)
    rounded += 0.0
    words = rounded.view(np.uint32)
    mixed = words.astype(np.uint64)
    for factor in _FACTORS:
        mixed ^= mixed >> _SHIFT
        mixed *= factor
    mixed ^= mixed >> _SHIFT
    total = mixed.sum()
    return int(total)
