"""Histograms of squared distances, each bin half as wide as the one before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.label_sums import counts_by_label
from flwr_dpkmeans.kernels.vectors import squared_lengths

N_DISTANCES = 28
"""Bins of a histogram of squared distances, each half as wide as the next.

Down to a few steps of the grid.
"""
_Bins = npt.NDArray[np.int64]


def squared_edges(n_features: int) -> FloatArray:
    """Largest squared distance in each bin of a histogram.

    Halves, exactly, of the box's squared diagonal.
    """
    squared_diagonal = 4.0 * n_features
    halvings = np.arange(N_DISTANCES)
    return np.ldexp(squared_diagonal, -halvings)


def distance_counts(
    points: FloatArray,
    centre: FloatArray,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Count points (n, d) by their squared distance from a centre.

    Each is in one bin, the farthest in the first, and counts as much as its weight
    (n,), on the grid.

    All that is nearer than the last bin's edge is in the last bin. On the grid squares
    are exact, so that a row's bin is a function of that row alone.
    """
    if weights is None:
        edges = squared_edges(points.shape[1])
        outcome = compiled.distance_counts(points, centre, edges[::-1])
        if outcome is not None:
            return outcome
    bins = distance_bins(points, centre)
    return counts_by_label(bins, N_DISTANCES, weights)


def distance_bins(points: FloatArray, centre: FloatArray) -> _Bins:
    """Bins of points (n, d), (n,), by their squared distance from a centre."""
    offsets = points - centre
    squares = squared_lengths(offsets)
    edges = squared_edges(points.shape[1])
    rising = edges[::-1]
    n_nearer = np.searchsorted(rising, squares)
    last = N_DISTANCES - 1
    bins: _Bins = np.maximum(last - n_nearer, 0)
    return bins
