"""What a server may send as a state, by hand.

Shapes of the plan, on the grid, and not too far away.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.feddp.projection_state import (
    PROJECTION,
    has_exact_projection,
)
from flwr_dpkmeans.algorithms.proxy.entries import AXES as PROXY_AXES
from flwr_dpkmeans.algorithms.proxy.entries import (
    CENTRE,
    CLIP,
    PROXIES,
    PROXY_RADIUS,
    RADIUS,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.algorithms.proxy.proxy_plan import ProxyPlan
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.states.cluster_states import PROJECTED_CENTERS
from flwr_dpkmeans.algorithms.states.state_arrays import has_exact_centroids
from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.public_facts import ServerFacts

# Three features, of which two axes are kept; points of the box are at most 2 sqrt(3) =
# 3.46 from a centre.
KNOWN: Any = SimpleNamespace(n_features=3, config=SimpleNamespace(n_clusters=2))
AXES = np.eye(3)[:, :2]
POINTS = np.array([[0.5, 0.25], [3.25, 0.0]])


def fits(axes: np.ndarray[Any, Any], points: np.ndarray[Any, Any]) -> bool:
    state: Any = SimpleNamespace(arrays={PROJECTION: axes, PROJECTED_CENTERS: points})
    return has_exact_projection(state, PROJECTED_CENTERS, KNOWN, 2)


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
def test_each_one_alone_is_refused(
    axes: np.ndarray[Any, Any], points: np.ndarray[Any, Any]
) -> None:
    """A row's statistic stays inside of its bound only where none of them passes."""
    assert not fits(axes, points)


LENGTHS = [
    (np.array([3.25]), True),
    (np.array([3.5]), False),
    (np.full(2, 0.5), False),
    (np.zeros(0), False),
]


@pytest.mark.parametrize(
    ("name", "array", "admitted"),
    [
        # Points of the box, and centres, are at most 2.02 sqrt(3) = 3.499 away: a
        # square of 12.24.
        (CENTRE, np.array([2.0, 2.0, 2.0]), True),
        (CENTRE, np.array([2.0, 2.0, 2.25]), False),
        (CENTRE, np.zeros(2), False),
        (CENTRE, np.full(3, 2.0**-17), False),
        (PROXY_AXES, AXES, True),
        (PROXY_AXES, AXES * (1.0 + 2.0**-6), False),
        (PROXY_AXES, np.eye(3), False),
        (PROXIES, np.full((4, 2), 2.25), True),
        (PROXIES, np.full((4, 2), 2.5), False),
        (PROXIES, np.zeros((3, 2)), False),
        # One length for each proxy, not a vector.
        (PROXY_RADIUS, np.full(4, 3.25), True),
        (PROXY_RADIUS, np.array([0.5, 0.5, 0.5, 3.5]), False),
        (PROXY_RADIUS, np.zeros(3), False),
        (PROXY_RADIUS, np.zeros((4, 1)), False),
        *(
            (name, array, admitted)
            for name in (CLIP, SPREAD, RADIUS)
            for array, admitted in LENGTHS
        ),
        # From one to as many centres as there are clusters.
        (PROJECTED_CENTERS, np.zeros((1, 2)), True),
        (PROJECTED_CENTERS, np.full((2, 2), 2.25), True),
        (PROJECTED_CENTERS, np.full((2, 2), 2.5), False),
        (PROJECTED_CENTERS, np.zeros((0, 2)), False),
        (PROJECTED_CENTERS, np.zeros((3, 2)), False),
        (PROJECTED_CENTERS, np.zeros((2, 3)), False),
    ],
)
def test_what_a_round_of_proxy_lloyd_reads_has_its_shape_and_range(
    name: str, array: np.ndarray[Any, Any], admitted: bool
) -> None:
    """Two clusters in three columns, four proxies on two axes."""
    public: Any = SimpleNamespace(n_features=3, config=SimpleNamespace(n_clusters=2))
    setting = Setting(
        public, ProxyPlan(4, 1, 2, (0.5,), 0.35, cover_box=False), ProxyOptions()
    )
    state: Any = SimpleNamespace(arrays={name: array, "other": np.zeros((1, 2))})
    assert setting.admitting([name])(state) is admitted
    assert setting.admitting(["other", name])(state) is admitted
    assert not setting.admitting([name, "absent"])(state)


@pytest.mark.parametrize(
    ("radii", "admitted"),
    [
        (np.array([3.25, 3.25]), True),
        (np.array([0.5, 3.5]), False),
        (np.array([0.5, 2.0**-17]), False),
        (np.array([0.5]), False),
        (np.full(3, 0.5), False),
        (np.full((2, 1), 0.5), False),
        (np.zeros(0), False),
    ],
)
def test_there_is_a_radius_for_each_cluster_where_radii_are_widened(
    radii: np.ndarray[Any, Any], admitted: bool
) -> None:
    public: Any = SimpleNamespace(n_features=3, config=SimpleNamespace(n_clusters=2))
    plan = ProxyPlan(4, 1, 2, (0.5,), 0.35, cover_box=False, widening=1.25)
    state: Any = SimpleNamespace(arrays={RADIUS: radii})
    assert Setting(public, plan, ProxyOptions()).admitting([RADIUS])(state) is admitted


@pytest.mark.parametrize(
    ("centroids", "counts", "exact"),
    [
        ([[1.0, -1.0]], [2.0**47], True),
        ([[1.0 + 2.0**-16, 0.0]], [1.0], False),
        ([[-1.0 - 2.0**-16, 0.0]], [1.0], False),
        ([[0.5, 2.0**-17]], [1.0], False),
        ([[0.5, 0.0]], [2.0**47 + 1.0], False),
        ([[0.5, 0.0]], [-(2.0**47) - 1.0], False),
        ([[0.5, 0.0]], [np.nan], False),
    ],
)
def test_exact_centroids_are_in_the_box_and_counts_below_two_to_the_47(
    centroids: list[list[float]], counts: list[float], exact: bool
) -> None:
    state: Any = SimpleNamespace(centroids=np.array(centroids), counts=np.array(counts))
    assert has_exact_centroids(state) is exact
    empty: Any = SimpleNamespace(centroids=np.zeros((0, 2)), counts=np.zeros(0))
    assert has_exact_centroids(empty)


@pytest.mark.parametrize(
    ("algorithm", "values", "most"),
    [("server_lloyd", {"n_init": 10}, 10**6), ("server_kmeans++", {}, 10**7)],
)
def test_steps_of_k_means_are_taken_on_up_to_a_hundred_million_distances(
    algorithm: str, values: Any, most: int
) -> None:
    """Of 10 clusters and 10 restarts, or of one start."""
    task = parse_config(
        n_clusters=10, bounds=((-1.0,), (1.0,)), algorithm=algorithm, **values
    ).task
    plan: Any = SimpleNamespace(public_points=SimpleNamespace(n_points=most), rounds=())
    task.require_bearable(plan)
    plan.public_points.n_points += 1
    with pytest.raises(
        ProtocolError, match=f"for {10**8 + 10**8 // most} distances in each step"
    ):
        task.require_bearable(plan)
    task.require_bearable(cast(Any, SimpleNamespace(public_points=None, rounds=())))


def test_so_are_restarts_on_proxies() -> None:
    """10,000 restarts on 1,000 proxies kept every client busy for half an hour."""
    values: dict[str, Any] = {
        "n_clusters": 125,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 10**8,
        "epsilon": 5.0,
    }
    for n_init, n_distances in (
        (800, None),
        (801, 100_125_000),
        (10_000, 1_250_000_000),
    ):
        plan = draft_plan(
            parse_config(**values, n_init=n_init), run_id=1, n_clients=5, seed=3,
            n_features=8,
        )  # fmt: skip
        if n_distances is None:
            verify_plan(plan)
        else:
            with pytest.raises(
                ProtocolError,
                match=f"every client for {n_distances} distances .* lower n_init",
            ):
                verify_plan(plan)


def test_the_whole_budget_of_a_choice_of_k_goes_to_two_rounds() -> None:
    config = parse_config(
        n_clusters=5, bounds=((-1.0,), (1.0,)), algorithm="feddp_choose_k",
        trust="distributed", choose_n_clusters=True, n_examples=5_000, epsilon=2.0,
    )  # fmt: skip
    server = ServerFacts(100, (0.0, 0.0), 1.0, 1.0)
    plan = draft_plan(
        config, run_id=1, n_clients=3, seed=1, n_features=2, server=server
    )
    assert len(plan.rounds) == 2
    assert 1.99 < plan.epsilon <= 2.0
    assert plan.task.longest() is plan.task
