"""What a server may send as a state, by hand: shapes of the plan, on the grid, and not too far away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.feddp_kmeans import PROJECTION, _fits
from flwr_dpkmeans.algorithms.kmeans_task import PROJECTED_CENTERS

# Three features, of which two axes are kept; points of the box are at most 2 sqrt(3) = 3.46 from a centre.
KNOWN: Any = SimpleNamespace(n_features=3, config=SimpleNamespace(n_clusters=2))
AXES = np.eye(3)[:, :2]
POINTS = np.array([[0.5, 0.25], [3.25, 0.0]])


def fits(axes: np.ndarray[Any, Any], points: np.ndarray[Any, Any]) -> bool:
    state: Any = SimpleNamespace(arrays={PROJECTION: axes, PROJECTED_CENTERS: points})
    return _fits(state, PROJECTED_CENTERS, KNOWN, 2)


def test_a_projection_and_projected_centres_that_fit() -> None:
    assert fits(AXES, POINTS)
    assert fits(AXES[:, :1], POINTS[:, :1])


@pytest.mark.parametrize(
    ("axes", "points"),
    [
        pytest.param(AXES[0], POINTS, id="a row for a projection"),
        pytest.param(AXES[:2], POINTS, id="too few features"),
        pytest.param(AXES[:, :0], POINTS[:, :0], id="no axis"),
        pytest.param(np.eye(3), np.zeros((2, 3)), id="more axes than clusters"),
        pytest.param(2.0 * AXES, POINTS, id="axes that stretch"),
        pytest.param(AXES + 2.0**-20, POINTS, id="axes off the grid"),
        pytest.param(AXES, POINTS + 2.0**-20, id="points off the grid"),
        pytest.param(AXES, POINTS + 0.5, id="points outside of the box"),
        pytest.param(AXES, POINTS[:, :1], id="points on other axes"),
        pytest.param(AXES, np.zeros((3, 2)), id="too many points"),
        pytest.param(AXES, POINTS[:0], id="no points"),
    ],
)
def test_each_one_alone_is_refused(axes: np.ndarray[Any, Any], points: np.ndarray[Any, Any]) -> None:
    """A row's statistic stays inside of its bound only where none of them passes."""
    assert not fits(axes, points)
