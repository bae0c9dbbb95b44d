"""What a report says of a run, against prices and plans written out here."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.kmeans_task import _require_bounded
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kmeans.ranges import WIDEST
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy import report
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import (
    LOCAL,
    _server_sentences,
    build_report,
    count_outside,
    local_cautions,
    spending_cautions,
    why_not_private,
)
from flwr_dpkmeans.sums.task import ServerFacts

ATTEMPTS = ((1, 0), (1, 1), (2, 1))


def plan_of(**values: Any) -> Plan:
    settings = {"algorithm": "glloyd", "n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "n_examples": 1000, "max_iter": 2}
    return draft_plan(parse_config(**(settings | values)), run_id=4, n_clients=5, seed=1, n_features=2)


def test_each_line_costs_what_was_released_up_to_it() -> None:
    plan = plan_of()
    lines = build_report(plan, ATTEMPTS).releases
    indices = [index for index, _ in ATTEMPTS]
    for position, (index, attempt) in enumerate(ATTEMPTS):
        told = {line.epsilon_so_far for line in lines if (line.round_index, line.attempt) == (index, attempt)}
        assert told == {compose_epsilon(plan.events(indices[: position + 1]), plan.delta)}


def test_one_release_without_noise_is_enough_for_not_private() -> None:
    """Of an algorithm that has noise otherwise: a block may say that it has none."""
    plan = plan_of()
    assert plan.is_private
    first = plan.rounds[0]
    bare = replace(first.blocks[0], noise=NoiseShape.NONE, noise_multiplier=0.0)
    exact = replace(plan, rounds=(replace(first, blocks=(bare, *first.blocks[1:])), *plan.rounds[1:]))
    assert not exact.is_private


def test_entries_of_clipped_sums_and_counts_are_bounded_by_one_row() -> None:
    """A row adds at most the data's radius to an entry of the sums, and 1 to one count."""
    config = parse_config(n_clusters=3, bounds=((-1.0,), (1.0,)), algorithm="feddp_kmeans", trust="central")
    facts = ServerFacts(30, (0.0, 0.0), 0.5, 0.1)
    plan = draft_plan(config, run_id=1, n_clients=20, seed=1, n_features=2, server=facts)
    blocks = {block.name: block for planned in plan.rounds for block in planned.blocks}
    assert blocks["counts"].entry_bound == 1.0
    assert blocks["clipped_sums"].entry_bound == blocks["clipped_sums"].sensitivity.bound


def test_seeded_coins_protect_nobody_either() -> None:
    coins = "So do the clients' coins: whoever knows the seed knows who takes part."
    all_take_part = {
        "algorithm": "proxy_lloyd",
        "unit": "client",
        "noise": "seeded",
        "n_examples": 1000,
        "trust": "central",
    }
    assert coins not in why_not_private(plan_of(**all_take_part))
    assert coins in why_not_private(plan_of(**all_take_part, client_sampling_rate=0.5))


@pytest.mark.parametrize(
    ("n_rows", "outside", "declared", "delta", "said"),
    [
        (100, 5, 100, 0.0099, []),
        (100, 6, 100, 0.0099, ["More than 5% of the rows lie outside the bounds of column 1"]),
        (101, 5, 100, 1e-6, ["n_examples is declared as 100, but there are more rows"]),
        (100, 5, None, 0.01, ["delta is 0.01, which is not below 1/N for the rows that are here"]),
    ],
)
def test_what_exact_rows_say_against_a_result(
    n_rows: int, outside: int, declared: int | None, delta: float, said: list[str]
) -> None:
    """Rows of two parties count together; some lie above the second column's bounds, some below."""
    rows = np.zeros((n_rows, 2))
    rows[: outside - 2, 1], rows[outside - 2 : outside, 1] = 1.5, -1.5
    settings = SimpleNamespace(unit=PrivacyUnit.RECORD, n_examples=declared, feature_names=())
    config: Any = SimpleNamespace(settings=settings)
    found = local_cautions(config, delta, count_outside(((-1.0,), (1.0,)), [rows[:3], rows[3:]]))
    assert [sentence.startswith(LOCAL + part) for sentence, part in zip(found, said, strict=True)] == [True] * len(said)
    settings.unit = PrivacyUnit.CLIENT
    counts = count_outside(((-1.0,), (1.0,)), [rows])
    assert len(local_cautions(config, delta, counts)) == sum("More than" in part for part in said)


def test_a_budget_is_left_over_below_985_thousandths_and_weak_above_ten() -> None:
    for asked, spent, sentences in (
        (2.0, 1.97, 0),
        (2.0, 1.9699, 1),
        (10.0, 10.0, 0),
        (10.1, 10.1, 1),
        (20.0, 10.1, 2),
    ):
        assert len(spending_cautions(asked, spent)) == sentences


SAID_SOMETIMES = (
    *(
        "Each client takes part in a round with probability 0.5, by a coin",
        "The declared number of rows of a client, 50",
    ),
    *(
        "The number of rows, 1000, is public",
        "Of each client, at most 50 rows are counted",
        "delta was lowered from 1e-06",
    ),
    *("The number of rows is not known: delta is below 1/N for fewer than 1,000,000", "The number of label classes, 3"),
    "Up to 1 aggregation(s) may be repeated",
)


@pytest.mark.parametrize(
    ("values", "counted", "said"),
    [
        ({}, None, (2, 7)),
        ({"max_retries": 0, "evaluation": "private", "n_classes": 3}, None, (2, 6)),
        ({"n_examples": None}, 1_000, (7,)),
        ({"n_examples": None}, 10**6, (4, 7)),
        ({"unit": "client", "trust": "distributed", "algorithm": "sphere_packing", "n_examples": None}, None, (1, 7)),
        ({"algorithm": "proxy_lloyd", "unit": "client", "n_examples": None, "max_retries": 0}, 1_000, (1,)),
        (
            {
                "unit": "client",
                "algorithm": "sphere_packing",
                "n_examples": None,
                "client_sampling_rate": 0.5,
                "trust": "central",
            },
            None,
            (0, 1, 7),
        ),
    ],
)
def test_what_a_guarantee_rests_on(values: dict[str, Any], counted: int | None, said: tuple[int, ...]) -> None:
    settings = {"algorithm": "glloyd", "n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "n_examples": 1000, "max_iter": 2}
    config = parse_config(**(settings | values))
    plan = draft_plan(config, run_id=4, n_clients=5, seed=1, n_features=2, n_examples=counted)
    told = build_report(plan, ()).assumptions
    assert tuple(i for i, part in enumerate(SAID_SOMETIMES) if any(one.startswith(part) for one in told)) == said


@pytest.mark.parametrize("n_points", [0, 1, 40])
def test_a_server_without_points_is_not_said_to_have_some(n_points: int) -> None:
    task = SimpleNamespace(server_points_words=lambda plan: "stay there.")
    plan: Any = SimpleNamespace(public_points=None, task=task)
    told = _server_sentences(plan, n_points)
    assert (len(told), told[-1].startswith("Centre and clip bounds")) == (2 if n_points else 1, True)
    assert told[0].startswith(f"The server's {n_points} points are not the clients' data") is (n_points > 0)
    plan.public_points = ()
    assert all("every client sees them" in one for one in _server_sentences(plan, n_points)[:-1])


def test_every_sentence_of_the_table_is_asked_for_and_every_one_that_is_asked_for_is_there() -> None:
    table = tomllib.loads(Path(report.__file__).with_suffix(".toml").read_text())
    code = "".join(path.read_text() for path in Path(report.__file__).parents[1].rglob("*.py"))
    assert {name for name in table if f'"{name}"' not in code and f"'{name}'" not in code} == set()
    asked = set(re.findall(r"told\([\"'](\w+)[\"']", code))
    assert asked <= set(table)
    assert len(asked) > 25


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, None),
        ({"n_examples": None}, "is released to everybody, with noise from the clients: that release holds"),
        ({"private_bounds": True}, "histograms of each column's range are"),
        ({"private_bounds": True, "n_examples": None}, "number of rows and histograms of each column's range are"),
        ({"n_examples": None, "trust": "distributed"}, None),
    ],
)
def test_a_guarantee_says_what_else_everybody_sees(values: dict[str, Any], words: str | None) -> None:
    told = build_report(plan_of(**({"trust": "oblivious"} | values)), ()).guarantee
    assert any(part in told for part in ("number of rows", "histograms")) is (words is not None)
    assert words is None or words in told


@pytest.mark.parametrize("domain", [(-5.0, WIDEST), (-WIDEST, 5.0)])
def test_a_domain_that_is_open_on_one_side_bounds_no_column(domain: tuple[float, float]) -> None:
    plan = plan_of(private_bounds=True)
    _require_bounded(plan, [0], ((-5.0,), (5.0,)), 1.0)
    with pytest.raises(PlanError, match="found no values of column 0"):
        _require_bounded(plan, [0], ((domain[0],), (domain[1],)), 1.0)
