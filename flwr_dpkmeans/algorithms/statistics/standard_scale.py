"""A box in which all columns of a schema have one spread, worked out from a private sum
of their moments.
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
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Box

_LEAST = (
    1.0 / 64.0
    # smallest spread, in halves of a column's range: what varies less has no more
    # weight than this
)
# standard deviations of a variance's noise, below which it is not told from zero
_NOISE = 2.0


def moments_of(plan: Plan, points: Array) -> Mapping[str, Array]:
    """One client's exact part, by name, from rows (n_points, n_features) in the units
    of the data.
    """
    stated = Bounds(*plan.settings.bounds).for_features(points.shape[1])
    arrays = moment_arrays(
        in_box(stated, points, plan.fraction_bits),
        np.zeros(len(points), dtype=np.int64),
        1,
    )
    return dict(
        zip(("group_counts", "group_sums", "group_squares"), arrays, strict=True)
    )


def standard_box(
    plan: Plan,
    released: ReleasedSum,
    noise: float,
) -> tuple[Box, tuple[int, ...]]:
    """The stated bounds, widened so that deviations are units, and the features whose
    deviation is not told from noise.

    `noise` is the deviation of a released sum of squares. A category's deviation is
    that of its columns together, so that it has as much of the distance as a number.
    """
    counts, _, variances = read_moments(released)
    least = max(_LEAST**2, _NOISE * noise / max(1.0, float(counts[0])))
    stated, units, unclear, place = (
        Bounds(*plan.settings.bounds),
        list[float](),
        list[int](),
        0,
    )
    for width, _ in plan.settings.standard_columns:
        half = (stated.upper[place] - stated.lower[place]) / 2.0
        total = math.fsum(np.maximum(variances[0, place : place + width], 0.0).tolist())
        units.append(half * math.sqrt(max(least, total)))
        unclear += range(place, place + width) if total <= least else ()
        place += width
    box = widened(plan.settings.standard_columns, stated, units)
    return (box.lower, box.upper), tuple(unclear)
