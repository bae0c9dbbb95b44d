"""Proxies: many more points than clusters, spread over the private ellipsoid, that are weighted by noisy counts.

Nothing here sees private rows: proxies are drawn from public randomness and from earlier releases. Samples and proxies
are on the grid all the time, so that distances and sums are exact and all machines choose the same ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.assignment import FloatArray, nearest_centroids
from flwr_dpkmeans.kmeans.statistics import sum_by_label
from flwr_dpkmeans.kmeans.update import round_to_grid

SAMPLES_PER_PROXY = 10
_LEAST_SAMPLES = 2000
_LLOYD_STEPS = 8
_CUBE_SHARE = 0.3
_MOST_DISTANCES = 1 << 28
_MOST_SAMPLED_VALUES = 1 << 24
_FAINT = 0.05
"""Weight of a proxy whose count is lost in the noise, in standard deviations of the noise."""


def tessellation(samples: FloatArray, n_proxies: int, generator: np.random.Generator) -> FloatArray:
    """Choose proxies as a centroidal Voronoi tessellation of samples: k-means++ and a few Lloyd steps.

    For more than some 5,000 proxies a random choice is taken, as nobody would wait for the steps.

    Parameters
    ----------
    samples : array of shape (n_samples, n_features)
        At least `n_proxies` of them.
    n_proxies : int
    generator : numpy.random.Generator

    Returns
    -------
    float64 array of shape (n_proxies, n_features), on the grid

    Raises
    ------
    DataError
        If there are fewer samples than proxies.

    Examples
    --------
    >>> sorted(tessellation(np.array([[0.0], [0.5], [4.0]]), 2, np.random.default_rng(0)).ravel().tolist())
    [0.25, 4.0]
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
    proxies: FloatArray = samples[chosen]
    return proxies


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

    Parameters
    ----------
    centre : array of shape (n_features,)
    variances : array of shape (n_features,)
    axes : array of shape (n_features, n_axes)
        On the grid.
    n_proxies : int
        Ten samples are drawn for each, at least 2,000.
    generator : numpy.random.Generator
    cover_box : bool
        Draw three tenths uniformly from the whole box: what the ellipsoid misses, small clusters in corners above all.

    Returns
    -------
    float64 array of shape (n_samples, n_features)

    Examples
    --------
    >>> options = dict(cover_box=False)
    >>> points = box_samples(np.zeros(2), np.array([0.01, 0.01]), np.eye(2), 3, np.random.default_rng(0), **options)
    >>> points.shape, bool(abs(points).max() < 0.18)
    ((2000, 2), True)
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
    """Draw points from the normal distribution of the private covariance in the space of its leading axes.

    Parameters
    ----------
    variances : array of shape (n_components,)
    n_proxies : int
        Ten samples are drawn for each, at least 2,000.
    generator : numpy.random.Generator

    Returns
    -------
    float64 array of shape (n_samples, n_components)

    Examples
    --------
    >>> normal_samples(np.array([1.0, 0.25]), 300, np.random.default_rng(0)).std(axis=0).round(1).tolist()
    [1.0, 0.5]
    """
    n_samples = _n_samples(n_proxies, len(variances))
    return generator.standard_normal((n_samples, len(variances))) * np.sqrt(variances)


def _n_samples(n_proxies: int, width: int) -> int:
    """Ten for each proxy, or as many as memory allows; a plan may come from a hostile server."""
    return max(n_proxies, min(max(_LEAST_SAMPLES, SAMPLES_PER_PROXY * n_proxies), _MOST_SAMPLED_VALUES // width))


def samples_around(
    proxies: FloatArray, weights: npt.ArrayLike, width: float, generator: np.random.Generator
) -> FloatArray:
    """Draw points around proxies, in proportion to their weights: where the next pass has to look more closely.

    Parameters
    ----------
    proxies : array of shape (n_proxies, n_components)
    weights : array of shape (n_proxies,)
        At least 0; equal ones are taken where all are 0.
    width : float
        Standard deviation along each axis.
    generator : numpy.random.Generator

    Returns
    -------
    float64 array of shape (10 * n_proxies, n_components)
        Fewer, but one for each proxy, where so many would fill the memory.

    Examples
    --------
    >>> found = samples_around(np.array([[0.0], [5.0]]), [0.0, 1.0], 0.0, np.random.default_rng(0))
    >>> found.min(), found.shape
    (np.float64(5.0), (20, 1))
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum() if shares.sum() > 0.0 else np.full(len(proxies), 1.0 / len(proxies))
    size: int = max(
        len(proxies), min(len(proxies) * SAMPLES_PER_PROXY, _MOST_SAMPLED_VALUES // max(1, proxies.shape[1]))
    )
    parents = generator.choice(len(proxies), size=max(size, 1), p=shares)
    return proxies[parents] + width * generator.standard_normal((len(parents), proxies.shape[1]))


def proxy_weights(noisy_counts: npt.ArrayLike, noise: float, threshold: float) -> FloatArray:
    """Weights of proxies: their noisy counts, and next to nothing where noise alone may have made the count.

    Parameters
    ----------
    noisy_counts : array of shape (n_proxies,)
    noise : float
        Standard deviation.
    threshold : float
        In the expected largest of that many noises, sqrt(2 ln n) deviations.

    Returns
    -------
    float64 array of shape (n_proxies,)

    Examples
    --------
    >>> proxy_weights([100.0, 0.9], 1.0, 0.8).tolist()
    [100.0, 0.05]
    """
    counts = np.asarray(noisy_counts, dtype=np.float64)
    least = threshold * noise * np.sqrt(2.0 * np.log(max(2, len(counts))))
    return np.where(counts > least, counts, _FAINT * noise)
