"""Sphere packing: the separation it promises, its determinism, and the yardstick of the
non-private run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans import public_points as packing_module
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.kmeans.lloyd import PostProcessing, absolute_update
from flwr_dpkmeans.kmeans.public_points import PackingMethod, sphere_packing

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
    packed = packing_module._packed(
        clusters, features, radius, np.random.default_rng(5), PackingMethod.BISECT
    )
    assert packed is None or packing_radius(packed) >= radius


def test_candidates_keep_their_distance_to_the_walls_after_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing_module, "GRID", 16.0)
    candidates = packing_module._candidates(50, 0.27, np.random.default_rng(0))
    assert np.abs(candidates).max() == 11 / 16, (
        "0.6875 is the last cell that is 0.27 away from the wall"
    )


def radii_tried(
    monkeypatch: pytest.MonkeyPatch,
    method: PackingMethod,
    n_clusters: int = 15,
    n_features: int = 2,
) -> list[tuple[float, bool]]:
    """The radii that a search tries, each with whether it was feasible."""
    tried: list[tuple[float, bool]] = []
    original = packing_module._packed

    def recorded(
        clusters: int, features: int, radius: float, *others: Any
    ) -> np.ndarray | None:
        packed = original(clusters, features, radius, *others)
        tried.append((radius, packed is not None))
        return packed

    monkeypatch.setattr(packing_module, "_packed", recorded)
    sphere_packing(n_clusters, n_features, np.random.default_rng(0), method)
    return tried


def test_halving_stops_at_the_first_feasible_radius(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = radii_tried(monkeypatch, PackingMethod.HALVE)
    assert [radius for radius, _ in tried] == [2.0**-step for step in range(len(tried))]
    assert [feasible for _, feasible in tried] == [False] * (len(tried) - 1) + [True]


def test_bisection_narrows_down_to_a_sixty_fourth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = radii_tried(monkeypatch, PackingMethod.BISECT)
    best = max(radius for radius, feasible in tried if feasible)
    first = next(radius for radius, feasible in tried if feasible)
    worst = min(radius for radius, feasible in tried if not feasible and radius > best)
    assert worst - best == first / 64


def test_bisection_packs_no_looser_than_halving() -> None:
    gains = []
    for seed in range(20):
        halved = sphere_packing(15, 2, np.random.default_rng(seed), PackingMethod.HALVE)
        bisected = sphere_packing(
            15, 2, np.random.default_rng(seed), PackingMethod.BISECT
        )
        gains.append(packing_radius(bisected) / packing_radius(halved))
    assert np.median(gains) > 1.1


@pytest.mark.parametrize(("clusters", "features"), [(4, 2), (10, 8), (10, 100)])
def test_from_the_corners_every_distance_is_kept_and_the_largest_radius_found(
    clusters: int, features: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        tried: list[tuple[float, Any]] = []
        original = packing_module._packed
        patch.setattr(
            packing_module,
            "_packed",
            lambda k, d, r, *more: (
                tried.append((r, original(k, d, r, *more))) or tried[-1][1]
            ),
        )
        found = sphere_packing(
            clusters, features, np.random.default_rng(1), PackingMethod.CORNERS
        )
    best, packed = max(
        ((radius, packed) for radius, packed in tried if packed is not None),
        key=lambda one: one[0],
    )
    assert found is packed
    assert tried[0][0] == np.sqrt(features)
    nearest_corners = np.where(found >= 0.0, 1.0, -1.0)
    assert np.linalg.norm(found - nearest_corners, axis=1).min() >= best
    assert (
        min(np.linalg.norm(a - b) for i, a in enumerate(found) for b in found[:i])
        >= 2.0 * best
    )
    # Walls may be near: in many dimensions that is where the room is, at about sqrt(d /
    # 3) from the middle.
    assert np.abs(found).max() > 1.0 - best
    assert features < 100 or 5.0 < np.linalg.norm(found, axis=1).mean() < 7.0


def test_from_the_corners_a_thousand_rejections_in_a_row_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n_rejected, expected in ((999, [[0.0], [0.5]]), (1000, None)):
        # 0.9 is nearer to a corner than 0.25, 0.1 nearer to the first centroid than
        # twice that.
        stream = iter(
            [0.0]
            + [0.9, 0.1] * (n_rejected // 2)
            + [0.1] * (n_rejected % 2)
            + [0.5] * 9
        )
        monkeypatch.setattr(
            packing_module,
            "_candidates",
            lambda *_, stream=stream: np.array([[next(stream)]]),
        )
        packed = packing_module._packed(
            2, 1, 0.25, np.random.default_rng(0), PackingMethod.CORNERS
        )
        assert (None if packed is None else packed.tolist()) == expected


def test_one_centroid_is_the_centre() -> None:
    assert sphere_packing(
        1, 3, np.random.default_rng(0), PackingMethod.BISECT
    ).tolist() == [[0.0, 0.0, 0.0]]


def test_gives_up_after_a_hundred_rejections_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[np.ndarray] = []

    def candidates(values: list[float]) -> None:
        stream = iter(values)

        def pool(
            _features: int, _radius: float, _generator: np.random.Generator
        ) -> np.ndarray:
            drawn.append(np.array([[next(stream)] for _ in range(50)]))
            return drawn[-1]

        monkeypatch.setattr(packing_module, "_candidates", pool)

    candidates([0.0] * 100 + [0.5] + [0.0] * 100)
    packed = packing_module._packed(
        2, 1, 0.25, np.random.default_rng(0), PackingMethod.BISECT
    )
    assert packed is not None, "99 rejections must not be too many"
    assert packed.tolist() == [[0.0], [0.5]]
    candidates([0.0] * 101 + [0.5] + [0.0] * 100)
    assert (
        packing_module._packed(
            2, 1, 0.25, np.random.default_rng(0), PackingMethod.BISECT
        )
        is None
    ), "100 rejections must be too many"


def test_rejections_are_counted_per_centroid(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = iter([0.0] * 90 + [0.5] + [0.0] * 90 + [-0.5] + [0.0] * 100)
    monkeypatch.setattr(
        packing_module,
        "_candidates",
        lambda *_: np.array([[next(stream)] for _ in range(40)]),
    )
    packed = packing_module._packed(
        3, 1, 0.25, np.random.default_rng(0), PackingMethod.BISECT
    )
    assert packed is not None
    assert packed.tolist() == [[0.0], [0.5], [-0.5]]


def test_more_centroids_than_grid_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_module, "GRID", 4.0)
    centroids = sphere_packing(30, 1, np.random.default_rng(0), PackingMethod.BISECT)
    assert centroids.shape == (30, 1)
    assert np.abs(centroids).max() <= 1.0
    # Half a grid step is the last radius that is tried before none, after which nothing
    # is searched.
    for method in PackingMethod:
        with monkeypatch.context() as patch:
            tried = radii_tried(patch, method, 30, 1)
        assert tried == [*((2.0**-step, False) for step in range(18)), (0.0, True)]


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


def test_a_large_radius_packs_where_there_are_many_features() -> None:
    """Points of the inner box, whose sides are 0.2, differ by 2 in 600 features (600 *
    2 / 3 * 0.01 = 4 = 2^2).
    """
    packed = packing_module._packed(
        2, 600, 0.9, np.random.default_rng(0), PackingMethod.BISECT
    )
    assert packed is not None
    assert 1.8 <= float(np.linalg.norm(packed[0] - packed[1])) < 2.2


def test_nothing_is_drawn_where_no_two_points_are_far_enough_apart() -> None:
    """The diagonal of an inner square whose sides are 0.8 is 1.13, and 1.2 is asked
    for.
    """
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    assert packing_module._packed(2, 2, 0.6, generator, PackingMethod.BISECT) is None
    assert generator.bit_generator.state == before
    # The ends of [-0.5, 0.5] are: they may be drawn.
    assert packing_module._packed(2, 1, 0.5, generator, PackingMethod.BISECT) is None
    assert generator.bit_generator.state != before


@pytest.mark.parametrize(
    ("second", "taken"),
    [
        (0.75, True),
        (0.7501, False),
        (0.85, False),
        (-0.75, True),
        (-0.7501, False),
        (0.7, True),
    ],
)
def test_a_centroid_may_be_as_near_to_a_corner_as_the_radius(
    second: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = iter([0.0, second, *[0.0] * 999])
    monkeypatch.setattr(
        packing_module, "_candidates", lambda *_: np.array([[next(stream)]])
    )
    packed = packing_module._packed(
        2, 1, 0.25, np.random.default_rng(0), PackingMethod.CORNERS
    )
    assert (None if packed is None else packed.tolist()) == (
        [[0.0], [second]] if taken else None
    )
