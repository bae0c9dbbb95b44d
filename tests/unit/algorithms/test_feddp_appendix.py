"""Lemma 17 and Algorithm 4 of FedDP-KMeans' appendix: by hand, by brute force, and what is refused or warned of."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.algorithms import feddp_appendix as appendix
from flwr_dpkmeans.algorithms.kmeans_task import PROJECTED_POINTS, SERVER_POINTS, seeded_state
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kmeans.lloyd import round_to_grid
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.secagg.keys import encode
from flwr_dpkmeans.sums.draft import build_algorithm, draft_plan, require_server_state
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement import plan_cautions
from flwr_dpkmeans.sums.task import ServerFacts

SIGMA = 2e-4
MEANS = np.array([[-0.8, -0.8], [-0.795, -0.8], [0.8, 0.8], [0.8, 0.805]])
N = 12_000


def drawn(n: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    return round_to_grid(MEANS[generator.integers(0, 4, n)] + generator.normal(0.0, SIGMA, (n, 2)))


def plan_of(n_server: int = 40, radius: float = 1.2, **values: Any) -> Plan:
    given = {"n_clusters": 4, "bounds": ((-1.0,), (1.0,)), "algorithm": "feddp_kmeans", "trust": "distributed"}
    given |= {"epsilon": 1.0, "n_examples": N, "least_weight": 0.25, "reduce_diameter": True, "deviation": SIGMA}
    facts = ServerFacts(n_server, (0.0, 0.0), radius, radius**2)
    return draft_plan(parse_config(**(given | values)), run_id=1, n_clients=3, seed=0, n_features=2, server=facts)


def parted(plan: Plan, server: Any, weights: Any) -> State:
    """The state after the first histogram, as if it had been released without noise."""
    start = seeded_state(np.zeros((4, 2)), 0, server)
    blocks = plan.rounds[0].blocks
    released = as_released(encode(weights, plan.fraction_bits).values, blocks, plan.fraction_bits)
    return build_algorithm(plan).rounds[0].advance(start, released)


def test_parts_come_nearer_and_rows_go_with_them() -> None:
    plan, server = plan_of(), drawn(40)
    (counted,) = build_algorithm(plan).rounds[0].statistic(drawn(N, 1), seeded_state(np.zeros((4, 2)), 0, server))
    assert counted.sum() == N
    state = parted(plan, server, counted)
    zoom = state[appendix.ZOOM][0]
    assert zoom >= 2.0
    moved, rows = state[SERVER_POINTS], drawn(500, 2)
    assert np.linalg.norm(moved, axis=1).max() <= 1.2
    there = appendix.moved_rows(rows, state)
    # Within a part all distances grow alike; between parts they shrink.
    part = rows[:, 0] < 0.0
    assert np.allclose(there[part][0] - there[part][1], zoom * (rows[part][0] - rows[part][1]))
    far = np.linalg.norm(there[part][0] - there[~part][0])
    assert far < zoom * np.linalg.norm(rows[part][0] - rows[~part][0])
    assert np.array_equal(appendix.moved_back(there, state), rows)
    view = state.view(appendix.MOVED)
    require_server_state(plan, 2, view)


def test_points_that_stand_for_nobody_are_left_out_and_one_part_stays_where_it_is() -> None:
    server = np.concatenate([drawn(39), [[0.0, 0.9]]])
    plan = plan_of()
    (counted,) = build_algorithm(plan).rounds[0].statistic(drawn(N, 1), seeded_state(np.zeros((4, 2)), 0, server))
    assert len(parted(plan, server, counted)[appendix.PARTS]) == 39
    together = plan_of(deviation=0.5)
    state = parted(together, server, counted)
    assert state[appendix.ZOOM][0] == 1.0
    assert not state[appendix.SHIFTS].any()


def test_pairs_of_points_take_a_number_each_and_no_vector() -> None:
    # Of 2,000 points in 100 columns their differences would be 3.2 GB.
    plan, server = plan_of(n_server=1500), drawn(1500)
    tracemalloc.start()
    parted(plan, server, np.full(1500, N / 1500))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 1500**2


def test_parts_never_come_to_lie_on_each_other() -> None:
    # Rows of the second part would be brought back to the first one.
    plan, server = plan_of(deviation=1e-12), round_to_grid(MEANS)
    state = parted(plan, server, np.full(40, N / 4.0))
    assert state[appendix.ZOOM][0] > 1.0
    assert np.array_equal(appendix.moved_back(appendix.moved_rows(server, state), state), server)


def neighbours(step: Any, state: State, bound: float) -> None:
    """One row more never moves the vector by more, wherever it lies."""
    rows = drawn(5, 3)
    before = step.statistic(rows, state)
    corners = itertools.product([-1.0, 0.0, 0.8, 1.0], repeat=2)
    for row in [*drawn(20, 4), *map(np.array, corners)]:
        after = step.statistic(np.vstack([rows, row]), state)
        assert math.sqrt(sum(float(np.square(b - a).sum()) for a, b in zip(before, after, strict=True))) <= bound
        # Alone it says the same: its label and place do not depend on those beside it.
        alone = step.statistic(row[None], state)
        assert all(np.array_equal(b - a, one) for a, b, one in zip(before, after, alone, strict=True))


@pytest.mark.parametrize("zoom", [1.0, 4.0, 2.0**15])
def test_one_row_moves_the_appendix_histograms_by_one(zoom: float) -> None:
    """Whatever parts, shifts and zoom a server makes up, later sums stay within their bounds as well."""
    plan = plan_of(n_server=6, simplify_server_data=True, max_iter=1)
    steps = {step.name: step for step in build_algorithm(plan).rounds}
    start = seeded_state(np.zeros((4, 2)), 0, drawn(6))
    neighbours(steps["parting"], start, 1.0)
    made_up = {
        appendix.PARTS: drawn(6, 5),
        appendix.SHIFTS: round_to_grid(np.random.default_rng(6).uniform(-2, 2, (6, 2))),
        appendix.ZOOM: np.array([zoom]),
        "projection": np.eye(2),
        PROJECTED_POINTS: drawn(6, 7),
        "projected_centers": drawn(4, 8),
    }
    state = start.changed(**made_up)
    for name in ("simplify-1", "weights"):
        neighbours(steps[name], state, 1.0)
    for name in ("outer-product", "centers", "lloyd-1"):
        for block, array in zip(steps[name].blocks, steps[name].statistic(drawn(1, 9), state), strict=True):
            assert float(np.linalg.norm(array)) <= block.sensitivity.bound


@pytest.mark.parametrize("wrong", ["zoom", "shifts", "parts"])
def test_what_keeps_no_sums_exact_is_not_admitted(wrong: str) -> None:
    plan, good = plan_of(n_server=6), {"parts": drawn(6), "shifts": np.zeros((6, 2)), "zoom": np.array([2.0])}
    bad = {"zoom": np.array([3.0]), "shifts": np.full((6, 2), 100.0), "parts": np.full((6, 2), 50.0)}
    state = seeded_state(np.zeros((4, 2)), 0).changed(**good)
    assert appendix.admits_moved(state, plan.server, 2)  # type: ignore[arg-type]
    assert not appendix.admits_moved(state.changed(**{wrong: bad[wrong]}), plan.server, 2)  # type: ignore[arg-type]


def test_algorithm_4_freezes_heavy_points_and_halves_the_others() -> None:
    plan = plan_of(n_server=40, reduce_diameter=False, deviation=None, simplify_server_data=True)
    steps = [one for one in build_algorithm(plan).rounds if one.name.startswith("simplify-")]
    assert len(steps) == 1 + math.ceil(10.0 * math.log(4.0 * math.log(40) / 0.25))
    assert plan.epsilon <= 1.0 + 1e-9
    table = drawn(40)
    state = seeded_state(np.zeros((4, 2)), 0).changed(**{PROJECTED_POINTS: table})
    least = appendix.least_rows(plan.config)
    heavy = np.where(np.arange(40) < 5, math.ceil(least) + 1.0, 0.0)
    for step in steps:
        # Those that are left keep their order.
        weights = np.zeros(40)
        n_left = len(state[PROJECTED_POINTS])
        weights[:n_left] = heavy[:n_left]
        blocks = step.blocks
        state = step.advance(state, as_released(encode(weights, plan.fraction_bits).values, blocks, plan.fraction_bits))
        assert len(state[PROJECTED_POINTS]) <= n_left
    assert np.array_equal(state[PROJECTED_POINTS], table[:5])


def test_what_cannot_help_is_warned_of() -> None:
    far = plan_cautions(plan_of(deviation=0.1))
    assert any(one.startswith("reduce_diameter puts parts") and "changes nothing" in one for one in far)
    assert not any("reduce_diameter" in one for one in plan_cautions(plan_of()))
    halved = plan_cautions(plan_of(simplify_server_data=True, epsilon=0.1))
    assert any(one.startswith("simplify_server_data asks") and "noise decides" in one for one in halved)
    clear = plan_cautions(plan_of(reduce_diameter=False, deviation=None, least_weight=None, margin=1 / 3))
    assert any("next to none" in one for one in clear)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"least_weight": None}, "least_weight is None, but it is needed"),
        ({"deviation": None}, "deviation is None, but it is needed"),
        ({"reduce_diameter": False}, "least_weight is 0.25, but nothing needs it"),
        ({"n_examples": None}, "declare n_examples"),
        ({"unit": "client"}, "choose unit='record'"),
        ({"least_weight": 1e-300}, "must be a finite number strictly between 1e-09 and 1"),
        ({"radius": 2.9}, "but with reduce_diameter it may be at most 2.828"),
    ],
)
def test_what_they_need_is_asked_for(values: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        plan_of(**values)
