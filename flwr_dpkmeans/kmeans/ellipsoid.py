"""The private picture of the data before clustering: an ellipsoid from a noisy mean and a noisy covariance.

Everything here is post-processing of released sums. Where noise hides the covariance, its eigenvectors are arbitrary,
so they are computed in a way that is equal on all machines (`flwr_dpkmeans.kmeans.eigen`), and end on the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.kmeans.assignment import FloatArray
from flwr_dpkmeans.kmeans.eigen import eigenpairs, product
from flwr_dpkmeans.kmeans.update import round_to_grid

PRIOR_VARIANCE = 0.2
"""Of a column in the box [-1, 1], before anything is known: between a uniform column (1/3) and a peaked one."""
_LEAST_VARIANCE = 1e-6
_MOST_VARIANCE = 1.0
_PRIOR_SPREAD = 0.75
_FARTHEST_CENTRE = 0.95
_LEAST_AXIS = 0.1
_LEAST_EIGENVALUE = 0.02
_RELATIVE_GRID = 2.0**16


@dataclass(frozen=True)
class Ellipsoid:
    """Where the data lie, in the scaled box.

    Parameters
    ----------
    variances : float64 array of shape (n_features,)
        Along the axes, falling; then those of the axes that are not given.
    axes : float64 array of shape (n_features, n_axes)
        Columns are the axes, on the grid: all of them, or the leading ones of a wide table (see `eigenpairs`).
    """

    variances: FloatArray
    axes: FloatArray

    @property
    def spread(self) -> float:
        """Root mean square distance from the centre."""
        return math.sqrt(math.fsum(self.variances))


def shrunk_centre(noisy_mean: FloatArray, noise: float) -> FloatArray:
    """Pull a noisy mean toward the middle of the box, by how much of its length noise explains.

    Parameters
    ----------
    noisy_mean : array of shape (n_features,)
    noise : float
        Standard deviation of the noise on each entry.

    Returns
    -------
    float64 array of shape (n_features,)
        On the grid.

    Examples
    --------
    >>> shrunk_centre(np.array([0.5, 0.5]), 0.0).tolist(), shrunk_centre(np.array([0.5, 0.5]), 1.0).tolist()
    ([0.5, 0.5], [0.0, 0.0])
    """
    signal = max(0.0, float(np.square(noisy_mean).mean()) - noise**2)
    factor = signal / (signal + noise**2) if signal > 0.0 else 0.0
    return round_to_grid(np.clip(noisy_mean * factor, -_FARTHEST_CENTRE, _FARTHEST_CENTRE))


def axis_variance(noisy_square: float, noise: float, centre: FloatArray, prior: float = PRIOR_VARIANCE) -> float:
    """Variance along an axis, on average, from the noisy mean squared length of the rows.

    Parameters
    ----------
    noisy_square : float
        Mean of |x|^2.
    noise : float
        Its standard deviation.
    centre : array of shape (n_features,)
    prior : float
        What is expected before anything is known.

    Returns
    -------
    float
        Averaged, by precision, with the prior, which is trusted to three quarters of itself (0.2 +- 0.15).

    Examples
    --------
    >>> axis_variance(0.5, 0.0, np.zeros(2)), axis_variance(0.5, 1e9, np.zeros(2))
    (0.25, 0.2)
    """
    n_features = len(centre)
    measured = (noisy_square - math.fsum(np.square(centre))) / n_features
    own, trusted = (noise / n_features) ** 2, (_PRIOR_SPREAD * prior) ** 2
    averaged = (measured * trusted + prior * own) / (trusted + own)
    return float(min(max(averaged, _LEAST_VARIANCE), _MOST_VARIANCE))


def ellipsoid_of(matrix: FloatArray, noise: float, variance: float) -> Ellipsoid:
    """Shrink a noisy covariance to what stands out of its noise.

    The diagonal is pulled toward the average variance by how much of its scatter noise explains. Of the rest, an
    eigenvalue e of noise alone is at most about s sqrt(d / 2) in size (a quarter of the semicircle's width), so one of
    size l is kept as sqrt(l^2 - e^2) or dropped. Rows were clipped, so only proportions count: the trace becomes
    n_features * variance.

    Parameters
    ----------
    matrix : array of shape (n_features, n_features)
        Symmetric, with noise of standard deviation `noise` on the diagonal and noise / sqrt(2) off it.
    noise : float
    variance : float
        Along an axis, on average.

    Returns
    -------
    Ellipsoid

    Examples
    --------
    >>> ellipsoid_of(np.diag([0.3, 0.1]), 0.0, 0.2).variances.round(3).tolist()
    [0.3, 0.1]
    >>> ellipsoid_of(np.diag([0.3, 0.1]), 10.0, 0.2).variances.round(3).tolist()
    [0.2, 0.2]
    """
    n_features = len(matrix)
    diagonal = np.diag(matrix)
    signal = max(0.0, float(diagonal.var()) - noise**2)
    factor = signal / (signal + noise**2) if signal > 0.0 else 0.0
    own = np.clip(variance + (diagonal - diagonal.mean()) * factor, _LEAST_AXIS * variance, _MOST_VARIANCE)
    eigenvalues, eigenvectors = eigenpairs(matrix - np.diag(diagonal))
    edge = noise * math.sqrt(n_features / 2.0)
    kept = np.sign(eigenvalues) * np.sqrt(np.maximum(eigenvalues**2 - edge**2, 0.0))
    shrunk = product(eigenvectors * kept, np.ascontiguousarray(eigenvectors.T)) + np.diag(own)
    # What stands out of the average variance, on a grid of its own: last digits of the noise's scale are gone.
    relative = np.rint((shrunk / variance - np.eye(n_features)) * _RELATIVE_GRID) / _RELATIVE_GRID
    lengths, axes = eigenpairs(relative)
    lengths = np.maximum(_all_lengths(1.0 + lengths, relative), _LEAST_EIGENVALUE) * variance
    lengths = lengths * (float(own.sum()) / float(lengths.sum()))
    return Ellipsoid(round_to_grid(np.maximum(lengths, 2.0**-16)), round_to_grid(axes) + 0.0)


def _all_lengths(leading: FloatArray, relative: FloatArray) -> FloatArray:
    """Eigenvalues, and behind them equal ones for the axes that a wide table has no vectors of."""
    n_features = len(relative)
    missing = n_features - len(leading)
    rest = (n_features + float(np.trace(relative)) - float(leading.sum())) / max(1, missing)
    return np.concatenate([leading, np.full(missing, rest)])
