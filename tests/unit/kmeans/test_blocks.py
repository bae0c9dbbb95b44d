"""Memory is bounded whatever the number of rows, features and clusters, and blocks do
not show in the sums.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.limits import SetLimits

from flwr_dpkmeans.algorithms.server.box_units import in_box
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.blocks import block_length, row_blocks
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics, relative_statistics
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.outer_products import outer_product_triangle
from flwr_dpkmeans.kernels.projected_labels import clear_labels, nearest_projected
from flwr_dpkmeans.kernels.residual_sums import residual_sums, unit_residuals
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.kmeans.proxies.refined_samples import samples_around
from flwr_dpkmeans.kmeans.ranges.histograms import magnitude_histogram, range_histogram
from flwr_dpkmeans.resources import limits

WIDE = 1 << 16
ARRAYS = 8
"""Working arrays of a step at most, beside what it is given and returns."""


def drawn(n: int, d: int, seed: int = 0) -> Any:
    return round_to_grid(np.random.default_rng(seed).uniform(-1.0, 1.0, (n, d)))


def peak(call: Callable[[], Any]) -> int:
    """Bytes that a call takes at most, without its result."""
    tracemalloc.start()
    try:
        result = call()
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del result
    return most - held


def labels_of(n: int, k: int) -> Any:
    return np.arange(n, dtype=np.int32) % k


# Rows, clusters, features: a wide table, and others that are long or have many
# clusters.
SHAPES = [(100, 4, WIDE), (250_000, 3, 1), (3, 25_000, 2), (700, 7_000, 3)]
SMALL_BLOCK = 1 << 20
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "assignment": nearest_centroids,
    "relative sums": lambda points, centers: relative_statistics(points, centers, 0.5),
    "absolute sums": absolute_statistics,
    "nearest centres": lambda points, centers: nearest_projected(points, None, centers),
    "clear labels": lambda points, centers: clear_labels(points, None, centers, 0.5),
    "residuals": lambda points, centers: residual_sums(
        points, labels_of(len(points), len(centers)), centers, 0.5, len(centers)
    ),
    "magnitudes": lambda points, _: magnitude_histogram(points, ((-1.0,), (1.0,))),
    "ranges": lambda points, _: range_histogram(points, ((-1.0,), (1.0,))),
    "cost": cost_per_point,
}


@pytest.mark.sample(22)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_step_takes_a_few_blocks_of_memory(
    shape: tuple[int, int, int], step: str, set_limits: SetLimits
) -> None:
    """Blocks are an eighth of the usual ones here, and so are the tables."""
    set_limits(n_processors=2, block_bytes=SMALL_BLOCK)
    n, k, d = shape
    if step in ("magnitudes", "ranges") and d > 1:
        pytest.skip("column by column")
    if step == "clear labels" and n * k > 10**6:
        n = 200
    points, centers = drawn(n, d), drawn(k, d, 1)
    # Centres and sums are as large as the plan says, and two numbers for each row are
    # no more than a row.
    given = 8 * (4 * k * d + 2 * n)
    assert peak(lambda: STEPS[step](points, centers)) < ARRAYS * SMALL_BLOCK + given


def test_the_outer_product_takes_as_much_as_it_returns() -> None:
    points, d = drawn(60_000, 64), 64
    middle = np.zeros(d)
    taken = peak(
        lambda: outer_product_triangle(
            points, lambda rows: unit_residuals(rows - middle, 1.0)
        )
    )
    assert taken < ARRAYS * limits().block_bytes + 8 * 8 * d * d < points.nbytes * 3


def test_samples_around_proxies_are_bounded() -> None:
    proxies = np.zeros((64, WIDE))
    drawn_around = samples_around(proxies, np.ones(64), 0.0, np.random.default_rng(0))
    assert len(drawn_around) == 256


@pytest.fixture
def tiny_blocks(set_limits: SetLimits) -> None:
    """Blocks of one to a few rows, and of single centres."""
    set_limits(block_bytes=8 * 16)


def equal(one: Any, other: Any) -> bool:
    if hasattr(one, "__dataclass_fields__"):
        one, other = vars(one).values(), vars(other).values()
    pairs = (
        [(one, other)]
        if isinstance(one, np.ndarray | float)
        else zip(one, other, strict=True)
    )
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("n", "k", "d"), [(0, 2, 3), (1, 1, 1), (37, 5, 2), (40, 30, 6), (9, 2, 4100)]
)
def test_blocks_do_not_show(
    step: str, n: int, k: int, d: int, set_limits: SetLimits
) -> None:
    if step == "cost" and n == 0:
        pytest.skip("no cost of no rows")
    if step in ("magnitudes", "ranges"):
        d = 1
    points, centers = drawn(n, d), drawn(k, d, 1)
    whole = STEPS[step](points, centers)
    set_limits(block_bytes=8 * 16)
    found = STEPS[step](points, centers)
    # A cost is no sum on the grid: its last digit may differ.
    assert (
        found == pytest.approx(whole, rel=1e-12)
        if step == "cost"
        else equal(whole, found)
    )


@pytest.mark.usefixtures("tiny_blocks")
def test_blocks_cover_all_rows_once() -> None:
    for n in (0, 1, 7, 32):
        rows = [
            row for part in row_blocks(n, 3) for row in range(part.start, part.stop)
        ]
        assert rows == list(range(n))
    assert list(row_blocks(0, 3)) == [slice(0, 0)]  # sums of no rows are zeros
    assert block_length(10**9) == 1
    points = drawn(33, 3)
    (total,) = sum_over_blocks(lambda rows: [points[rows].sum(axis=0)], len(points), 3)
    assert total.tolist() == points.sum(axis=0).tolist()


def test_scaling_a_table_makes_one_more(set_limits: SetLimits) -> None:
    points, bounds = drawn(300_000, 20) * 8.0, Bounds((-8.0,), (4.0,)).for_features(20)
    assert peak(lambda: in_box(bounds, points, 16)) < ARRAYS * limits().block_bytes
    whole = in_box(bounds, points[:50], 16)
    set_limits(block_bytes=8 * 16)
    assert np.array_equal(in_box(bounds, points[:50], 16), whole)
    assert in_box(bounds, points[:0], 16).shape == (0, 20)
