"""How good a clustering is, in numbers from the exact data.

Nothing here is private: whoever publishes these numbers pays no budget and has no
guarantee. Points belong to their nearest centroid. A clustering with a single cluster
that is not empty has the silhouette -1 and the Davies-Bouldin index infinity, as in
FastLloyd's appendix D, and by the same rule (the worst value) Calinski-Harabasz and
Dunn are 0.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from simulations.experiments.clustering_indices import METRICS, OF_PAIRS, Clustering

Array = NDArray[np.float64]

_MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class ClusteringMetrics:
    """Quality of a clustering.

    None where a number was not asked for, or lacks the labels or the reference it
    needs.

    Parameters
    ----------
    nicv : float or None
        k-means cost per point, in squared units of the points.
    silhouette : float or None
        Mean silhouette coefficient, from -1 (bad) to 1.
    davies_bouldin : float or None
        Davies-Bouldin index, at least 0 (good).
    calinski_harabasz : float or None
        Calinski-Harabasz index, larger is better.
    dunn : float or None
        Dunn index, larger is better.
    bcss : float or None
        Between-cluster sum of squares, in squared units of the points.
    empty_clusters : int or None
        Centroids that are nearest to no point.
    centroid_error : float or None
        Mean squared distance between matched centroids, in squared units of the points.
    accuracy : float or None
        Share of the points whose cluster is matched with their label.
    purity : float or None
        Share of the points whose label is the commonest of their cluster.

    Examples
    --------
    >>> ClusteringMetrics(nicv=0.5).silhouette is None
    True
    """

    nicv: float | None = None
    silhouette: float | None = None
    davies_bouldin: float | None = None
    calinski_harabasz: float | None = None
    dunn: float | None = None
    bcss: float | None = None
    empty_clusters: int | None = None
    centroid_error: float | None = None
    accuracy: float | None = None
    purity: float | None = None


def clustering_metrics(
    points: npt.ArrayLike,
    centroids: npt.ArrayLike,
    *,
    labels: npt.ArrayLike | None = None,
    reference_centroids: npt.ArrayLike | None = None,
    which: Sequence[str] = ("nicv", "empty_clusters"),
    sample_size: int | None = None,
    rng: np.random.Generator | None = None,
) -> ClusteringMetrics:
    """Compute metrics of the clustering that centroids make of points.

    Only those that are asked for.

    Parameters
    ----------
    points : array of shape (n, d)
        Finite, at least one.
    centroids : array of shape (k, d)
        Finite, at least one.
    labels : array of shape (n,), optional
        True classes of any type, for "accuracy" and "purity". A label for outliers
        counts as a class.
    reference_centroids : array of shape (any number, d), optional
        What "centroid_error" compares with.
    which : sequence of str
        Names of fields of `ClusteringMetrics`.
    sample_size : int, optional
        "silhouette" and "dunn" compare all pairs of points. With more than
        `sample_size` points, at least 2, both are computed on one uniform random sample
        of that many. That estimates the silhouette with little bias, but Dunn is an
        extreme over pairs and comes out larger. The conventions for a single cluster
        hold on the sample. None: all points.
    rng : numpy.random.Generator, optional
        Draws the sample; needed if one is drawn.

    Returns
    -------
    ClusteringMetrics
        Python numbers.

    Raises
    ------
    ConfigurationError
        If a metric is unknown, the sample is too small, or it needs a generator.
    DataError
        If points, centroids, reference or labels do not fit each other, or are not
        finite.

    Notes
    -----
    With 10 clusters, silhouette and Dunn take about 0.5 seconds each for 5,000 points,
    and about half a minute each for 50,000; every other metric takes less than 0.1
    seconds for these.

    Silhouette, Davies-Bouldin and Calinski-Harabasz are scikit-learn's, from the
    clusters' points and means. Where scikit-learn has no number because every point is
    a cluster of its own, they are 0, 0 and 1.

    Dunn is the smallest distance between points of different clusters over the largest
    within a cluster (Dunn 1974); infinity if no cluster has any extent. BCSS is the sum
    of ``n_j |m_j - m|^2`` with m_j the mean of the points of cluster j, which need not
    be its centroid, and m the mean of all.

    The centroid error matches found and reference centroids one to one by the Hungarian
    algorithm, so that the sum of squared distances is the smallest. If their numbers
    differ, the smaller number of pairs is matched, and centroids that are left over do
    not count. Clusters and labels are matched alike for the accuracy: points of a
    cluster or of a label that is left over count as wrong.

    References
    ----------
    FastLloyd, appendix D; Dunn 1974, "Well-separated clusters and optimal fuzzy
    partitions".

    Examples
    --------
    >>> points = [[0.0], [1.0], [9.0], [9.0]]
    >>> names = ("nicv", "bcss", "dunn", "accuracy", "purity")
    >>> metrics = clustering_metrics(
    ...     points, [[0.0], [9.0]], labels=[1, 2, 0, 0], which=names
    ... )
    >>> [getattr(metrics, name) for name in names]
    [0.25, 72.25, 8.0, 0.75, 0.75]
    """
    for name in which:
        if name not in METRICS:
            raise ConfigurationError(
                f"the metric {name!r} is unknown: {nearest(name, METRICS)}"
            )
    points, centroids = _table("points", points), _table("centroids", centroids)
    if sample_size is not None and (not _is_whole(sample_size) or sample_size < 2):
        raise ConfigurationError(
            f"sample_size is {sample_size!r}, but it must be at least 2: give such as"
            " 5000."
        )
    reference = (
        None
        if reference_centroids is None
        else _table("reference_centroids", reference_centroids)
    )
    classes = None if labels is None else np.asarray(labels)
    if classes is not None and classes.shape != (len(points),):
        raise DataError(
            f"labels have shape {classes.shape}, but there are {len(points)} points:"
            " give one label per point."
        )
    clusters = nearest_centroids(points, centroids)[0].astype(np.int64)
    whole = Clustering(points, centroids, clusters, classes, reference)
    part = (
        _sampled(whole, sample_size, rng) if not OF_PAIRS.isdisjoint(which) else whole
    )
    metrics: dict[str, Any] = {
        name: METRICS[name](part if name in OF_PAIRS else whole) for name in which
    }
    return ClusteringMetrics(**metrics)


def area_under(epsilons: Sequence[float], costs: Sequence[float]) -> float:
    """Area under the cost over epsilon by the trapezoidal rule (FastLloyd, equation
    26).

    Parameters
    ----------
    epsilons : sequence of float
        In any order.
    costs : sequence of float
        One per epsilon.

    Returns
    -------
    float
        0 for a single epsilon.

    Raises
    ------
    DataError
        If there is not one cost per epsilon.

    Examples
    --------
    >>> area_under([0.5, 1.0, 2.0], [4.0, 2.0, 2.0])
    3.5
    """
    if len(epsilons) != len(costs):
        raise DataError(
            f"there are {len(costs)} costs for {len(epsilons)} epsilons: give one cost"
            " per epsilon."
        )
    points = sorted(zip(epsilons, costs, strict=True))
    return math.fsum(0.5 * (b + a) * (y - x) for (x, a), (y, b) in pairwise(points))


def optimal_centroids(
    points: npt.ArrayLike,
    k: int,
    *,
    n_init: int,
    seed: int,
    init: Sequence[npt.ArrayLike] = (),
) -> Array:
    """Best centroids that k-means without privacy finds.

    Scikit-learn's, run until nothing moves.

    Parameters
    ----------
    points : array of shape (n, d)
        At least k.
    k : int
        Number of centroids, at least 1.
    n_init : int
        k-means++ starts, at least 0; with 0 only those of `init`.
    seed : int
        Of the k-means++ starts.
    init : sequence of arrays of shape (k, d)
        More starts, such as the true means of drawn clusters.

    Returns
    -------
    ndarray of float64, shape (k, d)
        Of the start that ends with the lowest cost.

    Raises
    ------
    ConfigurationError
        If k, n_init or the seed is out of its range, or there is no start.
    DataError
        If there are fewer points than k, or a start has another shape.

    Examples
    --------
    >>> points = [[0.0], [1.0], [8.0]]
    >>> sorted(optimal_centroids(points, 2, n_init=3, seed=0).ravel().tolist())
    [0.5, 8.0]
    """
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    points, starts = (
        _table("points", points),
        [_table("a start of init", start) for start in init],
    )
    for name, value, least in (
        ("k", k, 1),
        ("n_init", n_init, 0 if starts else 1),
        ("seed", seed, 0),
    ):
        if not _is_whole(value) or value < least:
            raise ConfigurationError(
                f"{name} is {value!r}, but it must be an integer of at least {least}:"
                " give such one."
            )
    if len(points) < k:
        raise DataError(
            f"there are {len(points)} points for k = {k} centroids: give at least {k},"
            " or a smaller k."
        )
    for start in starts:
        if start.shape != (k, points.shape[1]):
            raise DataError(
                f"a start of init has shape {start.shape}, but it must be"
                f" {(k, points.shape[1])}: give k rows."
            )
    options = {
        "n_clusters": k,
        "tol": 0.0,
        "max_iter": _MOST_ITERATIONS,
        "random_state": int(seed),
    }
    models = [KMeans(n_init=n_init, **options)] if n_init else []
    models += [KMeans(init=start, n_init=1, **options) for start in starts]
    with warnings.catch_warnings():
        # Fewer distinct points than k give repeated centroids, which cost nothing.
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = min(models, key=lambda model: float(model.fit(points).inertia_))
    return np.asarray(best.cluster_centers_, dtype=np.float64)


def _sampled(
    whole: Clustering, sample_size: int | None, rng: np.random.Generator | None
) -> Clustering:
    """The clustering of a random sample, or the whole one if it is small enough."""
    n_points = len(whole.points)
    if sample_size is None or n_points <= sample_size:
        return whole
    if not isinstance(rng, np.random.Generator):
        raise ConfigurationError(
            f"rng is of type {type(rng).__name__}, but {sample_size} of {n_points}"
            " points are to be drawn: give numpy.random.default_rng(0), or"
            " sample_size=None."
        )
    rows = rng.choice(n_points, sample_size, replace=False)
    return Clustering(
        whole.points[rows], whole.centroids, whole.clusters[rows], None, None
    )


def _is_whole(value: object) -> bool:
    """Whether a value is an integer, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _table(name: str, values: npt.ArrayLike) -> Array:
    """A finite float64 table with rows and columns."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise DataError(
            f"{name} has shape {table.shape}, but it must be a table with at least 1"
            " row and column: give an array of shape (rows, features)."
        )
    if not np.isfinite(table).all():
        broken = int(np.count_nonzero(~np.isfinite(table).all(axis=1)))
        raise DataError(
            f"{broken} of {len(table)} rows of {name} are not finite, but all must be:"
            " remove these rows."
        )
    return table
