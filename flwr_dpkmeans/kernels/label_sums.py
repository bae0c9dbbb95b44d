"""Sums of the points of each label, exact on the grid for up to 10^11 points."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, Sizes
from flwr_dpkmeans.kernels.vectors import as_floats, weighted

# Up to so many entries a matrix of zeros and ones costs less than a sparse one.
_SMALL_MATRIX = 1 << 14
# Up to here one pass per feature costs less than setting up a sparse matrix.
_FEW_FEATURES = 4
# From here on adding a row costs more than a turn of a loop.
_WIDE = 1 << 12


def add_by_label(
    sums: FloatArray,
    points: FloatArray,
    labels: LabelArray,
) -> None:
    """Add points (n, d) to the rows of `sums` with their labels, in place."""
    if points.shape[1] < _WIDE:
        sums += sum_by_label(points, labels, len(sums))
        return
    # A block has few of such rows: a table of their sums alone would be as large as all
    # sums, for each block.
    pairs = zip(labels.tolist(), points, strict=True)
    for label, row in pairs:
        sums[label] += row


def sums_and_counts(
    points: FloatArray,
    labels: LabelArray,
    n_labels: int,
    weights: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Sum (n_labels, d) and count (n_labels,) the points with each label.

    With weights (n,), as `flwr_dpkmeans.kernels.vectors.weighted` takes them, a point
    adds so much of itself.
    """
    if weights is None:
        outcome = compiled.label_sums(points, labels, n_labels)
        if outcome is not None:
            return outcome
    sums = sum_by_label(weighted(points, weights), labels, n_labels)
    return sums, counts_by_label(labels, n_labels, weights)


def counts_by_label(
    labels: npt.NDArray[np.integer],
    n_labels: int,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Count the points with each label below `n_labels`: (n_labels,).

    With weights (n,) on the grid, add up those of each label.
    """
    return as_floats(np.bincount(labels, weights, n_labels))


def entries_of(labels: LabelArray, n_labels: int, sizes: Sizes) -> LabelArray:
    """Number rows by their client, and in it by their label below `n_labels`."""
    if len(sizes) == 1:
        return labels
    first_entries = np.arange(len(sizes), dtype=np.int32) * n_labels
    return np.asarray(np.repeat(first_entries, sizes) + labels, np.int32)


def counts_of_each(
    labels: LabelArray,
    n_labels: int,
    sizes: Sizes,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Count each client's rows of each label, (m, n_labels); see `counts_by_label`."""
    n_clients = len(sizes)
    entries = entries_of(labels, n_labels, sizes)
    counts = counts_by_label(entries, n_clients * n_labels, weights)
    return counts.reshape(n_clients, n_labels)


def sum_by_label(
    points: FloatArray,
    labels: LabelArray,
    n_rows: int,
) -> FloatArray:
    """Sum the points (n, d) with each label below `n_rows`: (n_rows, d).

    Exact on the grid, so that their order does not matter.
    """
    outcome = compiled.label_sums(points, labels, n_rows)
    if outcome is not None:
        return outcome[0]
    return _sum_by_numpy(points, labels, n_rows)


def _sum_by_numpy(
    points: FloatArray,
    labels: LabelArray,
    n_rows: int,
) -> FloatArray:
    n_points, n_features = points.shape
    if n_rows == 1:
        ones = np.ones((1, n_points))
        return as_floats(ones @ points)
    if n_features <= _FEW_FEATURES:
        return _sum_by_column(points, labels, n_rows)
    if n_rows * n_points <= _SMALL_MATRIX:
        every_label = np.arange(n_rows)
        is_member = labels == every_label[:, None]
        membership = as_floats(is_member)
        return as_floats(membership @ points)
    sparse = copy.copy(_sparse_membership(n_rows, n_points))
    sparse.indices = np.asarray(labels, np.int32)
    return as_floats(sparse @ points)


def _sum_by_column(
    points: FloatArray,
    labels: LabelArray,
    n_rows: int,
) -> FloatArray:
    """Sum one feature after another."""
    n_features = points.shape[1]
    sums = np.zeros((n_rows, n_features))
    for column in range(n_features):
        weights = points[:, column]
        sums[:, column] = np.bincount(labels, weights, n_rows)
    return sums


@lru_cache(maxsize=4)
def _sparse_membership(n_rows: int, n_points: int) -> Any:
    """Build a sparse matrix whose column i says in which row point i is summed.

    Building one costs as much as a product, so its indices are replaced each time.
    """
    from scipy.sparse import csc_array

    indices = np.zeros(n_points, np.int32)
    starts = np.arange(n_points + 1, dtype=np.int32)
    values = np.ones(n_points)
    return csc_array((values, indices, starts), shape=(n_rows, n_points))
