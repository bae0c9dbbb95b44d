"""What a client sums of residuals beyond their radius, by cluster and shell."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels import compiled
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.clipping import SHADE
from flwr_dpkmeans.kernels.grid import GRID, FloatArray, LabelArray
from flwr_dpkmeans.kernels.label_sums import add_by_label
from flwr_dpkmeans.kernels.residual_sums import SMALLEST_RADIUS
from flwr_dpkmeans.kernels.vectors import as_column


def excess_sums(
    rows: FloatArray,
    labels: LabelArray,
    centers: FloatArray,
    radii: FloatArray,
    lengths: FloatArray,
    n: int,
) -> FloatArray:
    """Sum what residuals have beyond their radius.

    By cluster and shell, over the shell's length, on the grid.

    A row's excess is the part of its residual beyond the radius, and belongs to the
    first shell that is as long. It adds a vector of Euclidean norm at most 1 to one
    sum, whatever radii and lengths are.

    Parameters
    ----------
    rows : ndarray, (n_rows, d)
        On the grid.
    labels : ndarray, (n_rows,)
        One beyond the centers counts as the last.
    centers : ndarray, (k, d)
    radii : ndarray, (k,)
    lengths : ndarray, (k, n_shells)
        Rising, above 0.
    n : int
        Clusters that the result has, at least k; those beyond the centers are 0.

    Returns
    -------
    ndarray, (n, n_shells * d)

    Raises
    ------
    DataError
        There are no centers, or more than `n`.
    """
    n_centers = len(centers)
    if not 1 <= n_centers <= n:
        raise DataError(
            f"there are {n_centers} centers, but there must be from 1 to {n}: give"
            " as many as planned."
        )
    n_shells = lengths.shape[1]
    n_features = rows.shape[1]
    least = np.maximum(radii, SMALLEST_RADIUS)
    sums = compiled.excess_sums(rows, labels, centers, least, lengths)
    if sums is None:
        sums = _sums_by_numpy(rows, labels, centers, least, lengths)
    n_missing = n - n_centers
    sums = sums.reshape(n_centers, n_shells * n_features) + 0.0
    return np.pad(sums, ((0, n_missing), (0, 0)))


def _sums_by_numpy(
    rows: FloatArray,
    labels: LabelArray,
    centers: FloatArray,
    least: FloatArray,
    lengths: FloatArray,
) -> FloatArray:
    """The same of the centers alone, (k * n_shells, d)."""
    n_centers = len(centers)
    n_shells = lengths.shape[1]
    n_rows, n_features = rows.shape
    ones = np.ones(n_features)
    sums = np.zeros((n_centers * n_shells, n_features))
    for part in row_blocks(n_rows, 4 * n_features):
        labels_in_part = np.minimum(labels[part], n_centers - 1)
        residuals = rows[part] - centers[labels_in_part]
        norms = np.sqrt(np.square(residuals) @ ones)
        # Few rows are.
        beyond = np.flatnonzero(norms > least[labels_in_part])
        nearest = labels_in_part[beyond]
        far_norms = norms[beyond]
        excess = far_norms - least[nearest]
        are_longer = as_column(excess) > lengths[nearest]
        shells = are_longer.sum(axis=1)
        shells = np.minimum(shells, n_shells - 1)
        # A row farther than the last shell is pulled back to its end.
        longest = np.maximum(lengths[nearest, shells], excess)
        factors = SHADE * GRID * excess / (far_norms * longest)
        units = residuals[beyond] * as_column(factors)
        entries = nearest * n_shells + shells
        add_by_label(sums, np.trunc(units), entries)
    return sums / GRID
