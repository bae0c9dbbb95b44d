"""What centres and figures in the points' columns say in a column's own units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.columns.column_kind import Kind, Transform
from flwr_dpkmeans.data.columns.dates import iso_date

if TYPE_CHECKING:
    from flwr_dpkmeans.data.columns.column import Column

Array = NDArray[np.float64]
Decoded = float | str | dict[str, float] | None
"""What a centre says of a column: a number, a date, or shares of its values."""
Decodings = list[Decoded]
_LARGEST_LOG = 700.0
_FULL_CIRCLE = 2.0 * math.pi


def decoded(column: Column, centres: Array) -> Decodings:
    """Return what centres, (k, n_features), say in units, one entry for each.

    The mean of a logarithm is a geometric mean; the mean of a cycle is where its values
    gather.
    """
    kind = column.kind
    first = centres[:, 0]
    if kind == Kind.CATEGORY:
        return _shares_of_values(column, centres)
    if kind == Kind.DATE:
        earliest, latest = column.range
        return [iso_date(days, earliest, latest) for days in first]
    if kind == Kind.CYCLE:
        sines = centres[:, 1]
        angles = np.arctan2(sines, first)
        turns = np.mod(angles / _FULL_CIRCLE, 1.0)
        first = column.start + turns * column.length
    elif kind == Kind.FLAG:
        first = np.clip(first, 0.0, 1.0)
    elif column.transform == Transform.LOG:
        # Not NumPy's own, whose last bit may differ from machine to machine.
        shift = column.shift
        exponents = np.minimum(first, _LARGEST_LOG)
        return [math.exp(exponent) - shift for exponent in exponents]
    return list(first.tolist())


def _shares_of_values(column: Column, centres: Array) -> Decodings:
    """Of each centre, the shares of a category's values."""
    names = list(map(str, column.values))
    shares = np.clip(centres, 0.0, 1.0)
    entries: Decodings = []
    for shares_of_centre in shares.tolist():
        named = zip(names, shares_of_centre, strict=True)
        entries.append(dict(named))
    return entries


def errors_in_units(
    column: Column,
    centres: Array,
    errors: Array,
) -> Array:
    """Return how far values that `decoded` gives may be off, (k, n_features).

    `centres` and `errors` are in the points' columns, (k, n_features). Of logarithms
    the upper end counts, which is farther away; of a cycle the first is of its value.
    """
    if column.transform == Transform.LOG:
        lower = np.minimum(centres, _LARGEST_LOG)
        upper = np.minimum(centres + errors, _LARGEST_LOG)
        factor = np.exp(lower)
        largest_factor = np.exp(upper)
        difference = largest_factor - factor
        is_finite = np.isfinite(errors)
        return np.where(is_finite, difference, np.inf)
    if column.kind == Kind.CYCLE:
        cosines = centres[:, 0]
        sines = centres[:, 1]
        length = np.hypot(cosines, sines)
        length = np.maximum(length, 1e-12)
        farthest = errors.max(axis=1)
        angle = np.minimum(farthest / length, math.pi)
        turned = angle * column.length / _FULL_CIRCLE
        is_finite = np.isfinite(farthest)
        turned = np.where(is_finite, turned, np.inf)
        return np.stack([turned, farthest], axis=1)
    return errors


def figure_in_units(
    column: Column,
    figure: str,
    estimate: float,
    deviation: float,
) -> tuple[str, float, float]:
    """Return a profile's figure with its noise's deviation, to first order.

    Both are those of the points' columns. Of logarithms, the mean is a geometric mean,
    and the spread a factor between this and a usual value.
    """
    is_log = column.transform == Transform.LOG
    if not is_log or figure not in ("mean", "spread"):
        return figure, estimate, deviation
    exponent = min(estimate, _LARGEST_LOG)
    factor = math.exp(exponent)
    deviation = factor * deviation
    if figure == "mean":
        mean = factor - column.shift
        return "geometric mean", mean, deviation
    return "spread as a factor", factor, deviation
