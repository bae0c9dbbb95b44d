"""A center that is better used elsewhere."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.vectors import TINY

_SURELY_MISSING = 0.7


def split_largest(
    centers: FloatArray,
    likely: FloatArray,
    missing: FloatArray,
    mean_squares: FloatArray,
    total: float,
    generator: np.random.Generator,
) -> tuple[FloatArray, int, int] | None:
    """Halve the cluster that costs most by the center (k, d) with the fewest rows.

    If that lowers the cost; or None.

    Returned with both indices. `likely` (k,) are expected counts, `missing` (k,) the
    chances that a center has no rows and one is missing elsewhere, `mean_squares` (k,)
    are those of the clusters' residuals, `total` is all rows' sum of squares. The loss
    is the fewest rows' way to the next center. The gain is what halving a normal
    distribution takes off, and half of it, as few rounds are left. Where a center is
    surely missing, it is as many times that as the cluster costs more than an average
    one, since it may be several. Else it may be the middle of heavy tails, whose few
    rows have centers to keep.
    """
    k, d = centers.shape
    costs = likely * mean_squares
    empty = int(likely.argmin())
    largest = int(costs.argmax())
    fewest = likely[empty]
    most = likely[largest]
    # Of one cluster, or of counts that all say nothing, it is the same one.
    if empty == largest or 2.0 * fewest > most:
        return None
    squares = np.square(centers - centers[empty]).sum(axis=1)
    squares[empty] = math.inf
    loss = fewest * float(squares.min())
    along = 2.0 / math.pi * float(mean_squares[largest]) / d
    several = 1.0
    if missing[empty] > _SURELY_MISSING:
        several = float(costs[largest]) * k / max(total, TINY)
    gain = 0.5 * along * most * several
    if loss >= gain:
        return None
    step = generator.standard_normal(d)
    square = math.fsum(np.square(step))
    step *= math.sqrt(along / square)
    moved = centers.copy()
    moved[empty] = centers[largest] + step
    moved[largest] = centers[largest] - step
    return moved, empty, largest
