"""Whether a state's arrays are centroids, deviations or tables, as the plan says."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST
from flwr_dpkmeans.sums.round import Array, State

_LARGEST_COUNT = 2.0**47


def has_exact_centroids(state: State) -> bool:
    """Whether the centroids are on the grid, in the box, and the counts small enough
    for it.
    """
    inside = (
        np.abs(state.centroids).max(initial=0.0) <= 1.0
        and np.abs(state.counts).max(initial=0.0) <= _LARGEST_COUNT
    )
    return bool(inside) and is_on_grid(state.centroids)


def is_deviation(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether an array can be centres' standard deviations.

    On the grid, from above 0 to the width of the box.
    """
    fits = array.shape == shape and is_on_grid(array)
    return fits and float(array.min()) > 0.0 and float(array.max()) <= WIDEST


def is_table(
    array: Array,
    most_rows: int,
    width: int,
) -> bool:
    """Whether an array has 1 to `most_rows` rows of the width."""
    return array.ndim == 2 and 1 <= len(array) <= most_rows and array.shape[1] == width
