"""Whether a state's arrays are centroids, deviations or tables, as the plan says."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST
from flwr_dpkmeans.sums.round import Array, State

_LARGEST_COUNT = 2.0**47


def has_exact_centroids(state: State) -> bool:
    """Whether the centroids are on the grid, in the box, and the counts small enough.

    Sums of such counts are exact.
    """
    coordinates = np.abs(state.centroids)
    # NaN is refused, as no comparison with it holds.
    is_in_box = bool(coordinates.max(initial=0.0) <= 1.0)
    if not is_in_box:
        return False
    counts = np.abs(state.counts)
    is_exact = bool(counts.max(initial=0.0) <= _LARGEST_COUNT)
    return is_exact and is_on_grid(state.centroids)


def is_deviation(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether an array can be centres' standard deviations.

    On the grid, from above 0 to the width of the box.
    """
    if array.shape != shape or not is_on_grid(array):
        return False
    smallest = float(array.min())
    largest = float(array.max())
    return smallest > 0.0 and largest <= WIDEST


def is_table(
    array: Array,
    most_rows: int,
    width: int,
) -> bool:
    """Whether an array has 1 to `most_rows` rows of the width."""
    if array.ndim != 2:
        return False
    n_rows = len(array)
    return 1 <= n_rows <= most_rows and array.shape[1] == width
