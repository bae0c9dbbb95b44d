"""How centroids move: from released sums and counts to the next centroids.

Clients' copies of the centroids must be equal bit for bit, so updates are elementwise
IEEE arithmetic that ends on the grid, and the only reduction (the norm of a step) does
not depend on the order of summation.
"""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import FloatArray, Mask, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_column, as_floats

SATURATION = 16.0
"""Centroids that are not brought back into the box stay this near to 0, so that scores
are exact in float64.
"""


class PostProcessing(enum.Enum):
    """What happens to centroids outside the box [-1, 1]^d (FastLloyd, section 5.3.5 and
    appendix B).
    """

    FOLD = "fold"
    TRUNCATE = "truncate"
    NONE = "none"


def fold(values: npt.ArrayLike) -> FloatArray:
    """Reflect finite values at the walls -1 and 1 until they lie between them.

    Values inside are unchanged.

    FastLloyd, section 5.3.5. The paper's text takes the remainder modulo 2, which would
    mirror values that are inside already (0.5 to -0.5); the period of a reflection is
    4, and that is what its code uses.

    Examples
    --------
    >>> fold([0.5, 1.25, -1.25, 3.5]).tolist()
    [0.5, 0.75, -0.75, -0.5]
    """
    original = as_floats(values)
    remainder = np.mod(original + 1.0, 4.0)
    is_on_way_back = remainder > 2.0
    mirrored = 4.0 - remainder
    folded = np.where(is_on_way_back, mirrored, remainder)
    is_inside = np.abs(original) <= 1.0
    return np.where(is_inside, original, folded - 1.0)


def truncate(values: npt.ArrayLike) -> FloatArray:
    """Move values outside [-1, 1] to the nearer wall."""
    floats = as_floats(values)
    return np.clip(floats, -1.0, 1.0)


def relative_update(
    centroids: npt.ArrayLike,
    noisy_relative_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    clip_radius: float | None,
    post_processing: PostProcessing,
) -> FloatArray:
    """Move each centroid by its noisy relative sum over its noisy count (FastLloyd,
    Algorithm 1, lines 18 to 20).

    The count may have any sign. Where it is 0, or so small that the quotient is not
    finite, the centroid stays. Steps are clipped to `clip_radius`, in data units, if
    there is one; without post-processing, coordinates are saturated at
    -16 and 16, so that scores stay exact in float64.
    """
    steps, _ = _quotients(noisy_relative_sums, noisy_counts)
    if clip_radius is not None:
        steps = clip_steps(steps, clip_radius)
    moved = as_floats(centroids) + steps
    return _finish(moved, post_processing)


def absolute_update(
    centroids: npt.ArrayLike,
    noisy_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    post_processing: PostProcessing,
) -> FloatArray:
    """Replace each centroid by its noisy sum over its noisy count, as in Lloyd's
    family; see `relative_update`.
    """
    quotients, usable = _quotients(noisy_sums, noisy_counts)
    replaced = np.where(usable[:, None], quotients, centroids)
    return _finish(replaced, post_processing)


def _quotients(
    sums: npt.ArrayLike,
    counts: npt.ArrayLike,
) -> tuple[FloatArray, Mask]:
    """Divide row by row.

    Rows with a non-finite quotient become 0 and are marked as unusable.
    """
    divisors = as_floats(counts)
    with np.errstate(all="ignore"):
        quotients = as_floats(sums) / as_column(divisors)
    usable = np.isfinite(quotients).all(axis=1)
    usable &= divisors != 0.0
    quotients[~usable] = 0.0
    return quotients, usable


def _finish(values: FloatArray, post_processing: PostProcessing) -> FloatArray:
    """Bring the values into the box, or into the range where the grid is exact, and
    onto the grid.
    """
    if post_processing is PostProcessing.FOLD:
        return round_to_grid(fold(values))
    if post_processing is PostProcessing.TRUNCATE:
        return round_to_grid(truncate(values))
    saturated = np.clip(values, -SATURATION, SATURATION)
    return round_to_grid(saturated)
