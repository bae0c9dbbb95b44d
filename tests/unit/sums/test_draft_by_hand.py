"""Which plans follow from what is known, and which of those that arrive are refused, at
the edge of each check.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import GaussianRelease, NoiseShape
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.columns import columns_digest
from flwr_dpkmeans.sums.checks.verify import (
    require_next,
    require_server_state,
    verify_plan,
)
from flwr_dpkmeans.sums.draft import draft_plan, redraft_plan, worst_case
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.price import whole_multiplier
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import State

BOX = ((-1.0,), (1.0,))
FACTS = ServerFacts(3, (0.0, 0.0), 0.5, 0.2)
POINTS = PublicPoints.of(np.array([[0.5, 0.0], [-0.5, 0.25], [0.0, -0.25]]))
FEDDP: dict[str, Any] = {"algorithm": "feddp_kmeans", "n_examples": 5000}


def plan_of(
    n_clients: int = 5,
    width: int | None = 2,
    known: dict[str, Any] | None = None,
    **values: Any,
) -> Plan:
    settings = {
        "algorithm": "glloyd",
        "n_clusters": 2,
        "bounds": BOX,
        "n_examples": 1000,
    }
    settings |= {"max_iter": 2} if values.get("algorithm") != "feddp_kmeans" else {}
    config = parse_config(**(settings | values))
    return draft_plan(
        config,
        run_id=4,
        n_clients=n_clients,
        seed=11,
        n_features=width,
        **(known or {}),
    )


# -- what is drafted -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "width", "known", "final"),
    [
        ({}, 2, {}, True),
        ({}, None, {}, False),
        ({"n_features": 3}, None, {}, True),
        ({"n_examples": None}, 2, {}, False),
        ({"n_examples": None}, 2, {"n_examples": 900}, True),
        ({"n_examples": None, "algorithm": "lloyd"}, 2, {}, True),
        ({"private_bounds": True}, 2, {}, False),
        ({"private_bounds": True}, 2, {"box": ((-0.5,) * 2, (0.5,) * 2)}, True),
        (
            {"private_bounds": True, "n_examples": None},
            2,
            {"box": ((-0.5,) * 2, (0.5,) * 2)},
            False,
        ),
    ],
)
def test_a_plan_is_final_once_rows_width_and_box_are_known(
    values: dict[str, Any], width: int | None, known: dict[str, Any], final: bool
) -> None:
    plan = plan_of(width=width, known=known, **values)
    assert plan.is_final is final
    assert plan.n_features == values.get("n_features", width)
    declared = values.get("n_examples", 1000)
    assert plan.n_examples == (
        declared if declared is not None else known.get("n_examples")
    )


def test_names_of_the_configuration_win_over_what_clients_answer() -> None:
    answered = {"columns": "7" * 64}
    assert plan_of(known=answered).columns_digest == "7" * 64
    named = plan_of(known=answered, feature_names=("a", "b"))
    assert named.columns_digest == columns_digest(4, ("a", "b")) != "7" * 64
    again = redraft_plan(plan_of(known=answered), n_features=2)
    assert again == plan_of(known=answered)
    assert (
        redraft_plan(
            plan_of(known=answered), n_features=2, columns="8" * 64
        ).columns_digest
        == "8" * 64
    )


@pytest.mark.parametrize(
    ("values", "known", "expected"),
    [
        ({"algorithm": "lloyd"}, {}, "infinite"),
        ({"evaluation": "exact", "n_examples": None}, {}, "infinite"),
        ({"evaluation": "exact"}, {}, "infinite"),
        ({}, {}, "its own"),
        ({"private_bounds": True}, {}, "the final plan's"),
        ({"n_examples": None, "max_retries": 0}, {}, "epsilon"),
        # Of noise that is a few steps of the grid.
        ({"n_examples": None, "epsilon": 100.0}, {}, "infinite"),
        ({"n_examples": None, "max_retries": 1}, {}, "two of the whole"),
        (
            {"n_examples": None, "max_retries": 1},
            {"n_examples": 700},
            "two of the whole",
        ),
        ({"n_examples": None, "max_retries": 1, "max_epsilon": 1.3}, {}, "limit"),
        (
            {"n_examples": None, "max_retries": 1, "max_epsilon": 9.0},
            {},
            "two of the whole",
        ),
    ],
)
def test_what_ledgers_are_charged_first(
    values: dict[str, Any], known: dict[str, Any], expected: str
) -> None:
    plan = plan_of(known=known, **values)
    box = {"box": ((-1.0,) * 2, (1.0,) * 2)}
    whole = whole_multiplier(plan.config, 1e-6)
    prices = {
        "infinite": lambda: math.inf,
        "its own": lambda: plan.epsilon_worst_case,
        "the final plan's": lambda: plan_of(known=box, **values).epsilon_worst_case,
        "epsilon": lambda: 1.0,
        "limit": lambda: 1.3,
        "two of the whole": lambda: compose_epsilon(
            [GaussianRelease("a", whole)] * 2, 1e-6
        ),
    }
    assert worst_case(plan) == pytest.approx(prices[expected](), rel=1e-6)


@pytest.mark.parametrize("algorithm", ["sulloyd", "glloyd", "lloyd"])
def test_an_exact_evaluation_takes_no_part_of_the_budget_from_any_noise(
    algorithm: str,
) -> None:
    """Also beside Laplace rounds and declared rows, where nothing has a share."""
    exact, without = (
        plan_of(algorithm=algorithm, evaluation="exact"),
        plan_of(algorithm=algorithm),
    )
    assert exact.rounds[:-1] == without.rounds
    assert {block.noise for block in exact.rounds[-1].blocks} == {NoiseShape.NONE}
    assert (exact.delta, exact.epsilon, exact.is_private) == (
        without.delta,
        math.inf,
        False,
    )
    verify_plan(exact)


def test_a_start_follows_from_the_points_that_the_plan_holds_or_that_are_given() -> (
    None
):
    plan = plan_of(
        known={"server": FACTS, "public_points": POINTS}, trust="oblivious", **FEDDP
    )
    kept = plan_of(known={"server": FACTS}, trust="distributed", **FEDDP)
    shown, given = initial_state(plan), initial_state(kept, POINTS.table)
    assert shown.digest == given.digest
    assert not any(
        array.flags.writeable
        for state in (shown, given)
        for array in state.arrays.values()
    )
    with pytest.raises(PlanError, match="the number of features is not known yet"):
        build_algorithm(plan_of(width=None))


# -- what arrives ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({"columns_digest": "0" * 64}, None),
        (
            {"columns_digest": "0" * 63},
            "the plan's digest of columns is no SHA-256 in hexadecimal",
        ),
        (
            {"columns_digest": "0" * 65},
            "the plan's digest of columns is no SHA-256 in hexadecimal",
        ),
        (
            {"columns_digest": "A" * 64},
            "the plan's digest of columns is no SHA-256 in hexadecimal",
        ),
        (
            {"columns_digest": "0" * 64 + "\n"},
            "the plan's digest of columns is no SHA-256 in hexadecimal",
        ),
        (
            {"server": FACTS, "n_features": 3},
            "the server points' centre has another width than the plan",
        ),
        (
            {"public_points": POINTS},
            "the plan's server points have another shape than it says",
        ),
        ({"delta": 2e-4}, "the plan does not follow from its own configuration"),
        ({"rounds": ()}, "the plan does not follow from its own configuration"),
        ({"version": 6}, "the plan does not follow from its own configuration"),
    ],
)
def test_a_plan_that_does_not_follow_from_itself(
    change: dict[str, Any], sentence: str | None
) -> None:
    plan = replace(plan_of(), **change)
    if sentence is None:
        verify_plan(plan)
    else:
        with pytest.raises(ProtocolError, match=sentence):
            verify_plan(plan)


@pytest.mark.parametrize(
    ("changes", "begun", "released", "taken"),
    [
        ({}, False, None, "says the same"),
        ({"delta": 2e-6}, False, None, "says the same"),
        ({"n_features": 2}, False, None, True),
        ({"n_features": 2}, True, 0, True),
        ({"n_features": 2}, True, None, "another n_features than"),
        ({"n_features": 2, "columns_digest": "0" * 64}, False, None, True),
        ({"columns_digest": "0" * 64}, True, 0, "another columns_digest than"),
        ({"n_examples": 800}, True, 0, True),
        ({"n_examples": 800}, True, None, "another n_examples than"),
        ({"n_examples": 801}, True, 0, "N = 801, but the private count released 800"),
        ({"n_examples": 800, "seed": 3}, True, 0, "another seed than"),
    ],
)
def test_a_later_plan_says_what_was_still_to_be_found(
    changes: dict[str, Any], begun: bool, released: int | None, taken: bool | str
) -> None:
    plan = plan_of(width=None, n_examples=None)
    found = Discoveries(800 if "n_examples" in changes else None)
    if taken is True:
        require_next(
            plan, replace(plan, **changes), found, begun=begun, released=released
        )
    else:
        with pytest.raises(ProtocolError, match=re.escape(str(taken))):
            require_next(
                plan, replace(plan, **changes), found, begun=begun, released=released
            )


def test_one_client_and_one_row_are_enough_for_a_plan() -> None:
    alone = {
        "trust": "curator",
        "masking": False,
        "n_clusters": 1,
        "n_examples": 1,
        "delta": 1e-6,
    }
    verify_plan(plan_of(1, **alone))
    exact = plan_of(n_examples=None, algorithm="lloyd")
    for change, sentence in (
        ({"n_examples": 1000}, "neither declared nor counted"),
        ({"n_examples": 0}, "for nobody"),
    ):
        with pytest.raises(ProtocolError, match=sentence):
            verify_plan(replace(exact, **change))


def test_width_and_columns_that_are_known_stay_as_they_are() -> None:
    plan = plan_of(n_examples=None, known={"columns": "0" * 64})
    for changes in ({"n_features": 3}, {"columns_digest": "1" * 64}):
        for begun, released in ((False, None), (True, 0)):
            with pytest.raises(
                ProtocolError,
                match=f"another {next(iter(changes))} than the one in force",
            ):
                require_next(
                    plan,
                    replace(plan, **changes),
                    Discoveries(),
                    begun=begun,
                    released=released,
                )
    box = ((-0.5,) * 2, (0.5,) * 2)
    waiting = plan_of(private_bounds=True)
    require_next(
        waiting, replace(waiting, box=box), Discoveries(box=box), begun=True, released=0
    )
    for said, told, released in ((box, BOX, 0), (None, box, 0), (box, None, 0)):
        with pytest.raises(
            ProtocolError, match="another box than the private histograms released"
        ):
            require_next(
                waiting,
                replace(waiting, box=said),
                Discoveries(box=told),
                begun=True,
                released=released,
            )
    with pytest.raises(ProtocolError, match="another box than the one in force"):
        require_next(
            waiting,
            replace(waiting, box=box),
            Discoveries(box=box),
            begun=True,
            released=None,
        )


def test_a_server_sends_what_the_round_reads_and_after_the_last_one_the_result() -> (
    None
):
    """An outer product, weights, centres, two iterations and an evaluation.

    Its metrics are part of the result.
    """
    plan = plan_of(
        known={"server": FACTS},
        trust="distributed",
        max_iter=2,
        evaluation="private",
        **FEDDP,
    )
    bare = State({"centroids": np.zeros((2, 2)), "counts": np.zeros(2)})
    weighed = bare.changed(projection=np.eye(2), projected_points=np.zeros((3, 2)))
    for state, rounds in ((bare, (1, 4, 5, 6)), (weighed, (2,))):
        for index in range(1, 8):
            if index in rounds:
                require_server_state(plan, index, state)
            else:
                with pytest.raises(
                    ProtocolError,
                    match=f"the server's state for round {index} does not fit the plan",
                ):
                    require_server_state(plan, index, state)


# -- what is released ------------------------------------------------------------------


def test_the_evaluation_alone_looks_at_labels() -> None:
    *own, last = build_algorithm(plan_of(evaluation="private", n_classes=2)).rounds
    assert [step.labelled is None for step in (*own, last)] == [True] * len(own) + [
        False
    ]
