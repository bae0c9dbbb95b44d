"""What every clustering checks and plans, at the edges of its ranges and with numbers
worked out here.
"""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.drafts import draft_of

from flwr_dpkmeans.algorithms.kmeans_task import counts_std
from flwr_dpkmeans.algorithms.states.cluster_states import seed_of, seeded_state
from flwr_dpkmeans.algorithms.states.state_arrays import is_table
from flwr_dpkmeans.algorithms.states.state_geometry import is_projection
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.trust import trust_model

STEP = 2.0**-16
BOX: Box = ((-1.0,), (1.0,))


def config_of(**values: Any) -> Any:
    return parse_config(
        **{"n_clusters": 3, "bounds": BOX, "n_examples": 900, "algorithm": "glloyd"}
        | values
    )


plan_of = partial(draft_of, n_clusters=3, n_examples=900, algorithm="glloyd", seed=7)


# -- the state -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "kept"), [(5, 5), (2**31 - 1, 2**31 - 1), (2**31, 0), (2**31 + 5, 5)]
)
def test_a_seed_travels_in_31_bits(seed: int, kept: int) -> None:
    state = seeded_state(np.zeros((2, 3)), seed)
    assert state["seed"].tolist() == [float(kept)]
    assert seed_of(state) == kept
    assert (state.counts.tolist(), list(state.extras)) == ([0.0, 0.0], ["seed"])


@pytest.mark.parametrize(
    ("column", "fits"),
    [
        ([1.0, 0.0], True),
        ([1.0078125, 0.0], True),
        ([1.0, 0.15625], False),
        ([1.01, 0.0], False),
        ([0.0, 0.0], True),
    ],
)
def test_columns_of_a_projection_are_at_most_a_hundredth_too_long(
    column: list[float], fits: bool
) -> None:
    assert is_projection(np.array([[0.0, column[0]], [0.0, column[1]]])) is fits
    assert is_projection(np.zeros((2, 0)))


def test_a_table_has_one_to_so_many_rows_of_the_width() -> None:
    shapes = [(1, 2), (3, 2), (0, 2), (4, 2), (3, 1), (2,)]
    assert [is_table(np.zeros(shape), 3, 2) for shape in shapes] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


# -- before round 1 --------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "entry"), [("record", 1.0), ("client", 2.0)])
def test_histograms_of_four_columns_move_by_two(unit: str, entry: float) -> None:
    """A hair more, in case that a root is rounded down."""
    known = {} if unit == "record" else {"examples_per_client": 30}
    plan = plan_of(
        width=4, n_examples=None, private_bounds=True, unit=unit, delta=1e-6,
        algorithm="proxy_lloyd", **known,
    )  # fmt: skip
    blocks = {block.name: block for step in plan.preliminary for block in step.blocks}
    for name in ("magnitudes", "ranges"):
        block = blocks[name]
        assert block.sensitivity.bound == math.nextafter(2.0, 3.0)
        assert block.entry_bound == pytest.approx(entry, rel=1e-15)
        assert block.shape[0] == 4
        assert block.sensitivity.unit.value == unit
        assert block.sensitivity.nonnegative


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        # A row's count has 0.02 of the budget, histograms 0.1: four fifths of it the
        # first.
        ({}, [0.02, 0.08, 0.02]),
        ({"n_examples": 900}, [0.08, 0.02]),
        ({"count_share": 0.1, "bounds_share": 0.2, "width": None}, [0.1]),
        ({"private_bounds": False}, [0.02]),
        ({"private_bounds": False, "n_examples": 900}, []),
    ],
)
def test_what_comes_before_round_1_takes_its_share(
    values: dict[str, Any], parts: list[float]
) -> None:
    given = {"n_examples": None, "private_bounds": True, "delta": 1e-6} | values
    blocks = [one for planned in plan_of(**given).preliminary for one in planned.blocks]
    (whole,) = (
        plan_of(n_examples=None, private_bounds=False, delta=1e-6, count_share=0.4)
        .preliminary[0]
        .blocks
    )
    entire = whole.noise_multiplier**-2 / 0.4
    assert [one.noise_multiplier**-2 / entire for one in blocks] == pytest.approx(
        parts, rel=1e-9
    )


# -- what is refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "refused", "sentence"),
    [
        ({"n_clusters": 100, "n_classes": 1000}, {"n_classes": 1001},
         "make a table of 100100 cells"),
        (
            {
                "unit": "client",
                "algorithm": "proxy_lloyd",
                "client_sampling_rate": 0.5,
                "max_iter": 50,
            },
            {"max_iter": 51},
            "max_iter is 51, but with client_sampling_rate below 1 at most 50",
        ),
        ({"max_iter": 51}, {"max_iter": 0}, "but it must be an integer of at least 1"),
        ({"algorithm": "feddp_kmeans", "max_iter": 0, "trust": "central"},
         {"max_iter": -1}, "max_iter is -1"),
        ({"n_examples": 3}, {"n_examples": 2}, "3 clusters need at least as many rows"),
        ({"algorithm": "feddp_kmeans", "noise_kind": "paper", "trust": "central"},
         {"trust": "distributed"},
         r"choose noise_kind='gaussian', or trust='central'\."),
        ({"algorithm": "feddp_kmeans", "noise_kind": "paper", "trust": "oblivious"},
         {"trust": "distributed", "choose_n_clusters": True},
         r"choose noise_kind='gaussian'\."),
        ({}, {"choose_n_clusters": True}, "'glloyd' cannot choose it"),
        (
            {
                "algorithm": "proxy_lloyd",
                "choose_n_clusters": True,
                "trust": "distributed",
            },
            {"trust": "central"},
            "under trust 'central' the server knows the noise behind that choice",
        ),
    ],
)  # fmt: skip
def test_what_a_clustering_takes_and_what_it_refuses(
    values: dict[str, Any], refused: dict[str, Any], sentence: str
) -> None:
    def take(**given: Any) -> None:
        config = config_of(**given)
        config.task.require_supported(
            config.settings, trust_model(config.settings.trust)
        )

    take(**values)
    with pytest.raises(ConfigurationError, match=sentence):
        take(**values | refused)


PLAN = draft_plan(
    config_of(n_clusters=2, evaluation="private", n_classes=2), run_id=1, n_clients=5,
    seed=7, n_features=2,
)  # fmt: skip
RESULT = {"centroids": np.zeros((2, 2)), "counts": np.zeros(2)}


def evaluated(**changes: Any) -> State:
    """A result with the arrays of its evaluation."""
    shapes = {block.name: block.shape for block in PLAN.rounds[-1].blocks}
    return State(
        RESULT | {name: np.zeros(shape) for name, shape in shapes.items()} | changes
    )


@pytest.mark.parametrize(
    ("changes", "admitted"),
    [
        ({}, True),
        ({"cost_curve": np.zeros(2)}, True),
        ({"cost_curve": np.zeros(3)}, False),
        ({"cost_curve": np.full(2, STEP / 2.0)}, False),
        ({"more": np.zeros(2)}, False),
        ({"centroids": np.zeros((1, 2)), "counts": np.zeros(1)}, True),
        ({"centroids": np.zeros((3, 2)), "counts": np.zeros(3)}, False),
        ({"centroids": np.zeros((0, 2)), "counts": np.zeros(0)}, False),
        ({"centroids": np.zeros((2, 3))}, False),
        ({"centroids": np.zeros(2)}, False),
        ({"counts": np.zeros(1)}, False),
        ({"counts": np.zeros((2, 1))}, False),
        ({"centroids": np.full((2, 2), 1.5)}, False),
    ],
)
def test_results_that_a_server_may_send(
    changes: dict[str, Any], admitted: bool
) -> None:
    assert bool(PLAN.task.admits(PLAN, None, evaluated(**changes))) is admitted
    for name in evaluated().arrays:
        missing = {
            one: array
            for one, array in evaluated(**changes).arrays.items()
            if one != name
        }
        assert not PLAN.task.admits(PLAN, None, State(missing))


# -- what is told ----------------------------------------------------------------------


def test_the_noise_of_the_last_round_with_counts_is_told() -> None:
    """Of each round its own."""

    def planned(name: str, *blocks: str) -> Any:
        return SimpleNamespace(
            name=name, blocks=[SimpleNamespace(name=one) for one in blocks]
        )

    rounds = [
        planned("a", "sums", "counts"),
        planned("b", "indicators"),
        planned("c", "sums"),
    ]
    plan: Any = SimpleNamespace(
        settings=SimpleNamespace(unit=PrivacyUnit.RECORD),
        rounds=[*rounds, planned("evaluation", "counts")],
        released_std=lambda one, block: {
            "a": 1.0, "b": 2.0, "c": 3.0, "evaluation": 4.0,
        }[one.name],
    )  # fmt: skip
    assert counts_std(plan) == (2.0, True)
