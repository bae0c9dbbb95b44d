"""Clipping of rows, vectors and steps to a norm, in exact arithmetic.

Clipped rows and vectors are within the bound, exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.grid import FloatArray, toward_zero
from flwr_dpkmeans.kernels.vectors import as_column, as_floats, squared_lengths

SHADE = 1.0 - 2.0**-30
"""Factor that makes every computed factor too small.

A norm of 2^24 entries is computed with a relative error of some 2^-37.
"""
# The relative error of a computed and rescaled norm stays below 2^-50: at most six
# roundings of 2^-53.
_NORM_SLACK = 2.0**-50
# Below it the clipped coordinates would be subnormal numbers, whose rounding the slack
# does not cover.
_SMALLEST_RADIUS = 2.0**-1000


@lru_cache(maxsize=64)
def largest_square_within(radius: float) -> float:
    """The largest float64 that is at most radius^2, radius >= 0.

    Rounding lets no point beyond the radius through.
    """
    if not radius >= 0.0:
        raise ConfigurationError(
            f"radius is {radius!r}, but it must be at least 0: give a distance in data"
            " units, or None to drop no point."
        )
    square = float(radius) * float(radius)
    if math.isinf(square):
        return square
    exact_square = Fraction(radius) ** 2
    if Fraction(square) > exact_square:
        return math.nextafter(square, 0.0)
    return square


def clip_rows(points: npt.ArrayLike, radius: float) -> FloatArray:
    """Pull rows (n, d) farther than `radius` from the origin back to the ball.

    Toward zero on the grid, exactly: FedDP-KMeans, section 3, where every record is
    clipped to the data radius Delta. Rows inside the ball are unchanged.
    """
    rows = as_floats(points)
    largest_square = largest_square_within(radius)
    outcome = compiled.clipped_rows(rows, largest_square, radius * SHADE)
    if outcome is not None:
        clipped, n_clipped = outcome
        return clipped if n_clipped else rows
    return _clip_by_numpy(rows, radius, largest_square)


def _clip_by_numpy(
    rows: FloatArray,
    radius: float,
    largest_square: float,
) -> FloatArray:
    squares = squared_lengths(rows)
    # Negated, so that a norm that is not a number is clipped as well.
    far = ~(squares <= largest_square)
    if not far.any():
        return rows
    clipped = rows.copy()
    lengths = np.sqrt(squares[far])
    factors = (radius * SHADE) / lengths
    shortened = rows[far] * as_column(factors)
    clipped[far] = toward_zero(shortened)
    return clipped


def clip_steps(steps: npt.ArrayLike, radius: float | FloatArray) -> FloatArray:
    """Scale every row of steps (k, d) that is longer than the radius down to it.

    In exact arithmetic, with one radius of at least 0, or one for each row (FastLloyd,
    section 5.3.5, "radius clipping"). Shorter rows come back unchanged. Norms are
    correctly rounded sums (`math.fsum`), hence equal on all machines.
    """
    clipped = np.array(steps, np.float64)
    # Each row over a power of two, so that scaling is exact and squares neither
    # overflow nor vanish.
    sizes = np.abs(clipped)
    largest = sizes.max(axis=1, initial=0.0)
    exponents = np.frexp(largest)[1]
    scaled = np.ldexp(clipped, -exponents[:, None])
    squares = scaled * scaled
    radii = np.broadcast_to(radius, len(clipped))
    # A radius out of range becomes infinity or 0, which compares rightly.
    with np.errstate(all="ignore"):
        limits = np.ldexp(radii, -exponents)
    for index in range(len(clipped)):
        row = scaled[index]
        square = math.fsum(squares[index].tolist())
        norm = math.sqrt(square)
        limit = float(limits[index])
        if not _is_longer(row, norm, limit):
            continue
        row_radius = float(radii[index])
        length = row_radius if row_radius > _SMALLEST_RADIUS else 0.0
        unit = row * ((1.0 - _NORM_SLACK) / norm)
        clipped[index] = unit * length
    return clipped


def _is_longer(
    row: FloatArray,
    norm: float,
    radius: float,
) -> bool:
    """Compare the exact norm with the radius; `norm` is its float64 approximation."""
    if norm <= radius * (1.0 - _NORM_SLACK):
        return False
    if norm > radius * (1.0 + _NORM_SLACK):
        return True
    exact_values = map(Fraction, row.tolist())
    exact_squares = (value**2 for value in exact_values)
    limit = Fraction(radius) ** 2
    return sum(exact_squares, Fraction(0)) > limit
