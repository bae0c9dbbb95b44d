"""The ellipsoid that data lie in, from a noisy covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.kernels.grid import FloatArray, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_floats
from flwr_dpkmeans.kmeans.eigenvectors import eigenpairs, product
from flwr_dpkmeans.kmeans.proxies.variances import (
    LEAST_VARIANCE,
    MOST_VARIANCE,
    signal_share,
)

_FARTHEST_CENTRE = 0.95
_LEAST_AXIS = 0.1
_LEAST_EIGENVALUE = 0.02
_RELATIVE_GRID = 2.0**16


@dataclass(frozen=True)
class Ellipsoid:
    """Where the data lie, in the scaled box."""

    variances: FloatArray
    """(d,), along the axes, falling; then those of the axes that are not given."""
    axes: FloatArray
    """(d, n_axes), on the grid: columns are all axes, or the leading ones of a wide
    table (see `eigenpairs`).
    """

    @property
    def spread(self) -> float:
        """Root mean square distance from the centre."""
        square = math.fsum(self.variances)
        return math.sqrt(square)


def shrunk_centre(noisy_mean: FloatArray, noise: float) -> FloatArray:
    """Pull a noisy mean (d,) toward the middle of the box.

    By how much of its length noise explains; on the grid.
    """
    squares = np.square(noisy_mean)
    square = float(squares.mean())
    factor = signal_share(square, noise)
    pulled = noisy_mean * factor
    clipped = np.clip(pulled, -_FARTHEST_CENTRE, _FARTHEST_CENTRE)
    return round_to_grid(clipped)


def ellipsoid_of(
    matrix: FloatArray,
    noise: float,
    variance: float,
) -> Ellipsoid:
    """Shrink a covariance (d, d) to what stands out of its noise.

    `noise` on the diagonal, noise / sqrt(2) off it.

    The diagonal is pulled toward the average `variance` by how much of its scatter
    noise explains. Rows were clipped, so only proportions count: the trace becomes d
    times `variance` (``proxy_lloyd.md``, covariance).
    """
    n_features = len(matrix)
    diagonal = np.diag(matrix)
    spread = float(diagonal.var())
    factor = signal_share(spread, noise)
    scatter = diagonal - diagonal.mean()
    of_columns = np.clip(
        variance + scatter * factor,
        _LEAST_AXIS * variance,
        MOST_VARIANCE,
    )
    beside = _shrunk_beside_diagonal(matrix, noise)
    shrunk = beside + np.diag(of_columns)
    # What stands out of the average variance, on a grid of its own: last digits of the
    # noise's scale are gone.
    relative = shrunk / variance - np.eye(n_features)
    steps = np.rint(relative * _RELATIVE_GRID)
    relative = steps / _RELATIVE_GRID
    eigenvalues, axes = eigenpairs(relative)
    lengths = _all_lengths(1.0 + eigenvalues, relative)
    lengths = np.maximum(lengths, _LEAST_EIGENVALUE) * variance
    trace = float(of_columns.sum())
    total = float(lengths.sum())
    lengths = lengths * (trace / total)
    # Single precision: last digits of the noise's scale are gone, and those of a small
    # table are kept.
    single = np.maximum(lengths, LEAST_VARIANCE).astype(np.float32)
    return Ellipsoid(as_floats(single), round_to_grid(axes) + 0.0)


def _shrunk_beside_diagonal(matrix: FloatArray, noise: float) -> FloatArray:
    """What stands out of the noise's semicircle, without the diagonal."""
    n_features = len(matrix)
    diagonal = np.diag(matrix)
    eigenvalues, eigenvectors = eigenpairs(matrix - np.diag(diagonal))
    edge = noise * math.sqrt(n_features / 2.0)
    squares = eigenvalues**2 - edge**2
    squares = np.maximum(squares, 0.0)
    shrunk = np.sign(eigenvalues) * np.sqrt(squares)
    transposed = np.ascontiguousarray(eigenvectors.T)
    return product(eigenvectors * shrunk, transposed)


def _all_lengths(leading: FloatArray, relative: FloatArray) -> FloatArray:
    """Eigenvalues, and behind them equal ones for further axes.

    A wide table has no vectors of these.
    """
    n_features = len(relative)
    missing = n_features - len(leading)
    total = n_features + float(np.trace(relative))
    rest = total - float(leading.sum())
    share = rest / max(1, missing)
    equal_ones = np.full(missing, share)
    return np.concatenate([leading, equal_ones])
