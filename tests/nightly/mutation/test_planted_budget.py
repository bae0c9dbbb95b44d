"""Planted bugs in what is charged; see the table in `test_planted_bugs`."""

from __future__ import annotations

from typing import Any

import pytest
from support import budget_bugs
from support.bound_detectors import plan_for, require_information
from support.budget_bugs import Slip, Wrong
from support.price_detectors import claims_of, require_charged, require_priced
from support.protocol_federation import grid_parts
from support.wire_detectors import Watched, federation_run


@pytest.fixture(scope="module")
def run() -> Watched:
    """A run whose second round is repeated."""
    options = {"algorithm": "fastlloyd", "max_iter": 3, "random_state": 3}
    return federation_run(grid_parts([60] * 4, 3), late_in_round=2, **options)


@pytest.mark.parametrize(
    ("slip", "match"),
    [
        (budget_bugs.report_by_round, "the report says"),
        (budget_bugs.ledger_by_round, "the ledger of node"),
        (budget_bugs.worst_case_without_retries, "the worst case says"),
    ],
)
def test_an_attempt_that_is_not_charged_is_caught(
    slip: Slip, match: str, run: Watched
) -> None:
    require_charged(run, claims_of(run))
    with pytest.raises(AssertionError, match=match):
        require_charged(run, slip(run))


EVALUATED: dict[str, Any] = {"evaluation": "private", "evaluation_radius": 0.1}


@pytest.mark.parametrize(
    ("wrong", "algorithm", "values"),
    [
        (budget_bugs.evaluation_not_charged, "glloyd", EVALUATED),
        (
            budget_bugs.count_not_charged,
            "glloyd",
            {"n_examples": None, "count_share": 0.3},
        ),
        (budget_bugs.rounds_not_charged, "fastlloyd", {}),
    ],
)
def test_a_release_that_is_not_charged_is_seen_by_a_target(
    wrong: Wrong, algorithm: str, values: Any
) -> None:
    require_information(algorithm, **values)
    with pytest.raises(AssertionError, match="of what is claimed"):
        require_information(algorithm, claimed=wrong, **values)


@pytest.mark.parametrize(
    ("wrong", "algorithm", "values"),
    [
        (budget_bugs.evaluation_not_charged, "glloyd", {"evaluation": "private"}),
        (budget_bugs.rounds_not_charged, "fastlloyd", {}),
        (budget_bugs.delta_counted_twice, "fastlloyd", {}),
        (budget_bugs.delta_counted_twice, "proxy_lloyd", {}),
    ],
)
def test_a_plan_that_costs_more_than_it_says_is_caught(
    wrong: Wrong, algorithm: str, values: Any
) -> None:
    plan, _ = plan_for(algorithm, **values)
    require_priced(plan)
    with pytest.raises(AssertionError, match="the plan says"):
        require_priced(wrong(plan))
