"""Counts, sums and squares by group."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import root_at_least
from flwr_dpkmeans.algorithms.statistics.group_counts import group_counts
from flwr_dpkmeans.kernels.grid import toward_zero
from flwr_dpkmeans.kernels.label_sums import counts_by_label, sum_by_label
from flwr_dpkmeans.kernels.vectors import weighted
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.round import Array, Labels, RowWeights


def moment_parts(n_groups: int, width: int) -> list[ReleasePart]:
    """What is released of `width` columns of rows in groups.

    Counts, sums, and squares less one half.

    A square of a number in [-1, 1] lies in [0, 1], so that less one half it needs half
    the noise. Counts have the smallest share of the budget: their error is divided by
    far more than it moves a mean.
    """
    if not width:
        return [group_counts(n_groups)]
    root, because = (
        root_at_least(width),
        "S24: one row of [-1, 1]^d has L2 norm at most sqrt(d)",
    )
    sums = Sensitivity(
        Norm.L2,
        root,
        PrivacyUnit.RECORD,
        because,
    )
    because = "S25: each of a row's d squares, less one half, is at most one half"
    squares = Sensitivity(
        Norm.L2,
        root / 2.0,
        PrivacyUnit.RECORD,
        because,
    )
    return [
        group_counts(n_groups),
        ReleasePart(
            "group_sums",
            (n_groups, width),
            sums,
            2.0,
            1.0,
        ),
        ReleasePart(
            "group_squares",
            (n_groups, width),
            squares,
            2.0,
            0.5,
        ),
    ]


def moment_arrays(
    points: Array,
    groups: Labels,
    n_groups: int,
    present: Array | None = None,
    weights: RowWeights | None = None,
) -> list[Array]:
    """One client's exact part of them, on the grid.

    `groups` are from 0 to `n_groups` - 1. `weights` are (n_points,).

    `present`, (n_points, width), is 0 where a cell is missing, which then adds to
    neither sum, and 1 elsewhere.
    """
    counts = counts_by_label(groups, n_groups, weights)
    if not points.shape[1]:
        return [counts]
    narrow = groups.astype(np.int32)
    halved = toward_zero(np.square(points) - 0.5)
    if present is not None:
        points, halved = points * present, halved * present
    return [
        counts,
        sum_by_label(weighted(points, weights), narrow, n_groups),
        sum_by_label(weighted(halved, weights), narrow, n_groups),
    ]


def read_moments(released: ReleasedSum) -> tuple[Array, Array, Array]:
    """Counts, means in the box, and variances.

    Of which noise may make some too small or negative.
    """
    counts = released["group_counts"]
    rows = np.maximum(counts, 1.0)[:, None]
    means = np.clip(released["group_sums"] / rows, -1.0, 1.0)
    squares = np.clip(released["group_squares"] / rows + 0.5, 0.0, 1.0)
    return counts, means, squares - np.square(means)
