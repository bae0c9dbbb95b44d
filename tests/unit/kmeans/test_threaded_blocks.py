"""Blocks of rows on several processors.

The same to the last bit, and nothing that fails is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.limits import SetLimits

from flwr_dpkmeans.kernels.assignment import nearest_centroids, nearest_labels
from flwr_dpkmeans.kernels.block_sums import sum_over_blocks
from flwr_dpkmeans.kernels.cluster_sums import absolute_statistics, relative_statistics
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.outer_products import outer_product_triangle
from flwr_dpkmeans.kernels.residual_sums import residual_sums

GENERATOR = np.random.default_rng(4)
POINTS, CENTERS = (
    round_to_grid(GENERATOR.uniform(-1.0, 1.0, (n, 5))) for n in (3001, 7)
)


@pytest.mark.parametrize("n_processors", [1, 2, 5])
def test_neither_blocks_nor_threads_show(
    set_limits: SetLimits, n_processors: int
) -> None:
    seen = set()

    def statistic(rows: slice) -> Sequence[NDArray[np.float64]]:
        seen.add(threading.get_ident())
        labels = nearest_labels(POINTS[rows], CENTERS)
        found = residual_sums(POINTS[rows], labels, CENTERS, 0.5, 9)
        return [found.sums, found.counts, found.squares]

    (whole,) = [statistic(slice(None))]
    set_limits(n_processors=n_processors, block_bytes=8 * 5 * 400)
    seen.clear()
    for found, expected in zip(
        sum_over_blocks(statistic, len(POINTS), 5), whole, strict=True
    ):
        assert found.tobytes() == expected.tobytes()
    assert (threading.get_ident() in seen) is (n_processors == 1)


class Watched:
    """Rows that know which threads looked at them."""

    def __init__(self) -> None:
        self.shape, self.seen = POINTS.shape, set[int]()

    def __len__(self) -> int:
        return len(POINTS)

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        self.seen.add(threading.get_ident())
        return POINTS[rows]


@pytest.mark.parametrize("n_processors", [1, 2, 5])
def test_sums_of_lloyd_and_outer_products_take_all_processors(
    set_limits: SetLimits, n_processors: int
) -> None:
    def sums(points: Any) -> list[NDArray[np.float64]]:
        return [
            *relative_statistics(points, CENTERS, 0.5),
            *absolute_statistics(points, CENTERS),
            outer_product_triangle(points, lambda rows: rows * 0.5),
        ]

    whole = sums(POINTS)
    set_limits(n_processors=n_processors, block_bytes=8 * 5 * 400)
    rows = Watched()
    for found, expected in zip(sums(rows), whole, strict=True):
        assert found.tobytes() == expected.tobytes()
    assert (threading.get_ident() in rows.seen) is (n_processors == 1)


def test_a_block_that_fails_is_an_error(set_limits: SetLimits) -> None:
    set_limits(block_bytes=8 * 400)

    def statistic(rows: slice) -> Sequence[NDArray[np.float64]]:
        return [np.zeros(1 if rows.start < 2000 else int("x"))]

    with pytest.raises(ValueError, match="invalid literal"):
        sum_over_blocks(statistic, 3000, 1)


@pytest.mark.parametrize(("k", "d"), [(1, 3), (7, 5), (200, 12), (40, 2)])
def test_labels_alone_are_those_with_squares(k: int, d: int) -> None:
    points, centers = (
        round_to_grid(GENERATOR.uniform(-1.0, 1.0, (n, d))) for n in (2500, k)
    )
    centers[-1] = centers[0]  # A tie goes to the lowest index.
    points[:k] = centers
    assert (
        nearest_labels(points, centers).tolist()
        == nearest_centroids(points, centers)[0].tolist()
    )
    plain = ((points[:, None, :] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert nearest_labels(points, centers).tolist() == plain.tolist()
    assert nearest_labels(points[:0], centers).tolist() == []


def test_labels_far_beyond_the_box_are_found_without_codes() -> None:
    points, centers = POINTS * 2.0**12, CENTERS * 2.0**12
    assert (
        nearest_labels(points, centers).tolist()
        == nearest_labels(POINTS, CENTERS).tolist()
    )
