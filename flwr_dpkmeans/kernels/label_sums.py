"""Sums of the points of each label, exact on the grid for up to 10^11 points."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray

# -- what a client sums, exactly on the grid for up to 10^11 points --------------------

# Up to so many entries a matrix of zeros and ones costs less than a sparse one.
_SMALL_MATRIX = 1 << 14


# Up to here one pass per feature costs less than setting up a sparse matrix.
_FEW_FEATURES = 4


# From here on adding a row costs more than a turn of a loop.
_WIDE = 1 << 12


def add_by_label(sums: FloatArray, points: FloatArray, labels: LabelArray) -> None:
    """Add points (n, d) to the rows of `sums` with their labels, in place."""
    if points.shape[1] < _WIDE:
        sums += sum_by_label(points, labels, len(sums))
        return
    # A block has few of such rows: a table of their sums alone would be as large as all
    # sums, for each block.
    for label, row in zip(labels.tolist(), points, strict=True):
        sums[label] += row


def sum_by_label(points: FloatArray, labels: LabelArray, n_rows: int) -> FloatArray:
    """Sum the points (n, d) with each label below `n_rows`.

    Exact on the grid, so that their order does not matter.
    """
    n_points, n_features = points.shape
    if n_rows == 1:
        return np.asarray(np.ones((1, n_points)) @ points, dtype=np.float64)
    if n_features <= _FEW_FEATURES:
        columns = [
            np.bincount(labels, weights=points[:, j], minlength=n_rows)
            for j in range(n_features)
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((n_rows, 0))
    if n_rows * n_points <= _SMALL_MATRIX:
        chosen = (labels == np.arange(n_rows)[:, None]).astype(np.float64)
        return np.asarray(chosen @ points, dtype=np.float64)
    chosen = copy.copy(_one_each(n_rows, n_points))
    chosen.indices = labels.astype(np.int32, copy=False)
    return np.asarray(chosen @ points, dtype=np.float64)


@lru_cache(maxsize=4)
def _one_each(n_rows: int, n_points: int) -> Any:
    """A sparse matrix whose column i says in which row point i is summed.

    Making one costs as much as a product.
    """
    from scipy.sparse import csc_array

    places, starts = (
        np.zeros(n_points, dtype=np.int32),
        np.arange(n_points + 1, dtype=np.int32),
    )
    return csc_array((np.ones(n_points), places, starts), shape=(n_rows, n_points))
