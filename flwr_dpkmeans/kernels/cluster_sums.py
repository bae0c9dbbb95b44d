"""What a client of Lloyd's family sums in a round, exactly on the grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.block_sums import sum_in_threads
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.clipping import largest_square_within
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kernels.label_sums import add_by_label, counts_by_label
from flwr_dpkmeans.kernels.vectors import as_column, as_floats, weighted

SumsAndCounts = tuple[FloatArray, FloatArray]
"""Sums (k, d) and counts (k,) of clusters."""


@runtime_checkable
class _Table(Protocol):
    """Rows that are read one block after another, such as those of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, rows: slice, /) -> FloatArray:
        """Some neighbouring rows."""


def relative_statistics(
    points: npt.ArrayLike,
    centroids: npt.ArrayLike,
    radius: float | None,
    weights: FloatArray | None = None,
) -> SumsAndCounts:
    """Sum and count the points of each cluster relative to its centroid.

    Sums are (k, d), counts (k,). FastLloyd, Algorithm 1, lines 6 to 13: a point is
    assigned to its nearest centroid (ties: the lowest index) and dropped when its
    distance is greater than `radius`, if there is one. Adding or removing one point
    therefore changes one row of the sums by a vector of norm at most `radius`, without
    slack on the grid, and one count by 1. Weights (n,) are of the points' differences
    from their centroids, as in `flwr_dpkmeans.kernels.vectors.weighted`.
    """
    centers = as_floats(centroids)
    largest_square = None if radius is None else largest_square_within(radius)
    if weights is not None:
        return _summed(points, centers, largest_square, weights, origins=centers)
    sums, counts = _summed(points, centers, largest_square)
    relative_sums = sums - as_column(counts) * centers
    return relative_sums, counts


def absolute_statistics(
    points: npt.ArrayLike,
    centroids: npt.ArrayLike,
    weights: FloatArray | None = None,
) -> SumsAndCounts:
    """Sum (k, d) and count (k,) the points of each cluster, on the grid.

    Plain Lloyd, SuLloyd and GLloyd do so. Weights (n,) are as in
    `flwr_dpkmeans.kernels.vectors.weighted`.
    """
    centers = as_floats(centroids)
    return _summed(points, centers, None, weights)


def _summed(
    points: npt.ArrayLike,
    centroids: FloatArray,
    largest_square: float | None,
    weights: FloatArray | None = None,
    *,
    origins: FloatArray | None = None,
) -> SumsAndCounts:
    """Sum the points of every block that are no farther away than the bound.

    A point that is dropped goes to an extra row, which is cut off. Weighed points are
    rounded one by one, so that what they are relative to, `origins` (k, d), if
    anything, is taken off before.
    """
    table = _as_table(points)
    n_features = centroids.shape[-1]
    dropped = len(centroids)
    n_labels = dropped + 1

    def sum_of(blocks: Sequence[slice]) -> list[FloatArray]:
        sums = np.zeros((n_labels, n_features))
        counts = np.zeros(n_labels)
        for rows in blocks:
            block = table[rows]
            labels, squares = nearest_centroids(block, centroids)
            if largest_square is not None:
                # Negated, so that a distance that is not a number drops its point.
                is_far = ~(squares <= largest_square)
                labels[is_far] = dropped
            if origins is not None:
                block = block - np.take(origins, labels, axis=0, mode="clip")
            of_rows = None if weights is None else weights[rows]
            add_by_label(sums, weighted(block, of_rows), labels)
            counts += counts_by_label(labels, n_labels, of_rows)
        return [sums, counts]

    width = table.shape[-1]
    blocks = row_blocks(len(table), width)
    sums, counts = sum_in_threads(sum_of, blocks)
    return sums[:-1], counts[:-1]


def _as_table(points: npt.ArrayLike) -> _Table:
    """View rows as an array; what has a shape is cut into blocks as it is."""
    if isinstance(points, _Table):
        return points
    return np.asarray(points)
