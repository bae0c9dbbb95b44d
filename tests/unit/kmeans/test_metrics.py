"""The cost per point against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.kmeans.cost import cost_per_point


def test_equals_its_definition_over_several_blocks() -> None:
    generator = np.random.default_rng(0)
    points, centroids = (
        generator.uniform(-1, 1, (70_000, 3)),
        generator.uniform(-1, 1, (4, 3)),
    )
    expected = ((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).mean()
    assert cost_per_point(points, centroids) == pytest.approx(expected, rel=1e-9)


def test_is_zero_on_the_centroids() -> None:
    centroids = np.array([[0.25, -0.5], [1.0, 1.0]])
    assert cost_per_point(centroids, centroids) == 0.0


def test_no_points() -> None:
    with pytest.raises(DataError, match="the number of points is 0"):
        cost_per_point(np.empty((0, 2)), np.zeros((1, 2)))
