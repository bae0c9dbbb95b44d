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
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.grid import GRID, FloatArray, round_to_grid

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
    bounds: tuple[Sequence[float], Sequence[float]],
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
    widths = np.subtract(bounds[1], bounds[0])
    scaled = np.minimum(NORMAL_QUANTILE * deviations, WIDEST)
    return np.asarray(scaled * (widths / WIDEST), dtype=np.float64)


def on_grid(*parts: FloatArray | float) -> FloatArray:
    """Add standard deviations in squares: from a step of the grid to the width of the
    box, on the grid.
    """
    squares = sum(np.square(part) for part in parts)
    deviations = np.nan_to_num(np.sqrt(squares), nan=WIDEST, posinf=WIDEST)
    return round_to_grid(np.clip(deviations, 1.0 / GRID, WIDEST))


# -- noise -----------------------------------------------------------------------------


def are_faint(counts: FloatArray, noise: float) -> NDArray[np.bool_]:
    """Say which clusters, (k,), are not told from noise by their noisy counts."""
    return np.asarray(counts < max(1.0, _FAINT * noise))


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
    rows = np.maximum(counts, 1.0)[:, None]
    deviations = np.hypot(sums_noise, counts_noise * offsets) / rows
    faint = are_faint(counts, counts_noise)
    return np.where(faint[:, None], WIDEST, deviations)


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
        return np.asarray(_MOST_MOVED * np.abs(steps), dtype=np.float64)
    lines = after[None, :, :] - after[:, None, :]
    distances = np.sqrt(np.square(lines).sum(axis=2))
    # A centre is no neighbour of itself, nor of one in its place.
    distances[distances == 0.0] = np.inf
    lines /= distances[:, :, None]
    borders = (steps[None, :, :] + steps[:, None, :]) / 2.0
    along = (borders * lines).sum(axis=2) * _followed(distances, variances)
    shifts = (along[:, :, None] * lines).sum(axis=1)
    # Borders turn, too, and rows leave them sideways.
    aside = _turned(steps, distances) if variances is None else 0.0
    return np.asarray(np.hypot(shifts, aside), dtype=np.float64)


def _turned(steps: FloatArray, distances: FloatArray) -> FloatArray:
    """Give what a mean follows of steps in any direction, (k, 1).

    Those of a centre and of its nearest neighbour.
    """
    lengths = np.square(steps).mean(axis=1)
    nearest = distances.argmin(axis=1)
    both = np.sqrt((lengths + lengths[nearest]) / 2.0)
    return np.asarray(_ASIDE * both[:, None], dtype=np.float64)


def _followed(distances: FloatArray, variances: FloatArray | None) -> FloatArray:
    """Give the part of a border's step, (k, k), that the mean on one side follows."""
    if variances is None:
        # Only a near neighbour has a border with a cell.
        nearest = distances.min(axis=1, keepdims=True)
        return np.where(distances <= 2.0 * nearest, 0.5, 0.0)
    deviations = np.sqrt(np.maximum(variances, GRID**-2.0))[:, None]
    halves = np.minimum(distances / (2.0 * deviations), _FARTHEST_BORDER)
    densities = np.exp(-0.5 * np.square(halves)) / math.sqrt(2.0 * math.pi)
    followed = np.minimum(_STEEPNESS * halves * densities, _MOST_MOVED)
    return np.where(np.isfinite(distances), followed, 0.0)


# -- cut rows --------------------------------------------------------------------------


def unheard_cut(radii: FloatArray, n_features: int) -> FloatArray:
    """Say how far pulling residuals back to their radius may move a mean, (k, 1), where
    nothing of it is released.
    """
    # Columns share what is cut of a residual.
    part = _UNHEARD_CUT / math.sqrt(n_features)
    return np.asarray(part * radii[:, None], dtype=np.float64)


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
    noise = counts_noise * math.sqrt(len(counts))
    missing = n_rows - math.fsum(counts)
    share = max(0.0, missing - noise) / max(n_rows, 1.0)
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
    of_cluster = part * mean_beyond * math.fsum(rows) / rows
    of_cluster = np.minimum(of_cluster, WIDEST)
    lengths = np.linalg.norm(offsets, axis=1, keepdims=True)
    directions = np.abs(offsets) / np.maximum(lengths, 1.0 / GRID)
    directions = np.maximum(directions, _SIDEWAYS / math.sqrt(offsets.shape[1]))
    return np.asarray(of_cluster[:, None] * directions)
