"""Sums over blocks of rows that fit the processor's caches, on all processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.grid import FloatArray

BLOCK_BYTES = 1 << 21
"""Of one working array; a step has a handful of them.

What is returned, and the centres, come on top.
"""


def block_length(values_each: int) -> int:
    """How many items of `values_each` numbers, such as d features and k scores, fit
    into a block, at least 1.
    """
    return max(1, BLOCK_BYTES // (8 * max(1, values_each)))


def row_blocks(n_rows: int, values_each: int, least: int = 1) -> Iterator[slice]:
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
    """Add up ``statistic(rows) -> arrays`` over blocks of rows (slices), of `least`
    rows or more, on all processors.

    Exact on the grid, so that neither blocks nor threads show.
    """
    return _in_threads(
        lambda blocks: _added(map(statistic, blocks)),
        row_blocks(n_rows, values_each, least),
    )


def _in_threads(
    summed: Callable[[Sequence[slice]], list[FloatArray]], parts: Iterator[slice]
) -> list[FloatArray]:
    """Add up what each thread sums over its share of the blocks."""
    blocks = list(parts)
    n_threads = 1 if len(blocks) == 1 else min(len(blocks), os.cpu_count() or 1)
    if n_threads == 1:
        return summed(blocks)
    with ThreadPoolExecutor(n_threads) as pool:
        return _added(
            pool.map(lambda i: summed(blocks[i::n_threads]), range(n_threads))
        )


def _added(parts: Iterator[Sequence[FloatArray]]) -> list[FloatArray]:
    total = list(next(parts))
    for arrays in parts:
        for whole, part in zip(total, arrays, strict=True):
            whole += part
    return total


def in_blocks(
    statistic: Callable[..., Sequence[FloatArray]],
) -> Callable[..., Sequence[FloatArray]]:
    """Let ``statistic(points, state, *labels) -> arrays``, a sum over rows on the grid,
    see one block after another.
    """

    def summed(
        points: FloatArray, state: object, *labels: npt.NDArray[np.int64]
    ) -> Sequence[FloatArray]:
        def of_block(rows: slice) -> Sequence[FloatArray]:
            return statistic(points[rows], state, *(own[rows] for own in labels))

        return sum_over_blocks(of_block, len(points), points.shape[1])

    return summed
