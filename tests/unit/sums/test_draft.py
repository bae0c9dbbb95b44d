"""Which plans follow from what is known, and which of those that arrive are refused, at
the edge of each check.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.verify import (
    verify_plan,
)
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.public_facts import ServerFacts

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
        "algorithm": "glloyd", "n_clusters": 2, "bounds": BOX, "n_examples": 1000,
    }  # fmt: skip
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
        ({"columns_digest": "0" * 63},
         "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"columns_digest": "0" * 65},
         "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"columns_digest": "A" * 64},
         "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"columns_digest": "0" * 64 + "\n"},
         "the plan's digest of columns is no SHA-256 in hexadecimal"),
        ({"server": FACTS, "n_features": 3},
         "the server points' centre has another width than the plan"),
        ({"public_points": POINTS},
         "the plan's server points have another shape than it says"),
        ({"delta": 2e-4}, "the plan does not follow from its own configuration"),
        ({"rounds": ()}, "the plan does not follow from its own configuration"),
        ({"version": 6}, "the plan does not follow from its own configuration"),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_follow_from_itself(
    change: dict[str, Any], sentence: str | None
) -> None:
    plan = replace(plan_of(), **change)
    if sentence is None:
        verify_plan(plan)
    else:
        with pytest.raises(ProtocolError, match=sentence):
            verify_plan(plan)


# -- what is released ------------------------------------------------------------------
