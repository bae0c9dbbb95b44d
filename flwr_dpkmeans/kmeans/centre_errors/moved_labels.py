"""How far means follow centres, as rows at borders change their labels."""

from __future__ import annotations

import math

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID, FloatArray
from flwr_dpkmeans.kernels.vectors import as_column, as_floats

# density at a cell's border over that of a normal distribution of the cell's variance
_STEEPNESS = 3.0
# part of a border's step that a mean follows at most: half of a normal distribution
_MOST_MOVED = 0.65
_ASIDE = 0.5  # part of a step in any direction that a mean follows where cells are full
_FARTHEST_BORDER = 30.0  # standard deviations of rows from their centre to a border
_NORMALISER = math.sqrt(2.0 * math.pi)
_MOST_PAIRS = 1 << 24  # numbers in a table of all pairs of centres


def moved_labels(
    before: FloatArray,
    after: FloatArray,
    variances: FloatArray | None = None,
) -> FloatArray:
    """Estimate by how much means follow the centres' last step.

    As rows at borders change their labels.

    The border between two centres moves by the mean of their steps along the line
    through them. What a mean follows of it depends on how many rows lie there: all
    cells are full where nothing is known of their `variances`.

    Parameters
    ----------
    before, after : ndarray, (k, d)
        Centres that rows were labelled by, and those that followed.
    variances : ndarray, (k,), optional
        Of each cluster's rows, along an axis.

    Returns
    -------
    ndarray, (k, d)
    """
    n_clusters, n_features = after.shape
    steps = after - before
    if n_clusters == 1:
        return np.zeros(after.shape)
    if n_clusters**2 * n_features > _MOST_PAIRS:
        lengths = np.abs(steps)
        return as_floats(_MOST_MOVED * lengths)
    # From each centre (first axis) to each other (second axis).
    lines = after[None] - after[:, None]
    squares = np.square(lines)
    square_sums = squares.sum(axis=2)
    distances = np.sqrt(square_sums)
    # A centre is no neighbour of itself, nor of one in its place.
    distances[distances == 0.0] = np.inf
    lines /= distances[:, :, None]
    joint_steps = steps[None] + steps[:, None]
    along_lines = joint_steps / 2.0 * lines
    along = along_lines.sum(axis=2)
    followed = along * _followed(distances, variances)
    of_borders = followed[:, :, None] * lines
    shifts = of_borders.sum(axis=1)
    if variances is not None:
        return as_floats(np.abs(shifts))
    # Borders turn, too, and rows leave them sideways.
    aside = _turned(steps, distances)
    return as_floats(np.hypot(shifts, aside))


def _turned(
    steps: FloatArray,
    distances: FloatArray,
) -> FloatArray:
    """Give what a mean follows of steps in any direction, (k, 1).

    Those of a centre and of its nearest neighbour.
    """
    all_squares = np.square(steps)
    squares = all_squares.mean(axis=1)
    nearest = distances.argmin(axis=1)
    of_both = squares + squares[nearest]
    lengths = np.sqrt(of_both / 2.0)
    return as_column(_ASIDE * lengths)


def _followed(
    distances: FloatArray,
    variances: FloatArray | None,
) -> FloatArray:
    """Give the part of a border's step, (k, k), that the mean on one side follows."""
    if variances is None:
        # Only a near neighbour has a border with a cell.
        nearest = distances.min(axis=1, keepdims=True)
        is_near = distances <= 2.0 * nearest
        return np.where(is_near, 0.5, 0.0)
    at_least = np.maximum(variances, GRID**-2.0)
    deviations = as_column(np.sqrt(at_least))
    # Of a normal distribution, at the border halfway between two centres.
    scores = distances / (2.0 * deviations)
    scores = np.minimum(scores, _FARTHEST_BORDER)
    exponents = -0.5 * np.square(scores)
    densities = np.exp(exponents) / _NORMALISER
    steep = _STEEPNESS * scores * densities
    followed = np.minimum(steep, _MOST_MOVED)
    has_border = np.isfinite(distances)
    return np.where(has_border, followed, 0.0)
