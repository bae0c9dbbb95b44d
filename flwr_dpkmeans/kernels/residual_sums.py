"""What a client sums in a round of refinement.

Residuals are clipped, not dropped: the radius may come from earlier releases, so each
is divided by it before it is sent, the sensitivity is 1 whatever the radius is, and a
false radius costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels import blocks, compiled
from flwr_dpkmeans.kernels.blocks import row_blocks
from flwr_dpkmeans.kernels.clipping import SHADE
from flwr_dpkmeans.kernels.grid import GRID, FloatArray, LabelArray
from flwr_dpkmeans.kernels.label_sums import add_by_label

SMALLEST_RADIUS = 2.0**-16
"""Shorter radii count as this one, also where what lies beyond is summed."""


@dataclass(frozen=True)
class ResidualSums:
    """What one client sums over its rows."""

    sums: FloatArray = field(repr=False)
    """(k, d), of clipped residuals, in radii.

    One row adds a vector of Euclidean norm at most 1 to one row of it.
    """
    counts: FloatArray = field(repr=False)
    """(k,), of all rows of each cluster, clipped or not."""
    squares: FloatArray = field(repr=False)
    """(k,), of the clipped residuals, in squared radii.

    One row adds at most 1 to one entry.
    """


def unit_residuals(residuals: FloatArray, radius: float) -> FloatArray:
    """Divide residuals (n, d) by the radius and pull those beyond it back to length 1.

    On the grid, with a radius of at least 2^-16. Rounding is toward zero: every row
    that is returned has a norm of at most 1, whatever the radius is.
    """
    at_least = float(np.fmax(radius, SMALLEST_RADIUS))
    outcome = compiled.unit_residuals(residuals, at_least)
    if outcome is not None:
        return outcome
    units = residuals.copy()
    scratch = np.empty(units.shape)
    _divide(units, radius, scratch)
    # A negative zero would be a different bit pattern of the same number.
    return units / GRID + 0.0


@dataclass(frozen=True)
class UnitResiduals:
    """What outer products are summed of: residuals from a centre, divided and pulled.

    See `unit_residuals`.
    """

    centre: FloatArray = field(repr=False)
    """(d,), on the grid."""
    radius: float

    @property
    def at_least(self) -> float:
        """The radius that residuals are divided by."""
        return float(np.fmax(self.radius, SMALLEST_RADIUS))

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Unit residuals of rows (n, d)."""
        return unit_residuals(rows - self.centre, self.radius)


def _divide(
    residuals: FloatArray,
    radius: float | FloatArray,
    scratch: FloatArray,
) -> FloatArray:
    """Turn residuals (n, d) into unit residuals in whole steps of the grid, in place.

    Returns their squared lengths (n,), from before.
    """
    ones = np.ones(residuals.shape[1])
    np.square(residuals, out=scratch)
    squares: FloatArray = scratch @ ones
    at_least = np.fmax(radius, SMALLEST_RADIUS)
    # Maximum, so that a norm that is not a number gives a row that is refused later
    # rather than a long one; a power of two changes no digit of the product.
    lengths = np.maximum(np.sqrt(squares), at_least)
    factors = SHADE / lengths * GRID
    common = SHADE / at_least * GRID
    far = np.flatnonzero(factors != common)
    are_many = 4 * len(far) > len(factors)
    if np.ndim(radius) or are_many:
        residuals *= factors[:, None]
    else:
        # One number for all is twice as fast as one for each row.
        pulled = residuals[far] * factors[far, None]
        residuals *= common
        residuals[far] = pulled
    np.trunc(residuals, out=residuals)
    return squares


def residual_sums(
    rows: FloatArray,
    labels: LabelArray,
    centers: FloatArray,
    radius: float | FloatArray,
    n_rows: int,
    *,
    weights: FloatArray | None = None,
    drop: bool = False,
) -> ResidualSums:
    """Sum the clipped residuals of points on the grid, cluster by cluster.

    Counts the points and sums their squares, too. The result has `n_rows` rows, those
    beyond the 1 to `n_rows` centers (else `DataError`) being 0. A label beyond the
    centers counts as the last: an error would depend on the rows. There is one radius,
    or one for each center. `drop` leaves rows beyond the radius out of all three sums,
    as FastLloyd does, instead of pulling them back.

    Weights (n,) in [0, 1] are multiples of 2^-16; without any, each is 1. What a row
    adds to each sum is multiplied by its weight, toward zero.
    """
    n_centers = len(centers)
    if not 1 <= n_centers <= n_rows:
        raise DataError(
            f"there are {n_centers} centers, but there must be from 1 to {n_rows}:"
            " give as many as planned."
        )
    # NumPy takes one radius for each center or for all; the others are not looked at.
    radii = np.broadcast_to(radius, max(n_centers, np.size(radius)))[:n_centers]
    outcome = compiled.residual_sums(
        rows,
        labels,
        weights,
        centers,
        np.fmax(radii, SMALLEST_RADIUS),
        np.square(radii) if drop else None,
    )
    if outcome is None:
        outcome = _sums_by_numpy(rows, labels, weights, centers, radii, drop=drop)
    sums, counts, squares = outcome
    n_missing = n_rows - n_centers
    if n_missing == 0:
        return ResidualSums(sums, counts, squares)
    return ResidualSums(
        np.pad(sums, ((0, n_missing), (0, 0))),
        np.pad(counts, (0, n_missing)),
        np.pad(squares, (0, n_missing)),
    )


def _sums_by_numpy(
    rows: FloatArray,
    labels: LabelArray,
    weights: FloatArray | None,
    centers: FloatArray,
    radii: FloatArray,
    *,
    drop: bool,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The same of the centers alone: sums, counts and squares."""
    n_features = rows.shape[1]
    n_rows = n_centers = len(centers)
    radius: float | FloatArray = radii
    if (radii == radii[0]).all():
        radius = float(radii[0])
    sums = np.zeros((n_rows, n_features))
    counts = np.zeros(n_rows)
    squares = np.zeros(n_rows)
    ones = np.ones(n_features)
    # Written again by each block: fresh pages cost as much as a step.
    fitting = blocks.block_length(4 * n_features)
    height = min(len(rows), fitting)
    all_steps = np.empty((height, n_features))
    all_scratch = np.empty((height, n_features))
    for part in row_blocks(len(rows), 4 * n_features):
        clusters = np.minimum(labels[part], n_centers - 1)
        steps = all_steps[: len(clusters)]
        scratch = all_scratch[: len(clusters)]
        np.take(
            centers,
            clusters,
            axis=0,
            out=steps,
            mode="clip",
        )
        np.subtract(rows[part], steps, out=steps)
        bound = radius[clusters] if isinstance(radius, np.ndarray) else radius
        lengths = _divide(steps, bound, scratch)
        if drop:
            inside = lengths <= np.square(bound)
            steps = steps[inside]
            clusters = clusters[inside]
        # Row by row on the grid, so that one row's part does not depend on the others.
        step_squares = np.square(steps, out=scratch[: len(steps)])
        lengths = step_squares @ ones
        on_grid = np.trunc(lengths / GRID)
        of_rows = None if weights is None else weights[part]
        if of_rows is not None:
            if drop:
                of_rows = of_rows[inside]
            steps = np.trunc(steps * of_rows[:, None])
            on_grid = np.trunc(on_grid * of_rows)
        add_by_label(sums, steps, clusters)
        counts += np.bincount(clusters, of_rows, n_rows)
        squares += np.bincount(clusters, on_grid, n_rows)
    return sums / GRID, counts, squares / GRID
