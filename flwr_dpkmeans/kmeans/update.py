"""One Lloyd round: what a client sums, clipping that keeps its bound on the grid, and the next centroids.

Rounding toward zero never increases an L1 or L2 norm: clipped rows and vectors are within the bound, exactly. Clients'
copies of the centroids must be equal bit for bit, so updates are elementwise IEEE arithmetic that ends on the grid, and
the only reduction (the norm of a step) does not depend on the order of summation.

In rounds of refinement residuals are clipped, not dropped: the radius may come from earlier releases, so each is
divided by it before it is sent, the sensitivity is 1 whatever the radius is, and a false radius costs nothing. Their
steps are found by empirical Bayes, which is post-processing: a quotient of noisy sum and count is a poor step where a
cluster is small, so the steps' length is the parameter tau of a prior, learnt from all clusters' sums, and each step is
a posterior mean.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.kmeans.assignment import FloatArray, LabelArray, iterate_assigned_blocks, row_blocks

_GRID = 2.0**16
SHADE = 1.0 - 2.0**-30
"""A norm of 2^24 entries is computed with a relative error of some 2^-37: the shade makes every factor too small."""


@lru_cache(maxsize=64)
def largest_kept_square(radius: float) -> float:
    """The largest float64 that is at most radius^2, radius >= 0: rounding keeps no point beyond the radius."""
    if not radius >= 0.0:
        raise ConfigurationError(
            f"radius is {radius!r}, but it must be at least 0: give a distance in data units, or None to drop no point."
        )
    square = float(radius) * float(radius)
    if math.isfinite(square) and Fraction(square) > Fraction(radius) ** 2:
        square = math.nextafter(square, 0.0)
    return square


def toward_zero(values: npt.ArrayLike) -> FloatArray:
    """Round to multiples of 2^-16 toward zero."""
    rounded: FloatArray = np.trunc(np.asarray(values, dtype=np.float64) * _GRID) / _GRID
    # A negative zero would be a different bit pattern of the same number.
    rounded += 0.0
    return rounded


def clip_rows(points: npt.ArrayLike, radius: float) -> FloatArray:
    """Pull rows (n, d) farther than `radius` from the origin back to the ball, toward zero on the grid, exactly.

    FedDP-KMeans, section 3: every record is clipped to the data radius Delta. Rows inside the ball are unchanged.
    """
    rows = np.asarray(points, dtype=np.float64)
    squares = np.einsum("ij,ij->i", rows, rows)
    # Negated, so that a norm that is not a number is clipped as well.
    far = ~(squares <= largest_kept_square(radius))
    if not far.any():
        return rows
    clipped = rows.copy()
    factors = (radius * SHADE) / np.sqrt(squares[far])
    clipped[far] = toward_zero(rows[far] * factors[:, None])
    return clipped


def clip_factor(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> float:
    """The factor, at most 1, that brings a vector's norm down to `bound`, in L1 or L2 by its `order`."""
    flat = np.ravel(np.asarray(vector, dtype=np.float64))
    norm = float(np.abs(flat).sum()) if order == 1 else math.sqrt(float(flat @ flat))
    # The computed norm may be a little too small, so vectors within the shade of the bound are scaled as well.
    return 1.0 if norm <= bound * SHADE else bound * SHADE * SHADE / norm


def clip_vector(vector: npt.ArrayLike, bound: float, *, order: int = 2) -> FloatArray:
    """Scale a vector of any shape down to a norm of at most `bound`, on the grid (FedDP-KMeans, appendix G.4)."""
    return toward_zero(np.asarray(vector, dtype=np.float64) * clip_factor(vector, bound, order=order))


GRID_BITS = 16
_SATURATION = 16.0
# The relative error of a computed and rescaled norm stays below 2^-50: at most six roundings of 2^-53.
_NORM_SLACK = 2.0**-50
# Below it the clipped coordinates would be subnormal numbers, whose rounding the slack does not cover.
_SMALLEST_RADIUS = 2.0**-1000


class PostProcessing(enum.Enum):
    """What happens to centroids outside the box [-1, 1]^d (FastLloyd, section 5.3.5 and appendix B)."""

    FOLD = "fold"
    TRUNCATE = "truncate"
    NONE = "none"


def round_to_grid(values: npt.ArrayLike, fraction_bits: int = GRID_BITS) -> FloatArray:
    """Round to the nearest multiple of 2^-fraction_bits (0 to 52 of them), halves to the even multiple."""
    if not 0 <= fraction_bits <= 52:
        raise ConfigurationError(
            f"fraction_bits is {fraction_bits!r}, but it must be between 0 and 52: give a number of bits such as 16."
        )
    scale = 2.0**fraction_bits
    rounded: FloatArray = np.rint(np.asarray(values, dtype=np.float64) * scale) / scale
    return rounded


def fold(values: npt.ArrayLike) -> FloatArray:
    """Reflect finite values at the walls -1 and 1 until they lie between them; values inside are unchanged.

    FastLloyd, section 5.3.5. The paper's text takes the remainder modulo 2, which would mirror values that are inside
    already (0.5 to -0.5); the period of a reflection is 4, and that is what its code uses.

    Examples
    --------
    >>> fold([0.5, 1.25, -1.25, 3.5]).tolist()
    [0.5, 0.75, -0.75, -0.5]
    """
    original = np.asarray(values, dtype=np.float64)
    remainder = np.mod(original + 1.0, 4.0)
    reflected = np.where(remainder > 2.0, 4.0 - remainder, remainder) - 1.0
    return np.where(np.abs(original) <= 1.0, original, reflected)


def truncate(values: npt.ArrayLike) -> FloatArray:
    """Move values outside [-1, 1] to the nearer wall."""
    return np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)


def clip_steps(steps: npt.ArrayLike, radius: float) -> FloatArray:
    """Scale every row of steps (k, d) that is longer than the radius, at least 0, down to it, in exact arithmetic.

    FastLloyd, section 5.3.5 ("radius clipping"). Shorter rows come back unchanged. Norms are correctly rounded sums
    (`math.fsum`), hence equal on all machines. Steps that are not finite are a `DataError`.
    """
    if not radius >= 0.0:
        raise ConfigurationError(f"radius is {radius!r}, but it must be at least 0: give a distance in data units.")
    clipped = np.array(steps, dtype=np.float64)
    _check_finite("steps", clipped)
    # Each row over a power of two, so that scaling is exact and squares neither overflow nor vanish.
    exponents = np.frexp(np.max(np.abs(clipped), axis=1, initial=0.0))[1]
    scaled = np.ldexp(clipped, -exponents[:, None])
    with np.errstate(all="ignore"):  # A radius out of range becomes infinity or 0, which compares rightly.
        limits = np.ldexp(radius, -exponents).tolist()
    for row, unit, squares, limit in zip(clipped, scaled, (scaled * scaled).tolist(), limits, strict=True):
        norm = math.sqrt(math.fsum(squares))
        if _is_longer(unit, norm, limit):
            row[:] = unit * ((1.0 - _NORM_SLACK) / norm) * (radius if radius > _SMALLEST_RADIUS else 0.0)
    return clipped


def relative_update(
    centroids: npt.ArrayLike,
    noisy_relative_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    clip_radius: float | None,
    post_processing: PostProcessing,
) -> FloatArray:
    """Move each centroid by its noisy relative sum over its noisy count (FastLloyd, Algorithm 1, lines 18 to 20).

    The count may have any sign. Where it is 0, or so small that the quotient is not finite, the centroid stays. Steps
    are clipped to `clip_radius`, in data units, if there is one; without post-processing, coordinates are saturated at
    -16 and 16, so that scores stay exact in float64.
    """
    current, sums, counts = _checked_inputs(centroids, noisy_relative_sums, noisy_counts)
    steps, _ = _quotients(sums, counts)
    if clip_radius is not None:
        steps = clip_steps(steps, clip_radius)
    return _finish(current + steps, post_processing)


def absolute_update(
    centroids: npt.ArrayLike,
    noisy_sums: npt.ArrayLike,
    noisy_counts: npt.ArrayLike,
    *,
    post_processing: PostProcessing,
) -> FloatArray:
    """Replace each centroid by its noisy sum over its noisy count, as in Lloyd's family; see `relative_update`."""
    current, sums, counts = _checked_inputs(centroids, noisy_sums, noisy_counts)
    quotients, usable = _quotients(sums, counts)
    return _finish(np.where(usable[:, None], quotients, current), post_processing)


def _quotients(sums: FloatArray, counts: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Divide row by row; rows with a non-finite quotient become 0 and are marked as unusable."""
    with np.errstate(all="ignore"):
        quotients = sums / counts[:, None]
    usable = np.isfinite(quotients).all(axis=1) & (counts != 0.0)
    return np.where(usable[:, None], quotients, 0.0), usable


def _finish(values: FloatArray, post_processing: PostProcessing) -> FloatArray:
    """Bring the values into the box, or into the range where the grid is exact, and onto the grid."""
    if post_processing is PostProcessing.FOLD:
        return round_to_grid(fold(values))
    if post_processing is PostProcessing.TRUNCATE:
        return round_to_grid(truncate(values))
    return round_to_grid(np.clip(values, -_SATURATION, _SATURATION))


def _is_longer(row: FloatArray, norm: float, radius: float) -> bool:
    """Compare the exact norm with the radius; `norm` is its float64 approximation."""
    if norm <= radius * (1.0 - _NORM_SLACK):
        return False
    if norm > radius * (1.0 + _NORM_SLACK):
        return True
    return sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0)) > Fraction(radius) ** 2


def _checked_inputs(
    centroids: npt.ArrayLike, sums: npt.ArrayLike, counts: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the three inputs as float64 arrays of shapes that fit each other."""
    arrays = tuple([np.asarray(values, dtype=np.float64) for values in (centroids, sums, counts)])
    current, sum_rows, count_entries = arrays
    if current.ndim != 2 or sum_rows.shape != current.shape or count_entries.shape != current.shape[:1]:
        raise DataError(
            f"the shapes of centroids, sums and counts are {current.shape}, {sum_rows.shape} and "
            f"{count_entries.shape}, but they must be (k, d), (k, d) and (k,): give arrays of one k and one d."
        )
    for name, values in zip(("centroids", "sums", "counts"), arrays, strict=True):
        _check_finite(name, values)
    return current, sum_rows, count_entries


def _check_finite(name: str, values: FloatArray) -> None:
    """Refuse NaN and infinities."""
    if not np.isfinite(values).all():
        raise DataError(f"{name} hold {values[~np.isfinite(values)][0]}, but every value must be finite: remove it.")


# -- what a client sums, exactly on the grid for up to 10^11 points ----------------------------------------------------

# Up to so many entries a matrix of zeros and ones costs less than a sparse one.
_SMALL_MATRIX = 1 << 14
# Up to here one pass per feature costs less than setting up a sparse matrix.
_FEW_FEATURES = 4
# From here on adding a row costs more than a turn of a loop.
_WIDE = 1 << 12


def relative_statistics(
    points: npt.ArrayLike, centroids: npt.ArrayLike, radius: float | None
) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster relative to its centroid, without those beyond the radius.

    FastLloyd, Algorithm 1, lines 6 to 13. A point is assigned to its nearest centroid (ties: the lowest index) and
    dropped when its distance is greater than `radius`, if there is one. Adding or removing one point therefore changes
    one row of the sums by a vector of norm at most `radius`, without slack on the grid, and one count by 1.
    """
    centroids = np.asarray(centroids, dtype=np.float64)
    sums, counts = _summed(points, centroids, None if radius is None else largest_kept_square(radius))
    return sums - counts[:, None] * centroids, counts


def absolute_statistics(points: npt.ArrayLike, centroids: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Sum (k, d) and count (k,) the points of each cluster, on the grid, as plain Lloyd, SuLloyd and GLloyd do."""
    return _summed(points, np.asarray(centroids, dtype=np.float64), None)


def _summed(
    points: npt.ArrayLike, centroids: FloatArray, largest_square: float | None
) -> tuple[FloatArray, FloatArray]:
    """Sum the kept points of every block; a dropped point goes to an extra row, which is cut off."""
    n_rows = len(centroids) + 1
    sums = np.zeros((n_rows, *centroids.shape[1:]))
    counts = np.zeros(n_rows)
    for block in iterate_assigned_blocks(points, centroids):
        labels = block.labels
        if largest_square is not None:
            # Negated, so that a distance that is not a number drops its point as well.
            labels[~(block.squared_distances() <= largest_square)] = len(centroids)
        add_by_label(sums, block.points, labels)
        counts += np.bincount(labels, minlength=n_rows)
    return sums[:-1], counts[:-1]


def add_by_label(sums: FloatArray, points: FloatArray, labels: LabelArray) -> None:
    """Add points (n, d) to the rows of `sums` with their labels, in place."""
    if points.shape[1] < _WIDE:
        sums += sum_by_label(points, labels, len(sums))
        return
    # A block has few of such rows: a table of their sums alone would be as large as all sums, for each block.
    for label, row in zip(labels.tolist(), points, strict=True):
        sums[label] += row


def sum_by_label(points: FloatArray, labels: LabelArray, n_rows: int) -> FloatArray:
    """Sum the points (n, d) with each label below `n_rows`; exact on the grid, so that their order does not matter."""
    n_points, n_features = points.shape
    if n_features <= _FEW_FEATURES:
        columns = [np.bincount(labels, weights=points[:, j], minlength=n_rows) for j in range(n_features)]
        return np.stack(columns, axis=1) if columns else np.zeros((n_rows, 0))
    if n_rows * n_points <= _SMALL_MATRIX:
        chosen = (labels == np.arange(n_rows)[:, None]).astype(np.float64)
        return np.asarray(chosen @ points, dtype=np.float64)
    from scipy.sparse import csc_array

    # A sparse matrix with one entry per column: column i says in which row point i is summed.
    starts = np.arange(n_points + 1, dtype=np.int32)
    sums: FloatArray = csc_array((np.ones(n_points), labels, starts), shape=(n_rows, n_points)) @ points
    return sums


# -- residuals, and steps that are made of them -----------------------------------------------------------------------

_LEAST_RADIUS = 2.0**-16
_FARTHEST = 1e3
"""Counts are that many standard deviations of their noise below zero at most."""
_TAUS = 2.0 ** np.arange(-20, 3)
"""Variances of a step, in variances of the data along an axis, from a thousandth to four."""


@dataclass(frozen=True)
class ResidualSums:
    """What one client sums over its rows."""

    sums: FloatArray = field(repr=False)
    """(k, d), of clipped residuals, in radii; one row adds a vector of Euclidean norm at most 1 to one row of it."""
    counts: FloatArray = field(repr=False)
    """(k,), of all rows of each cluster, clipped or not."""
    squares: FloatArray = field(repr=False)
    """(1,), of the clipped residuals, in squared radii; one row adds at most 1."""


def unit_residuals(residuals: FloatArray, radius: float) -> FloatArray:
    """Divide residuals (n, d) by the radius, at least 2^-16, and pull those beyond it back to length 1, on the grid.

    Rounding is toward zero: every row that is returned has a norm of at most 1, whatever the radius is.
    """
    at_least = radius if radius > _LEAST_RADIUS else _LEAST_RADIUS
    norms = np.sqrt(np.einsum("ij,ij->i", residuals, residuals))
    # Maximum, so that a norm that is not a number gives a row that is refused later rather than a long one.
    factors = SHADE / np.maximum(norms, at_least)
    return toward_zero(residuals * factors[:, None])


def residual_sums(
    points: FloatArray, labels: LabelArray, centers: FloatArray, radius: float, n: int, *, drop: bool = False
) -> ResidualSums:
    """Sum the clipped residuals of points on the grid, count them and sum their squares, cluster by cluster.

    The result has `n` rows, those beyond the 1 to `n` centers (else `DataError`) being 0. A label beyond the centers
    counts as the last: an error would depend on the rows. `drop` leaves rows beyond the radius out of all three sums,
    as FastLloyd does, instead of pulling them back.
    """
    n_features = points.shape[1]
    if not 1 <= len(centers) <= n:
        raise DataError(f"there are {len(centers)} centers, but there must be from 1 to {n}: give as many as planned.")
    sums, counts, squares = np.zeros((n, n_features)), np.zeros(n), 0.0
    for rows in row_blocks(len(points), n_features):
        own = np.minimum(labels[rows], len(centers) - 1)
        residuals = points[rows] - centers[own]
        if drop:
            kept = np.einsum("ij,ij->i", residuals, residuals) <= radius**2
            residuals, own = residuals[kept], own[kept]
        units = unit_residuals(residuals, radius)
        add_by_label(sums, units, own)
        counts += np.bincount(own, minlength=n)
        # Row by row on the grid, so that one row's part does not depend on the others.
        squares += float(toward_zero(np.einsum("ij,ij->i", units, units)).sum())
    return ResidualSums(sums, counts, np.array([squares]))


def next_radius(
    radius: float, mean_square: float, noise: float, *, width: float, prior_variance: float, floor: float
) -> float:
    """Choose a radius for the next round from the private mean square, in squared radii, of the last one's residuals.

    The estimate, with `noise` as its standard deviation, is averaged, by precision, with the prior that the radius is
    right already; it never grows, because residuals beyond it are not seen. `width`, at least 1, is the radius over
    root mean square that is aimed at; `floor` is the smallest part of the radius that is returned.
    """
    prior = 1.0 / width**2
    estimate = (max(mean_square, 0.0) * prior_variance + prior * noise**2) / (prior_variance + noise**2)
    return radius * min(1.0, max(width * math.sqrt(estimate), floor))


def likely_counts(noisy_counts: npt.ArrayLike, noise: float) -> FloatArray:
    """Estimate counts, which are not negative, from noisy ones: posterior means under a flat prior, at least 1."""
    from scipy.special import log_ndtr

    counts = np.asarray(noisy_counts, dtype=np.float64)
    # Beyond that no noise goes, and the two exponents below would cancel.
    z = np.clip(counts / noise, -_FARTHEST, _FARTHEST)
    # The mean of a normal variable that is known to be positive exceeds its location by the inverse Mills ratio.
    mills = np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_ndtr(z))
    return np.asarray(np.maximum(1.0, np.maximum(counts, -_FARTHEST * noise) + noise * mills), dtype=np.float64)


def shrunk_steps(
    sums: FloatArray,
    noisy_counts: npt.ArrayLike,
    *,
    sums_noise: float,
    counts_noise: float,
    axis_variance: float,
    least_tau: float,
    radius: float,
) -> FloatArray:
    """Posterior mean of every centroid's step, (k, d), at most `radius` long, from noisy relative sums.

    Model: the step of cluster j is N(0, tau v I), v being the `axis_variance` of the data; the released sum is its
    count times the step plus N(0, s^2 I). The prior of tau, on a grid of powers of two from `least_tau` on, is
    proportional to tau; `least_tau` is large in early rounds, when centroids still have far to go.
    """
    counts = likely_counts(noisy_counts, counts_noise)
    n_features = sums.shape[1]
    taus = _TAUS[min(least_tau, _TAUS[-1]) <= _TAUS]
    # (n_taus, n_clusters): variance of a sum's entry, and the factor that turns a sum into a posterior mean.
    variances = counts**2 * (taus[:, None] * axis_variance) + sums_noise**2
    gains = taus[:, None] * axis_variance * counts / variances
    squares = np.einsum("ij,ij->i", sums, sums)
    evidence = np.log(taus) - 0.5 * (n_features * np.log(variances) + squares / variances).sum(axis=1)
    weights = np.exp(evidence - evidence.max())
    gain = (weights[:, None] * gains).sum(axis=0) / weights.sum()
    return clip_steps(sums * gain[:, None], radius)
