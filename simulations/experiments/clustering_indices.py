"""One function for each metric of a clustering, behind `metrics.clustering_metrics`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.cost import cost_per_point

Array = NDArray[np.float64]

# Memory for blocks of distances between points, in MiB.
_WORKING_MEMORY = 64


@dataclass(frozen=True, eq=False)
class Clustering:
    """What a metric sees."""

    points: Array = field(repr=False)
    centroids: Array = field(repr=False)
    clusters: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.generic] | None = field(repr=False)
    reference: Array | None = field(repr=False)

    @property
    def n_found(self) -> int:
        """Clusters that are not empty."""
        return len(np.unique(self.clusters))


def _silhouette(seen: Clustering) -> float:
    """Mean silhouette coefficient."""
    from sklearn import config_context
    from sklearn.metrics import silhouette_score

    if seen.n_found == 1:
        return -1.0
    if seen.n_found == len(seen.points):
        return 0.0
    with config_context(working_memory=_WORKING_MEMORY):
        return float(silhouette_score(seen.points, seen.clusters))


def _davies_bouldin(seen: Clustering) -> float:
    """Davies-Bouldin index."""
    from sklearn.metrics import davies_bouldin_score

    if seen.n_found == 1:
        return math.inf
    if seen.n_found == len(seen.points):
        return 0.0
    return float(davies_bouldin_score(seen.points, seen.clusters))


def _calinski_harabasz(seen: Clustering) -> float:
    """Calinski-Harabasz index."""
    from sklearn.metrics import calinski_harabasz_score

    if seen.n_found == 1:
        return 0.0
    if seen.n_found == len(seen.points):
        return 1.0
    return float(calinski_harabasz_score(seen.points, seen.clusters))


def _dunn(seen: Clustering) -> float:
    """Dunn index, from blocks of distances."""
    from sklearn.metrics import pairwise_distances_chunked

    if seen.n_found == 1:
        return 0.0
    # Centred, so that distances do not lose digits.
    points = seen.points - seen.points.mean(axis=0)
    clusters = seen.clusters
    gap = math.inf
    diameter = 0.0
    start = 0
    for distances in pairwise_distances_chunked(points, working_memory=_WORKING_MEMORY):
        end = start + len(distances)
        is_same = clusters[start:end, None] == clusters
        between = float(distances.min(where=~is_same, initial=math.inf))
        within = float(distances.max(where=is_same, initial=0.0))
        gap = min(gap, between)
        diameter = max(diameter, within)
        start = end
    if diameter == 0.0:
        return math.inf
    return gap / diameter


def _bcss(seen: Clustering) -> float:
    """Between-cluster sum of squares."""
    from scipy.sparse import csr_array

    n_points = len(seen.points)
    n_clusters = len(seen.centroids)
    positions = (seen.clusters, np.arange(n_points))
    members = csr_array((np.ones(n_points), positions), (n_clusters, n_points))
    counts = np.bincount(seen.clusters, minlength=n_clusters)
    is_full = counts > 0
    # From centred points, because a difference of large sums would lose digits.
    sums = members @ (seen.points - seen.points.mean(axis=0))
    squares = (sums**2).sum(axis=1)
    return float((squares[is_full] / counts[is_full]).sum())


def _empty_clusters(seen: Clustering) -> int:
    """Centroids that are nearest to no point."""
    return len(seen.centroids) - seen.n_found


def _centroid_error(seen: Clustering) -> float | None:
    """Mean squared distance of matched centroids."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    if seen.reference is None:
        return None
    if seen.reference.shape[1] != seen.centroids.shape[1]:
        raise DataError(
            f"reference_centroids have {seen.reference.shape[1]} features, but the"
            f" centroids have {seen.centroids.shape[1]}: give both the same."
        )
    squared_distances = cdist(seen.centroids, seen.reference, "sqeuclidean")
    matching = linear_sum_assignment(squared_distances)
    return float(squared_distances[matching].mean())


def _contingency(seen: Clustering) -> Array | None:
    """Points of each label and each cluster that is not empty."""
    from sklearn.metrics.cluster import contingency_matrix

    if seen.labels is None:
        return None
    counts = contingency_matrix(seen.labels, seen.clusters)
    return np.asarray(counts, dtype=np.float64)


def _accuracy(seen: Clustering) -> float | None:
    """Share of points under the best one-to-one matching."""
    from scipy.optimize import linear_sum_assignment

    counts = _contingency(seen)
    if counts is None:
        return None
    matching = linear_sum_assignment(counts, maximize=True)
    return float(counts[matching].sum() / len(seen.points))


def _purity(seen: Clustering) -> float | None:
    """Share of points with the commonest label of their cluster."""
    counts = _contingency(seen)
    if counts is None:
        return None
    return float(counts.max(axis=0).sum() / len(seen.points))


METRICS: Mapping[str, Callable[[Clustering], float | None]] = MappingProxyType(
    {
        "nicv": lambda seen: cost_per_point(seen.points, seen.centroids),
        "silhouette": _silhouette,
        "davies_bouldin": _davies_bouldin,
        "calinski_harabasz": _calinski_harabasz,
        "dunn": _dunn,
        "bcss": _bcss,
        "empty_clusters": _empty_clusters,
        "centroid_error": _centroid_error,
        "accuracy": _accuracy,
        "purity": _purity,
    }
)
"""By field of `metrics.ClusteringMetrics`."""
OF_PAIRS = frozenset({"silhouette", "dunn"})
"""Metrics that compare all pairs of points."""
