"""Where proxies lie: many more points than clusters, spread over a private ellipsoid, weighted by noisy counts.

The ellipsoid comes from a noisy mean and covariance; nothing here sees private rows. Samples and proxies are on the
grid, so that distances and sums are exact and all machines choose the same ones; see also `eigen`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.assignment import FloatArray, nearest_centroids
from flwr_dpkmeans.kmeans.eigen import eigenpairs, product
from flwr_dpkmeans.kmeans.statistics import sum_by_label
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
SAMPLES_PER_PROXY = 10
_LEAST_SAMPLES = 2000
_LLOYD_STEPS = 8
_CUBE_SHARE = 0.3
_MOST_DISTANCES = 1 << 28
_MOST_SAMPLED_VALUES = 1 << 24
_FAINT = 0.05
"""Weight of a proxy whose count is lost in the noise, in standard deviations of the noise."""


@dataclass(frozen=True)
class Ellipsoid:
    """Where the data lie, in the scaled box."""

    variances: FloatArray
    """(d,), along the axes, falling; then those of the axes that are not given."""
    axes: FloatArray
    """(d, n_axes), on the grid: columns are all axes, or the leading ones of a wide table (see `eigenpairs`)."""

    @property
    def spread(self) -> float:
        """Root mean square distance from the centre."""
        return math.sqrt(math.fsum(self.variances))


def shrunk_centre(noisy_mean: FloatArray, noise: float) -> FloatArray:
    """Pull a noisy mean (d,) toward the middle of the box, by how much of its length noise explains; on the grid."""
    factor = _signal_share(float(np.square(noisy_mean).mean()), noise)
    return round_to_grid(np.clip(noisy_mean * factor, -_FARTHEST_CENTRE, _FARTHEST_CENTRE))


def _signal_share(square: float, noise: float) -> float:
    """Part of a mean square that `noise`, a standard deviation, does not explain; 0 if it explains all."""
    signal = max(0.0, square - noise**2)
    return signal / (signal + noise**2) if signal > 0.0 else 0.0


def axis_variance(noisy_square: float, noise: float, centre: FloatArray, prior: float = PRIOR_VARIANCE) -> float:
    """Variance along an axis, on average, from the noisy mean of |x|^2 with noise of standard deviation `noise`.

    Averaged, by precision, with `prior`, what is expected before anything is known, to three quarters of itself.
    """
    n_features = len(centre)
    measured = (noisy_square - math.fsum(np.square(centre))) / n_features
    own, trusted = (noise / n_features) ** 2, (_PRIOR_SPREAD * prior) ** 2
    averaged = (measured * trusted + prior * own) / (trusted + own)
    return float(min(max(averaged, _LEAST_VARIANCE), _MOST_VARIANCE))


def ellipsoid_of(matrix: FloatArray, noise: float, variance: float) -> Ellipsoid:
    """Shrink a noisy covariance (d, d) to what stands out of its noise.

    The noise has a standard deviation of `noise` on the diagonal and noise / sqrt(2) off it. The diagonal is pulled
    toward the average `variance` by how much of its scatter noise explains. Of the rest, an eigenvalue e of noise alone
    is at most about s sqrt(d / 2) in size (a quarter of the semicircle's width, s = `noise`), so one of size l is kept
    as sqrt(l^2 - e^2) or dropped. Rows were clipped, so only proportions count: the trace becomes d times `variance`.
    """
    n_features = len(matrix)
    diagonal = np.diag(matrix)
    factor = _signal_share(float(diagonal.var()), noise)
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


def tessellation(samples: FloatArray, n_proxies: int, generator: np.random.Generator) -> FloatArray:
    """Choose proxies, on the grid, as a centroidal Voronoi tessellation of samples (n, d): k-means++, then Lloyd steps.

    Above some 5,000 proxies, by chance: nobody would wait. Fewer samples than proxies are a `DataError`.
    """
    if len(samples) < n_proxies:
        raise DataError(f"there are {len(samples)} samples, but {n_proxies} proxies need at least as many: draw more.")
    rounded = round_to_grid(samples)
    if len(samples) * n_proxies > _MOST_DISTANCES:
        return rounded[generator.choice(len(samples), size=n_proxies, replace=False)]
    proxies = _spread_out(rounded, n_proxies, generator)
    for _ in range(_LLOYD_STEPS):
        labels = nearest_centroids(rounded, proxies)[0]
        counts = np.bincount(labels, minlength=n_proxies)[:, None]
        means = sum_by_label(rounded, labels, n_proxies) / np.maximum(counts, 1)
        proxies = np.where(counts > 0, round_to_grid(means), proxies)
    return proxies


def _spread_out(samples: FloatArray, n_proxies: int, generator: np.random.Generator) -> FloatArray:
    """k-means++ (Arthur and Vassilvitskii 2007) without weights."""
    lengths = np.einsum("ij,ij->i", samples, samples)
    chosen = [int(generator.integers(len(samples)))]
    squares = _squares_to(samples, lengths, chosen[0])
    for uniform in generator.random(n_proxies - 1):
        sums = np.cumsum(squares)
        place = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
        chosen.append(min(place, len(samples) - 1))
        np.minimum(squares, _squares_to(samples, lengths, chosen[-1]), out=squares)
    return np.asarray(samples[chosen], dtype=np.float64)


def _squares_to(samples: FloatArray, lengths: FloatArray, place: int) -> FloatArray:
    """Squared distances to one of the samples."""
    squares: FloatArray = lengths + (lengths[place] - 2.0 * (samples @ samples[place]))
    np.maximum(squares, 0.0, out=squares)
    squares[place] = 0.0
    return squares


def box_samples(
    centre: FloatArray,
    variances: FloatArray,
    axes: FloatArray,
    n_proxies: int,
    generator: np.random.Generator,
    *,
    cover_box: bool,
) -> FloatArray:
    """Draw points from the parallelepiped of the private covariance, cut to the box [-1, 1]^d.

    `variances` (d,) and `axes` (d, n_axes) are those of an `Ellipsoid`. `cover_box` draws three tenths uniformly from
    the whole box: what the ellipsoid misses, small clusters in corners above all.
    """
    n_samples = _n_samples(n_proxies, len(centre))
    n_axes = axes.shape[1]
    uniform = generator.uniform(-1.0, 1.0, (n_samples, n_axes))
    # A uniform variable on [-1, 1] has the variance 1/3. Products of grid values add up exactly.
    along = round_to_grid(uniform * np.sqrt(3.0 * variances[:n_axes]))
    samples = np.clip(centre + along @ axes.T, -1.0, 1.0)
    if cover_box:
        n_cover = int(_CUBE_SHARE * n_samples)
        samples[:n_cover] = generator.uniform(-1.0, 1.0, (n_cover, len(centre)))
    return samples


def normal_samples(variances: FloatArray, n_proxies: int, generator: np.random.Generator) -> FloatArray:
    """Draw points (n, c) from the normal distribution of the private covariance in the space of its leading c axes."""
    n_samples = _n_samples(n_proxies, len(variances))
    return generator.standard_normal((n_samples, len(variances))) * np.sqrt(variances)


def _n_samples(n_proxies: int, width: int) -> int:
    """Ten for each proxy, or as many as memory allows; a plan may come from a hostile server."""
    return max(n_proxies, min(max(_LEAST_SAMPLES, SAMPLES_PER_PROXY * n_proxies), _MOST_SAMPLED_VALUES // width))


def samples_around(
    proxies: FloatArray, weights: npt.ArrayLike, width: float, generator: np.random.Generator
) -> FloatArray:
    """Draw points around proxies (n, c), in proportion to their weights: where the next pass has to look more closely.

    Ten for each proxy, or as many as memory allows, at least one, with standard deviation `width` along each axis.
    Weights are at least 0; equal ones are taken where all are 0.
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum() if shares.sum() > 0.0 else np.full(len(proxies), 1.0 / len(proxies))
    width_of_row = max(1, proxies.shape[1])
    size: int = max(1, len(proxies), min(len(proxies) * SAMPLES_PER_PROXY, _MOST_SAMPLED_VALUES // width_of_row))
    parents = generator.choice(len(proxies), size=size, p=shares)
    return proxies[parents] + width * generator.standard_normal((len(parents), proxies.shape[1]))


def proxy_weights(noisy_counts: npt.ArrayLike, noise: float, threshold: float) -> FloatArray:
    """Weights of proxies: their noisy counts, and next to nothing where noise alone may have made the count.

    `threshold` counts in the expected largest of n such noises, sqrt(2 ln n) deviations of `noise`.
    """
    counts = np.asarray(noisy_counts, dtype=np.float64)
    least = threshold * noise * np.sqrt(2.0 * np.log(max(2, len(counts))))
    return np.where(counts > least, counts, _FAINT * noise)
