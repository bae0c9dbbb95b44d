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
from flwr_dpkmeans.kernels.grid import FloatArray, LabelArray, round_to_grid
from flwr_dpkmeans.kernels.label_sums import sum_by_label
from flwr_dpkmeans.kmeans.eigenvectors import eigenpairs, product
from flwr_dpkmeans.kmeans.public_points import plus_plus
from flwr_dpkmeans.kmeans.ranges import exceeded_among

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
_FULL_SHARES = 1.0 / (1.0 + 2.0 ** np.arange(-6.0, 10.5, 0.5))
"""Shares of proxies with rows that are looked at: from nearly all to one in a thousand.
"""
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
        return math.sqrt(math.fsum(self.variances))


def shrunk_centre(noisy_mean: FloatArray, noise: float) -> FloatArray:
    """Pull a noisy mean (d,) toward the middle of the box, by how much of its length
    noise explains; on the grid.
    """
    factor = signal_share(float(np.square(noisy_mean).mean()), noise)
    return round_to_grid(
        np.clip(noisy_mean * factor, -_FARTHEST_CENTRE, _FARTHEST_CENTRE)
    )


def signal_share(square: float, noise: float) -> float:
    """Part of a mean square that `noise`, a standard deviation, does not explain.

    0 if it explains all.
    """
    signal = square - noise**2
    return signal / (signal + noise**2) if signal > 0.0 else 0.0


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
    squares = math.fsum(np.square(offset))
    # Of the square of the centre's distance, noise in the centre is a part, too.
    own = math.hypot(noise, 2.0 * error * math.sqrt(squares)) / len(offset)
    averaged, left = by_precision(
        (noisy_square - squares) / len(offset),
        own**2,
        prior,
        prior_variance,
    )
    return (
        float(
            min(
                max(averaged, _LEAST_PART * math.sqrt(left), _LEAST_VARIANCE),
                _MOST_VARIANCE,
            )
        ),
        left,
    )


def by_precision(
    first: float,
    first_variance: float,
    second: float,
    second_variance: float,
) -> tuple[float, float]:
    """Average two estimates of one number by precision: the average, and its variance."""
    both = first_variance + second_variance
    return (
        first * second_variance + second * first_variance
    ) / both, first_variance * second_variance / both


def squared_edges(n_features: int) -> FloatArray:
    """Largest squared distance in each bin of a histogram.

    Halves, exactly, of the box's squared diagonal.
    """
    return np.ldexp(4.0 * n_features, -np.arange(N_DISTANCES))


def distance_counts(points: FloatArray, centre: FloatArray) -> FloatArray:
    """Count points (n, d) by their squared distance from a centre.

    Each is in one bin, the farthest in the first.

    All that is nearer than the last bin's edge is in the last bin. On the grid squares
    are exact, so that a row's bin is a function of that row alone.
    """
    return np.bincount(distance_bins(points, centre), minlength=N_DISTANCES).astype(
        np.float64
    )


def distance_bins(points: FloatArray, centre: FloatArray) -> npt.NDArray[np.int64]:
    """Bins of points (n, d), (n,), by their squared distance from a centre."""
    residuals = points - centre
    nearer = np.searchsorted(
        squared_edges(points.shape[1])[::-1],
        np.einsum("ij,ij->i", residuals, residuals),
    )
    return np.asarray(np.maximum(N_DISTANCES - 1 - nearer, 0), dtype=np.int64)


def farthest_heard(scores: FloatArray, threshold: float) -> int:
    """Place of the farthest bin that stands out of the noise, alone or together with
    its neighbours; 0 if none does.

    `scores` are noisy counts in standard deviations of their noise, the farthest first.
    A few rows in several bins are heard together: 2, and 4, are looked at outside of
    what fewer have shown.
    """
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    first = len(scores)
    for width in (1, 2, 4):
        windows = (sums[width:] - sums[:-width])[: max(0, first - width + 1)]
        places = np.flatnonzero(windows > threshold * math.sqrt(width))
        first = int(places[0]) if places.size else first
    return 0 if first == len(scores) else first


def farther_if_likelier(
    first: int,
    counts: FloatArray,
    noise: FloatArray,
    n: float,
) -> int:
    """The place `first`, or a farther one where n rows are likelier to begin than
    anywhere from about there on.

    Rows are taken to lie in three bins, a quarter, a half and a quarter of them. Few
    rows may not be heard where they are, and noise is then heard in some bin near the
    centre.
    """
    logs = np.zeros(len(counts) - len(_BIN_SHARES) + 1)
    for place, share in enumerate(_BIN_SHARES):
        bins, rows = slice(place, place + len(logs)), share * n
        # Log likelihood of so many rows over that of none.
        logs += (counts[bins] - 0.5 * rows) * rows / np.square(noise[bins])
    likeliest = int(logs.argmax())
    return likeliest if likeliest < first - (len(_BIN_SHARES) - 1) else first


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
    return square, math.hypot(
        math.sqrt(math.fsum(np.square(noise * middles))) / n, BIN_ERROR * square
    )


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
    own = np.clip(
        variance + (diagonal - diagonal.mean()) * factor,
        _LEAST_AXIS * variance,
        _MOST_VARIANCE,
    )
    eigenvalues, eigenvectors = eigenpairs(matrix - np.diag(diagonal))
    edge = noise * math.sqrt(n_features / 2.0)
    kept = np.sign(eigenvalues) * np.sqrt(np.maximum(eigenvalues**2 - edge**2, 0.0))
    shrunk = product(
        eigenvectors * kept, np.ascontiguousarray(eigenvectors.T)
    ) + np.diag(own)
    # What stands out of the average variance, on a grid of its own: last digits of the
    # noise's scale are gone.
    relative = (
        np.rint((shrunk / variance - np.eye(n_features)) * _RELATIVE_GRID)
        / _RELATIVE_GRID
    )
    lengths, axes = eigenpairs(relative)
    lengths = (
        np.maximum(_all_lengths(1.0 + lengths, relative), _LEAST_EIGENVALUE) * variance
    )
    lengths = lengths * (float(own.sum()) / float(lengths.sum()))
    # Single precision: last digits of the noise's scale are gone, and those of a small
    # table are kept.
    exact = np.maximum(lengths, _LEAST_VARIANCE).astype(np.float32).astype(np.float64)
    return Ellipsoid(exact, round_to_grid(axes) + 0.0)


def _all_lengths(leading: FloatArray, relative: FloatArray) -> FloatArray:
    """Eigenvalues, and behind them equal ones for the axes that a wide table has no
    vectors of.
    """
    n_features = len(relative)
    missing = n_features - len(leading)
    rest = (n_features + float(np.trace(relative)) - float(leading.sum())) / max(
        1, missing
    )
    return np.concatenate([leading, np.full(missing, rest)])


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
    if len(samples) * n_proxies > _MOST_DISTANCES:
        return rounded[generator.choice(len(samples), size=n_proxies, replace=False)]
    proxies = rounded[
        plus_plus(
            rounded,
            np.ones(len(rounded)),
            n_proxies,
            generator,
        )
    ]
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
    counts = np.bincount(labels, minlength=len(proxies))[:, None]
    means = sum_by_label(points, labels, len(proxies)) / np.maximum(counts, 1)
    return np.where(counts > 0, round_to_grid(means), proxies)


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
    n_samples = _n_samples(n_proxies, len(centre))
    n_axes = axes.shape[1]
    uniform = generator.uniform(-1.0, 1.0, (n_samples, n_axes))
    # A uniform variable on [-1, 1] has the variance 1/3. Products of grid values add up
    # exactly.
    along = round_to_grid(uniform * np.sqrt(3.0 * variances[:n_axes]))
    samples = np.clip(centre + along @ axes.T, -1.0, 1.0)
    if cover is not None:
        n_cover = int(_CUBE_SHARE * n_samples)
        anywhere = _in_cubes(centre, np.full((n_cover, 1), cover), generator)
        left = _columns_left(
            n_proxies,
            n_cover,
            len(centre),
            generator,
        )
        samples[:n_cover] = np.where(left, anywhere, samples[:n_cover])
    return samples


def _columns_left(
    n_proxies: int,
    n_samples: int,
    n_features: int,
    generator: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    """In which columns (n, d) samples of the box leave the ellipsoid.

    In all, or in one, and each further by a coin.

    Proxies are too few to cover a box of many dimensions, but rows with one rare value
    lie along an axis.
    """
    if n_proxies >= _CELLS_PER_AXIS**n_features:
        return np.ones((n_samples, n_features), dtype=np.bool_)
    n_columns = generator.geometric(0.5, (n_samples, 1))
    return np.argsort(generator.random((n_samples, n_features)), axis=1) < n_columns


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
    halves = extent * (2.0 / extent) ** generator.random(
        (_n_samples(n_proxies, len(centre)), 1)
    )
    points = _in_cubes(centre, halves, generator)
    outside = points[np.abs(points - centre).max(axis=1) > extent]
    return outside if len(outside) >= n_proxies else points


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
    inside, rounded = (
        np.abs(proxies - centre).max(axis=1) <= extent,
        round_to_grid(samples),
    )
    return np.where(
        inside[:, None], rounded[nearest_centroids(proxies, rounded)[0]], proxies
    )


def _in_cubes(
    centre: FloatArray,
    halves: FloatArray,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw a point (d,) from each cube of the half widths (n, 1) around the centre, cut
    to the box.
    """
    low, high = np.clip(centre - halves, -1.0, 1.0), np.clip(centre + halves, -1.0, 1.0)
    return np.asarray(generator.uniform(low, high), dtype=np.float64)


def normal_samples(
    variances: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Draw points (n, c) from the normal distribution of the private covariance in the
    space of its leading c axes.
    """
    n_samples = _n_samples(n_proxies, len(variances))
    return generator.standard_normal((n_samples, len(variances))) * np.sqrt(variances)


def _n_samples(
    n_proxies: int,
    width: int,
    least: int = _LEAST_SAMPLES,
) -> int:
    """Ten for each proxy, or as many as memory allows.

    a plan may come from a hostile server.
    """
    return max(
        n_proxies,
        min(max(least, SAMPLES_PER_PROXY * n_proxies), _MOST_SAMPLED_VALUES // width),
    )


def samples_around(
    proxies: FloatArray,
    weights: npt.ArrayLike,
    width: float | FloatArray,
    generator: np.random.Generator,
    within: Ellipsoid | None = None,
    whole: npt.NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Draw points around proxies (n, c), in proportion to their weights.

    Where the next pass has to look more closely.

    Ten for each proxy, or as many as memory allows; `width`, of each or of all, is the
    deviation along each axis. Those of `whole` ones lie on these. Around those of the
    least width it is at most half of the rows' own along an axis of `within`: where
    these are flat, hardly a point would lie among them. Weights are at least 0; equal
    ones are taken where all are 0.
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = (
        shares / shares.sum()
        if shares.sum() > 0.0
        else np.full(len(proxies), 1.0 / len(proxies))
    )
    size = _n_samples(len(proxies), proxies.shape[1], least=1)
    parents = generator.choice(len(proxies), size=size, p=shares)
    widths = np.broadcast_to(width, len(proxies))[parents, None]
    steps = widths * generator.standard_normal((len(parents), proxies.shape[1]))
    if within is not None:
        # Cells that are wider than others lie far away, where rows are not those that
        # it describes.
        usual = np.min(width)
        surplus = np.where(
            widths > usual,
            0.0,
            1.0 - np.minimum(1.0, _DEPTH * np.sqrt(within.variances) / usual),
        )
        if surplus.any():
            # Then products with axes on the grid are exact.
            steps = round_to_grid(steps)
            steps -= round_to_grid(steps @ within.axes * surplus) @ within.axes.T
    if whole is not None:
        steps[whole[parents]] = 0.0
    return proxies[parents] + steps


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
    half = -(-_n_samples(*proxies.shape) // (2 * len(proxies)))
    steps = (
        generator.standard_normal((len(proxies), half, proxies.shape[1]))
        * widths[:, None, None]
    )
    points = round_to_grid(proxies[:, None] + np.concatenate([steps, -steps], axis=1))
    return points.reshape(-1, proxies.shape[1]), np.repeat(
        weights / (2 * half), 2 * half
    )


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
    chances = np.exp(-0.5 * steps**2) * np.clip(
        (sizes - least) / _SCORE_STEP + 0.5, 0.0, 1.0
    )
    densities = chances / np.maximum(sizes, least)
    full = densities.sum(axis=1) * (
        _SCORE_STEP / math.log(max(n / (least * noise), 2.0))
    )
    empty = np.exp(-0.5 * scores**2)
    # (n_proxies, n_shares): likelihood of each count, by the share of proxies that have
    # rows.
    likelihoods = empty[:, None] * (1.0 - _FULL_SHARES) + full[:, None] * _FULL_SHARES
    evidence = np.log(likelihoods).sum(axis=0) + np.log(
        _FULL_SHARES * (1.0 - _FULL_SHARES)
    )
    averaging = np.exp(evidence - evidence.max())
    is_full = (full[:, None] * _FULL_SHARES / likelihoods) @ (
        averaging / averaging.sum()
    )
    if math.fsum(noisy_counts) <= least * noise * math.sqrt(len(noisy_counts)):
        is_full = np.where(is_full > 0.5, is_full, 0.0)
    return round_to_grid(
        is_full
        * noise
        * chances.sum(axis=1)
        / np.maximum(densities.sum(axis=1), 1e-300)
    )


def unheard_rows(
    bins: npt.NDArray[np.int64],
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
        sums = np.cumsum(np.bincount(bins, values, N_DISTANCES))
        return np.append(sums[1:], sums[-1])

    rows, rows_noise = histogram
    heard, theirs, n_there = beyond(weights), beyond(counts), beyond(np.ones(len(bins)))
    estimates = np.stack([np.cumsum(rows), theirs, n - (counts.sum() - theirs)])
    precisions = 1.0 / np.vstack(
        [
            np.cumsum(rows_noise**2),
            noise**2 * np.maximum([n_there, len(bins) - n_there], 0.5),
        ]
    )
    total, least = (
        np.average(estimates, 0, precisions),
        heard_among(N_DISTANCES) / np.sqrt(precisions.sum(axis=0)),
    )
    is_more = (
        (total - heard > np.maximum(0.5 * total, least))
        & (total < 0.5 * n)
        & (n_there > 0.0)
    )
    place = max(np.flatnonzero(is_more).tolist(), default=-1)
    n_here, farther = (
        np.bincount(bins, minlength=N_DISTANCES),
        np.arange(N_DISTANCES) <= place,
    )
    lacking = (farther & (n_here > 0)) * np.maximum(
        rows - np.bincount(bins, weights, N_DISTANCES), 0.0
    )
    missing = (total - heard)[place] / max(float(lacking.sum()), 1.0)
    return round_to_grid((lacking * missing / np.maximum(n_here, 1))[bins])


def expected_rows(
    noisy_counts: FloatArray,
    noise: float,
    n: float,
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of counts (k,), and their chances of being 0.

    Before, they are 0 or, as likely, of any size from `LEAST_CLUSTER` to n, all octaves
    alike.
    """
    sizes = 2.0 ** np.arange(
        math.log2(LEAST_CLUSTER),
        math.log2(max(n, LEAST_CLUSTER)) + _SIZE_STEP / 2.0,
        _SIZE_STEP,
    )
    # (k, 1 + n_sizes): log likelihoods of none and of each size.
    logs = -0.5 * np.square(
        (noisy_counts[:, None] - np.concatenate([[0.0], sizes])) / noise
    )
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances[:, 0] *= len(sizes)
    chances /= chances.sum(axis=1, keepdims=True)
    return (
        np.asarray((chances[:, 1:] * sizes).sum(axis=1), dtype=np.float64),
        chances[:, 0],
    )


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

    Returned with both places. `likely` (k,) are expected counts, `missing` (k,) the
    chances that a center has no rows and one is missing elsewhere, `mean_squares` (k,)
    are those of the clusters' residuals, `total` is all rows' sum of squares. The loss
    is the fewest rows' way to the next center. The gain is what halving a normal
    distribution takes off, and half of it, as few rounds are left. Where a center is
    surely missing, it is as many times that as the cluster costs more than an average
    one, since it may be several. Else it may be the middle of heavy tails, whose few
    rows have centers to keep.
    """
    costs, (k, d), empty = likely * mean_squares, centers.shape, int(likely.argmin())
    largest = int(costs.argmax())
    squares = np.square(centers - centers[empty]).sum(axis=1)
    squares[empty] = math.inf
    along = 2.0 / math.pi * float(mean_squares[largest]) / d
    several = (
        float(costs[largest]) * k / max(total, 1e-300)
        if missing[empty] > _SURELY_MISSING
        else 1.0
    )
    gain = 0.5 * along * likely[largest] * several
    # Of one cluster, or of counts that all say nothing, it is the same one.
    if (
        empty == largest
        or 2.0 * likely[empty] > likely[largest]
        or likely[empty] * float(squares.min()) >= gain
    ):
        return None
    step = generator.standard_normal(d)
    step *= math.sqrt(along / math.fsum(np.square(step)))
    moved = centers.copy()
    moved[empty], moved[largest] = centers[largest] + step, centers[largest] - step
    return moved, empty, largest


def heard_among(n: int) -> float:
    """Deviations of the noise that any of n counts exceeds with a chance of 0.002 at
    most; 0 for no counts.
    """
    return exceeded_among(n, _HEARD_FALSELY) if n else 0.0


def are_lone(
    proxies: FloatArray,
    scores: FloatArray,
    radii: FloatArray,
    threshold: float,
) -> npt.NDArray[np.bool_]:
    """Which proxies (n, c), on the grid, have no neighbour whose count stands out.

    Noise has none, and rows mostly do.

    `scores`, (n,), are noisy counts in standard deviations of their noise, and stand
    out above the threshold; neighbours of a proxy lie within 2.5 of its `radii`, (n,),
    where its cell and those beside it end.
    """
    from scipy.spatial.distance import cdist

    standing, lone = (
        np.flatnonzero(scores > threshold),
        np.ones(len(proxies), dtype=np.bool_),
    )
    for rows in blocks.row_blocks(len(proxies), len(proxies)):
        squares = cdist(proxies[rows], proxies[standing], "sqeuclidean")
        beside = squares <= (_NEIGHBOUR * radii[rows, None]) ** 2
        beside &= np.arange(len(proxies))[rows, None] != standing
        lone[rows] = ~beside.any(axis=1)
    return lone


def without_lone_rows(weights: FloatArray, labels: LabelArray) -> FloatArray:
    """Drop the weights of clusters of proxies with fewer than two rows (or clients).

    a center would be that row.
    """
    return np.where(
        np.bincount(labels, weights=weights)[labels] < LEAST_CLUSTER, 0.0, weights
    )
