"""Sums over blocks of rows that fit the processor's caches, on all processors.

Sums of values on the grid are exact, so that neither blocks nor threads show in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.blocks import Rows, row_blocks
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.resources import n_processors

Arrays = Sequence[FloatArray]
SumOfBlocks = Callable[[Sequence[Rows]], list[FloatArray]]
"""What a thread does: add up a statistic over its share of the blocks."""


def sum_over_blocks(
    statistic: Callable[[Rows], Arrays],
    n_rows: int,
    values_each: int,
    *,
    least: int = 1,
) -> list[FloatArray]:
    """Add up a statistic over blocks of rows, on all processors.

    ``statistic(rows) -> arrays`` gets a slice of `least` rows or more.
    """

    def sum_of(blocks: Sequence[Rows]) -> list[FloatArray]:
        return _total(map(statistic, blocks))

    blocks = row_blocks(n_rows, values_each, least)
    return sum_in_threads(sum_of, blocks)


def sum_in_threads(
    sum_of: SumOfBlocks,
    parts: Iterable[Rows],
) -> list[FloatArray]:
    """Add up what each thread sums over its share of the blocks."""
    blocks = list(parts)
    if len(blocks) == 1:
        return sum_of(blocks)
    n_threads = min(len(blocks), n_processors())
    if n_threads == 1:
        return sum_of(blocks)
    shares = [blocks[first::n_threads] for first in range(n_threads)]
    with ThreadPoolExecutor(n_threads) as pool:
        return _total(pool.map(sum_of, shares))


def _total(parts: Iterator[Arrays]) -> list[FloatArray]:
    """Add up lists of arrays, one by one, into the first of them."""
    total = list(next(parts))
    for arrays in parts:
        pairs = zip(total, arrays, strict=True)
        for whole, part in pairs:
            whole += part
    return total


def in_blocks(
    statistic: Callable[..., Arrays],
) -> Callable[..., Arrays]:
    """Let a statistic, a sum over rows on the grid, see one block after another.

    It is called as ``statistic(points, state, *beside) -> arrays``; what stands beside
    the points, such as labels or weights (n_points,), is cut as they are, or None.
    """

    def summed(
        points: FloatArray,
        state: object,
        *beside: npt.NDArray[np.generic] | None,
    ) -> Arrays:
        def of_block(rows: Rows) -> Arrays:
            parts = [None if of_all is None else of_all[rows] for of_all in beside]
            return statistic(points[rows], state, *parts)

        n_rows, n_features = points.shape
        return sum_over_blocks(of_block, n_rows, n_features)

    return summed
