"""The upper triangle of a symmetric matrix, as a vector."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import grid
from flwr_dpkmeans.kernels.grid import GRID, FloatArray
from flwr_dpkmeans.kernels.vectors import as_floats

_ROOT_TWO = math.sqrt(2.0)


def triangle_of(sums: FloatArray) -> FloatArray:
    """Make a triangle of whole grid steps and the rests, one behind the other.

    Both are without the factors of off-diagonal entries.
    """
    steps, rests = sums.reshape(2, -1)
    total = steps + rests
    n_features = math.isqrt(2 * len(total))
    scaled = total * (triangle_factors(n_features) / GRID)
    return as_floats(scaled)


def rounded_triangle(sums: FloatArray) -> FloatArray:
    """Make the same, on the grid."""
    triangle = triangle_of(sums)
    return grid.round_to_grid(triangle)


def symmetric_from_triangle(
    triangle: npt.ArrayLike,
    n_features: int,
) -> FloatArray:
    """Undo `outer_product_triangle`: the symmetric matrix (d, d) of a triangle."""
    upper = np.zeros((n_features, n_features))
    entries = np.triu_indices(n_features)
    upper[entries] = as_floats(triangle) / triangle_factors(n_features)
    diagonal = np.diag(upper)
    doubled = upper + upper.T
    return as_floats(doubled - np.diag(diagonal))


@lru_cache(maxsize=16)
def triangle_factors(n_features: int) -> FloatArray:
    """Factors of the entries: sqrt(2) off the diagonal."""
    rows, columns = np.triu_indices(n_features)
    is_diagonal = rows == columns
    return np.where(is_diagonal, 1.0, _ROOT_TWO)
