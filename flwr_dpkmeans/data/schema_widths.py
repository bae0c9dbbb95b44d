"""Bounds that are widened until all columns have one scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.data.points import Bounds


def widened(
    columns: Sequence[tuple[int, float]],
    stated: Bounds,
    units: Sequence[float],
) -> Bounds:
    """Widen bounds around their middles until all columns have one scale.

    Lengths are then in each column's unit times weight. `columns` says how many
    features each has, which have one range, and its weight.
    """
    sizes, weights = zip(*columns, strict=True)
    first = np.cumsum((0, *sizes[:-1]))
    low = np.array(stated.lower)[first]
    high = np.array(stated.upper)[first]
    width = high - low
    per_unit = np.array(weights) / np.array(units)
    more = (width * per_unit).max() / per_unit - width
    more = np.where(more > 1e-12 * width, more / 2.0, 0.0)
    lower = np.repeat(low - more, sizes).tolist()
    upper = np.repeat(high + more, sizes).tolist()
    return Bounds(tuple(lower), tuple(upper))
