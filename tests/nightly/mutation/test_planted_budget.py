"""Planted bugs in what is charged; see the table in `test_planted_bugs`."""

from __future__ import annotations

from typing import Any

import pytest
from support import budget_bugs
from support.bound_detectors import plan_for, require_information
from support.planting import Bug, require_caught
from support.price_detectors import require_charged, require_priced
from support.protocol_federation import grid_parts
from support.wire_detectors import federation_run


@pytest.mark.parametrize(
    ("bug", "match"),
    [
        (budget_bugs.report_by_round, "the report says"),
        (budget_bugs.lines_by_round, "the report says"),
        (budget_bugs.ledger_by_round, "the ledger of node"),
        (budget_bugs.worst_case_without_retries, "the report says"),
    ],
)
def test_an_attempt_that_is_not_charged_is_caught(bug: Bug, match: str) -> None:
    def detect() -> None:
        parts = grid_parts([60] * 4, 3)
        require_charged(
            federation_run(
                parts,
                late_in_round=2,
                algorithm="fastlloyd",
                max_iter=3,
                random_state=3,
            )
        )

    require_caught(bug, detect, match)


@pytest.mark.parametrize(
    ("bug", "algorithm", "values"),
    [
        (
            budget_bugs.evaluation_not_charged,
            "glloyd",
            {"evaluation": "private", "evaluation_radius": 0.1},
        ),
        (
            budget_bugs.count_not_charged,
            "glloyd",
            {"n_examples": None, "count_share": 0.3},
        ),
        (budget_bugs.rounds_not_counted_in_the_noise, "fastlloyd", {}),
    ],
)
def test_a_release_that_is_not_charged_is_seen_by_a_target(
    bug: Bug, algorithm: str, values: Any
) -> None:
    require_caught(
        bug, lambda: require_information(algorithm, **values), "of what is claimed"
    )


@pytest.mark.parametrize(
    ("bug", "algorithm", "values"),
    [
        (budget_bugs.evaluation_not_charged, "glloyd", {"evaluation": "private"}),
        (budget_bugs.rounds_not_counted_in_the_noise, "fastlloyd", {}),
        (budget_bugs.delta_counted_twice, "fastlloyd", {}),
        (budget_bugs.delta_counted_twice, "proxy_lloyd", {}),
    ],
)
def test_a_plan_that_costs_more_than_it_says_is_caught(
    bug: Bug, algorithm: str, values: Any
) -> None:
    require_caught(
        bug, lambda: require_priced(plan_for(algorithm, **values)[0]), "the plan says"
    )
