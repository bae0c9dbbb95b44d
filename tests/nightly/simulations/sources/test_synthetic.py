"""The degree of separation against its definition, and generated sets against what was
asked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.stats import norm

from simulations.sources.separation import (
    ClusterMoments,
    estimate_moments,
    separation_index,
)
from simulations.sources.synthetic import (
    LabelledPoints,
    draw_balanced_clusters,
    draw_cluster_moments,
    draw_g2,
    draw_max_cover_mixture,
    draw_separated_clusters,
)

Z = float(norm.ppf(0.975))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def index_along(
    direction: NDArray[np.float64],
    shift: NDArray[np.float64],
    *covariances: NDArray[np.float64],
) -> float:
    """J along a direction, as it is defined: (L2 - U1) / (U2 - L1)."""
    first, second = (
        math.sqrt(direction @ covariance @ direction) for covariance in covariances
    )
    gap = abs(float(direction @ shift))
    return (gap - Z * (first + second)) / (gap + Z * (first + second))


def best_index(shift: NDArray[np.float64], *covariances: NDArray[np.float64]) -> float:
    """J* by a general minimiser over directions."""
    found = minimize(
        lambda direction: -index_along(direction, shift, *covariances),
        shift,
        method="BFGS",
        tol=1e-9,
    )
    return -float(found.fun)


def random_moments(
    seed: int, n_clusters: int, n_features: int, scale: float = 3.0
) -> ClusterMoments:
    generator = rng(seed)
    factors = generator.normal(size=(n_clusters, n_features, n_features))
    covariances = factors @ factors.transpose(0, 2, 1) + 0.05 * np.eye(n_features)
    # Sizes that differ widely.
    covariances *= np.exp(generator.normal(size=n_clusters))[:, None, None]
    return ClusterMoments(
        scale * generator.normal(size=(n_clusters, n_features)), covariances
    )


@pytest.mark.parametrize(
    ("distance", "expected"),
    # Published with clusterGeneration: "close", "separated" and "well-separated" normal
    # distributions of unit variance.
    [(4.0, 0.01011020), (6.0, 0.2096862), (8.0, 0.34229)],
)
def test_published_values(distance: float, expected: float) -> None:
    two = ClusterMoments(np.array([[0.0], [distance]]), np.ones((2, 1, 1)))
    assert separation_index(two) == pytest.approx([expected] * 2, rel=1e-5)


@pytest.mark.parametrize(("n_clusters", "n_features"), [(2, 2), (5, 2), (4, 5)])
def test_index_is_the_best_over_directions_for_the_nearest_of_all(
    n_clusters: int, n_features: int
) -> None:
    for seed in range(3):
        moments = random_moments(seed, n_clusters, n_features)
        pairs = np.full((n_clusters, n_clusters), np.inf)
        for i in range(n_clusters):
            for j in range(i):
                shift = moments.means[i] - moments.means[j]
                pairs[i, j] = pairs[j, i] = best_index(
                    shift, moments.covariances[i], moments.covariances[j]
                )
        assert separation_index(moments) == pytest.approx(pairs.min(axis=1), abs=1e-7)


def test_index_does_not_depend_on_the_coordinates() -> None:
    moments = random_moments(3, 5, 4)
    change = rng(4).normal(size=(4, 4))
    covariances = np.einsum("ab,kbc,dc->kad", change, moments.covariances, change)
    changed = ClusterMoments(moments.means @ change.T + 7.0, covariances)
    assert separation_index(changed) == pytest.approx(
        separation_index(moments), rel=1e-9
    )


def test_equal_means_have_no_separation() -> None:
    assert separation_index(
        ClusterMoments(np.zeros((2, 2)), np.stack([np.eye(2)] * 2))
    ).tolist() == [-1.0, -1.0]


@pytest.mark.parametrize(
    ("n_clusters", "n_features", "separation"),
    [
        (2, 1, 0.2),
        (7, 1, 0.2),
        (2, 2, 0.16),
        (16, 2, 0.26),
        (4, 64, 0.75),
        (20, 5, 0.5),
        (5, 3, -0.3),
        (3, 2, 0.999),
    ],
)
def test_every_nearest_neighbour_has_the_separation(
    n_clusters: int, n_features: int, separation: float
) -> None:
    for seed in range(3):
        moments = draw_cluster_moments(
            rng(seed),
            n_clusters=n_clusters,
            n_features=n_features,
            separation=separation,
        )
        assert separation_index(moments) == pytest.approx(
            [separation] * n_clusters, abs=1e-9
        )


def test_separation_by_the_definition_and_not_only_by_the_index_of_the_package() -> (
    None
):
    moments = draw_cluster_moments(rng(1), n_clusters=6, n_features=3, separation=0.21)
    for i in range(6):
        found = [
            best_index(
                moments.means[i] - moments.means[j],
                moments.covariances[i],
                moments.covariances[j],
            )
            for j in range(6)
            if j != i
        ]
        assert min(found) == pytest.approx(0.21, abs=1e-7)


def test_a_wrong_separation_is_seen() -> None:
    moments = draw_cluster_moments(rng(), n_clusters=8, n_features=3, separation=0.2)
    further = ClusterMoments(moments.means * 1.05, moments.covariances)
    assert (separation_index(further) > 0.22).all()
    wider = moments.covariances.copy()
    wider[5] *= 1.1
    found = separation_index(ClusterMoments(moments.means, wider))
    assert found[5] < 0.195
    assert (found <= 0.2 + 1e-9).all()


def test_moments_have_the_stated_shape() -> None:
    moments = draw_cluster_moments(rng(2), n_clusters=12, n_features=6, separation=0.2)
    eigenvalues = np.linalg.eigvalsh(moments.covariances)
    assert eigenvalues.min() >= 1.0
    # Grown a little, each by one factor.
    assert eigenvalues.max() <= 25.0
    assert (eigenvalues[:, -1] / eigenvalues[:, 0]).max() <= 10.0
    distances = cdist(moments.means, moments.means) + 1e9 * np.eye(12)
    # All nearest means are at the side of the simplex.
    assert distances.min(axis=1) == pytest.approx([distances.min()] * 12)
    # Rotated: no coordinate of the simplex is left alone.
    assert (np.abs(moments.means).max(axis=0) > 1e-3).all()
    # Eigenvectors of one cluster are not those of another.
    product = moments.covariances[0] @ moments.covariances[1]
    assert np.abs(product - product.T).max() > 1.0


def test_directions_are_uniform() -> None:
    shifts = []
    for seed in range(200):
        moments = draw_cluster_moments(
            rng(seed), n_clusters=2, n_features=3, separation=0.2
        )
        shift = moments.means[1] - moments.means[0]
        shifts.append(shift / np.linalg.norm(shift))
    # Coordinates of a uniform direction have mean 0 and variance 1/3: standard errors
    # 0.041 and 0.021.
    assert np.abs(np.mean(shifts, axis=0)).max() < 0.12
    assert np.abs(np.var(shifts, axis=0) - 1 / 3).max() < 0.06


@pytest.mark.parametrize(("n_clusters", "n_features"), [(4, 2), (8, 5)])
def test_points_have_the_true_moments(n_clusters: int, n_features: int) -> None:
    options: dict[str, Any] = {
        "n_clusters": n_clusters,
        "n_features": n_features,
        "separation": 0.25,
    }
    true = draw_cluster_moments(rng(6), **options)
    drawn = draw_separated_clusters(rng(6), n_points=80_000, **options)
    assert np.array_equal(drawn.means, true.means)
    estimated = estimate_moments(drawn.points, drawn.labels)
    counts = np.bincount(drawn.labels[drawn.labels >= 0])
    errors = (estimated.means - true.means) * np.sqrt(
        counts / np.trace(true.covariances, axis1=1, axis2=2)
    )[:, None]
    assert np.abs(errors).max() < 4.0
    assert np.abs(estimated.covariances - true.covariances).max() < 2.0
    # J of a sample has a standard error of about 0.7 / sqrt(2 n): 0.01 with 2,000
    # points in the smallest cluster.
    assert separation_index(estimated) == pytest.approx([0.25] * n_clusters, abs=0.02)
    # The tolerance would not hide another range.
    other = draw_separated_clusters(
        rng(6), n_points=80_000, **{**options, "separation": 0.3}
    )
    assert (
        separation_index(estimate_moments(other.points, other.labels)) > 0.275
    ).all()


@pytest.mark.parametrize(
    ("sizes", "n_points", "n_clusters", "expected"),
    [
        ("increasing", 10_000, 4, [1000, 2000, 3000, 4000]),
        ("increasing", 7, 3, [1, 2, 4]),
        ("increasing", 8, 3, [1, 3, 4]),
        ("increasing", 6, 3, [1, 2, 3]),
        ("balanced", 11, 3, [4, 4, 3]),
        ("balanced", 3, 3, [1, 1, 1]),
    ],
)
def test_sizes(sizes: str, n_points: int, n_clusters: int, expected: list[int]) -> None:
    drawn = draw_separated_clusters(
        rng(),
        n_points=n_points,
        n_clusters=n_clusters,
        n_features=2,
        sizes=sizes,
        n_outliers=3,
    )
    assert np.bincount(drawn.labels + 1).tolist() == [3, *expected]


def test_increasing_sizes_with_the_most_clusters_of_the_paper() -> None:
    drawn = draw_separated_clusters(rng(), n_clusters=128, n_features=2, n_outliers=0)
    counts = np.bincount(drawn.labels)
    assert len(drawn.points) == counts.sum() == 10_000
    assert np.abs(counts - 10_000 * np.arange(1, 129) / 8256).max() < 1.0


def test_similar_sizes() -> None:
    totals, smallest, largest = [], [], []
    for seed in range(30):
        drawn = draw_separated_clusters(
            rng(seed),
            n_points=2048,
            n_clusters=8,
            n_features=2,
            sizes="similar",
            n_outliers=0,
        )
        counts = np.bincount(drawn.labels)
        totals.append(counts.sum())
        smallest.append(counts.min())
        largest.append(counts.max())
    assert 0.7 * 256 <= min(smallest) < 190
    assert 320 < max(largest) <= 1.3 * 256
    assert 1434 <= min(totals) < max(totals) <= 2662
    assert np.mean(totals) == pytest.approx(2048, abs=100)
    drawn = draw_separated_clusters(
        rng(), n_points=3, n_clusters=3, n_features=2, sizes="similar", n_outliers=0
    )
    assert np.bincount(drawn.labels).tolist() == [1, 1, 1]


def test_outliers_are_uniform_in_the_stated_box() -> None:
    drawn = draw_separated_clusters(rng(3), n_clusters=5, n_features=3, n_outliers=4000)
    inner, outer = drawn.points[drawn.labels >= 0], drawn.points[drawn.labels < 0]
    scaled = (outer - inner.mean(axis=0)) / inner.std(axis=0)
    assert len(outer) == 4000
    assert scaled.min() >= -4.0
    assert scaled.max() <= 4.0
    assert scaled.min(axis=0).max() < -3.9
    assert scaled.max(axis=0).min() > 3.9
    # Uniform: variance 64 / 12.
    assert scaled.var(axis=0) == pytest.approx([64 / 12] * 3, rel=0.05)
    assert np.abs(np.corrcoef(scaled.T) - np.eye(3)).max() < 0.06


def test_a_random_number_of_outliers() -> None:
    counts = []
    for seed in range(60):
        drawn = draw_separated_clusters(
            rng(seed), n_points=10, n_clusters=2, n_features=1
        )
        counts.append(len(drawn.points) - 10)
        assert counts[-1] == (drawn.labels == -1).sum()
    assert 0 <= min(counts) < 15
    assert 85 < max(counts) <= 100
    assert np.mean(counts) == pytest.approx(50, abs=12)


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: draw_separated_clusters(
            generator, n_points=100, n_clusters=3, n_features=4
        ),
        lambda generator: draw_balanced_clusters(
            generator, n_points=100, n_clusters=3, n_features=4
        ),
        lambda generator: draw_g2(generator, n_features=4, n_points=100),
    ],
)
def test_same_generator_same_draw(draw: Any) -> None:
    first, again, other = draw(rng(1)), draw(rng(1)), draw(rng(2))
    for field in ("points", "labels", "means"):
        assert np.array_equal(getattr(first, field), getattr(again, field))
    assert not np.array_equal(first.points[:50], other.points[:50])
    assert first.labels.dtype == np.int64
    assert first.points.dtype == np.float64
    assert isinstance(first, LabelledPoints)


def test_balanced_clusters() -> None:
    drawn = draw_balanced_clusters(rng(1), n_points=100_000, n_clusters=5, n_features=2)
    assert np.bincount(drawn.labels).tolist() == [20_000] * 5
    assert separation_index(
        estimate_moments(drawn.points, drawn.labels)
    ) == pytest.approx([0.34] * 5, abs=0.01)
    # Well separated: almost no point is nearer to another mean.
    assert (
        cdist(drawn.points, drawn.means).argmin(axis=1) == drawn.labels
    ).mean() > 0.99


def test_g2() -> None:
    drawn = draw_g2(rng(), n_features=64)
    assert drawn.points.shape == (2048, 64)
    assert np.bincount(drawn.labels).tolist() == [1024, 1024]
    assert drawn.means.tolist() == [[500.0] * 64, [600.0] * 64]
    residuals = drawn.points - drawn.means[drawn.labels]
    assert residuals.std() == pytest.approx(30.0, rel=0.01)
    # 1,024 rows: standard error 30 / 32.
    assert (
        np.abs(
            [residuals[drawn.labels == label].mean(axis=0) for label in (0, 1)]
        ).max()
        < 4.0
    )
    assert np.bincount(
        draw_g2(rng(), n_features=1, n_points=7, deviation=10).labels
    ).tolist() == [4, 3]


def test_max_cover_set() -> None:
    drawn = draw_max_cover_mixture(rng())
    assert drawn.points.shape == (50_000, 100)
    assert drawn.means.shape == (64, 100)
    assert drawn.points.min() == 0.0
    assert drawn.points.max() <= 100.0
    assert set(drawn.labels.tolist()) == set(range(64))
    # 6,400 coordinates of centres: the deviation of their deviation is 25 /
    # sqrt(12,800) = 0.22.
    assert drawn.means.std() == pytest.approx(25.0, abs=1.0)
    assert abs(drawn.means.mean()) < 1.5
    inside = (drawn.means[drawn.labels] > 5.0) & (drawn.means[drawn.labels] < 95.0)
    residuals = (drawn.points - drawn.means[drawn.labels])[inside]
    assert residuals.var() == pytest.approx(1.0, rel=0.01)
    assert (drawn.points[drawn.means[drawn.labels] < -6.0] == 0.0).all()
