"""Clipping of a whole vector, what a client sends, to a norm."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.clipping import SHADE
from flwr_dpkmeans.kernels.grid import FloatArray, toward_zero
from flwr_dpkmeans.kernels.vectors import as_floats


def clip_factor(
    vector: npt.ArrayLike,
    bound: float,
    *,
    order: int = 2,
) -> float:
    """The factor, at most 1, that brings a vector's norm down to `bound`.

    The norm is L1 or L2, by its `order`.
    """
    values = as_floats(vector)
    norm = vector_norm(np.ravel(values), order)
    # The computed norm may be a little too small, so vectors within the shade of the
    # bound are scaled as well.
    if norm <= bound * SHADE:
        return 1.0
    return bound * SHADE * SHADE / norm


def vector_norm(values: FloatArray, order: int) -> float:
    """L1 or L2 norm of values (n,)."""
    if order == 1:
        return float(np.abs(values).sum())
    return math.sqrt(float(values @ values))


def clip_vector(
    vector: npt.ArrayLike,
    bound: float,
    *,
    order: int = 2,
) -> FloatArray:
    """Scale a vector of any shape down to a norm of at most `bound`, on the grid.

    FedDP-KMeans, appendix G.4.
    """
    values = as_floats(vector)
    factor = clip_factor(vector, bound, order=order)
    return toward_zero(values * factor)
