"""Lemma 17 and Algorithm 4 of FedDP-KMeans' appendix.

By hand, by brute force, and what is refused or warned of.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.feddp.appendix.moved_parts import (
    moved_back,
    moved_centroids,
    moved_rows,
)
from flwr_dpkmeans.algorithms.feddp.appendix.parting import (
    MOVED,
    PARTS,
    SHIFTS,
    ZOOM,
    admits_moved,
)
from flwr_dpkmeans.algorithms.feddp.appendix.separation import connecting_distance
from flwr_dpkmeans.algorithms.feddp.appendix.simplification import (
    FROZEN,
    least_rows,
    simplify_steps,
)
from flwr_dpkmeans.algorithms.states.cluster_states import (
    PROJECTED_POINTS,
    SERVER_POINTS,
    seeded_state,
)
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement import plan_cautions

SIGMA = 2e-4
MEANS = np.array([[-0.8, -0.8], [-0.795, -0.8], [0.8, 0.8], [0.8, 0.805]])
N = 12_000


def drawn(n: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    return round_to_grid(
        MEANS[generator.integers(0, 4, n)] + generator.normal(0.0, SIGMA, (n, 2))
    )


def plan_of(n_server: int = 40, radius: float = 1.2, **values: Any) -> Plan:
    given = {
        "n_clusters": 4,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "feddp_kmeans",
        "trust": "distributed",
    }
    given |= {
        "epsilon": 1.0, "n_examples": N, "least_weight": 0.25, "reduce_diameter": True,
        "deviation": SIGMA,
    }  # fmt: skip
    facts = ServerFacts(n_server, (0.0, 0.0), radius, radius**2)
    return draft_plan(
        parse_config(**given | values), run_id=1, n_clients=3, seed=0, n_features=2,
        server=facts,
    )  # fmt: skip


def parted(plan: Plan, server: Any, weights: Any) -> State:
    """The state after the first histogram, as if it had been released without noise."""
    start = seeded_state(np.zeros((4, 2)), 0, server)
    blocks = plan.rounds[0].blocks
    released = as_released(
        encode(weights, plan.fraction_bits).values, blocks, plan.fraction_bits
    )
    return build_algorithm(plan).rounds[0].advance(start, released)


def test_parts_come_nearer_and_rows_go_with_them() -> None:
    plan, server = plan_of(), drawn(40)
    (counted,) = (
        build_algorithm(plan)
        .rounds[0]
        .statistic(drawn(N, 1), seeded_state(np.zeros((4, 2)), 0, server))
    )
    assert counted.sum() == N
    state = parted(plan, server, counted)
    zoom = state[ZOOM][0]
    assert zoom >= 2.0
    moved, rows = state[SERVER_POINTS], drawn(500, 2)
    assert np.linalg.norm(moved, axis=1).max() <= 1.2
    there = moved_rows(rows, state)
    # Within a part all distances grow alike; between parts they shrink.
    part = rows[:, 0] < 0.0
    assert np.allclose(
        there[part][0] - there[part][1], zoom * (rows[part][0] - rows[part][1])
    )
    far = np.linalg.norm(there[part][0] - there[~part][0])
    assert far < zoom * np.linalg.norm(rows[part][0] - rows[~part][0])
    assert np.array_equal(moved_back(there, state), rows)
    view = state.view(MOVED)
    require_server_state(plan, 2, view)


def test_points_that_stand_for_nobody_are_left_out_and_one_part_stays_where_it_is() -> (
    None
):
    server = np.concatenate([drawn(39), [[0.0, 0.9]]])
    plan = plan_of()
    (counted,) = (
        build_algorithm(plan)
        .rounds[0]
        .statistic(drawn(N, 1), seeded_state(np.zeros((4, 2)), 0, server))
    )
    assert len(parted(plan, server, counted)[PARTS]) == 39
    together = plan_of(deviation=0.5)
    state = parted(together, server, counted)
    assert state[ZOOM][0] == 1.0
    assert not state[SHIFTS].any()


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
    assert state[ZOOM][0] > 1.0
    moved = (server + state[SHIFTS]) * state[ZOOM][0]
    assert np.array_equal(state[SERVER_POINTS], moved)
    assert np.array_equal(moved_back(moved_rows(server, state), state), server)


def neighbours(step: Any, state: State, bound: float) -> None:
    """One row more never moves the vector by more, wherever it lies."""
    rows = drawn(5, 3)
    before = step.statistic(rows, state)
    corners = itertools.product([-1.0, 0.0, 0.8, 1.0], repeat=2)
    for row in [*drawn(20, 4), *map(np.array, corners)]:
        after = step.statistic(np.vstack([rows, row]), state)
        assert (
            math.sqrt(
                sum(
                    float(np.square(b - a).sum())
                    for a, b in zip(before, after, strict=True)
                )
            )
            <= bound
        )
        # Alone it says the same: its label and place do not depend on those beside it.
        alone = step.statistic(row[None], state)
        assert all(
            np.array_equal(b - a, one)
            for a, b, one in zip(before, after, alone, strict=True)
        )


@pytest.mark.parametrize("zoom", [1.0, 4.0, 2.0**15])
def test_one_row_moves_the_appendix_histograms_by_one(zoom: float) -> None:
    """Whatever parts, shifts and zoom a server makes up."""
    plan = plan_of(n_server=6, simplify_server_data=True, max_iter=1)
    steps = {step.name: step for step in build_algorithm(plan).rounds}
    start = seeded_state(np.zeros((4, 2)), 0, drawn(6))
    neighbours(steps["parting"], start, 1.0)
    made_up = {
        PARTS: drawn(6, 5),
        SHIFTS: round_to_grid(np.random.default_rng(6).uniform(-2, 2, (6, 2))),
        ZOOM: np.array([zoom]),
        "projection": np.eye(2),
        PROJECTED_POINTS: drawn(6, 7),
        "projected_centers": drawn(4, 8),
    }
    state = start.changed(**made_up)
    for name in ("simplify-1", "weights"):
        neighbours(steps[name], state, 1.0)
    for name in ("outer-product", "centers", "lloyd-1"):
        for block, array in zip(
            steps[name].blocks, steps[name].statistic(drawn(1, 9), state), strict=True
        ):
            assert float(np.linalg.norm(array)) <= block.sensitivity.bound


@pytest.mark.parametrize("wrong", ["zoom", "shifts", "parts"])
def test_what_keeps_no_sums_exact_is_not_admitted(wrong: str) -> None:
    plan, good = (
        plan_of(n_server=6),
        {"parts": drawn(6), "shifts": np.zeros((6, 2)), "zoom": np.array([2.0])},
    )
    bad = {
        "zoom": np.array([3.0]),
        "shifts": np.full((6, 2), 100.0),
        "parts": np.full((6, 2), 50.0),
    }
    state = seeded_state(np.zeros((4, 2)), 0).changed(**good)
    assert admits_moved(state, plan.server, 2)  # type: ignore[arg-type]
    assert not admits_moved(state.changed(**{wrong: bad[wrong]}), plan.server, 2)  # type: ignore[arg-type]


def test_algorithm_4_freezes_heavy_points_and_halves_the_others() -> None:
    plan = plan_of(
        n_server=40, reduce_diameter=False, deviation=None, simplify_server_data=True
    )
    steps = [
        one for one in build_algorithm(plan).rounds if one.name.startswith("simplify-")
    ]
    assert len(steps) == 1 + math.ceil(10.0 * math.log(4.0 * math.log(40) / 0.25))
    assert plan.epsilon <= 1.0 + 1e-9
    table = drawn(40)
    state = seeded_state(np.zeros((4, 2)), 0).changed(**{PROJECTED_POINTS: table})
    least = least_rows(plan.config)
    heavy = np.where(np.arange(40) < 5, math.ceil(least) + 1.0, 0.0)
    for step in steps:
        # Those that are left keep their order.
        weights = np.zeros(40)
        n_left = len(state[PROJECTED_POINTS])
        weights[:n_left] = heavy[:n_left]
        blocks = step.blocks
        state = step.advance(
            state,
            as_released(
                encode(weights, plan.fraction_bits).values, blocks, plan.fraction_bits
            ),
        )
        assert len(state[PROJECTED_POINTS]) <= n_left
    assert np.array_equal(state[PROJECTED_POINTS], table[:5])


def test_what_cannot_help_is_warned_of() -> None:
    far = plan_cautions(plan_of(deviation=0.1))
    assert any(
        one.startswith("reduce_diameter puts parts") and "changes nothing" in one
        for one in far
    )
    assert not any("reduce_diameter" in one for one in plan_cautions(plan_of()))
    halved = plan_cautions(plan_of(simplify_server_data=True, epsilon=0.1))
    assert any(
        one.startswith("simplify_server_data asks") and "noise decides" in one
        for one in halved
    )
    clear = plan_cautions(
        plan_of(reduce_diameter=False, deviation=None, least_weight=None, margin=1 / 3)
    )
    assert any("next to none" in one for one in clear)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"least_weight": None}, "least_weight is None, but it is needed"),
        ({"deviation": None}, "deviation is None, but it is needed"),
        ({"reduce_diameter": False}, "least_weight is 0.25, but nothing needs it"),
        ({"n_examples": None}, "declare n_examples"),
        ({"unit": "client"}, "choose unit='record'"),
        ({"least_weight": 1e-300}, "must be a finite number strictly between 1e-09"),
        ({"radius": 2.9}, "but with reduce_diameter it may be at most 2.828"),
    ],
)
def test_what_they_need_is_asked_for(values: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        plan_of(**values)


# -- numbers by hand -------------------------------------------------------------------


def config_of(**values: Any) -> Any:
    given = {
        "n_clusters": 4,
        "algorithm": "feddp_kmeans",
        "trust": "distributed",
        "reduce_diameter": True,
    }
    given |= {
        "bounds": ((-2.0,), (2.0,)),
        "n_examples": 1000,
        "epsilon": 0.5,
        "least_weight": 0.25,
        "deviation": 0.5,
    }
    return parse_config(**given | values)


def test_lengths_and_numbers_of_the_theory_by_hand() -> None:
    """A unit of the box is 2 of the caller's: 4 log(n) sqrt(9) 0.5 / 2."""
    assert connecting_distance(config_of(), 9) == pytest.approx(
        3.0 * math.log(1000), rel=1e-12
    )
    assert least_rows(config_of()) == pytest.approx(4.0 * math.log(1000), rel=1e-12)
    with pytest.raises(ConfigurationError, match="features' bounds have different"):
        connecting_distance(config_of(bounds=((-2.0, -1.0), (2.0, 1.0))), 2)


@pytest.mark.parametrize(
    ("epsilon", "least_weight", "n_server", "inside"),
    [
        (1.0, 0.25, 8, 16 * math.log(8)),
        (2.0, 0.5, 2, 4 * math.log(2)),
        (2.0, 0.5, 1, 4 * math.log(2)),
        (9.0, 0.9, 2, 1),
    ],
)
def test_rounds_of_algorithm_4_by_hand(
    epsilon: float, least_weight: float, n_server: int, inside: float
) -> None:
    """10 log(4 log|Q| / (epsilon w)) after the first, where that is above 0."""
    config = config_of(epsilon=epsilon, least_weight=least_weight)
    assert simplify_steps(config, n_server) == 1 + math.ceil(10.0 * math.log(inside))


def released(plan: Plan, index: int, weights: Any) -> Any:
    blocks = plan.rounds[index].blocks
    return as_released(
        encode(np.array(weights, dtype=float)).values, blocks, plan.fraction_bits
    )


CORNER = np.array(
    [[0.0, 0.0], [0.0078125, 0.0], [0.0, 0.0078125], [0.5, 0.0], [0.0, 0.5]]
)
"""Up to 0.0106 away two points are near each other here.

The first is near the two beside it, which are not.
"""


@pytest.mark.parametrize(
    ("k", "epsilon", "server", "weights", "kept"),
    [
        # A third of a quarter of 12,000 rows must be near a point, or so many points
        # that no five are enough.
        (2, 1.0, CORNER, [500, 250, 250, 1000, 999], [0, 3]),
        (2, 1.0, CORNER, [500, 500, 500, 0, 0], [0, 1, 2]),
        (2, 1.0, CORNER, [500, 250, 249, 1000, 1000], [3, 4]),
        # One point is fewer than two clusters: all are kept.
        (2, 1.0, CORNER, [0, 0, 0, 0, 1000], [0, 1, 2, 3, 4]),
        # Of 3,000 epsilon / (200 log 5) points, 2.997 or 3.006, the first has three
        # near it.
        (1, 0.3215, CORNER, [0] * 5, [0]),
        (1, 0.3225, CORNER, [0] * 5, [0, 1, 2, 3, 4]),
        # 3,000 epsilon / (200 log 2) is above 1.
        (1, 0.06, CORNER[2:4], [0, 1000], [1]),
        (1, 1.0, CORNER[:1], [0], [0]),
    ],
)
def test_points_near_which_there_are_few_are_left_out(
    k: int, epsilon: float, server: Any, weights: list[float], kept: list[int]
) -> None:
    plan = plan_of(n_server=len(server), n_clusters=k, epsilon=epsilon)
    start = seeded_state(np.zeros((k, 2)), 0, server)
    state = build_algorithm(plan).rounds[0].advance(start, released(plan, 0, weights))
    assert state[PARTS].tolist() == server[kept].tolist()


def test_rows_are_moved_and_brought_back_by_hand() -> None:
    given = {
        "parts": np.array([[0.0], [0.5]]),
        "shifts": np.array([[-0.25], [0.75]]),
        "zoom": np.array([4.0]),
    }
    state, rows = State(given), np.array([[0.125], [0.25], [0.5], [0.25 + 2.0**-16]])
    # Half way between both points a row goes with the first.
    there = [[-0.5], [0.0], [5.0], [4.0 + 2.0**-14]]
    assert moved_rows(rows, state).tolist() == there
    assert moved_back(np.array(there), state).tolist() == rows.tolist()
    facts: Any = ServerFacts(2, (0.0,), 4.0, 1.0)
    assert moved_centroids(rows[:2], state, facts).tolist() == there[:2]
    assert moved_centroids(rows[2:3], state, facts).tolist() == [[4.0 - 2.0**-16]]
    # Without parts, centroids are not clipped either.
    assert (
        moved_centroids(100.0 * rows, State({}), facts).tolist()
        == (100.0 * rows).tolist()
    )


@pytest.mark.parametrize(
    ("name", "array", "admitted"),
    [
        ("zoom", [1.0], True),
        ("zoom", [2.0**15], True),
        ("zoom", [2.0**16], False),
        ("zoom", [0.5], False),
        ("zoom", [6.0], False),
        ("zoom", [2.0, 2.0], False),
        # 25 and 9 are 17 times the two columns.
        ("shifts", [[5.0, 3.0], [0.0, 0.0]], True),
        ("shifts", [[5.0, 3.0 + 2.0**-16], [0.0, 0.0]], False),
        ("shifts", [[2.0**-17, 0.0], [0.0, 0.0]], False),
        ("shifts", [[0.0, 0.0]], False),
        # 2.02 is farther than the box from its middle, by a hundredth.
        ("parts", [[2.015625, 2.015625], [0.0, 0.0]], True),
        ("parts", [[2.03125, 2.015625], [0.0, 0.0]], False),
        ("parts", [[2.0**-17, 0.0], [0.0, 0.0]], False),
    ],
)
def test_parts_that_a_server_may_send_by_hand(
    name: str, array: Any, admitted: bool
) -> None:
    good: dict[str, Any] = {
        "parts": np.zeros((2, 2)),
        "shifts": np.zeros((2, 2)),
        "zoom": np.array([2.0]),
    }
    state = State(good | {name: np.array(array)})
    assert (
        bool(admits_moved(state, ServerFacts(2, (0.0, 0.0), 1.0, 1.0), 2)) is admitted
    )
    assert not admits_moved(state, ServerFacts(1, (0.0, 0.0), 1.0, 1.0), 2)


def test_parting_takes_the_servers_whole_table_near_the_box() -> None:
    admits = build_algorithm(plan_of(n_server=3)).rounds[0].admits
    assert admits is not None
    for table, admitted in (
        ([[2.0, 2.0]] * 3, True),
        ([[2.0, 2.0]] * 2, False),
        ([[2.0, 2.0]] * 4, False),
        ([[2.0, 2.0, 0.0]] * 3, False),
        ([[2.0, 3.0]] * 3, False),
    ):
        assert admits(State({SERVER_POINTS: np.array(table)})) is admitted


@pytest.mark.parametrize(
    ("last", "weights", "frozen_before", "kept", "frozen"),
    [
        # 2 log(12,000) is 18.8 rows. The last round keeps who is frozen, the first
        # tosses a coin for the others.
        (True, [19, 19, 19, 18, 0, 19], [], [0, 1, 2, 5], [1, 1, 1, 1]),
        (True, [19, 19, 0, 18, 0, 19], [0, 0, 0, 0, 1, 0], [0, 1, 4, 5], [1, 1, 1, 1]),
        # Four clusters need four points: the heaviest, and of equal ones the first.
        (True, [19, 5, 7, 5, 5, 0], [], [0, 1, 2, 3], [1, 0, 0, 0]),
        (False, [19, 19, 19, 18, 0, 19], [], None, None),
    ],
)
def test_who_is_frozen_and_who_is_kept_by_hand(
    last: bool, weights: list[float], frozen_before: list[float], kept: Any, frozen: Any
) -> None:
    plan = plan_of(
        n_server=6, reduce_diameter=False, deviation=None, simplify_server_data=True
    )
    places = [
        place
        for place, one in enumerate(plan.rounds)
        if one.name.startswith("simplify-")
    ]
    place, table = places[-1 if last else 0], drawn(6)
    extras = {FROZEN: np.array(frozen_before, dtype=float)} if frozen_before else {}
    state = seeded_state(np.zeros((4, 2)), 3).changed(
        **{PROJECTED_POINTS: table}, **extras
    )
    if kept is None:
        coins = np.random.default_rng((3, 1)).random(6)
        kept = [one for one in range(6) if weights[one] >= 19 or coins[one] < 0.5]
        frozen = [float(weights[one] >= 19) for one in kept]
        assert 4 < len(kept) < 6
    after = (
        build_algorithm(plan)
        .rounds[place]
        .advance(state, released(plan, place, weights))
    )
    assert after[PROJECTED_POINTS].tolist() == table[kept].tolist()
    assert after[FROZEN].tolist() == frozen


@pytest.mark.parametrize(
    ("n_server", "radius", "word"),
    [(2_001, 1.0, "at most 2000"), (4, 2.8285, "at most 2.828")],
)
def test_what_would_keep_a_client_busy_or_its_labels_inexact_is_refused(
    n_server: int, radius: float, word: str
) -> None:
    plan_of(n_server=min(n_server, 2_000), radius=min(radius, 2.0 * math.sqrt(2.0)))
    with pytest.raises(ConfigurationError, match=word):
        plan_of(n_server=n_server, radius=radius)


def test_rows_are_counted_from_the_servers_centre() -> None:
    """And one row adds one to one count, none of which is below 0."""
    facts = ServerFacts(2, (0.25, -0.5), 1.2, 1.44)
    given = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "feddp_kmeans",
        "trust": "distributed",
    }
    given |= {
        "n_examples": N,
        "least_weight": 0.25,
        "reduce_diameter": True,
        "deviation": SIGMA,
    }
    plan = draft_plan(
        parse_config(**given), run_id=1, n_clients=3, seed=0, n_features=2, server=facts
    )
    step = build_algorithm(plan).rounds[0]
    server = State({SERVER_POINTS: np.array([[0.25, 0.0], [-0.25, 0.0]])})
    (counts,) = step.statistic(
        np.array([[0.375, -0.5], [0.125, -0.5], [0.0, -0.5]]), server
    )
    assert counts.tolist() == [1.0, 2.0]
    moved = step.blocks[0].sensitivity
    assert (moved.bound, moved.nonnegative, step.blocks[0].entry_bound) == (
        1.0,
        True,
        1.0,
    )


def test_who_is_content_with_all_rows_is_not_warned_of_few() -> None:
    said = plan_cautions(
        plan_of(reduce_diameter=False, deviation=None, least_weight=None, margin=1.0)
    )
    assert not any("margin is" in one for one in said)
    clear = plan_cautions(
        plan_of(n_server=4, simplify_server_data=True, epsilon=9.0, least_weight=0.9)
    )
    assert not any(one.startswith("simplify_server_data asks") for one in clear)
