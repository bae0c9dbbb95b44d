"""Sums over blocks of rows that fit the processor's caches, on all processors.

Sums of values on the grid are exact, so that neither blocks nor threads show in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.resources import limits, n_processors

_BYTES_PER_VALUE = 8


def block_length(values_each: int) -> int:
    """Number of items that fit into a block, at least 1.

    Each item has `values_each` numbers, such as d features and k scores.
    """
    bytes_each = _BYTES_PER_VALUE * max(1, values_each)
    return max(1, limits().block_bytes // bytes_each)


def row_blocks(
    n_rows: int,
    values_each: int,
    least: int = 1,
) -> Iterator[slice]:
    """Cut rows into blocks, of `least` rows or more; no rows are one empty block."""
    step = max(least, block_length(values_each))
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(n_rows, start + step))


def sum_over_blocks(
    statistic: Callable[[slice], Sequence[FloatArray]],
    n_rows: int,
    values_each: int,
    *,
    least: int = 1,
) -> list[FloatArray]:
    """Add up a statistic over blocks of rows, on all processors.

    ``statistic(rows) -> arrays`` gets a slice of `least` rows or more.
    """

    def sum_of(blocks: Sequence[slice]) -> list[FloatArray]:
        return _total(map(statistic, blocks))

    return sum_in_threads(sum_of, row_blocks(n_rows, values_each, least))


def sum_in_threads(
    sum_of: Callable[[Sequence[slice]], list[FloatArray]], parts: Iterable[slice]
) -> list[FloatArray]:
    """Add up what each thread sums over its share of the blocks."""
    blocks = list(parts)
    n_threads = min(len(blocks), n_processors())
    if n_threads == 1:
        return sum_of(blocks)
    shares = [blocks[first::n_threads] for first in range(n_threads)]
    with ThreadPoolExecutor(n_threads) as pool:
        return _total(pool.map(sum_of, shares))


def _total(parts: Iterator[Sequence[FloatArray]]) -> list[FloatArray]:
    """Add up lists of arrays, one by one, into the first of them."""
    total = list(next(parts))
    for arrays in parts:
        for whole, part in zip(total, arrays, strict=True):
            whole += part
    return total


def in_blocks(
    statistic: Callable[..., Sequence[FloatArray]],
) -> Callable[..., Sequence[FloatArray]]:
    """Let a statistic, a sum over rows on the grid, see one block after another.

    It is called as ``statistic(points, state, *labels) -> arrays``.
    """

    def summed(
        points: FloatArray, state: object, *labels: npt.NDArray[np.int64]
    ) -> Sequence[FloatArray]:
        def of_block(rows: slice) -> Sequence[FloatArray]:
            block_labels = [of_all[rows] for of_all in labels]
            return statistic(points[rows], state, *block_labels)

        return sum_over_blocks(of_block, len(points), points.shape[1])

    return summed
