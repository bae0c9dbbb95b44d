"""How many rows are worked on at once: memory is bounded whatever the number of rows, features and clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

BLOCK_BYTES = 1 << 23
"""Of one working array; a step has a handful of them. What is returned, and the centres, come on top."""


def block_length(values_each: int) -> int:
    """How many items fit into a block.

    Parameters
    ----------
    values_each : int
        Numbers of 8 bytes that each item needs: a row of d features and k scores has d + k.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> block_length(2**10), block_length(2**30)
    (1024, 1)
    """
    return max(1, BLOCK_BYTES // (8 * max(1, values_each)))


def row_blocks(n_rows: int, values_each: int) -> Iterator[slice]:
    """Cut rows into blocks; no rows are one empty block.

    Examples
    --------
    >>> list(row_blocks(3, 2**19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = block_length(values_each)
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(n_rows, start + step))


def sum_over_blocks(
    statistic: Callable[[slice], Sequence[FloatArray]], n_rows: int, values_each: int
) -> list[FloatArray]:
    """Add up a statistic of blocks of rows, whose sums are exact on the grid, so that the blocks do not show.

    Parameters
    ----------
    statistic : callable
        ``statistic(rows) -> arrays``, for a slice of the rows.
    n_rows, values_each : int
        As for `row_blocks`.

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> points = np.ones((2**18, 8))
    >>> sum_over_blocks(lambda rows: [points[rows].sum(axis=0)], len(points), 8)[0][0]
    np.float64(262144.0)
    """
    first, *others = row_blocks(n_rows, values_each)
    total = list(statistic(first))
    for rows in others:
        for whole, part in zip(total, statistic(rows), strict=True):
            whole += part
    return total
