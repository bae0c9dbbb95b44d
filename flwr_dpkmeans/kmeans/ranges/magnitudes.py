"""Bins of a column by sign and power of two."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ranges = tuple[tuple[float, ...], tuple[float, ...]]
"""Lower and upper bounds of each column, in the units of the data.

Each lower one is below its upper one.
"""
WIDEST_DOMAIN = 2.0**40
"""Half the width of a domain that says nothing of the data."""
LEVELS = 60
"""Powers of two on each side of zero, downward from the domain's largest magnitude."""
N_MAGNITUDES = 2 * LEVELS + 1


def magnitude_edges(
    lower: float,
    upper: float,
) -> Array:
    """Edges (N_MAGNITUDES + 1,) of one column's magnitude bins, ascending.

    Powers of two on both sides of zero.
    """
    sizes = abs(lower), abs(upper)
    largest = max(sizes)
    mantissa, exponent = math.frexp(largest)
    top = exponent - 1 if mantissa == 0.5 else exponent
    bottom = top - LEVELS
    exponents = np.arange(bottom, top + 1)
    powers = np.ldexp(1.0, exponents)
    falling = powers[::-1]
    return np.concatenate([-falling, powers])


@dataclass(frozen=True, repr=False)
class Column:
    """One column's public domain with its magnitude bins."""

    low: float
    high: float
    edges: Array
    first: int
    """First bin with more than a point of the domain in it."""
    last: int
    """Last such bin."""

    def bins_of(self, values: Array) -> NDArray[np.integer]:
        """Bin of each value, by its sign and power of two."""
        # A magnitude in [2^(e-1), 2^e) has the exponent e, exactly.
        _, highest_exponent = math.frexp(self.edges[-1])
        lowest_exponent = highest_exponent - 1 - LEVELS
        clipped = np.clip(values, self.low, self.high)
        _, exponents = np.frexp(clipped)
        above_lowest = exponents - lowest_exponent
        levels = np.clip(above_lowest, 0, LEVELS)
        is_positive = clipped > 0.0
        is_negative = clipped < 0.0
        signed = np.where(is_positive, levels, 0)
        signed = np.where(is_negative, -levels, signed)
        bins = LEVELS + signed
        inside: NDArray[np.integer] = np.clip(bins, self.first, self.last)
        return inside


def columns_of(domain: Ranges) -> list[Column]:
    """Magnitude bins of every column of a domain."""
    pairs = zip(*domain, strict=True)
    return [_column_of(*pair) for pair in pairs]


def _column_of(low: float, high: float) -> Column:
    """Magnitude bins of one column."""
    edges = magnitude_edges(low, high)
    begins_inside = edges[:-1] < high
    ends_inside = edges[1:] > low
    inside = np.flatnonzero(begins_inside & ends_inside)
    return Column(
        low,
        high,
        edges,
        first=int(inside[0]),
        last=int(inside[-1]),
    )
