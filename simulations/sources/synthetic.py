"""Synthetic sets of the papers' experiments.

Separated clusters, balanced ones and G2 (FastLloyd), and max cover's.

The separated clusters follow R's clusterGeneration (Qiu and Joe 2006, "Generation of
random clusters with specified degree of separation", Journal of Classification 23,
315-334): its construction and constants, in code of our own.

1. The means are vertices of a regular simplex, from the (d + 2)-nd on of its copies
   shifted along one edge, rotated at random. With many clusters in few dimensions that
   is a long strip, as in the package.
2. Covariances have eigenvalues that are uniform in [1, 10] and random eigenvectors.
3. The means are scaled so that the smallest separation of two clusters is the wanted
   one.
4. One cluster after the other, the most remote first, has its covariance grown until
   its nearest neighbour has the wanted separation too. Growing never brings a pair
   below it, so one pass makes all nearest neighbours equal.

`separation.separation_index` checks the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, nearest, require_whole
from simulations.sources.mixture import check_generator, check_positive
from simulations.sources.separation import ClusterMoments, Touching, radius_of

Array = NDArray[np.float64]

WELL_SEPARATED = 0.34
"""Degree of separation of two unit normal distributions at distance 8.

ClusterGeneration calls it well separated.
"""
_LARGEST_SEPARATION = 0.999
_EIGENVALUES = (1.0, 10.0)
_LARGEST_OUTLIERS = 100
# Half the width of the box of the outliers, in standard deviations of each column, as
# in clusterGeneration.
_OUTLIER_REACH = 4.0


@dataclass(frozen=True, eq=False)
class LabelledPoints:
    """Points of one mixture in one place.

    Attributes
    ----------
    points : ndarray of float64, shape (n, d)
    labels : ndarray of int64, shape (n,)
        The component of each point.
    means : ndarray of float64, shape (k, d)
        The means of the components before any clipping.
    """

    points: NDArray[np.float64]
    labels: NDArray[np.int64]
    means: NDArray[np.float64]


class ClusterSizes(StrEnum):
    """How many points each cluster has."""

    INCREASING = "increasing"
    """In the ratio 1:2:...:k, rounded so that the sum is right."""
    BALANCED = "balanced"
    """Equal but for one point."""
    SIMILAR = "similar"
    """Each uniform in 0.7 to 1.3 times the average, so that the sum varies."""


def draw_separated_clusters(
    rng: np.random.Generator,
    *,
    n_points: int = 10_000,
    n_clusters: int,
    n_features: int,
    separation: float | Sequence[float] = (0.16, 0.26),
    sizes: str = ClusterSizes.INCREASING,
    n_outliers: int | None = None,
) -> LabelledPoints:
    """Draw Gaussian clusters, each as far from its nearest neighbour as is asked for.

    The defaults are those of FastLloyd's Synth sets (section 6.1.3); those of its
    ablation (appendix B) have ``n_points=2048``, a separation of 0.25, 0.5 or 0.75,
    ``sizes="similar"`` and no outliers.

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of randomness.
    n_points : int
        Rows without outliers; with "increasing" at least k(k+1)/2, else at least k.
        With "similar" their average.
    n_clusters, n_features : int
        k and d, at least 1. A single cluster has no neighbour, and the separation no
        effect.
    separation : float or pair of float
        J* between each cluster and its nearest neighbour, of the true moments, from
        -0.999 to 0.999; a pair is a range from which one value is drawn for the whole
        set, because clusterGeneration takes one.
    sizes : str or ClusterSizes
        How many points each cluster has.
    n_outliers : int, optional
        Rows more that are uniform in the box of 4 standard deviations of the other rows
        around their mean, column by column, as in clusterGeneration. None draws a
        number from 0 to 100.

    Returns
    -------
    LabelledPoints
        Rows in random order; outliers have the label -1.

    Raises
    ------
    ConfigurationError
        If a parameter is out of its range.

    Notes
    -----
    `draw_cluster_moments` with the same generator state gives the true moments. 32
    clusters in 512 dimensions take about 5 seconds, 128 in 2 dimensions less than one.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> drawn = draw_separated_clusters(
    ...     generator, n_clusters=3, n_features=2, n_outliers=5
    ... )
    >>> drawn.points.shape, np.bincount(drawn.labels + 1).tolist()
    ((10005, 2), [5, 1667, 3333, 5000])
    """
    moments = draw_cluster_moments(
        rng,
        n_clusters=n_clusters,
        n_features=n_features,
        separation=separation,
    )
    counts = _sizes(rng, n_points, n_clusters, sizes)
    if n_outliers is None:
        n_outliers = int(rng.integers(_LARGEST_OUTLIERS, endpoint=True))
    require_whole("n_outliers", n_outliers, 0)
    points = np.empty((sum(counts) + n_outliers, n_features))
    end = 0
    for cluster, count in enumerate(counts):
        start = end
        end = start + count
        factor = np.linalg.cholesky(moments.covariances[cluster])
        noise = rng.standard_normal((count, n_features)) @ factor.T
        points[start:end] = noise + moments.means[cluster]
    inner = points[:end]
    centre = inner.mean(axis=0)
    reach = _OUTLIER_REACH * inner.std(axis=0)
    points[end:] = rng.uniform(centre - reach, centre + reach, (n_outliers, n_features))
    labels = np.repeat(np.arange(-1, n_clusters), [0, *counts])
    labels = np.concatenate([labels, np.full(n_outliers, -1)])
    order = rng.permutation(len(points))
    return LabelledPoints(points[order], labels[order], moments.means)


def draw_cluster_moments(
    rng: np.random.Generator,
    *,
    n_clusters: int,
    n_features: int,
    separation: float | Sequence[float] = (0.16, 0.26),
) -> ClusterMoments:
    """Draw means and covariances of clusters with a given degree of separation.

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of randomness.
    n_clusters, n_features : int
        k and d, at least 1.
    separation : float or pair of float
        As in `draw_separated_clusters`, which draws from these moments.

    Returns
    -------
    ClusterMoments

    Raises
    ------
    ConfigurationError
        If a parameter is out of its range.

    Examples
    --------
    >>> from simulations.sources.separation import separation_index
    >>> generator = np.random.default_rng(0)
    >>> moments = draw_cluster_moments(
    ...     generator, n_clusters=5, n_features=3, separation=0.25
    ... )
    >>> separation_index(moments).round(9).tolist()
    [0.25, 0.25, 0.25, 0.25, 0.25]
    """
    check_generator(rng)
    require_whole("n_clusters", n_clusters, 1)
    require_whole("n_features", n_features, 1)
    low, high = _separation_range(separation)
    radius = radius_of(float(rng.uniform(low, high)))
    means = _strip_of_simplices(n_clusters, n_features) @ _rotation(rng, n_features)
    covariances = np.empty((n_clusters, n_features, n_features))
    for covariance in covariances:
        axes = _rotation(rng, n_features)
        eigenvalues = rng.uniform(*_EIGENVALUES, n_features)
        covariance[:] = (axes * eigenvalues) @ axes.T
    if n_clusters == 1:
        return ClusterMoments(means, covariances)
    touching = Touching(ClusterMoments(means, covariances))
    nearest_radii = touching.nearest_radii()
    smallest = float(nearest_radii.min())
    for cluster in np.argsort(-nearest_radii, kind="stable"):
        touching.grow(int(cluster), smallest)
    # Radii are proportional to distances of the means.
    stretched = covariances * touching.stretch[:, None, None] ** 2
    return ClusterMoments(means * (radius / smallest), stretched)


def draw_balanced_clusters(
    rng: np.random.Generator,
    *,
    n_points: int,
    n_clusters: int,
    n_features: int,
) -> LabelledPoints:
    """Draw balanced and well separated Gaussian clusters.

    The sets of FastLloyd's timings (TimeSynth).

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of randomness.
    n_points, n_clusters, n_features : int
        N, k and d; N at least k, the others at least 1.

    Returns
    -------
    LabelledPoints
        Clusters whose nearest neighbours have the separation 0.34, without outliers.

    Raises
    ------
    ConfigurationError
        If a number is out of its range.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> drawn = draw_balanced_clusters(
    ...     generator, n_points=11, n_clusters=2, n_features=5
    ... )
    >>> drawn.points.shape, np.bincount(drawn.labels).tolist()
    ((11, 5), [6, 5])
    """
    return draw_separated_clusters(
        rng,
        n_points=n_points,
        n_clusters=n_clusters,
        n_features=n_features,
        separation=WELL_SEPARATED,
        sizes=ClusterSizes.BALANCED,
        n_outliers=0,
    )


def draw_g2(
    rng: np.random.Generator,
    *,
    n_features: int,
    n_points: int = 2048,
    deviation: float = 30.0,
) -> LabelledPoints:
    """Draw a set like Franti's G2: Gaussians around (500, ..., 500), (600, ..., 600).

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of randomness.
    n_features : int
        The dimension, at least 1 (in the original sets 1 to 1,024 in powers of 2).
    n_points : int
        Rows of both together, at least 2; half of them each.
    deviation : float
        Standard deviation of each coordinate (10 to 100 in the original sets), finite
        and above 0.

    Returns
    -------
    LabelledPoints
        Not rounded to whole numbers, as the original sets are; rows in random order.

    Raises
    ------
    ConfigurationError
        If a parameter is out of its range.

    References
    ----------
    Franti, Mariescu-Istodor and Zhong 2016, "XNN graph", S+SSPR, LNCS 10029.

    Examples
    --------
    >>> drawn = draw_g2(np.random.default_rng(0), n_features=4)
    >>> drawn.points.shape, drawn.means[:, 0].tolist()
    ((2048, 4), [500.0, 600.0])
    >>> np.bincount(drawn.labels).tolist()
    [1024, 1024]
    """
    check_generator(rng)
    require_whole("n_features", n_features, 1)
    require_whole("n_points", n_points, 2)
    is_number = isinstance(deviation, int | float | np.integer | np.floating)
    is_number = is_number and not isinstance(deviation, bool)
    if not is_number or not math.isfinite(deviation) or deviation <= 0:
        raise ConfigurationError(
            f"deviation is {deviation!r}, but it must be a finite number above 0: give"
            " for example 30."
        )
    means = np.repeat([[500.0], [600.0]], n_features, axis=1)
    labels = rng.permutation(np.arange(n_points) % 2)
    noise = deviation * rng.standard_normal((n_points, n_features))
    return LabelledPoints(means[labels] + noise, labels, means)


def draw_max_cover_mixture(
    rng: np.random.Generator,
    *,
    n_points: int = 50_000,
    n_components: int = 64,
    n_features: int = 100,
    centre_scale: float = 25.0,
    largest: float = 100.0,
) -> LabelledPoints:
    """Draw the synthetic set of private k-means by maximum coverage.

    Each coordinate of a centre is ``centre_scale`` times a standard normal variable,
    the noise has unit variance, and the points are clipped to the cube [0, largest]^d,
    which is the public range [1]_. As the centres lie around the origin, about half of
    the coordinates of a point are clipped to 0.

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of randomness.
    n_points, n_components, n_features : int
        The size of the set, the number of components and the dimension, at least 1.
    centre_scale, largest : float
        The deviation of the centres and the upper end of the cube, finite and above 0.

    Returns
    -------
    LabelledPoints

    Raises
    ------
    ConfigurationError
        If a number is out of its range.

    References
    ----------
    .. [1] H. L. Nguyen, A. Chaturvedi, E. Z. Xu, "Differentially private k-means via
       exponential mechanism and max cover", AAAI 2021, section "Experiments"; the size
       (50,000 points of 64 Gaussians in 100 dimensions) follows Balcan et al.,
       "Differentially private clustering in high-dimensional Euclidean spaces", ICML
       2017.

    Examples
    --------
    >>> drawn = draw_max_cover_mixture(np.random.default_rng(0), n_points=200)
    >>> drawn.points.shape, float(drawn.points.min())
    ((200, 100), 0.0)
    """
    check_generator(rng)
    require_whole("n_points", n_points, 1)
    require_whole("n_components", n_components, 1)
    require_whole("n_features", n_features, 1)
    check_positive("centre_scale", centre_scale)
    check_positive("largest", largest)
    means = centre_scale * rng.standard_normal((n_components, n_features))
    labels = rng.integers(n_components, size=n_points)
    points = rng.standard_normal((n_points, n_features))
    points += means[labels]
    np.clip(points, 0.0, largest, out=points)
    return LabelledPoints(points, labels, means)


def _separation_range(separation: object) -> tuple[float, float]:
    """Both ends of the range, or the value twice."""
    values = np.asarray(separation)
    are_numbers = values.dtype.kind in "iuf" and values.ndim <= 1
    ends = np.atleast_1d(values).tolist() if are_numbers else []
    largest = max(map(abs, ends), default=math.inf)
    is_range = len(ends) in (1, 2) and ends[0] <= ends[-1]
    if not is_range or not largest <= _LARGEST_SEPARATION:
        raise ConfigurationError(
            f"separation is {separation!r}, but it must be one number from"
            f" -{_LARGEST_SEPARATION} to {_LARGEST_SEPARATION}, or a pair of them, the"
            " smaller first: give for example (0.16, 0.26)."
        )
    return float(ends[0]), float(ends[-1])


def _sizes(
    rng: np.random.Generator,
    n_points: int,
    n_clusters: int,
    sizes: str,
) -> list[int]:
    """Number of points of each cluster."""
    if sizes not in list(ClusterSizes):
        names = [str(size) for size in ClusterSizes]
        raise ConfigurationError(f"sizes is {sizes!r}: {nearest(sizes, names)}")
    weights = np.ones(n_clusters, dtype=np.int64)
    if sizes == ClusterSizes.INCREASING:
        weights = np.arange(1, n_clusters + 1)
    total = int(weights.sum())
    require_whole("n_points", n_points, total)
    if sizes == ClusterSizes.SIMILAR:
        average = n_points / n_clusters
        low = math.ceil(0.7 * average)
        high = max(low, math.floor(1.3 * average))
        drawn = rng.integers(low, high, n_clusters, endpoint=True)
        return [int(count) for count in drawn]
    counts, remainders = np.divmod(n_points * weights, total)
    n_missing = n_points - int(counts.sum())
    largest_first = np.argsort(-remainders, kind="stable")
    counts[largest_first[:n_missing]] += 1
    return [int(count) for count in counts]


def _rotation(rng: np.random.Generator, n_features: int) -> Array:
    """Random orthogonal matrix, uniform over all of them (Mezzadri 2007)."""
    axes, triangle = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    return np.asarray(axes * np.sign(np.diag(triangle)), dtype=np.float64)


def _strip_of_simplices(n_clusters: int, n_features: int) -> Array:
    """Vertices at distance 2 of their nearest neighbours.

    A simplex, then its shifts by its first edge.
    """
    vertices = np.zeros((min(n_clusters, n_features + 1), n_features))
    for new in range(1, len(vertices)):
        vertices[new] = vertices[:new].mean(axis=0)
        squared_distance = float(((vertices[new] - vertices[0]) ** 2).sum())
        vertices[new, new - 1] += math.sqrt(4.0 - squared_distance)
    n_more = n_clusters - len(vertices)
    if not n_more:
        return vertices
    # A shift moves the first vertex to where the second was, so only the other vertices
    # are new.
    numbers = np.arange(n_more)
    shifted = vertices[1 + numbers % n_features]
    shifted[:, 0] += 2.0 * (1 + numbers // n_features)
    return np.concatenate([vertices, shifted])
