"""No row, and no client, moves an evaluation beyond its bounds, whatever the centroids
are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import PrivateSum
from flwr_dpkmeans.sums.settings import EvaluationKind

Floats = NDArray[np.float64]
GRID = 2**16


def plan_of(d: int, k: int, n_classes: int, unit: str, radius: float | None) -> Plan:
    config = read_config(
        n_clusters=k,
        bounds=((-1.0,), (1.0,)),
        algorithm="sphere_packing",
        unit=unit,
        delta=1e-6,
        max_iter=1,
        n_classes=n_classes,
        evaluation=EvaluationKind.PRIVATE,
        evaluation_radius=radius,
    )
    return draft_plan(config, run_id=1, n_clients=5, seed=0, n_features=d)


def squared_steps(step: PrivateSum, arrays: list[Any]) -> list[int]:
    """Squared norm of each array, in squared grid steps, as integers."""
    flat = [
        encode(np.ravel(array)).values.view(np.int64).astype(object) for array in arrays
    ]
    return [int((array * array).sum()) for array in flat]


def within(step: PrivateSum, arrays: list[Any]) -> bool:
    """Whether each array is within its bound, exactly."""
    bounds = [block.sensitivity.bound for block in step.blocks]
    assert bounds == [1.0, 1.0, 1.0]
    return all(square <= GRID**2 for square in squared_steps(step, arrays))


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int, float | None, np.random.Generator]:
    d, k, n_classes = (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 6)),
        draw(st.integers(0, 3)),
    )
    radius = draw(st.sampled_from([None, 1.1e-6, 0.1, 0.7, 3.0, 9e5]))
    return d, k, n_classes, radius, np.random.default_rng(draw(st.integers(0, 2**32)))


def rows_of(
    generator: np.random.Generator, n: int, d: int
) -> tuple[Floats, NDArray[np.int64]]:
    rows = generator.choice([-1.0, 1.0, 0.0, 2.0**-16], (n, d))
    inner = generator.uniform(-1, 1, (n, d))
    return round_to_grid(
        np.where(generator.random((n, d)) < 0.5, rows, inner)
    ), generator.integers(-2, 9, n)


@settings(max_examples=60)
@given(cases())
def test_one_row_moves_no_array_by_more_than_1(case: Any) -> None:
    """With any state that a client accepts, in a table of any size."""
    d, k, n_classes, radius, generator = case
    plan = plan_of(d, k, n_classes, "record", radius)
    step = build_algorithm(plan).rounds[-1]
    centroids = round_to_grid(
        generator.uniform(-1, 1, (int(generator.integers(1, k + 1)), d))
    )
    state = cluster_state(centroids, np.zeros(len(centroids)))
    require_server_state(plan, plan.last_round, state)
    rows, labels = rows_of(generator, int(generator.integers(1, 40)), d)
    every = step.arrays_of(rows, state, labels)
    for removed in generator.choice(len(rows), min(5, len(rows)), replace=False):
        kept = np.arange(len(rows)) != removed
        fewer = step.arrays_of(rows[kept], state, labels[kept])
        assert within(step, [a - b for a, b in zip(every, fewer, strict=True)])


@pytest.mark.parametrize("unit", ["record", "client"])
@settings(max_examples=60)
@given(cases())
def test_no_centroids_make_a_unit_larger_than_1(unit: str, case: Any) -> None:
    """Not even such as no client accepts."""
    d, k, n_classes, radius, generator = case
    step = build_algorithm(plan_of(d, k, n_classes, unit, radius)).rounds[-1]
    scale = float(generator.choice([1.0, 1e3, 1e150, math.inf]))
    with np.errstate(all="ignore"):
        centroids = (
            generator.normal(size=(int(generator.integers(1, 2 * k + 1)), d)) * scale
        )
        state = cluster_state(centroids, np.zeros(len(centroids)))
        rows, labels = rows_of(
            generator, 1 if unit == "record" else int(generator.integers(0, 40)), d
        )
        assert within(step, list(step.arrays_of(rows, state, labels)))


def test_the_bounds_are_reached() -> None:
    """Otherwise they would cost noise for nothing."""
    state = cluster_state(np.array([[1.0, 1.0]]), np.zeros(1))
    for unit in ("record", "client"):
        step = build_algorithm(plan_of(2, 1, 2, unit, 0.5)).rounds[-1]
        arrays = step.arrays_of(np.full((1, 2), -1.0), state, np.array([1]))
        assert squared_steps(step, list(arrays)) == [GRID**2] * 3


def test_rounding_a_large_clients_shares_keeps_the_bound() -> None:
    """1 - 1/n, rounded up, and 1/n would be too long."""
    step = build_algorithm(plan_of(1, 2, 0, "client", 0.5)).rounds[-1]
    rows = np.full((200_000, 1), -1.0)
    rows[0] = 1.0
    arrays = step.arrays_of(rows, cluster_state(np.array([[-1.0], [1.0]]), np.zeros(2)))
    assert arrays[2][1, 0] == 0.0
    assert within(step, list(arrays))
