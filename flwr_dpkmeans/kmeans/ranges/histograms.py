"""What a client counts: magnitudes of each column, then bins of its coarse range."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.vector_clipping import clip_vector
from flwr_dpkmeans.kmeans.ranges.magnitudes import (
    N_MAGNITUDES,
    Array,
    Ranges,
    columns_of,
)

N_BINS = 32
"""Bins of equal width inside a column's coarse range."""


def magnitude_histogram(
    points: Array,
    domain: Ranges,
    weights: Array | None = None,
) -> Array:
    """Count each column's values by sign and power of two: (d, N_MAGNITUDES).

    Values are clipped to the public domain. Every row of `points` is in exactly one bin
    of each column, and counts as much as its weight (n_rows,), on the grid.
    """
    n_rows, n_features = points.shape
    counts = np.zeros((n_features, N_MAGNITUDES))
    columns = columns_of(domain)
    for index, column in enumerate(columns):
        for rows in row_blocks(n_rows, 1):
            bins = column.bins_of(points[rows, index])
            of_rows = None if weights is None else weights[rows]
            counts[index] += np.bincount(bins, of_rows, N_MAGNITUDES)
    return counts


def range_histogram(
    points: Array,
    coarse: Ranges,
    weights: Array | None = None,
) -> Array:
    """Count each column's values in equal bins of its coarse range, (d, N_BINS).

    Values outside of the released range are counted at its ends. A row counts as much
    as its weight (n_rows,), on the grid.
    """
    n_rows, n_features = points.shape
    counts = np.zeros((n_features, N_BINS))
    last = N_BINS - 1
    pairs = zip(*coarse, strict=True)
    for index, (low, high) in enumerate(pairs):
        width = high - low
        for rows in row_blocks(n_rows, 1):
            values = np.clip(points[rows, index], low, high)
            positions = (values - low) / width * N_BINS
            whole = np.floor(positions)
            bins = whole.astype(np.int64)
            bins = np.clip(bins, 0, last)
            of_rows = None if weights is None else weights[rows]
            counts[index] += np.bincount(bins, of_rows, N_BINS)
    return counts


def one_vote(counts: Array) -> Array:
    """Scale a client's histograms (d, n_bins) down to the norm of a single row's.

    Its privacy is that of one row then.

    On the grid, toward zero; the L2 norm is at most sqrt(d) for a client of any size: a
    larger bound would need noise as much larger, and let large clients alone profit
    from it.
    """
    n_columns = len(counts)
    return clip_vector(counts, math.sqrt(n_columns))
