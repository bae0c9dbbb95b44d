"""Clipping that keeps its bound on the grid, and the way from noisy sums and counts to the next centroids.

Rounding toward zero never increases an L1 or L2 norm: clipped rows and vectors are within the bound, exactly. Clients'
copies of the centroids must be equal bit for bit, so updates are elementwise IEEE arithmetic that ends on the grid, and
the only reduction (the norm of a step) does not depend on the order of summation.
"""

from __future__ import annotations

import enum
import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError, DataError

FloatArray = npt.NDArray[np.float64]

_GRID = 2.0**16
SHADE = 1.0 - 2.0**-30
"""A norm of 2^24 entries is computed with a relative error of some 2^-37: the shade makes every factor too small."""


@lru_cache(maxsize=64)
def largest_kept_square(radius: float) -> float:
    """The largest float64 that is at most radius^2, radius >= 0: rounding keeps no point beyond the radius."""
    if not radius >= 0.0:
        raise ConfigurationError(
            f"radius is {radius!r}, but it must be at least 0: give a distance in data units, or None to drop no point."
        )
    square = float(radius) * float(radius)
    if math.isfinite(square) and Fraction(square) > Fraction(radius) ** 2:
        square = math.nextafter(square, 0.0)
    return square


def toward_zero(values: npt.ArrayLike) -> FloatArray:
    """Round to multiples of 2^-16 toward zero."""
    rounded: FloatArray = np.trunc(np.asarray(values, dtype=np.float64) * _GRID) / _GRID
    # A negative zero would be a different bit pattern of the same number.
    rounded += 0.0
    return rounded


def clip_rows(points: npt.ArrayLike, radius: float) -> FloatArray:
    """Pull rows (n, d) farther than `radius` from the origin back to the ball, toward zero on the grid, exactly.

    FedDP-KMeans, section 3: every record is clipped to the data radius Delta. Rows inside the ball are unchanged.
    """
    rows = np.asarray(points, dtype=np.float64)
    squares = np.einsum("ij,ij->i", rows, rows)
    # Negated, so that a norm that is not a number is clipped as well.
    far = ~(squares <= largest_kept_square(radius))
    if not far.any():
        return rows
    clipped = rows.copy()
    factors = (radius * SHADE) / np.sqrt(squares[far])
    clipped[far] = toward_zero(rows[far] * factors[:, None])
    return clipped


def clip_factor(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> float:
    """The factor, at most 1, that brings a vector's norm down to `bound`, in L1 or L2 by its `order`."""
    flat = np.ravel(np.asarray(vector, dtype=np.float64))
    norm = float(np.abs(flat).sum()) if order == 1 else math.sqrt(float(flat @ flat))
    # The computed norm may be a little too small, so vectors within the shade of the bound are scaled as well.
    return 1.0 if norm <= bound * SHADE else bound * SHADE * SHADE / norm


def clip_vector(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> FloatArray:
    """Scale a vector of any shape down to a norm of at most `bound`, on the grid (FedDP-KMeans, appendix G.4)."""
    return toward_zero(np.asarray(vector, dtype=np.float64) * clip_factor(vector, bound, order=order))


GRID_BITS = 16
_SATURATION = 16.0
# The relative error of a computed and rescaled norm stays below 2^-50: at most six roundings of 2^-53.
_NORM_SLACK = 2.0**-50
# Below it the clipped coordinates would be subnormal numbers, whose rounding the slack does not cover.
_SMALLEST_RADIUS = 2.0**-1000


class PostProcessing(enum.Enum):
    """What happens to centroids outside the box [-1, 1]^d (FastLloyd, section 5.3.5 and appendix B)."""

    FOLD = "fold"
    TRUNCATE = "truncate"
    NONE = "none"


def round_to_grid(values: npt.ArrayLike, fraction_bits: int = GRID_BITS) -> FloatArray:
    """Round to the nearest multiple of 2^-fraction_bits (0 to 52 of them), halves to the even multiple."""
    if not 0 <= fraction_bits <= 52:
        raise ConfigurationError(
            f"fraction_bits is {fraction_bits!r}, but it must be between 0 and 52: give a number of bits such as 16."
        )
    scale = 2.0**fraction_bits
    rounded: FloatArray = np.rint(np.asarray(values, dtype=np.float64) * scale) / scale
    return rounded


def fold(values: npt.ArrayLike) -> FloatArray:
    """Reflect finite values at the walls -1 and 1 until they lie between them; values inside are unchanged.

    FastLloyd, section 5.3.5. The paper's text takes the remainder modulo 2, which would mirror values that are inside
    already (0.5 to -0.5); the period of a reflection is 4, and that is what its code uses.

    Examples
    --------
    >>> fold([0.5, 1.25, -1.25, 3.5]).tolist()
    [0.5, 0.75, -0.75, -0.5]
    """
    original = np.asarray(values, dtype=np.float64)
    remainder = np.mod(original + 1.0, 4.0)
    reflected = np.where(remainder > 2.0, 4.0 - remainder, remainder) - 1.0
    return np.where(np.abs(original) <= 1.0, original, reflected)


def truncate(values: npt.ArrayLike) -> FloatArray:
    """Move values outside [-1, 1] to the nearer wall."""
    return np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)


def clip_steps(steps: npt.ArrayLike, radius: float) -> FloatArray:
    """Scale every row of steps (k, d) that is longer than the radius, at least 0, down to it, in exact arithmetic.

    FastLloyd, section 5.3.5 ("radius clipping"). Shorter rows come back unchanged. Norms are correctly rounded sums
    (`math.fsum`), hence equal on all machines. Steps that are not finite are a `DataError`.
    """
    if not radius >= 0.0:
        raise ConfigurationError(f"radius is {radius!r}, but it must be at least 0: give a distance in data units.")
    clipped = np.array(steps, dtype=np.float64)
    _check_finite("steps", clipped)
    # Each row over a power of two, so that scaling is exact and squares neither overflow nor vanish.
    exponents = np.frexp(np.max(np.abs(clipped), axis=1, initial=0.0))[1]
    scaled = np.ldexp(clipped, -exponents[:, None])
    with np.errstate(all="ignore"):  # A radius out of range becomes infinity or 0, which compares rightly.
        limits = np.ldexp(radius, -exponents).tolist()
    for row, unit, squares, limit in zip(clipped, scaled, (scaled * scaled).tolist(), limits, strict=True):
        norm = math.sqrt(math.fsum(squares))
        if _is_longer(unit, norm, limit):
            row[:] = unit * ((1.0 - _NORM_SLACK) / norm) * (radius if radius > _SMALLEST_RADIUS else 0.0)
    return clipped


def relative_update(
    centroids: npt.ArrayLike,
    noisy_relative_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    clip_radius: float | None,
    post_processing: PostProcessing,
) -> FloatArray:
    """Move each centroid by its noisy relative sum over its noisy count (FastLloyd, Algorithm 1, lines 18 to 20).

    The count may have any sign. Where it is 0, or so small that the quotient is not finite, the centroid stays. Steps
    are clipped to `clip_radius`, in data units, if there is one; without post-processing, coordinates are saturated at
    -16 and 16, so that scores stay exact in float64.
    """
    current, sums, counts = _checked_inputs(centroids, noisy_relative_sums, noisy_counts)
    steps, _ = _quotients(sums, counts)
    if clip_radius is not None:
        steps = clip_steps(steps, clip_radius)
    return _finish(current + steps, post_processing)


def absolute_update(
    centroids: npt.ArrayLike,
    noisy_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    post_processing: PostProcessing,
) -> FloatArray:
    """Replace each centroid by its noisy sum over its noisy count, as in Lloyd's family; see `relative_update`."""
    current, sums, counts = _checked_inputs(centroids, noisy_sums, noisy_counts)
    quotients, usable = _quotients(sums, counts)
    return _finish(np.where(usable[:, None], quotients, current), post_processing)


def _quotients(sums: FloatArray, counts: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Divide row by row; rows with a non-finite quotient become 0 and are marked as unusable."""
    with np.errstate(all="ignore"):
        quotients = sums / counts[:, None]
    usable = np.isfinite(quotients).all(axis=1) & (counts != 0.0)
    return np.where(usable[:, None], quotients, 0.0), usable


def _finish(values: FloatArray, post_processing: PostProcessing) -> FloatArray:
    """Bring the values into the box, or into the range where the grid is exact, and onto the grid."""
    if post_processing is PostProcessing.FOLD:
        return round_to_grid(fold(values))
    if post_processing is PostProcessing.TRUNCATE:
        return round_to_grid(truncate(values))
    return round_to_grid(np.clip(values, -_SATURATION, _SATURATION))


def _is_longer(row: FloatArray, norm: float, radius: float) -> bool:
    """Compare the exact norm with the radius; `norm` is its float64 approximation."""
    if norm <= radius * (1.0 - _NORM_SLACK):
        return False
    if norm > radius * (1.0 + _NORM_SLACK):
        return True
    return sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0)) > Fraction(radius) ** 2


def _checked_inputs(
    centroids: npt.ArrayLike, sums: npt.ArrayLike, counts: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the three inputs as float64 arrays of shapes that fit each other."""
    arrays = tuple([np.asarray(values, dtype=np.float64) for values in (centroids, sums, counts)])
    current, sum_rows, count_entries = arrays
    if current.ndim != 2 or sum_rows.shape != current.shape or count_entries.shape != current.shape[:1]:
        raise DataError(
            f"the shapes of centroids, sums and counts are {current.shape}, {sum_rows.shape} and "
            f"{count_entries.shape}, but they must be (k, d), (k, d) and (k,): give arrays of one k and one d."
        )
    for name, values in zip(("centroids", "sums", "counts"), arrays, strict=True):
        _check_finite(name, values)
    return current, sum_rows, count_entries


def _check_finite(name: str, values: FloatArray) -> None:
    """Refuse NaN and infinities."""
    if not np.isfinite(values).all():
        raise DataError(f"{name} hold {values[~np.isfinite(values)][0]}, but every value must be finite: remove it.")
