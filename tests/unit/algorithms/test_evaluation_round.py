"""The evaluation round by hand: what a client adds, what the arrays' noise is, and what
a result may come with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.measure.evaluated_state import (
    CELL_COUNTS,
    CLIPPED_COST,
    ROWS_BEYOND,
    admits_evaluation,
    result_extras,
)
from flwr_dpkmeans.algorithms.measure.evaluation_round import (
    clip_distance,
    evaluation_blocks,
)
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import PrivateSum

ROWS = np.array([[0.25, 0.0], [0.0, 0.5], [0.0, 0.0], [1.0, 1.0], [1.0, 0.75]])
LABELS = np.array([0, 1, 0, 2, 7])
STATE = cluster_state(np.array([[0.0, 0.0], [1.0, 0.5]]), np.zeros(2))


def config_of(**values: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "sphere_packing",
        "n_examples": 100,
        "delta": 1e-6,
        "evaluation": "private",
        "evaluation_radius": 0.5,
    }
    return read_config(**(settings | values))


def plan_of(**values: Any) -> Plan:
    return draft_plan(config_of(**values), run_id=1, n_clients=5, seed=0, n_features=2)


def last_round(**values: Any) -> PrivateSum:
    return build_algorithm(plan_of(**values)).rounds[-1]


def test_one_client_by_hand() -> None:
    """Squared distances 1/16, 1/4, 0, 1/4, 1/16 over squared clips of 1/4."""
    cost, beyond, cells = last_round(n_classes=3).arrays_of(ROWS, STATE, LABELS)
    assert cost.tolist() == [0.25 + 1.0 + 0.0 + 1.0 + 0.25]
    assert beyond.tolist() == [0.0]
    # The last row's class is not one of the three, and one below 0 would be none
    # either.
    assert cells.tolist() == [[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    fewer = last_round(n_classes=1).arrays_of(ROWS, STATE, LABELS - 1)[2]
    assert fewer.tolist() == [[1.0, 2.0], [0.0, 2.0]]


def test_rows_beyond_the_clip_distance_count_as_if_they_were_there() -> None:
    cost, beyond, cells = last_round(evaluation_radius=0.25).arrays_of(ROWS, STATE)
    assert cost.tolist() == [1.0 + 1.0 + 0.0 + 1.0 + 1.0]
    assert beyond.tolist() == [2.0]
    assert cells.tolist() == [[3.0], [2.0]]


@pytest.mark.parametrize(("evaluation", "steps"), [("private", 6.0), ("exact", 7.0)])
def test_each_rows_part_is_rounded_toward_zero_unless_the_sum_is_exact(
    evaluation: str, steps: float
) -> None:
    """Three rows have 2.25 steps of the grid each, whose sum is 6.75."""
    rows = np.full((3, 2), 0.0)
    rows[:, 0] = 3.0 * 2.0**-10
    cost, _, _ = last_round(evaluation=evaluation).arrays_of(rows, STATE)
    assert cost.tolist() == [steps * 2.0**-16]


def test_a_client_adds_means_over_its_rows() -> None:
    step = last_round(unit="client", n_classes=3, evaluation_radius=0.25)
    cost, beyond, cells = step.arrays_of(ROWS[:4], STATE, LABELS[:4])
    assert (cost.tolist(), beyond.tolist()) == ([0.75], [0.5])
    assert cells.tolist() == [[0.5, 0.25, 0.0, 0.0], [0.0, 0.0, 0.25, 0.0]]
    assert all(not array.any() for array in step.arrays_of(ROWS[:0], STATE, LABELS[:0]))


def test_without_labels_nothing_is_in_a_cell_of_classes() -> None:
    assert last_round(n_classes=3).arrays_of(ROWS, STATE)[2].tolist() == [
        [0, 0, 0, 3.0],
        [0, 0, 0, 2.0],
    ]


@pytest.mark.parametrize("unit", ["record", "client"])
def test_an_exact_evaluation_clips_nothing(unit: str) -> None:
    step = last_round(evaluation="exact", evaluation_radius=None, unit=unit)
    corners = np.array([[-1.0, -1.0], [1.0, 1.0], [0.3, 0.0]])
    cost, beyond, _ = step.arrays_of(
        np.rint(corners * 2**16) / 2**16, cluster_state(np.ones((1, 2)), np.zeros(1))
    )
    square = (
        clip_distance(config_of(evaluation="exact", evaluation_radius=None), 2) ** 2
    )
    assert not beyond.any()
    assert cost[0] * square == pytest.approx(
        (8.0 + 0.49 + 1.0) / (3 if unit == "client" else 1), abs=2e-4
    )


def test_the_result_keeps_its_centroids_and_what_else_there_was() -> None:
    plan = plan_of()
    step = build_algorithm(plan).rounds[-1]
    assert (step.name, plan.rounds[-1].name, step.radius) == (
        "evaluation",
        "evaluation",
        0.5,
    )
    assert step.in_blocks  # A table beyond memory has each block at a time.
    assert [block.shape for block in step.blocks] == [(1,), (1,), (2, 1)]
    from flwr_dpkmeans.privacy.release import as_released

    released = as_released(
        np.arange(4, dtype=np.uint64) << np.uint64(16), step.blocks, 16
    )
    state = cluster_state(STATE.centroids, np.ones(2), (0.5,), {"seed": np.zeros(1)})
    after = step.advance(state, released)
    assert after.centroids is state.centroids
    assert (after.counts.tolist(), after.movements) == ([1.0, 1.0], (0.5,))
    assert set(after.extras) == {"seed", CLIPPED_COST, ROWS_BEYOND, CELL_COUNTS}
    assert after.extras[CELL_COUNTS].tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize(
    ("values", "n_features", "expected"),
    [
        ({"n_clusters": 4}, 2, math.sqrt(2.0) / 2.0),
        ({"n_clusters": 1}, 3, math.sqrt(3.0)),
        ({"n_clusters": 16, "evaluation_radius": 0.125}, 2, 0.125),
    ],
)
def test_default_clip_distance_is_half_the_diagonal_of_a_cell(
    values: dict[str, Any], n_features: int, expected: float
) -> None:
    assert clip_distance(
        config_of(**({"evaluation_radius": None} | values)), n_features
    ) == pytest.approx(expected)


def test_where_k_is_chosen_one_cell_is_the_box() -> None:
    config = config_of(evaluation_radius=None, n_clusters=20, choose_n_clusters=True)
    assert clip_distance(config, 4) == 2.0


@pytest.mark.parametrize("d", [1, 2, 7])
def test_an_exact_evaluation_reaches_just_over_the_boxs_diagonal(d: int) -> None:
    found = clip_distance(config_of(evaluation="exact", evaluation_radius=None), d)
    assert 2.0 * math.sqrt(d) < found < 2.0 * math.sqrt(d) * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("unit", "theorem"), [("record", "S18: one row"), ("client", "S19: one client")]
)
def test_shares_of_the_noise_add_up(unit: str, theorem: str) -> None:
    blocks = evaluation_blocks(config_of(unit=unit), 4.0)
    assert [block.noise_multiplier**-2 for block in blocks] == pytest.approx(
        [0.45 / 16.0, 0.1 / 16.0, 0.45 / 16.0]
    )
    for block in blocks:
        moved = block.sensitivity
        assert (moved.bound, moved.norm.name, moved.unit.value, moved.nonnegative) == (
            1.0, "L2", unit, True,
        )  # fmt: skip
        assert moved.because.startswith(theorem)
        assert block.entry_bound == 1.0
    exact = evaluation_blocks(config_of(unit=unit, evaluation="exact"), 4.0)
    assert [(block.noise.name, block.noise_multiplier) for block in exact] == [
        ("NONE", 0.0)
    ] * 3


def test_a_servers_result_has_an_evaluation_of_the_plans_shape() -> None:
    config = config_of(n_classes=3)
    extras = {
        CLIPPED_COST: np.zeros(1),
        ROWS_BEYOND: np.zeros(1),
        CELL_COUNTS: np.zeros((2, 4)),
    }
    assert set(result_extras(config)) == {"cost_curve", *extras}
    assert result_extras(config_of(evaluation="none", evaluation_radius=None)) == (
        "cost_curve",
    )

    def admitted(**changes: Any) -> bool:
        found = {
            name: array
            for name, array in (extras | changes).items()
            if array is not None
        }
        return admits_evaluation(
            config, cluster_state(STATE.centroids, STATE.counts, (), found)
        )

    assert admitted()
    assert not admitted(cell_counts=np.zeros((2, 3)))
    assert not admitted(clipped_cost=None)
    assert not admitted(clipped_cost=np.array([2.0**-20]))
