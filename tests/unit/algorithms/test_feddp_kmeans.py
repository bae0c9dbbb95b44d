"""FedDP-KMeans' plan and its steps with numbers worked out here.

Whole runs are in `tests/runs/test_feddp.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.drafts import draft_of

from flwr_dpkmeans.algorithms.feddp.server_weights import clustered
from flwr_dpkmeans.algorithms.states.cluster_states import seeded_state
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.kmeans.public_points.seeding import plus_plus
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import (
    Block,
    as_released,
)
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import PrivateSum, State

STEP = 2.0**-16
FACTS = ServerFacts(30, (0.0, 0.25, -0.5), 1.0, 0.5, 1.5, 1.2, 1.3, 1.1, 1.9)


def config_of(**values: Any) -> Any:
    given = {
        "n_clusters": 4,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "feddp_kmeans",
        "trust": "central",
    }
    return parse_config(**given | values)


plan_of = partial(
    draft_of, n_clusters=4, algorithm="feddp_kmeans", trust="central", n_clients=20,
    width=3, server=FACTS,
)  # fmt: skip


def steps_of(**values: Any) -> dict[str, PrivateSum]:
    return {step.name: step for step in build_algorithm(plan_of(**values)).rounds}


def released(arrays: Sequence[Any], blocks: Sequence[Block]) -> Any:
    """A release whose noise happened to be zero."""
    flat = np.concatenate(
        [np.ravel(np.asarray(array, dtype=float)) for array in arrays]
    )
    return as_released(encode(np.rint(flat / STEP) * STEP).values, blocks, 16)


# -- the plan --------------------------------------------------------------------------

# Of each array: what a unit moves it by, the most of one entry, and words of the
# reason.
ROUNDED = 0.5 + math.sqrt(6.0) * 1.05 * STEP
RECORD = {
    "outer_product": (ROUNDED, ROUNDED, "S5: one row x within the radius R"),
    "weights": (1.0, 1.0, "S7: one row is nearest to one server point"),
    "clipped_sums": (1.0, 1.0, "S9: one row, clipped to the data radius"),
    "counts": (1.0, 1.0, "S2: one row lies in at most one cluster"),
}
CLIENT = {
    "outer_product": (0.5, 0.5,
                      "S6: one client's outer product, in Frobenius norm, is scaled"),
    "weights": (1.5, 1.5, "S8: one client's histogram is scaled"),
    "means": (1.2, 1.2, "S10: one client's list of cluster means is scaled"),
    "indicators": (1.3, 1.0, "S10: one client's list of non-empty clusters is scaled"),
    "clipped_sums": (1.1, 1.1, "S10: one client's list of cluster sums is scaled"),
    "counts": (1.9, 1.9, "S10: one client's list of rows by cluster is scaled"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["gaussian", "paper"])
@pytest.mark.parametrize(("unit", "expected"), [("record", RECORD), ("client", CLIENT)])
def test_what_each_array_declares(
    unit: str, expected: dict[str, tuple[float, float, str]], kind: str
) -> None:
    blocks = [
        one
        for planned in plan_of(unit=unit, noise_kind=kind, max_iter=1).rounds
        for one in planned.blocks
    ]
    assert {one.name for one in blocks} == set(expected)
    for block in blocks:
        bound, entry, because = expected[block.name]
        assert (block.sensitivity.bound, block.entry_bound) == (
            pytest.approx(bound),
            pytest.approx(entry),
        )
        assert block.sensitivity.because.startswith(because)
        # Numbers of rows, of clients and of clusters are none below 0.
        assert block.sensitivity.nonnegative is (
            block.name in ("weights", "counts", "indicators")
        )


def parts_of_the_budget(plan: Plan) -> dict[str, float]:
    """Of its square, by what a round's name begins with."""
    found: dict[str, float] = {}
    for planned in plan.rounds:
        name = planned.name.split("-")[0]
        found[name] = found.get(name, 0.0) + sum(
            one.noise_multiplier**-2 for one in planned.blocks
        )
    return {name: own / sum(found.values()) for name, own in found.items()}


@pytest.mark.parametrize(
    ("values", "lloyd", "parting", "simplify"),
    [
        ({"reduce_diameter": True, "deviation": 1e-4}, 0.0, 0.25, 0.0),
        ({"simplify_server_data": True}, 0.0, 0.0, 0.25),
        ({"reduce_diameter": True, "deviation": 1e-4, "simplify_server_data": True},
         0.0, 0.25, 0.25),
        (
            {
                "reduce_diameter": True,
                "deviation": 1e-4,
                "max_iter": 2,
                "lloyd_share": 0.2,
            },
            0.2,
            0.2,
            0.0,
        ),
    ],
)  # fmt: skip
def test_the_appendix_takes_a_quarter_of_the_start_for_either(
    values: dict[str, Any], lloyd: float, parting: float, simplify: float
) -> None:
    parts = parts_of_the_budget(plan_of(least_weight=0.25, n_examples=10_000, **values))
    own = {"lloyd": lloyd, "parting": parting, "simplify": simplify}
    assert {name: parts.get(name, 0.0) for name in own} == pytest.approx(own, rel=1e-9)
    # The rest in the paper's ratio of 0.2, 0.2, and 0.45 with 0.15, squared.
    rest = (1.0 - lloyd - parting - simplify) / (0.04 + 0.04 + 0.225)
    assert (parts["outer"], parts["weights"]) == (
        pytest.approx(0.04 * rest),
        pytest.approx(0.04 * rest),
    )
    assert list(parts) == [
        name
        for name in ("parting", "outer", "simplify", "weights", "centers", "lloyd")
        if name in parts
    ]


def test_what_is_said_of_the_servers_points() -> None:
    def words(**values: Any) -> str:
        plan = plan_of(n_examples=900, **values)
        return str(plan.task.server_points_words(plan))

    assert words().startswith("stay on the server; clients see their mean")
    assert words(least_weight=0.25, simplify_server_data=True).startswith(
        "stay on the server; clients see their mean"
    )
    assert words(least_weight=0.25, reduce_diameter=True, deviation=1e-4).startswith(
        "are sent to every client"
    )
    assert words(algorithm="server_lloyd").startswith("stay on the server, except for")


@pytest.mark.parametrize(
    "shares", [(0.2, 0.2, 0.6), (0.2,) * 5, (0.2, 0.2, 0.3, math.inf), "0.2,0.2,0.6,x"]
)
def test_shares_are_four_numbers(shares: Any) -> None:
    with pytest.raises(ConfigurationError, match="they must be four positive numbers"):
        config_of(budget_shares=shares)
    assert config_of(budget_shares="1,2,3,4").budget_shares == (1.0, 2.0, 3.0, 4.0)


def test_no_ratio_of_distances_is_above_one() -> None:
    assert config_of(margin=1.0).margin == 1.0
    with pytest.raises(ConfigurationError, match=r"margin is 1\.5, but a nearest"):
        config_of(margin=1.5)


def test_k_is_chosen_only_where_it_is_asked_for() -> None:
    with pytest.raises(PlanError, match="'feddp_choose_k' looks for the number"):
        plan_of(algorithm="feddp_choose_k")


# -- public starts ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", [7, 2**31 + 7, 2**40 + 7])
def test_k_means_plus_plus_starts_at_points_of_the_server(seed: int) -> None:
    points = np.random.default_rng(0).integers(-1000, 1000, (30, 3)) / 1024.0
    start = build_algorithm(plan_of(algorithm="server_kmeans++")).initial_state(
        seed, points
    )
    chosen = plus_plus(
        points, np.ones(30), 4, np.random.default_rng(seed), is_greedy=True
    )
    assert start.centroids.tolist() == points[chosen].tolist()
    assert start["seed"].tolist() == [seed % 2**31]


def test_a_start_from_points_without_points_is_refused() -> None:
    for algorithm, refused in (("server_kmeans++", True), ("sphere_packing", False)):
        algorithm_of_plan = build_algorithm(plan_of(algorithm=algorithm))
        if refused:
            with pytest.raises(PlanError, match="points are not at hand"):
                algorithm_of_plan.initial_state(1)
        else:
            assert algorithm_of_plan.initial_state(1).centroids.shape == (4, 3)


def test_the_servers_points_are_taken_from_their_centre() -> None:
    points = np.array(
        [[0.0, 0.25, -0.5], [0.5, 0.5, 0.5], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    )
    state = build_algorithm(plan_of()).initial_state(3, points)
    assert state["server_points"].tolist() == [
        [0.0] * 3,
        [0.5, 0.25, 1.0],
        [-1.0, -0.25, 0.5],
        [0.0, -0.25, 1.5],
    ]
    assert state.centroids.tolist() == [[0.0] * 3] * 4


# -- steps -----------------------------------------------------------------------------


def test_noise_leaves_the_axes_to_the_servers_points_if_they_are_asked() -> None:
    """All of them lie along the first axis, so that they say nothing of the others."""
    server = np.array([[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]])
    for prior, axis in ((True, [[1.0], [0.0], [0.0]]), (False, [[0.0], [1.0], [0.0]])):
        outer = steps_of(n_clusters=1, server_prior=prior)["outer-product"]
        assert outer.blocks[0].noise_scale > 1.0
        small = released([[0.0, 0.0, 0.0, 0.5, 0.0, 0.0]], outer.blocks)
        assert (
            outer.advance(seeded_state(np.zeros((1, 3)), 5, server), small)[
                "projection"
            ].tolist()
            == axis
        )


def test_a_chosen_number_of_clusters_has_its_own_centres() -> None:
    """Three heaps: the curve bends at three."""
    points = np.array([[-0.75], [-0.75 + STEP], [0.0], [STEP], [0.75], [0.75 + STEP]])
    config: Any = SimpleNamespace(n_clusters=6, n_init=3, choose_n_clusters=True)
    centers, extras = clustered(config, points, np.ones(6), 1)
    assert sorted(np.round(centers[:, 0], 3)) == [-0.75, 0.0, 0.75]
    assert len(extras["cost_curve"]) == 6
    config.choose_n_clusters = False
    centers, extras = clustered(config, points, np.ones(6), 1)
    assert (len(centers), extras) == (6, {})


def test_weights_make_centres_of_projected_points_and_lift_them() -> None:
    """Two heavy points and one of noise, which stands for nobody."""
    facts = ServerFacts(3, (0.25, 0.125), 2.0, 0.5)
    (step,) = build_algorithm(
        plan_of(server=facts, width=2, n_clusters=2, weight_threshold=3.0)
    ).rounds[1:2]
    std = step.blocks[0].standard_deviation
    given = {
        "projection": np.array([[0.0], [1.0]]),
        "projected_points": np.array([[0.5], [-0.25], [0.375]]),
    }
    state = seeded_state(np.zeros((2, 2)), 3).changed(**given)
    after = step.advance(
        state, released([[9.0 * std, 6.0 * std, 2.9 * std]], step.blocks)
    )
    assert sorted(after["projected_centers"].ravel()) == [-0.25, 0.5]
    assert sorted(after.centroids.tolist()) == [[0.25, -0.125], [0.25, 0.625]]
    assert after.counts.tolist() == [0.0, 0.0]
    with_noise = step.advance(
        state, released([[9.0 * std, 6.0 * std, 3.1 * std]], step.blocks)
    )
    assert sorted(with_noise["projected_centers"].ravel())[1] < 0.5


@pytest.mark.parametrize(
    ("n_rows", "width", "values", "admitted"),
    [
        (30, 3, {}, True),
        (29, 3, {}, False),
        (31, 3, {}, False),
        (30, 2, {}, False),
        (29, 3, {"least_weight": 0.25, "simplify_server_data": True, "n_examples": 900},
         True),
        (31, 3, {"least_weight": 0.25, "simplify_server_data": True, "n_examples": 900},
         False),
    ],
)  # fmt: skip
def test_all_projected_points_come_unless_they_were_halved(
    n_rows: int, width: int, values: dict[str, Any], admitted: bool
) -> None:
    admits = steps_of(**values)["weights"].admits
    assert admits is not None
    state = State(
        {"projection": np.eye(3), "projected_points": np.zeros((n_rows, width))}
    )
    assert admits(state) is admitted


def test_with_lemma_17_both_what_it_found_and_what_a_round_reads_are_looked_at() -> (
    None
):
    appendix = {
        "least_weight": 0.25, "reduce_diameter": True, "deviation": 1e-4,
        "n_examples": 900, "max_iter": 1,
    }  # fmt: skip
    steps = steps_of(**appendix)
    good = {
        "projection": np.eye(3),
        "projected_points": np.zeros((30, 3)),
        "projected_centers": np.zeros((4, 3)),
    }
    good |= {
        "parts": np.zeros((30, 3)),
        "shifts": np.zeros((30, 3)),
        "zoom": np.ones(1),
    }
    for name in ("outer-product", "weights", "centers", "lloyd-1"):
        step = steps[name]
        assert {"parts", "shifts", "zoom"} <= set(step.reads)
        assert step.admits is not None
        assert step.admits(State(good))
        assert not step.admits(State(good | {"zoom": np.full(1, 3.0)}))
        own = set(step.reads) & {"projected_points", "projected_centers"}
        assert all(
            not step.admits(State(good | {one: np.full((4, 3), 9.0)})) for one in own
        )
    for step in (
        steps_of(max_iter=1)["lloyd-1"],
        steps_of(algorithm="server_lloyd", max_iter=1)["lloyd-1"],
    ):
        assert (step.admits, step.reads) == (None, ())
