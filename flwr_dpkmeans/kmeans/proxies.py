"""Where proxies lie: many more points than clusters, spread over a private ellipsoid,
weighted by noisy counts.

The ellipsoid comes from a noisy mean and covariance; nothing here sees private rows.
Samples and proxies are on the grid, so that distances and sums are exact and all
machines choose the same ones; see also `eigen`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kernels import blocks
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, Mask, round_to_grid
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.kernels.vectors import as_column, as_floats, squared_lengths
from flwr_dpkmeans.kmeans.eigenvectors import eigenpairs, product
from flwr_dpkmeans.kmeans.public_points import plus_plus
from flwr_dpkmeans.kmeans.ranges.thresholds import exceeded_among

PRIOR_VARIANCE = 0.2
"""Of a column in the box [-1, 1], before anything is known.

Between a uniform column (1/3) and a peaked one.
"""
_LEAST_VARIANCE = 2.0**-28
_MOST_VARIANCE = 1.0
PRIOR_SPREAD = 0.75
"""Standard deviation of what is expected before anything is known, in its own size."""
_LEAST_PART = 0.3
"""Part of its standard deviation that a variance is at least, as it is not below 0."""
_FARTHEST_CENTRE = 0.95
_LEAST_AXIS = 0.1
_LEAST_EIGENVALUE = 0.02
_RELATIVE_GRID = 2.0**16
SAMPLES_PER_PROXY = 10
_LEAST_SAMPLES = 2000
_LLOYD_STEPS = 8
_DEPTH = 0.5
_CUBE_SHARE = 0.3
_CELLS_PER_AXIS = 4
_MOST_DISTANCES = 1 << 28
_MOST_SAMPLED_VALUES = 1 << 24
N_DISTANCES = 28
"""Bins of a histogram of squared distances, each half as wide as the next.

Down to a few steps of the grid.
"""
MIDDLE_OF_BIN = math.sqrt(0.5)
"""Squared distance in the middle of a bin, in that of its edge."""
_BIN_SHARES = (0.25, 0.5, 0.25)
BIN_ERROR = 0.15
"""Relative standard deviation of a mean square that a histogram of such bins tells."""
_FARTHEST_SCORE = 30.0
_HEARD_FALSELY = 0.002
_NEIGHBOUR = 2.5
"""Radii within which a neighbour lies."""
_SCORE_STEP = 0.125
_SIZE_STEP = 0.125  # octaves
_SURELY_MISSING = 0.7
_FARTHEST_STEP = 48
_EMPTY_TO_FULL = 2.0 ** np.arange(-6.0, 10.5, 0.5)
_FULL_SHARES = 1.0 / (1.0 + _EMPTY_TO_FULL)
"""Shares of proxies with rows that are looked at: from nearly all to one in a thousand.
"""
_TINY = 1e-300
_Bins = npt.NDArray[np.int64]
LEAST_CLUSTER = 2.0
"""Rows, or clients, of a cluster: the center of a single one would be that row."""


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
    """Pull a noisy mean (d,) toward the middle of the box, by how much of its length
    noise explains; on the grid.
    """
    squares = np.square(noisy_mean)
    factor = signal_share(float(squares.mean()), noise)
    pulled = noisy_mean * factor
    clipped = np.clip(pulled, -_FARTHEST_CENTRE, _FARTHEST_CENTRE)
    return round_to_grid(clipped)


def signal_share(square: float, noise: float) -> float:
    """Part of a mean square that `noise`, a standard deviation, does not explain.

    0 if it explains all.
    """
    of_noise = noise**2
    signal = square - of_noise
    if signal > 0.0:
        return signal / (signal + of_noise)
    return 0.0


def axis_variance(
    noisy_square: float,
    noise: float,
    offset: FloatArray,
    error: float,
    prior: float,
    prior_variance: float,
) -> tuple[float, float]:
    """Variance along an axis, on average, from the noisy mean of |x|^2 with noise of
    standard deviation `noise`.

    `offset` is where x has its mean, with noise `error` on each entry. Averaged, by
    precision, with what was known before; and at least a part of its own standard
    deviation: else noise would put all clusters into one place. Also returns the square
    of that standard deviation.
    """
    n_features = len(offset)
    squares = math.fsum(np.square(offset))
    measured = (noisy_square - squares) / n_features
    # Of the square of the centre's distance, noise in the centre is a part, too.
    of_centre = 2.0 * error * math.sqrt(squares)
    deviation = math.hypot(noise, of_centre) / n_features
    averaged, remaining = by_precision(
        measured,
        deviation**2,
        prior,
        prior_variance,
    )
    least = _LEAST_PART * math.sqrt(remaining)
    variance = max(averaged, least, _LEAST_VARIANCE)
    return float(min(variance, _MOST_VARIANCE)), remaining


def by_precision(
    first: float,
    first_variance: float,
    second: float,
    second_variance: float,
) -> tuple[float, float]:
    """Average two estimates of one number by precision: the average, and its variance."""
    both = first_variance + second_variance
    weighted = first * second_variance + second * first_variance
    variance = first_variance * second_variance / both
    return weighted / both, variance


def squared_edges(n_features: int) -> FloatArray:
    """Largest squared distance in each bin of a histogram.

    Halves, exactly, of the box's squared diagonal.
    """
    squared_diagonal = 4.0 * n_features
    halvings = np.arange(N_DISTANCES)
    return np.ldexp(squared_diagonal, -halvings)


def distance_counts(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Count points (n, d) by their squared distance from a centre.

    Each is in one bin, the farthest in the first.

    All that is nearer than the last bin's edge is in the last bin. On the grid squares
    are exact, so that a row's bin is a function of that row alone.
    """
    bins = distance_bins(points, centre)
    counts = np.bincount(bins, minlength=N_DISTANCES)
    return as_floats(counts)


def distance_bins(points: FloatArray, centre: FloatArray) -> _Bins:
    """Bins of points (n, d), (n,), by their squared distance from a centre."""
    squares = squared_lengths(points - centre)
    edges = squared_edges(points.shape[1])
    rising = edges[::-1]
    n_nearer = np.searchsorted(rising, squares)
    bins = N_DISTANCES - 1 - n_nearer
    return np.asarray(np.maximum(bins, 0), np.int64)


def farthest_heard(scores: FloatArray, threshold: float) -> int:
    """Index of the farthest bin that stands out of the noise, alone or together with
    its neighbours; 0 if none does.

    `scores` are noisy counts in standard deviations of their noise, the farthest first.
    A few rows in several bins are heard together: 2, and 4, are looked at outside of
    what fewer have shown.
    """
    n_bins = len(scores)
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    farthest = n_bins
    for width in (1, 2, 4):
        windows = sums[width:] - sums[:-width]
        n_outside = max(0, farthest - width + 1)
        least = threshold * math.sqrt(width)
        standing_out = np.flatnonzero(windows[:n_outside] > least)
        if standing_out.size:
            farthest = int(standing_out[0])
    return 0 if farthest == n_bins else farthest


def farther_if_likelier(
    first: int,
    counts: FloatArray,
    noise: FloatArray,
    n: float,
) -> int:
    """The bin `first`, or a farther one where n rows are likelier to begin than
    anywhere from about there on.

    Rows are taken to lie in three bins, a quarter, a half and a quarter of them. Few
    rows may not be heard where they are, and noise is then heard in some bin near the
    centre.
    """
    n_beside = len(_BIN_SHARES) - 1
    n_starts = len(counts) - n_beside
    logs = np.zeros(n_starts)
    for offset, share in enumerate(_BIN_SHARES):
        bins = slice(offset, offset + n_starts)
        rows = share * n
        variances = np.square(noise[bins])
        # Log likelihood of so many rows over that of none.
        logs += (counts[bins] - 0.5 * rows) * rows / variances
    likeliest = int(logs.argmax())
    is_farther = likeliest < first - n_beside
    return likeliest if is_farther else first


def binned_square(
    counts: FloatArray,
    noise: FloatArray,
    edges: FloatArray,
    n: float,
) -> tuple[float, float]:
    """Mean squared distance of n points, and its standard deviation, from noisy counts
    by squared distance.
    """
    middles = edges * MIDDLE_OF_BIN
    square = math.fsum(counts * middles) / n
    variances = np.square(noise * middles)
    of_noise = math.sqrt(math.fsum(variances)) / n
    of_bins = BIN_ERROR * square
    return square, math.hypot(of_noise, of_bins)


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
    factor = signal_share(float(diagonal.var()), noise)
    scatter = diagonal - diagonal.mean()
    of_columns = np.clip(
        variance + scatter * factor,
        _LEAST_AXIS * variance,
        _MOST_VARIANCE,
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
    lengths = lengths * (trace / float(lengths.sum()))
    # Single precision: last digits of the noise's scale are gone, and those of a small
    # table are kept.
    single = np.maximum(lengths, _LEAST_VARIANCE).astype(np.float32)
    return Ellipsoid(as_floats(single), round_to_grid(axes) + 0.0)


def _shrunk_beside_diagonal(matrix: FloatArray, noise: float) -> FloatArray:
    """What stands out of the noise's semicircle, without the diagonal."""
    n_features = len(matrix)
    diagonal = np.diag(matrix)
    eigenvalues, eigenvectors = eigenpairs(matrix - np.diag(diagonal))
    edge = noise * math.sqrt(n_features / 2.0)
    squares = np.maximum(eigenvalues**2 - edge**2, 0.0)
    shrunk = np.sign(eigenvalues) * np.sqrt(squares)
    transposed = np.ascontiguousarray(eigenvectors.T)
    return product(eigenvectors * shrunk, transposed)


def _all_lengths(leading: FloatArray, relative: FloatArray) -> FloatArray:
    """Eigenvalues, and behind them equal ones for the axes that a wide table has no
    vectors of.
    """
    n_features = len(relative)
    missing = n_features - len(leading)
    total = n_features + float(np.trace(relative))
    rest = total - float(leading.sum())
    equal_ones = np.full(missing, rest / max(1, missing))
    return np.concatenate([leading, equal_ones])


def tessellation(
    samples: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Choose proxies, on the grid, as a centroidal Voronoi tessellation of samples (n,
    d): k-means++, then Lloyd steps.

    Above some 5,000 proxies, by chance: nobody would wait. Fewer samples than proxies
    are a `DataError`.
    """
    if len(samples) < n_proxies:
        raise DataError(
            f"there are {len(samples)} samples, but {n_proxies} proxies need at least"
            " as many: draw more."
        )
    rounded = round_to_grid(samples)
    n_samples = len(rounded)
    if n_samples * n_proxies > _MOST_DISTANCES:
        chosen = generator.choice(n_samples, size=n_proxies, replace=False)
        return rounded[chosen]
    chosen = plus_plus(
        rounded,
        np.ones(n_samples),
        n_proxies,
        generator,
    )
    proxies = rounded[chosen]
    for _ in range(_LLOYD_STEPS):
        proxies = at_means(proxies, rounded)
    return proxies


def cell_radii(samples: FloatArray, proxies: FloatArray) -> FloatArray:
    """Distance of each proxy's farthest sample, on the grid.

    Rows of its cell lie no farther away.
    """
    labels, squares = nearest_centroids(samples, proxies)
    radii = np.zeros(len(proxies))
    np.maximum.at(radii, labels, np.sqrt(squares))
    return round_to_grid(radii)


def at_means(proxies: FloatArray, points: FloatArray) -> FloatArray:
    """Move each proxy to the mean, on the grid, of the points (n, d) that it is nearest
    to, where there are any.
    """
    labels = nearest_centroids(points, proxies)[0]
    n_proxies = len(proxies)
    counts = np.bincount(labels, minlength=n_proxies)[:, None]
    sums = sum_by_label(points, labels, n_proxies)
    means = sums / np.maximum(counts, 1)
    has_points = counts > 0
    return np.where(has_points, round_to_grid(means), proxies)


def box_samples(
    centre: FloatArray,
    variances: FloatArray,
    axes: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
    *,
    cover: float | None,
) -> FloatArray:
    """Draw points from the parallelepiped of the private covariance, cut to the box
    [-1, 1]^d.

    `variances` (d,) and `axes` (d, n_axes) are those of an `Ellipsoid`. `cover` draws
    three tenths uniformly from the part of the box so far from the centre along every
    column: what the ellipsoid misses, above all in corners.
    """
    n_samples = sample_size(n_proxies, len(centre))
    n_axes = axes.shape[1]
    uniform = generator.uniform(-1.0, 1.0, (n_samples, n_axes))
    # A uniform variable on [-1, 1] has the variance 1/3. Products of grid values add up
    # exactly.
    extents = np.sqrt(3.0 * variances[:n_axes])
    along = round_to_grid(uniform * extents)
    points = centre + along @ axes.T
    samples = np.clip(points, -1.0, 1.0)
    if cover is not None:
        n_cover = int(_CUBE_SHARE * n_samples)
        halves = np.full((n_cover, 1), cover)
        anywhere = points_in_cubes(centre, halves, generator)
        leaves = _leaves_ellipsoid(
            n_proxies,
            n_cover,
            len(centre),
            generator,
        )
        inside = samples[:n_cover]
        samples[:n_cover] = np.where(leaves, anywhere, inside)
    return samples


def _leaves_ellipsoid(
    n_proxies: int,
    n_samples: int,
    n_features: int,
    generator: np.random.Generator,
) -> Mask:
    """In which columns (n, d) samples of the box leave the ellipsoid.

    In all, or in one, and each further by a coin.

    Proxies are too few to cover a box of many dimensions, but rows with one rare value
    lie along an axis.
    """
    if n_proxies >= _CELLS_PER_AXIS**n_features:
        return np.ones((n_samples, n_features), np.bool_)
    n_columns = generator.geometric(0.5, (n_samples, 1))
    keys = generator.random((n_samples, n_features))
    ranks = np.argsort(keys, axis=1)
    return ranks < n_columns


def far_samples(
    centre: FloatArray,
    extent: float,
    n_proxies: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw points from cubes around the centre, cut to the box.

    Of half width `extent` to 2, each octave alike.

    Those inside of the smallest cube are left out, where at least one for each proxy is
    outside.
    """
    n_samples = sample_size(n_proxies, len(centre))
    octaves = generator.random((n_samples, 1))
    halves = extent * (2.0 / extent) ** octaves
    points = points_in_cubes(centre, halves, generator)
    is_outside = _cube_distances(points, centre) > extent
    outside = points[is_outside]
    return outside if len(outside) >= n_proxies else points


def _cube_distances(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Half width, (n,), of the cube around a centre that each point lies on."""
    offsets = np.abs(points - centre)
    return as_floats(offsets.max(axis=1))


def outside_cube(
    proxies: FloatArray,
    samples: FloatArray,
    centre: FloatArray,
    extent: float,
) -> FloatArray:
    """Move proxies of far samples that lie inside of the cube to the nearest sample.

    Rows there are not theirs.

    The mean of a cell all around the cube lies amid the other proxies, and steps as far
    as its cell is wide.
    """
    is_inside = _cube_distances(proxies, centre) <= extent
    rounded = round_to_grid(samples)
    nearest, _ = nearest_centroids(proxies, rounded)
    return np.where(is_inside[:, None], rounded[nearest], proxies)


def points_in_cubes(
    centre: FloatArray,
    halves: FloatArray,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw a point (d,) from each cube of the half widths (n, 1) around the centre, cut
    to the box.
    """
    low = np.clip(centre - halves, -1.0, 1.0)
    high = np.clip(centre + halves, -1.0, 1.0)
    points = generator.uniform(low, high)
    return as_floats(points)


def normal_samples(
    variances: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw points (n, c) from the normal distribution of the private covariance in the
    space of its leading c axes.
    """
    width = len(variances)
    shape = sample_size(n_proxies, width), width
    standard = generator.standard_normal(shape)
    return standard * np.sqrt(variances)


def sample_size(
    n_proxies: int,
    width: int,
    least: int = _LEAST_SAMPLES,
) -> int:
    """Ten for each proxy, or as many as memory allows.

    a plan may come from a hostile server.
    """
    enough = max(least, SAMPLES_PER_PROXY * n_proxies)
    most = _MOST_SAMPLED_VALUES // width
    return max(n_proxies, min(enough, most))


def samples_around(
    proxies: FloatArray,
    weights: npt.ArrayLike,
    width: float | FloatArray,
    generator: np.random.Generator,
    within: Ellipsoid | None = None,
    whole: Mask | None = None,
) -> FloatArray:
    """Draw points around proxies (n, c), in proportion to their weights.

    Where the next pass has to look more closely.

    Ten for each proxy, or as many as memory allows; `width`, of each or of all, is the
    deviation along each axis. Those of `whole` ones lie on these. Around those of the
    least width it is at most half of the rows' own along an axis of `within`: where
    these are flat, hardly a point would lie among them. Weights are at least 0; equal
    ones are taken where all are 0.
    """
    n_proxies, n_features = proxies.shape
    shares = _shares_of(as_floats(weights))
    size = sample_size(n_proxies, n_features, least=1)
    parents = generator.choice(n_proxies, size=size, p=shares)
    every_width = np.broadcast_to(width, n_proxies)
    widths = as_column(every_width[parents])
    shape = len(parents), n_features
    steps = widths * generator.standard_normal(shape)
    if within is not None:
        steps = _flattened(steps, widths, np.min(width), within)
    if whole is not None:
        steps[whole[parents]] = 0.0
    return proxies[parents] + steps


def _shares_of(weights: FloatArray) -> FloatArray:
    """Divide weights by their sum; equal shares where all are 0."""
    total = weights.sum()
    if total > 0.0:
        return as_floats(weights / total)
    n_weights = len(weights)
    return np.full(n_weights, 1.0 / n_weights)


def _flattened(
    steps: FloatArray,
    widths: FloatArray,
    usual: float,
    within: Ellipsoid,
) -> FloatArray:
    """Shorten steps along axes on which the rows' own deviation is small.

    Only those of the usual width.
    """
    depths = _DEPTH * np.sqrt(within.variances) / usual
    too_much = 1.0 - np.minimum(1.0, depths)
    # Cells that are wider than others lie far away, where rows are not those that it
    # describes.
    surplus = np.where(widths > usual, 0.0, too_much)
    if not surplus.any():
        return steps
    # On the grid products with axes are exact.
    rounded = round_to_grid(steps)
    along = rounded @ within.axes * surplus
    return rounded - round_to_grid(along) @ within.axes.T


def scattered(
    proxies: FloatArray,
    weights: FloatArray,
    widths: FloatArray,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Share each proxy's weight out among points around it, on the grid.

    Its rows are not all in one place.

    `widths`, (n,), are deviations along each axis; a proxy (n, c) is the mean of its
    points, which come in pairs.
    """
    n_proxies, n_features = proxies.shape
    n_samples = sample_size(n_proxies, n_features)
    n_pairs = math.ceil(n_samples / (2 * n_proxies))
    shape = n_proxies, n_pairs, n_features
    standard = generator.standard_normal(shape)
    steps = standard * widths[:, None, None]
    both_ways = np.concatenate([steps, -steps], axis=1)
    points = round_to_grid(proxies[:, None] + both_ways)
    n_each = 2 * n_pairs
    shares = np.repeat(weights / n_each, n_each)
    return points.reshape(-1, n_features), shares


def likely_weights(
    noisy_counts: FloatArray,
    noise: float,
    n: float,
    *,
    least: float,
) -> FloatArray:
    """Posterior means of counts, which may be 0, given their `noise`.

    k-means of them has the least expected cost.

    A proxy has rows with a chance that is learnt from all counts, and then from `least`
    deviations to `n` of them, all octaves alike (``proxy_lloyd.md``, weights). Unless
    all counts together are above `least` deviations of their sum's noise, what is
    likelier empty than not weighs nothing. On the grid.
    """
    scores = np.maximum(noisy_counts / noise, -_FARTHEST_SCORE)
    steps = np.arange(-_FARTHEST_STEP, _FARTHEST_STEP + 1) * _SCORE_STEP
    sizes = scores[:, None] + steps
    # Of the step around a size, only the part from the least size on.
    part_above = (sizes - least) / _SCORE_STEP + 0.5
    chances = np.exp(-0.5 * steps**2) * np.clip(part_above, 0.0, 1.0)
    densities = chances / np.maximum(sizes, least)
    density = densities.sum(axis=1)
    octaves = math.log(max(n / (least * noise), 2.0))
    full = density * (_SCORE_STEP / octaves)
    empty = np.exp(-0.5 * scores**2)
    has_rows = _chances_of_rows(full, empty)
    n_proxies = len(noisy_counts)
    least_total = least * noise * math.sqrt(n_proxies)
    if math.fsum(noisy_counts) <= least_total:
        is_likely = has_rows > 0.5
        has_rows = np.where(is_likely, has_rows, 0.0)
    chance = chances.sum(axis=1)
    at_least = np.maximum(density, _TINY)
    return round_to_grid(has_rows * noise * chance / at_least)


def _chances_of_rows(full: FloatArray, empty: FloatArray) -> FloatArray:
    """Chance of each proxy, (n_proxies,), to have rows at all.

    From the likelihoods of its count with rows and without any, averaged over the
    share of proxies that have rows, by how well it explains all counts.
    """
    # (n_proxies, n_shares)
    with_rows = as_column(full) * _FULL_SHARES
    empty_shares = 1.0 - _FULL_SHARES
    likelihoods = as_column(empty) * empty_shares + with_rows
    prior = np.log(_FULL_SHARES * empty_shares)
    evidence = np.log(likelihoods).sum(axis=0) + prior
    averaging = np.exp(evidence - evidence.max())
    chances = with_rows / likelihoods
    return as_floats(chances @ (averaging / averaging.sum()))


def unheard_rows(
    bins: _Bins,
    counts: FloatArray,
    weights: FloatArray,
    noise: float,
    histogram: tuple[FloatArray, FloatArray],
    n: float,
) -> FloatArray:
    """Rows of proxies (n_proxies,) that are too few to be heard at any of them, but are
    heard far away all together.

    `bins` are the proxies' by distance, `counts` with their `noise` what was released,
    `weights` what was made of them. Of all `n` rows those in a bin and beyond are
    estimated by the `histogram` and its noise, (N_DISTANCES,), by the proxies there,
    and by what the others leave; what noise makes in any bin is none
    (``proxy_lloyd.md``). On the grid.
    """

    def beyond(values: FloatArray) -> FloatArray:
        # Rows at a bin's edge may be those of a proxy in the next one.
        in_bins = np.bincount(bins, values, N_DISTANCES)
        sums = np.cumsum(in_bins)
        return np.append(sums[1:], sums[-1])

    rows, rows_noise = histogram
    n_proxies = len(bins)
    weight_beyond = beyond(weights)
    count_beyond = beyond(counts)
    n_beyond = beyond(np.ones(n_proxies))
    # Three estimates of the rows in a bin and beyond: by the histogram, by the proxies
    # there, and by what the others leave of all rows.
    by_histogram = np.cumsum(rows)
    by_others = n - (counts.sum() - count_beyond)
    estimates = np.stack([by_histogram, count_beyond, by_others])
    n_proxies_each = np.maximum([n_beyond, n_proxies - n_beyond], 0.5)
    variances = np.vstack(
        [
            np.cumsum(rows_noise**2),
            noise**2 * n_proxies_each,
        ]
    )
    precisions = 1.0 / variances
    total = np.average(estimates, 0, precisions)
    total_noise = np.sqrt(precisions.sum(axis=0))
    least = heard_among(N_DISTANCES) / total_noise
    missing = total - weight_beyond
    is_more = missing > np.maximum(0.5 * total, least)
    is_more &= total < 0.5 * n
    is_more &= n_beyond > 0.0
    nearest = max(np.flatnonzero(is_more).tolist(), default=-1)
    n_here = np.bincount(bins, minlength=N_DISTANCES)
    may_lack = np.arange(N_DISTANCES) <= nearest
    may_lack &= n_here > 0
    surplus = rows - np.bincount(bins, weights, N_DISTANCES)
    lacking = may_lack * np.maximum(surplus, 0.0)
    share = missing[nearest] / max(float(lacking.sum()), 1.0)
    of_each = lacking * share / np.maximum(n_here, 1)
    return round_to_grid(of_each[bins])


def expected_rows(
    noisy_counts: FloatArray,
    noise: float,
    n: float,
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of counts (k,), and their chances of being 0.

    Before, they are 0 or, as likely, of any size from `LEAST_CLUSTER` to n, all octaves
    alike.
    """
    most = max(n, LEAST_CLUSTER)
    octaves = np.arange(
        math.log2(LEAST_CLUSTER),
        math.log2(most) + _SIZE_STEP / 2.0,
        _SIZE_STEP,
    )
    sizes = 2.0**octaves
    none_and_sizes = np.concatenate([[0.0], sizes])
    # (k, 1 + n_sizes): log likelihoods of none and of each size.
    scores = (as_column(noisy_counts) - none_and_sizes) / noise
    logs = -0.5 * np.square(scores)
    largest = logs.max(axis=1, keepdims=True)
    chances = np.exp(logs - largest)
    chances[:, 0] *= len(sizes)
    chances /= chances.sum(axis=1, keepdims=True)
    weighted = chances[:, 1:] * sizes
    return as_floats(weighted.sum(axis=1)), chances[:, 0]


def split_largest(
    centers: FloatArray,
    likely: FloatArray,
    missing: FloatArray,
    mean_squares: FloatArray,
    total: float,
    generator: np.random.Generator,
) -> tuple[FloatArray, int, int] | None:
    """Halve the cluster that costs most by the center (k, d) with the fewest rows, if
    that lowers the cost; or None.

    Returned with both indices. `likely` (k,) are expected counts, `missing` (k,) the
    chances that a center has no rows and one is missing elsewhere, `mean_squares` (k,)
    are those of the clusters' residuals, `total` is all rows' sum of squares. The loss
    is the fewest rows' way to the next center. The gain is what halving a normal
    distribution takes off, and half of it, as few rounds are left. Where a center is
    surely missing, it is as many times that as the cluster costs more than an average
    one, since it may be several. Else it may be the middle of heavy tails, whose few
    rows have centers to keep.
    """
    k, d = centers.shape
    costs = likely * mean_squares
    empty = int(likely.argmin())
    largest = int(costs.argmax())
    fewest = likely[empty]
    most = likely[largest]
    # Of one cluster, or of counts that all say nothing, it is the same one.
    if empty == largest or 2.0 * fewest > most:
        return None
    squares = np.square(centers - centers[empty]).sum(axis=1)
    squares[empty] = math.inf
    loss = fewest * float(squares.min())
    along = 2.0 / math.pi * float(mean_squares[largest]) / d
    several = 1.0
    if missing[empty] > _SURELY_MISSING:
        several = float(costs[largest]) * k / max(total, _TINY)
    gain = 0.5 * along * most * several
    if loss >= gain:
        return None
    step = generator.standard_normal(d)
    square = math.fsum(np.square(step))
    step *= math.sqrt(along / square)
    moved = centers.copy()
    moved[empty] = centers[largest] + step
    moved[largest] = centers[largest] - step
    return moved, empty, largest


def heard_among(n: int) -> float:
    """Deviations of the noise that any of n counts exceeds with a chance of 0.002 at
    most; 0 for no counts.
    """
    if n == 0:
        return 0.0
    return exceeded_among(n, _HEARD_FALSELY)


def are_lone(
    proxies: FloatArray,
    scores: FloatArray,
    radii: FloatArray,
    threshold: float,
) -> Mask:
    """Which proxies (n, c), on the grid, have no neighbour whose count stands out.

    Noise has none, and rows mostly do.

    `scores`, (n,), are noisy counts in standard deviations of their noise, and stand
    out above the threshold; neighbours of a proxy lie within 2.5 of its `radii`, (n,),
    where its cell and those beside it end.
    """
    from scipy.spatial.distance import cdist

    n_proxies = len(proxies)
    standing = np.flatnonzero(scores > threshold)
    each = np.arange(n_proxies)
    is_lone = np.ones(n_proxies, np.bool_)
    for rows in blocks.row_blocks(n_proxies, n_proxies):
        squares = cdist(proxies[rows], proxies[standing], "sqeuclidean")
        reach = _NEIGHBOUR * radii[rows, None]
        is_beside = squares <= reach**2
        is_beside &= each[rows, None] != standing
        is_lone[rows] = ~is_beside.any(axis=1)
    return is_lone


def without_lone_rows(weights: FloatArray, labels: LabelArray) -> FloatArray:
    """Drop the weights of clusters of proxies with fewer than two rows (or clients).

    a center would be that row.
    """
    cluster_weights = np.bincount(labels, weights=weights)
    is_lone = cluster_weights[labels] < LEAST_CLUSTER
    return np.where(is_lone, 0.0, weights)
