"""Clipping of a whole vector, what a client sends, to a norm."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.clipping import SHADE
from flwr_dpkmeans.kernels.grid import FloatArray, toward_zero
from flwr_dpkmeans.kernels.vectors import as_floats


def clip_factors(
    vectors: FloatArray,
    bound: float,
    *,
    order: int = 2,
) -> FloatArray:
    """The factors (m,), at most 1, that bring norms of vectors (m, ...) to `bound`.

    The norm is L1 or L2, by its `order`.
    """
    flat = vectors.reshape(len(vectors), -1)
    # One by one, as the last digit of a norm depends on the order of its sum.
    norms = np.array([vector_norm(vector, order) for vector in flat])
    # The computed norm may be a little too small, so vectors within the shade of the
    # bound are scaled as well.
    are_short = norms <= bound * SHADE
    divisors = np.where(are_short, 1.0, norms)
    return np.where(are_short, 1.0, bound * SHADE * SHADE / divisors)


def vector_norm(values: FloatArray, order: int) -> float:
    """L1 or L2 norm of values (n,)."""
    if order == 1:
        return float(np.abs(values).sum())
    return math.sqrt(float(values @ values))


def scaled_each(vectors: FloatArray, factors: FloatArray) -> FloatArray:
    """Multiply each of some vectors (m, ...) by its factor (m,), on the grid."""
    shape = (len(vectors), *[1] * (vectors.ndim - 1))
    return toward_zero(vectors * factors.reshape(shape))


def clip_each(
    vectors: FloatArray,
    bound: float,
    *,
    order: int = 2,
) -> FloatArray:
    """Scale each of some vectors (m, ...) down to a norm of at most `bound`.

    On the grid. FedDP-KMeans, appendix G.4.
    """
    factors = clip_factors(vectors, bound, order=order)
    return scaled_each(vectors, factors)


def clip_vector(
    vector: npt.ArrayLike,
    bound: float,
    *,
    order: int = 2,
) -> FloatArray:
    """Scale one vector, of any shape; see `clip_each`."""
    values = as_floats(vector)
    (clipped,) = clip_each(values[None], bound, order=order)
    return np.asarray(clipped)
