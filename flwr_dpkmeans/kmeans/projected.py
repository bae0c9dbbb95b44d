"""The projection that FedDP-KMeans releases: outer products and their eigenvectors."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels import grid
from flwr_dpkmeans.kernels.grid import FloatArray
from flwr_dpkmeans.kmeans.eigenvectors import with_positive_peaks

# The server's errors are not spread over all directions as noise is, but lie in its own
# leading ones, where they do more harm: they count as twice as large.
_PRIOR_CAUTION = 4.0


def shrink_to_server(
    matrix: FloatArray,
    server_points: FloatArray,
    noise: float,
) -> tuple[FloatArray, float]:
    """Average a noisy outer product (d, d) with that of the server's points (m, d), by
    precision; and the noise left.

    The server's matrix is brought to the same trace. An entry of the released matrix
    has a known variance (`noise` is its standard deviation on the diagonal); one of the
    server's has a sampling variance, estimated from its points, and a mismatch, by
    which the two matrices differ more than both variances explain. The less the
    server's points, clipped as rows are, resemble the clients', the less they weigh,
    and the weight vanishes with the noise.
    """
    n_features = len(matrix)
    product: FloatArray = server_points.T @ server_points
    if n_features < 2 or not np.trace(matrix) > 0.0 or not np.trace(product) > 0.0:
        return matrix.copy(), noise
    scale = float(np.trace(matrix) / np.trace(product))
    squares = np.square(server_points)
    # Means over all entries, so that nothing depends on the axes.
    sampling = (
        squares.T @ squares - np.square(product) / len(server_points)
    ).mean() * scale**2
    released = 0.5 * noise**2 * (n_features + 1) / n_features
    difference = np.square(matrix - scale * product).mean()
    mismatch = max(0.0, float(difference - sampling - released))
    weight = released / max(
        released + _PRIOR_CAUTION * (float(sampling) + mismatch), 1e-300
    )
    return (1.0 - weight) * matrix + weight * (scale * product), (1.0 - weight) * noise


def standing_out(
    matrix: FloatArray,
    noise: float,
    most: int,
) -> int:
    """Count the eigenvalues of a noisy symmetric matrix that stand out of its bulk,
    from 1 to `most`.

    Symmetric noise of standard deviation s on and s / sqrt(2) off the diagonal spreads
    an eigenvalue over a semicircle of radius s sqrt(2 d) (Wigner); rows of many
    directions of equal variance add a bulk around the median.
    """
    values = np.linalg.eigvalsh(matrix)
    median = float(np.median(values))
    # Eigenvalues of the bulk lie as far above the median as below it.
    edge = median + max(noise * math.sqrt(2.0 * len(values)), median - float(values[0]))
    return int(np.clip((values > edge).sum(), 1, most))


def leading_eigenvectors(matrix: FloatArray, n_components: int) -> FloatArray:
    """Leading eigenvectors (d, n_components) of a symmetric matrix, their largest
    entries positive, on the grid.
    """
    _, vectors = np.linalg.eigh(matrix)
    return (
        grid.round_to_grid(with_positive_peaks(vectors[:, ::-1][:, :n_components]))
        + 0.0
    )
