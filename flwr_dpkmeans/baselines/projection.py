"""From points of [-1, 1]^d to the few dimensions in which max cover looks for centres."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.baselines._inputs import FloatArray
from flwr_dpkmeans.kmeans import round_to_grid
from flwr_dpkmeans.kmeans.clipping import largest_kept_square

_MATRIX_BITS = 20
_POINT_BITS = 16
# A random direction sees a vector of length R as a normal variable of standard deviation R / sqrt(d).
_DEVIATIONS_IN_BOX = 3.0


def clip_to_ball(points: FloatArray, radius: float) -> FloatArray:
    """Clip every point to the box and to the ball, and round it toward zero to the 2^-16 grid.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
    radius : float
        Of the ball around the origin, greater than 0.

    Returns
    -------
    float64 array of the same shape
        No row is longer than `radius`; each is a function of its own row alone.

    Examples
    --------
    >>> clip_to_ball(np.array([[0.75, 0.0], [3.0, 0.0]]), 0.5).tolist()
    [[0.4999847412109375, 0.0], [0.4999847412109375, 0.0]]
    """
    scale = 2.0**_POINT_BITS
    boxed = np.trunc(np.clip(points, -1.0, 1.0) * scale) / scale
    # Squares are multiples of 2^-32: the sum is exact, in any order, and one row's does not depend on others.
    squares = np.einsum("ij,ij->i", boxed, boxed)
    # Squares are compared, since a root may be rounded down to the radius.
    far = squares > largest_kept_square(radius)
    # Rounding errors of the norm and of the product stay far below the part of 2^-40 that is taken off.
    factors = np.where(far, radius * (1.0 - 2.0**-40) / np.sqrt(np.maximum(squares, 4.0**-_POINT_BITS)), 1.0)
    clipped: FloatArray = np.trunc(boxed * factors[:, None] * scale) / scale
    return clipped


def default_components(n_examples: int, n_features: int) -> int:
    """Return about ``log(n) / 2`` dimensions, as in the paper's experiments; at most `n_features` and 8.

    Examples
    --------
    >>> default_components(50_000, 100), default_components(50_000, 2)
    (5, 2)
    """
    return max(1, min(n_features, round(0.5 * math.log(n_examples)), 8))


def project_to_box(points: FloatArray, radius: float, n_components: int, generator: np.random.Generator) -> FloatArray:
    """Project points onto random orthogonal directions, scaled so that they fill [-1, 1]^n_components.

    With `n_components` equal to the number of features there is no projection. Otherwise coordinates are divided by 3
    ``radius / sqrt(n_features)``, three standard deviations for a point at distance `radius`, and clipped.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        As `clip_to_ball` returns them.
    radius : float
        The ball's radius.
    n_components : int
        From 1 to n_features.
    generator : numpy.random.Generator
        Draws the directions, which do not depend on the points.

    Returns
    -------
    float64 array of shape (n_points, n_components)
        On the 2^-16 grid. A row is a function of its own point alone, to the last bit: the matrix is rounded to
        multiples of 2^-20, so that all sums of products are exact in whatever order a library forms them.

    References
    ----------
    Nguyen, Chaturvedi and Xu 2021, "Differentially private k-means via exponential mechanism and max cover",
    Algorithm 1, step 1.

    Examples
    --------
    >>> project_to_box(np.array([[0.25], [-0.5]]), 0.5, 1, np.random.default_rng(0)).tolist()
    [[0.5], [-1.0]]
    """
    n_features = points.shape[1]
    if n_components == n_features:
        return round_to_grid(np.clip(points / min(radius, 1.0), -1.0, 1.0))
    directions, _ = np.linalg.qr(generator.standard_normal((n_features, n_components)))
    matrix = round_to_grid(directions, _MATRIX_BITS)
    unit = _DEVIATIONS_IN_BOX * radius / math.sqrt(n_features)
    return round_to_grid(np.clip(points @ matrix / unit, -1.0, 1.0))
