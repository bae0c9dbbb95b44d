"""Sphere packing: the separation it promises, its determinism, and the yardstick of the
non-private run.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.kmeans.lloyd import absolute_update
from flwr_dpkmeans.kmeans.public_points.packing import (
    PackingMethod,
    _packed,
    sphere_packing,
)

SHAPES = [(1, 1), (1, 5), (2, 1), (3, 2), (15, 2), (40, 1), (10, 8), (100, 64)]


def packing_radius(centroids: np.ndarray) -> float:
    """The largest a for which these centroids are a packing."""
    to_wall = float((1.0 - np.abs(centroids)).min())
    if len(centroids) == 1:
        return to_wall
    squares = ((centroids[:, None] - centroids) ** 2).sum(axis=2)
    return min(
        to_wall,
        float(np.sqrt(squares[~np.eye(len(centroids), dtype=bool)].min())) / 2.0,
    )


@pytest.mark.parametrize(("clusters", "features"), SHAPES)
@pytest.mark.parametrize("method", PackingMethod)
def test_shape_grid_box_and_determinism(
    clusters: int, features: int, method: PackingMethod
) -> None:
    centroids = sphere_packing(clusters, features, np.random.default_rng(3), method)
    assert centroids.shape == (clusters, features)
    assert np.array_equal(centroids, np.round(centroids * 65536) / 65536)
    assert np.abs(centroids).max() <= 1.0
    assert np.array_equal(
        centroids, sphere_packing(clusters, features, np.random.default_rng(3), method)
    )
    assert clusters == 1 or not np.array_equal(
        centroids, sphere_packing(clusters, features, np.random.default_rng(4), method)
    )


@pytest.mark.parametrize(("clusters", "features"), SHAPES)
@pytest.mark.parametrize("radius", [0.5, 0.125, 2.0**-6, 2.0**-9])
def test_every_packing_keeps_its_distances(
    clusters: int, features: int, radius: float
) -> None:
    packed = _packed(
        clusters, features, radius, np.random.default_rng(5), PackingMethod.BISECT
    )
    assert packed is None or packing_radius(packed) >= radius


def test_bisection_packs_no_looser_than_halving() -> None:
    gains = []
    for seed in range(20):
        halved = sphere_packing(15, 2, np.random.default_rng(seed), PackingMethod.HALVE)
        bisected = sphere_packing(
            15, 2, np.random.default_rng(seed), PackingMethod.BISECT
        )
        gains.append(packing_radius(bisected) / packing_radius(halved))
    assert np.median(gains) > 1.1


def test_one_centroid_is_the_centre() -> None:
    assert sphere_packing(
        1, 3, np.random.default_rng(0), PackingMethod.BISECT
    ).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("clusters", "features", "name"), [(0, 2, "n_clusters"), (2, 0, "n_features")]
)
def test_wrong_numbers(clusters: int, features: int, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is 0"):
        sphere_packing(
            clusters, features, np.random.default_rng(0), PackingMethod.HALVE
        )


def reference_folder() -> Path | None:
    """The folder with the papers' data sets, if it lies beside the project."""
    folder = Path(__file__).resolve().parents[4] / "shared"
    return (
        folder
        if (folder / "data").is_dir() and (folder / "reference").is_dir()
        else None
    )


@pytest.mark.reference
@pytest.mark.parametrize(("name", "clusters"), [("lsun", 3), ("s1", 15), ("yeast", 10)])
def test_lloyd_from_halved_packing_reproduces_the_yardstick(
    name: str, clusters: int
) -> None:
    folder = reference_folder()
    if folder is None:
        pytest.skip("the papers' data sets are not here")
    raw = np.load(folder / "data" / f"{name}.npz")["X"].astype(float)
    low, high = raw.min(axis=0), raw.max(axis=0)
    points = round_to_grid(
        2.0 * (raw - low) / np.where(high > low, high - low, 1.0) - 1.0
    )
    costs = []
    for seed in range(60):
        centroids = sphere_packing(
            clusters, points.shape[1], np.random.default_rng(seed), PackingMethod.HALVE
        )
        for _ in range(7):
            sums, counts = absolute_statistics(points, centroids)
            centroids = absolute_update(
                centroids, sums, counts, post_processing=PostProcessing.NONE
            )
        costs.append(cost_per_point(points, centroids))
    text = (folder / "reference" / "fastlloyd_nicv_independent_noise.json").read_text(
        encoding="utf-8"
    )
    expected = json.loads(text)[f"{name}|Lloyd|"]
    deviation = np.hypot(expected["se"], np.std(costs, ddof=1) / np.sqrt(len(costs)))
    assert abs(np.mean(costs) - expected["mean"]) < 2.5 * deviation
