"""How far a client's vector moves, over its bounds, decided in exact arithmetic.

Vectors are the ones that are put into the ring, and bounds are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.privacy.release import Block, Norm
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.round import PrivateSum, State
from support.grid_values import GRID, on_grid

Floats = NDArray[np.float64]
Steps = NDArray[np.int64]


def sent(private_sum: PrivateSum, points: Floats, state: State) -> list[Steps]:
    """One client's vector block by block, as signed integers in the ring."""
    arrays = private_sum.statistic(points, state.view(private_sum.reads))
    assert [array.shape for array in arrays] == [
        block.shape for block in private_sum.blocks
    ]
    return [encode(np.ravel(array)).values.view(np.int64) for array in arrays]


def norm_over_bound(change: Steps, block: Block) -> float:
    """Norm of a change over the block's bound; whether it is at most 1 is exact."""
    assert int(np.abs(change).max()) < 2**29
    bound = Fraction(block.sensitivity.bound) * 2**16
    if block.sensitivity.norm is Norm.L1:
        total = int(np.abs(change).sum())
        within, ratio = total <= bound, float(total / bound)
    else:
        square = int((change * change).sum())
        within, ratio = square <= bound**2, math.sqrt(square / bound**2)
    return min(ratio, 1.0) if within else max(ratio, math.nextafter(1.0, 2.0))


def changes(
    private_sum: PrivateSum, old: list[Steps], new: list[Steps]
) -> Iterator[tuple[Block, float, int]]:
    """For each block: how far the vector moves, as a fraction of the bound, and the
    largest entry in steps.
    """
    for block, before, after in zip(private_sum.blocks, old, new, strict=True):
        change = after - before
        yield block, norm_over_bound(change, block), int(np.abs(change).max())


def drawn_rows(
    generator: np.random.Generator, n: int, d: int, shape: str = "box"
) -> Floats:
    """Rows on the grid: anywhere, in corners or blobs, tiny, or copies of one."""
    if shape == "corners":
        return generator.choice([-1.0, 1.0], (n, d))
    if shape == "tiny":
        return generator.integers(-2, 3, (n, d)) / GRID
    if shape == "blobs":
        places = generator.choice([-0.5, 0.5], (n, 1))
        return on_grid(np.clip(places + generator.normal(0, 0.1, (n, d)), -1, 1))
    rows = on_grid(generator.uniform(-1.0, 1.0, (n, d)))
    return np.repeat(rows[:1], n, axis=0) if shape == "copies" else rows
