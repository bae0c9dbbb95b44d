"""How centroids move: from released sums and counts to the next centroids.

Clients' copies of the centroids must be equal bit for bit, so updates are elementwise
IEEE arithmetic that ends on the grid, and the only reduction (the norm of a step) does
not depend on the order of summation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.clipping import clip_steps
from flwr_dpkmeans.kernels.grid import FloatArray, Mask, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_column, as_floats
from flwr_dpkmeans.kmeans.folding import PostProcessing, fold, truncate

SATURATION = 16.0
"""Centroids that are not brought back into the box stay this near to 0, so that scores
are exact in float64.
"""


def relative_update(
    centroids: npt.ArrayLike,
    noisy_relative_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    clip_radius: float | None,
    post_processing: PostProcessing,
) -> FloatArray:
    """Move each centroid by its noisy relative sum over its noisy count.

    FastLloyd, Algorithm 1, lines 18 to 20.

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
    """Replace each centroid by its noisy sum over its noisy count.

    As in Lloyd's family; see `relative_update`.
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
    """Bring the values into the box, or into the range where the grid is exact.

    And onto the grid.
    """
    if post_processing is PostProcessing.FOLD:
        return round_to_grid(fold(values))
    if post_processing is PostProcessing.TRUNCATE:
        return round_to_grid(truncate(values))
    saturated = np.clip(values, -SATURATION, SATURATION)
    return round_to_grid(saturated)
