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
    """Average a noisy outer product (d, d) with that of the server's points (m, d).

    By precision; also returns the noise that is left. The server's matrix is brought to
    the same trace. An entry of the released matrix has a known variance (`noise` is its
    standard deviation on the diagonal); one of the server's has a sampling variance,
    estimated from its points, and a mismatch, by which the two matrices differ more
    than both variances explain. The less the server's points, clipped as rows are,
    resemble the clients', the less they weigh, and the weight vanishes with the noise.
    """
    n_features = len(matrix)
    product: FloatArray = server_points.T @ server_points
    trace = np.trace(matrix)
    server_trace = np.trace(product)
    # Negated, so that a trace that is not a number stops here as well.
    has_no_scale = not trace > 0.0 or not server_trace > 0.0
    if n_features < 2 or has_no_scale:
        return matrix.copy(), noise
    scale = float(trace / server_trace)
    of_server = scale * product
    # Means over all entries, so that nothing depends on the axes.
    sampling = _sampling_scatter(server_points, product) * scale**2
    released = 0.5 * noise**2 * (n_features + 1) / n_features
    difference = np.square(matrix - of_server).mean()
    unexplained = float(difference - sampling - released)
    mismatch = max(0.0, unexplained)
    of_prior = _PRIOR_CAUTION * (float(sampling) + mismatch)
    both = max(released + of_prior, 1e-300)
    weight = released / both
    rest = 1.0 - weight
    averaged = rest * matrix + weight * of_server
    return averaged, rest * noise


def _sampling_scatter(server_points: FloatArray, product: FloatArray) -> float:
    """Mean sampling variance of the entries of the server's outer product."""
    squares = np.square(server_points)
    of_mean = np.square(product) / len(server_points)
    scatter: FloatArray = squares.T @ squares - of_mean
    return float(scatter.mean())


def standing_out(
    matrix: FloatArray,
    noise: float,
    most: int,
) -> int:
    """Count the eigenvalues of a noisy symmetric matrix that stand out of its bulk.

    From 1 to `most`. Symmetric noise of standard deviation s on and s / sqrt(2) off the
    diagonal spreads an eigenvalue over a semicircle of radius s sqrt(2 d) (Wigner);
    rows of many directions of equal variance add a bulk around the median.
    """
    values = np.linalg.eigvalsh(matrix)
    median = float(np.median(values))
    # Eigenvalues of the bulk lie as far above the median as below it.
    below = median - float(values[0])
    of_noise = noise * math.sqrt(2.0 * len(values))
    edge = median + max(of_noise, below)
    n_beyond = np.count_nonzero(values > edge)
    return int(np.clip(n_beyond, 1, most))


def leading_eigenvectors(
    matrix: FloatArray,
    n_components: int,
) -> FloatArray:
    """Leading eigenvectors (d, n_components) of a symmetric matrix, on the grid.

    Their largest entries are positive.
    """
    _, vectors = np.linalg.eigh(matrix)
    falling = vectors[:, ::-1]
    leading = falling[:, :n_components]
    turned = with_positive_peaks(leading)
    # A negative zero would be a different bit pattern of the same number.
    return grid.round_to_grid(turned) + 0.0
