"""How many rows are worked on at once: memory is bounded whatever the number of rows, features and clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

BLOCK_BYTES = 1 << 23
"""Of one working array; a step has a handful of them. What is returned, and the centres, come on top."""


def block_length(values_each: int) -> int:
    """How many items of `values_each` numbers, such as d features and k scores, fit into a block, at least 1."""
    return max(1, BLOCK_BYTES // (8 * max(1, values_each)))


def row_blocks(n_rows: int, values_each: int) -> Iterator[slice]:
    """Cut rows into blocks; no rows are one empty block."""
    step = block_length(values_each)
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(n_rows, start + step))


def sum_over_blocks(
    statistic: Callable[[slice], Sequence[FloatArray]], n_rows: int, values_each: int
) -> list[FloatArray]:
    """Add up ``statistic(rows) -> arrays`` over blocks of rows (slices); exact on the grid, so no block shows."""
    first, *others = row_blocks(n_rows, values_each)
    total = list(statistic(first))
    for rows in others:
        for whole, part in zip(total, statistic(rows), strict=True):
            whole += part
    return total
