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
    sizes = [n_features for n_features, _ in columns]
    weights = np.array([weight for _, weight in columns])
    ends = np.cumsum(sizes)
    first = ends - sizes
    lower = np.array(stated.lower)
    upper = np.array(stated.upper)
    low = lower[first]
    high = upper[first]
    width = high - low
    per_unit = weights / np.array(units)
    lengths = width * per_unit
    more = lengths.max() / per_unit - width
    least = 1e-12 * width
    margin = np.where(more > least, more / 2.0, 0.0)
    wider_low = np.repeat(low - margin, sizes)
    wider_high = np.repeat(high + margin, sizes)
    return Bounds(
        tuple(wider_low.tolist()),
        tuple(wider_high.tolist()),
    )
