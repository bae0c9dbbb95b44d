"""A box in which all columns of a schema have one spread.

It is worked out from a private sum of their moments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from flwr_dpkmeans.algorithms.server.box_units import in_box
from flwr_dpkmeans.algorithms.statistics.moment_sums import moment_arrays, read_moments
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema_widths import widened
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, RowWeights
from flwr_dpkmeans.sums.settings import Box

# smallest spread, in halves of a column's range: what varies less has no more weight
# than this
_LEAST = 1.0 / 64.0
# standard deviations of a variance's noise, below which it is not told from zero
_NOISE = 2.0


def moments_of(
    plan: Plan,
    points: Array,
    weights: RowWeights | None = None,
) -> Mapping[str, Array]:
    """One client's exact part, by name, from rows in the units of the data.

    Rows are (n_points, n_features), weights (n_points,).
    """
    n_rows, width = points.shape
    stated = Bounds(*plan.settings.bounds)
    by_feature = stated.for_features(width)
    scaled = in_box(
        by_feature,
        points,
        plan.fraction_bits,
    )
    one_group = np.zeros(n_rows, dtype=np.int64)
    arrays = moment_arrays(scaled, one_group, 1, weights=weights)
    names = ("group_counts", "group_sums", "group_squares")
    return dict(zip(names, arrays, strict=True))


def standard_box(
    plan: Plan,
    released: ReleasedSum,
    noise: float,
) -> tuple[Box, tuple[int, ...]]:
    """Widen the stated bounds so that deviations are units.

    Also returns the features whose deviation is not told from noise. `noise` is the
    deviation of a released sum of squares. A category's deviation is that of its
    columns together, so that it has as much of the distance as a number.
    """
    counts, _, variances = read_moments(released)
    # None is below 0 but by noise.
    positive = np.maximum(variances[0], 0.0)
    by_feature = positive.tolist()
    count = float(counts[0])
    n_rows = max(1.0, count)
    variance_noise = _NOISE * noise / n_rows
    least_variance = _LEAST**2
    least = max(least_variance, variance_noise)
    stated = Bounds(*plan.settings.bounds)
    standard_columns = plan.settings.standard_columns
    units: list[float] = []
    unclear: list[int] = []
    first = 0
    for width, _ in standard_columns:
        end = first + width
        variances_of_column = by_feature[first:end]
        variance = math.fsum(variances_of_column)
        lowest = stated.lower[first]
        highest = stated.upper[first]
        width_of_column = highest - lowest
        half_width = width_of_column / 2.0
        told_from_noise = max(least, variance)
        spread = math.sqrt(told_from_noise)
        units.append(half_width * spread)
        if variance <= least:
            unclear += range(first, end)
        first = end
    widest = widened(standard_columns, stated, units)
    box = (widest.lower, widest.upper)
    return box, tuple(unclear)
