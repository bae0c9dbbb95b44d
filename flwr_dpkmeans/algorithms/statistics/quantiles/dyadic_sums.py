"""Where a column's rows lie in halves of its bounds, in halves of these and so on.

Of each part it is summed how many rows more lie in its lower than in its upper half
(the Haar wavelet, as in Xiao, Wang and Gehrke 2010). A row is in one part of each
level, so that the noise in the number of rows below a value has a deviation in
proportion to the number of levels, whatever the number of leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.statistics.group_counts import group_counts
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.round import Array, RowWeights

DIFFERENCES = "half_differences"
_SHARE = 3.0
"""Of differences, where the number of rows, which moves results less, has 1."""


def dyadic_parts(n_features: int, levels: int) -> list[ReleasePart]:
    """What is released: the number of rows, and each part's difference of halves."""
    moved = Sensitivity(
        Norm.L2,
        root_at_least(n_features * levels),
        PrivacyUnit.RECORD,
        "S36: one row adds 1 or -1 to one part of each of l levels, in each of d"
        " columns",
    )
    n_parts = 2**levels - 1
    differences = ReleasePart(
        DIFFERENCES,
        (n_features, n_parts),
        moved,
        _SHARE,
        1.0,
    )
    return [group_counts(1), differences]


def dyadic_arrays(
    points: Array,
    levels: int,
    half_step: float,
    weights: RowWeights | None = None,
) -> Sequence[Array]:
    """One client's exact part of it, on the grid.

    Of points in the box [-1, 1]^d, of which a value at the beginning of a leaf may have
    been rounded down by `half_step`. `weights` are (n_points,).
    """
    n_leaves = 2**levels
    from_lower = points + (1.0 + half_step)
    leaves = from_lower * (n_leaves / 2.0)
    # The upper bound belongs to the last leaf.
    labels = np.minimum(leaves, n_leaves - 1).astype(np.int64)
    by_column = [counts_by_label(column, n_leaves, weights) for column in labels.T]
    totals = np.stack(by_column)
    rows = totals[:1].sum(axis=1)
    differences = list[Array]()
    for _ in range(levels):
        lower = totals[:, 0::2]
        upper = totals[:, 1::2]
        differences.append(lower - upper)
        totals = lower + upper
    # From the whole range down to pairs of leaves.
    differences.reverse()
    return [rows, np.concatenate(differences, axis=1)]


def cumulated(rows: float, differences: Array) -> Array:
    """Rows below each edge of a leaf, (n_features, n_leaves + 1), unbiased."""
    n_features, n_parts = differences.shape
    totals = np.full((n_features, 1), rows)
    start = 0
    while start < n_parts:
        n_level = totals.shape[1]
        of_level = differences[:, start : start + n_level]
        halves = [totals + of_level, totals - of_level]
        totals = np.stack(halves, axis=2).reshape(n_features, -1) / 2.0
        start += n_level
    below = np.zeros((n_features, n_parts + 2))
    np.cumsum(totals, axis=1, out=below[:, 1:])
    return below


def variances_below(levels: int) -> Array:
    """Variance of rows below each edge, (n_leaves + 1,), where differences have 1.

    A difference moves half of itself from one end of its part to the other: of edges in
    it those in the middle get half of it, others less in proportion.
    """
    edges = np.arange(2**levels + 1) / 2.0**levels
    variances = np.zeros(len(edges))
    for level in range(levels):
        within = np.mod(edges * 2.0**level, 1.0)
        shares = np.minimum(within, 1.0 - within)
        variances += np.square(shares)
    return variances
