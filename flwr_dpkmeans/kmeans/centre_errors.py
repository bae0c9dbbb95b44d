"""How far a centre may be from the exact mean of the rows that it labels.

Numbers that follow from releases alone.

Three parts add up in squares, as standard deviations of each coordinate: noise in the
last released sums and counts, rows that these sums cut, and rows whose label changed
when the centres moved for the last time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.kernels.grid import GRID, FloatArray, Mask, round_to_grid
from flwr_dpkmeans.kernels.vectors import as_column, as_floats

_Bounds = tuple[Sequence[float], Sequence[float]]

NORMAL_QUANTILE = 1.959963984540054
"""Half-width of a 95% interval, in standard deviations."""
WIDEST = 2.0
"""Width of the box: no coordinate is farther off."""
_FAINT = (
    2.0  # a count below so many standard deviations of its noise says nothing of a mean
)

# Moved labels.
# density at a cell's border over that of a normal distribution of the cell's variance
_STEEPNESS = 3.0
# part of a border's step that a mean follows at most: half of a normal distribution
_MOST_MOVED = 0.65
_ASIDE = 0.5  # part of a step in any direction that a mean follows where cells are full
_FARTHEST_BORDER = 30.0  # standard deviations of rows from their centre to a border
_MOST_PAIRS = 1 << 24  # numbers in a table of all pairs of centres

# Cut rows.
# what pulling residuals back moves a mean by, in radii, where nothing of it is released
_UNHEARD_CUT = 0.5
_BEYOND = 1.5  # distance of rows that were left out, in radii
_LIKELY_PULLED = 0.75  # part of what is cut that one of several clusters has
_SIDEWAYS = 0.5  # of what is cut, along axes that a cluster does not lie on


def half_widths(
    deviations: FloatArray | None,
    bounds: _Bounds,
    shape: tuple[int, ...],
) -> FloatArray:
    """Give half-widths of 95% intervals in the units of the bounds, (k, d).

    Parameters
    ----------
    deviations : ndarray, (k, d), or None
        Standard deviations in the box; None: nothing is known, which is infinity.
    bounds : pair of sequences
        Lower and upper bounds of the columns.
    shape : tuple
        (k, d).

    Returns
    -------
    ndarray, (k, d)
        At most the width of the bounds.
    """
    if deviations is None:
        return np.full(shape, np.inf)
    lower, upper = bounds
    widths = np.subtract(upper, lower)
    scaled = np.minimum(NORMAL_QUANTILE * deviations, WIDEST)
    units = widths / WIDEST
    return as_floats(scaled * units)


def on_grid(*parts: FloatArray | float) -> FloatArray:
    """Add standard deviations in squares: from a step of the grid to the width of the
    box, on the grid.
    """
    squares = sum(map(np.square, parts))
    roots = np.sqrt(squares)
    deviations = np.nan_to_num(roots, nan=WIDEST, posinf=WIDEST)
    narrowest = 1.0 / GRID
    clipped = np.clip(deviations, narrowest, WIDEST)
    return round_to_grid(clipped)


# -- noise -----------------------------------------------------------------------------


def are_faint(counts: FloatArray, noise: float) -> Mask:
    """Say which clusters, (k,), are not told from noise by their noisy counts."""
    least = max(1.0, _FAINT * noise)
    return np.asarray(counts < least)


def quotient_deviations(
    offsets: FloatArray,
    counts: FloatArray,
    sums_noise: float,
    counts_noise: float,
) -> FloatArray:
    """Give the deviation of a noisy sum over a noisy count, to first order.

    Parameters
    ----------
    offsets : ndarray, (k, d)
        Means from the point that the sums are relative to.
    counts : ndarray, (k,)
        Noisy counts.
    sums_noise, counts_noise : float
        Standard deviations of the noise.

    Returns
    -------
    ndarray, (k, d)
        The box's width where a count is not told from its noise.
    """
    rows = np.maximum(counts, 1.0)
    of_counts = counts_noise * offsets
    of_quotients = np.hypot(sums_noise, of_counts)
    deviations = of_quotients / as_column(rows)
    deviations[are_faint(counts, counts_noise)] = WIDEST
    return deviations


# -- moved labels ----------------------------------------------------------------------


def moved_labels(
    before: FloatArray,
    after: FloatArray,
    variances: FloatArray | None = None,
) -> FloatArray:
    """Estimate by how much means follow the centres' last step, as rows at borders
    change their labels.

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
    distances = np.sqrt(squares.sum(axis=2))
    # A centre is no neighbour of itself, nor of one in its place.
    distances[distances == 0.0] = np.inf
    lines /= distances[:, :, None]
    border_steps = (steps[None] + steps[:, None]) / 2.0
    along = (border_steps * lines).sum(axis=2)
    followed = along * _followed(distances, variances)
    shifts = (followed[:, :, None] * lines).sum(axis=1)
    if variances is not None:
        return as_floats(np.abs(shifts))
    # Borders turn, too, and rows leave them sideways.
    aside = _turned(steps, distances)
    return as_floats(np.hypot(shifts, aside))


def _turned(steps: FloatArray, distances: FloatArray) -> FloatArray:
    """Give what a mean follows of steps in any direction, (k, 1).

    Those of a centre and of its nearest neighbour.
    """
    squares = np.square(steps).mean(axis=1)
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
    densities = np.exp(exponents) / math.sqrt(2.0 * math.pi)
    steep = _STEEPNESS * scores * densities
    followed = np.minimum(steep, _MOST_MOVED)
    return np.where(np.isfinite(distances), followed, 0.0)


# -- cut rows --------------------------------------------------------------------------


def unheard_cut(radii: FloatArray, n_features: int) -> FloatArray:
    """Say how far pulling residuals back to their radius may move a mean, (k, 1), where
    nothing of it is released.
    """
    # Columns share what is cut of a residual.
    part = _UNHEARD_CUT / math.sqrt(n_features)
    return as_column(part * radii)


def dropped_rows(
    counts: FloatArray,
    counts_noise: float,
    n_rows: float,
    radius: float,
) -> float:
    """Estimate how far rows beyond the radius, which are in no sum and no count, would
    move a mean.

    They are what the counts lack of all rows.
    """
    n_clusters = len(counts)
    noise = counts_noise * math.sqrt(n_clusters)
    missing = n_rows - math.fsum(counts)
    surely_missing = max(0.0, missing - noise)
    share = surely_missing / max(n_rows, 1.0)
    return _BEYOND * radius * min(share, 1.0)


def pulled_rows(
    offsets: FloatArray,
    counts: FloatArray,
    mean_beyond: float,
) -> FloatArray:
    """Say how far pulling rows back to a ball around a common point may move the means
    of clusters, (k, d), where nothing of it is released.

    Rows beyond it are in few clusters, nobody knows in which, and lie mostly where a
    cluster's centre lies from the ball's.

    Parameters
    ----------
    offsets : ndarray, (k, d)
        Centres, from the ball's.
    counts : ndarray, (k,)
        Noisy counts of rows.
    mean_beyond : float
        What rows, or points like them, have beyond the ball on average.

    Returns
    -------
    ndarray, (k, d)
    """
    rows = np.maximum(counts, 1.0)
    part = _LIKELY_PULLED if len(offsets) > 1 else 1.0
    n_features = offsets.shape[1]
    of_all = part * mean_beyond * math.fsum(rows)
    of_cluster = np.minimum(of_all / rows, WIDEST)
    lengths = np.linalg.norm(offsets, axis=1, keepdims=True)
    at_least = np.maximum(lengths, 1.0 / GRID)
    directions = np.abs(offsets) / at_least
    sideways = _SIDEWAYS / math.sqrt(n_features)
    directions = np.maximum(directions, sideways)
    return as_floats(as_column(of_cluster) * directions)
