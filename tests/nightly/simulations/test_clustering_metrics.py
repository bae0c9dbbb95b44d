"""Every metric against hand-computed toys, scikit-learn and its definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import (
    calinski_harabasz_score,
    davies_bouldin_score,
    silhouette_score,
)

from flwr_dpkmeans.errors import DataError
from simulations.experiments.clustering_metrics import (
    ClusteringMetrics,
    area_under,
    clustering_metrics,
    optimal_centroids,
)

ALL = tuple(ClusteringMetrics.__dataclass_fields__)
# Two clusters on a line, {0, 2} and {10, 14}, and a centroid that nobody is nearest to.
LINE = [[0.0], [2.0], [10.0], [14.0]]
CENTROIDS = [[1.0], [11.0], [100.0]]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def metric(name: str, points: Any, centroids: Any, **options: Any) -> Any:
    found = clustering_metrics(points, centroids, which=(name,), **options)
    assert [field for field in ALL if getattr(found, field) is not None] in ([name], [])
    return getattr(found, name)


def blobs(
    n_points: int = 300, n_features: int = 3
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    generator = rng(1)
    centroids = generator.normal(size=(4, n_features))
    return (
        centroids[generator.integers(4, size=n_points)]
        + generator.normal(size=(n_points, n_features)),
        centroids,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Squared distances to the centroids 1, 1, 1, 9.
        ("nicv", 3.0),
        # 0: 1 - 2/12; 2: 1 - 2/10; 10: 1 - 4/9; 14: 1 - 4/13.
        ("silhouette", (10 / 12 + 8 / 10 + 5 / 9 + 9 / 13) / 4),
        # Means 1 and 12, mean distances to them 1 and 2.
        ("davies_bouldin", 3 / 11),
        # BCSS 121 over 1 degree of freedom, within 2 + 8 over 2.
        ("calinski_harabasz", 121 / 5),
        # Closest points of different clusters 2 and 10, largest diameter 4.
        ("dunn", 2.0),
        # Means 1 and 12 around 6.5, two points each; the centroid 11 is not a mean.
        ("bcss", 4 * 5.5**2),
        ("empty_clusters", 1),
    ],
)
def test_hand_computed(name: str, expected: float) -> None:
    assert metric(name, LINE, CENTROIDS) == pytest.approx(expected, rel=1e-12)


def test_equals_scikit_learn() -> None:
    points, centroids = blobs()
    clusters = cdist(points, centroids).argmin(axis=1)
    assert metric("silhouette", points, centroids) == pytest.approx(
        silhouette_score(points, clusters), rel=1e-12
    )
    assert metric("davies_bouldin", points, centroids) == pytest.approx(
        davies_bouldin_score(points, clusters)
    )
    calinski = calinski_harabasz_score(points, clusters)
    assert metric("calinski_harabasz", points, centroids) == pytest.approx(calinski)
    within = sum(
        ((points[clusters == j] - points[clusters == j].mean(axis=0)) ** 2).sum()
        for j in range(4)
    )
    between = ((points - points.mean(axis=0)) ** 2).sum() - within
    assert metric("bcss", points, centroids) == pytest.approx(between, rel=1e-12)
    assert calinski == pytest.approx(between / 3 / (within / 296))


@pytest.mark.parametrize("n_points", [300, 3_000])
def test_dunn_is_its_definition_also_over_several_blocks_and_far_from_the_origin(
    n_points: int,
) -> None:
    """3,000 rows have more distances than one block of 64 MiB."""
    points, centroids = blobs(n_points)
    clusters, distances = cdist(points, centroids).argmin(axis=1), cdist(points, points)
    same = clusters[:, None] == clusters
    expected = distances[~same].min() / distances[same].max()
    assert metric("dunn", points, centroids) == pytest.approx(expected, rel=1e-9)
    assert metric("dunn", points + 1e6, centroids + 1e6) == pytest.approx(
        expected, rel=1e-6
    )


def test_conventions_for_a_single_cluster() -> None:
    for centroids in ([[1.0]], [[1.0], [100.0], [100.0]]):
        assert metric("silhouette", LINE, centroids) == -1.0
        assert metric("davies_bouldin", LINE, centroids) == math.inf
        assert metric("calinski_harabasz", LINE, centroids) == 0.0
        assert metric("dunn", LINE, centroids) == 0.0
        assert metric("bcss", LINE, centroids) == 0.0
        assert metric("empty_clusters", LINE, centroids) == len(centroids) - 1


def test_conventions_where_every_point_is_a_cluster() -> None:
    found = clustering_metrics(
        LINE, LINE, which=("silhouette", "davies_bouldin", "calinski_harabasz", "dunn")
    )
    assert (
        found.silhouette,
        found.davies_bouldin,
        found.calinski_harabasz,
        found.dunn,
    ) == (0.0, 0.0, 1.0, math.inf)


def test_centroid_error_matches_at_the_least_cost() -> None:
    reference, found = rng(2).normal(size=(5, 3)), rng(3).normal(size=(5, 3))
    squared = cdist(found, reference, "sqeuclidean")
    best = min(
        squared[list(order), range(5)].mean()
        for order in itertools.permutations(range(5))
    )
    # Greedy matching of every centroid with its nearest is another number here.
    assert best > squared.min(axis=1).mean() * 1.01
    assert metric(
        "centroid_error", found, found, reference_centroids=reference
    ) == pytest.approx(best)
    shuffled = reference[[3, 0, 4, 1, 2]] + 0.5
    assert metric(
        "centroid_error", found, shuffled, reference_centroids=reference
    ) == pytest.approx(0.75)


def test_centroid_error_of_different_numbers_leaves_the_rest_out() -> None:
    assert (
        metric(
            "centroid_error",
            LINE,
            [[0.0], [50.0], [9.0]],
            reference_centroids=[[10.0], [2.0]],
        )
        == 2.5
    )
    assert (
        metric(
            "centroid_error",
            LINE,
            [[10.0], [2.0]],
            reference_centroids=[[0.0], [50.0], [9.0]],
        )
        == 2.5
    )


def test_accuracy_and_purity() -> None:
    points, centroids = (
        np.repeat([[0.0], [10.0], [20.0]], [5, 4, 1], axis=0),
        [[0.0], [10.0], [20.0]],
    )
    # Commonest labels: a (3 of 5), a (3 of 4), b (1). One to one, a can have only one
    # cluster.
    labels = np.array(list("aaabb" + "aaab" + "b"))
    assert metric("purity", points, centroids, labels=labels) == pytest.approx(0.7)
    # a with the second cluster and b with the first: 3 + 2; with the first and the
    # second it would be 3 + 1.
    assert metric("accuracy", points, centroids, labels=labels) == pytest.approx(0.5)
    # More labels than clusters: at most one label counts for each.
    assert metric(
        "accuracy", points, [[0.0], [15.0]], labels=range(10)
    ) == pytest.approx(0.2)
    assert metric("purity", points, [[0.0], [15.0]], labels=range(10)) == pytest.approx(
        0.2
    )
    permuted = np.array([7] * 5 + [-1] * 4 + [3])
    assert metric("accuracy", points, centroids, labels=permuted) == 1.0


def test_what_is_not_given_is_none() -> None:
    metrics = clustering_metrics(LINE, CENTROIDS, which=ALL)
    missing = [name for name in ALL if getattr(metrics, name) is None]
    assert missing == ["centroid_error", "accuracy", "purity"]


def test_sample_of_the_metrics_of_pairs_only() -> None:
    """Exactly so many points need no sample; nor does a metric of single points."""
    points, centroids = blobs()
    rows = rng(5).choice(300, 100, replace=False)
    sample = points[rows]
    clusters = cdist(sample, centroids).argmin(axis=1)
    which = ("silhouette", "dunn", "davies_bouldin", "nicv")
    sampled = {"sample_size": 100, "rng": rng(5)}
    metrics = clustering_metrics(points, centroids, which=which, **sampled)
    assert metrics.silhouette == pytest.approx(silhouette_score(sample, clusters))
    assert metrics.dunn == metric("dunn", sample, centroids)
    assert metrics.davies_bouldin == metric("davies_bouldin", points, centroids)
    assert metrics.nicv == metric("nicv", points, centroids)
    assert metrics.nicv == metric("nicv", points, centroids, sample_size=100)
    whole = metric("silhouette", points, centroids)
    assert metric("silhouette", points, centroids, sample_size=300) == whole


def test_area_under() -> None:
    assert area_under([1.0, 0.5, 2.0], [2.0, 4.0, 2.0]) == 3.5
    assert area_under([1.0], [2.0]) == 0.0
    with pytest.raises(DataError, match="there are 2 costs for 1 epsilons"):
        area_under([1.0], [2.0, 3.0])


def test_optimum_is_the_best_of_all_starts() -> None:
    # Three pairs; the bad start keeps two of them in one cluster.
    points = np.array([[0.0], [1.0], [10.0], [11.0], [100.0], [101.0]])
    bad, good = [[5.5], [100.0], [101.0]], [[0.5], [10.5], [100.5]]
    stuck = optimal_centroids(points, 3, n_init=0, seed=0, init=[bad])
    assert sorted(stuck.ravel().tolist()) == [5.5, 100.0, 101.0]
    for options in (
        {"n_init": 0, "init": [bad, good]},
        {"n_init": 10},
        {"n_init": 10, "init": [bad]},
    ):
        found = optimal_centroids(points, 3, seed=0, **options)  # type: ignore[arg-type]
        assert sorted(found.ravel().tolist()) == [0.5, 10.5, 100.5]


def test_optimum_takes_all_restarts() -> None:
    points = rng(8).random((300, 2))
    costs = [
        metric("nicv", points, optimal_centroids(points, 15, n_init=n, seed=0))
        for n in (1, 20)
    ]
    assert costs[1] < 0.99 * costs[0]
    alike = KMeans(15, n_init=20, random_state=0, tol=0.0).fit(points)
    assert costs[1] == pytest.approx(alike.inertia_ / 300, rel=1e-9)


def test_optimum_runs_until_nothing_moves() -> None:
    points = rng(8).random((2000, 2))
    found = optimal_centroids(points, 20, n_init=1, seed=0)
    clusters = cdist(points, found).argmin(axis=1)
    means = np.stack([points[clusters == j].mean(axis=0) for j in range(20)])
    assert np.abs(means - found).max() < 1e-9
    assert np.array_equal(found, optimal_centroids(points, 20, n_init=1, seed=0))
    # With scikit-learn's own tolerance it would stop before.
    assert (
        KMeans(20, n_init=1, random_state=0).fit(points).n_iter_
        < KMeans(20, n_init=1, random_state=0, tol=0.0).fit(points).n_iter_
    )
