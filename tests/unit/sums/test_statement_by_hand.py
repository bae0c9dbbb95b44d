"""What a report says of a run, against prices and plans written out here."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy import report
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.statement import (
    LOCAL,
    build_report,
    count_outside,
    describe_step,
    epsilon_after,
    local_cautions,
    party_cautions,
    plan_cautions,
    spending_cautions,
    unclear_cautions,
    why_not_private,
)

ATTEMPTS = ((1, 0), (1, 1), (2, 1))


def plan_of(counted: int | None = None, **values: Any) -> Plan:
    settings = {
        "algorithm": "glloyd",
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 1000,
        "max_iter": 2,
    }
    config = parse_config(**(settings | values))
    return draft_plan(
        config, run_id=4, n_clients=5, seed=1, n_features=2, n_examples=counted
    )


def test_each_line_costs_what_was_released_up_to_it() -> None:
    plan = plan_of()
    lines = build_report(plan, ATTEMPTS).releases
    indices = [index for index, _ in ATTEMPTS]
    for position, (index, attempt) in enumerate(ATTEMPTS):
        told = {
            line.epsilon_so_far
            for line in lines
            if (line.round_index, line.attempt) == (index, attempt)
        }
        assert told == {
            compose_epsilon(plan.events(indices[: position + 1]), plan.delta)
        }


def test_one_release_without_noise_is_enough_for_not_private() -> None:
    """Of an algorithm that has noise otherwise: a block may say that it has none."""
    plan = plan_of()
    assert plan.is_private
    first = plan.rounds[0]
    bare = replace(first.blocks[0], noise=NoiseShape.NONE, noise_multiplier=0.0)
    exact = replace(
        plan,
        rounds=(replace(first, blocks=(bare, *first.blocks[1:])), *plan.rounds[1:]),
    )
    assert not exact.is_private


def test_entries_of_clipped_sums_and_counts_are_bounded_by_one_row() -> None:
    """A row adds at most the data's radius to an entry of the sums, and 1 to one count."""
    config = parse_config(
        n_clusters=3,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        trust="central",
    )
    facts = ServerFacts(30, (0.0, 0.0), 0.5, 0.1)
    plan = draft_plan(
        config, run_id=1, n_clients=20, seed=1, n_features=2, server=facts
    )
    blocks = {block.name: block for planned in plan.rounds for block in planned.blocks}
    assert blocks["counts"].entry_bound == 1.0
    assert (
        blocks["clipped_sums"].entry_bound == blocks["clipped_sums"].sensitivity.bound
    )


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
        (
            100,
            6,
            100,
            0.0099,
            ["More than 5% of the rows lie outside the bounds of column 1"],
        ),
        (101, 5, 100, 1e-6, ["n_examples is declared as 100, but there are more rows"]),
        (
            100,
            5,
            None,
            0.01,
            ["delta is 0.01, which is not below 1/N for the rows that are here"],
        ),
    ],
)
def test_what_exact_rows_say_against_a_result(
    n_rows: int, outside: int, declared: int | None, delta: float, said: list[str]
) -> None:
    """Rows of two parties count together.

    Some lie above the second column's bounds, some below.
    """
    rows = np.zeros((n_rows, 2))
    rows[: outside - 2, 1], rows[outside - 2 : outside, 1] = 1.5, -1.5
    settings = SimpleNamespace(
        unit=PrivacyUnit.RECORD, n_examples=declared, feature_names=()
    )
    config: Any = SimpleNamespace(settings=settings)
    found = local_cautions(
        config, delta, count_outside(((-1.0,), (1.0,)), [rows[:3], rows[3:]])
    )
    assert [
        sentence.startswith(LOCAL + part)
        for sentence, part in zip(found, said, strict=True)
    ] == [True] * len(said)
    settings.unit = PrivacyUnit.CLIENT
    counts = count_outside(((-1.0,), (1.0,)), [rows])
    assert len(local_cautions(config, delta, counts)) == sum(
        "More than" in part for part in said
    )


def test_clipped_columns_are_named_as_the_table_or_else_the_run_names_them() -> None:
    named = plan_of(feature_names=("x", "y")).config
    for names, column in ((("a", "b"), "b"), ((), "y")):
        (said,) = local_cautions(named, 1e-6, np.array([100.0, 0.0, 50.0]), names)
        assert f"outside the bounds of column '{column}' and were clipped" in said


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
    *(
        "The number of rows is not known: delta is below 1/N for fewer than 1,000,000",
        "The number of label classes, 3",
    ),
    "Up to 1 aggregation(s) may be repeated",
)


@pytest.mark.parametrize(
    ("values", "counted", "said"),
    [
        ({}, None, (2, 7)),
        ({"max_retries": 0, "evaluation": "private", "n_classes": 3}, None, (2, 6)),
        ({"n_examples": None}, 1_000, (7,)),
        ({"n_examples": None}, 10**6, (4, 7)),
        (
            {
                "unit": "client",
                "trust": "distributed",
                "algorithm": "sphere_packing",
                "n_examples": None,
            },
            None,
            (1, 7),
        ),
        (
            {
                "algorithm": "proxy_lloyd",
                "unit": "client",
                "n_examples": None,
                "max_retries": 0,
            },
            1_000,
            (1,),
        ),
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
def test_what_a_guarantee_rests_on(
    values: dict[str, Any], counted: int | None, said: tuple[int, ...]
) -> None:
    settings = {
        "algorithm": "glloyd",
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 1000,
        "max_iter": 2,
    }
    config = parse_config(**(settings | values))
    plan = draft_plan(
        config, run_id=4, n_clients=5, seed=1, n_features=2, n_examples=counted
    )
    told = build_report(plan, ()).assumptions
    assert (
        tuple(
            i
            for i, part in enumerate(SAID_SOMETIMES)
            if any(one.startswith(part) for one in told)
        )
        == said
    )


def test_every_sentence_of_the_table_is_asked_for_and_every_one_that_is_asked_for_is_there() -> (
    None
):
    table = tomllib.loads(Path(report.__file__).with_suffix(".toml").read_text())
    code = "".join(
        path.read_text() for path in Path(report.__file__).parents[1].rglob("*.py")
    )
    assert {
        name for name in table if f'"{name}"' not in code and f"'{name}'" not in code
    } == set()
    asked = set(re.findall(r"report_sentence\(\s*[\"'](\w+)[\"']", code))
    assert asked <= set(table)
    assert len(asked) > 25


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, None),
        (
            {"n_examples": None},
            "is released to everybody, with noise from the clients: that release holds",
        ),
        ({"private_bounds": True}, "histograms of each column's range are"),
        (
            {"private_bounds": True, "n_examples": None},
            "number of rows and histograms of each column's range are",
        ),
        (
            {"private_bounds": True, "n_examples": None},
            "with noise from the clients: these releases hold",
        ),
        (
            {
                "private_bounds": True,
                "schema_digest": "0" * 64,
                "standard_columns": ((1, 1.0),),
            },
            "spreads of the columns are",
        ),
        ({"n_examples": None, "trust": "distributed"}, None),
    ],
)
def test_a_guarantee_says_what_else_everybody_sees(
    values: dict[str, Any], words: str | None
) -> None:
    told = build_report(plan_of(**({"trust": "oblivious"} | values)), ()).guarantee
    assert any(
        part in told for part in ("number of rows", "histograms", "spreads")
    ) is (words is not None)
    assert words is None or words in told


COUNTED: dict[str, Any] = {"counted": 1000, "n_examples": None}
BY_CLIENT: dict[str, Any] = {"unit": "client", "algorithm": "proxy_lloyd"}


@pytest.mark.parametrize(
    ("values", "change", "begins"),
    [
        (BY_CLIENT, {"n_clients": 9}, {"The unit is the client, and there are 9"}),
        (BY_CLIENT, {"n_clients": 10}, set()),
        (
            COUNTED,
            {"delta": 0.001},
            {
                "delta is 0.001, which is not below 1/N for the 1000 rows that were"
                " counted"
            },
        ),
        (COUNTED, {"delta": math.nextafter(0.001, 0.0)}, set()),
        (BY_CLIENT | COUNTED, {"delta": 0.1, "n_clients": 10}, set()),
        ({}, {}, set()),
        (
            {},
            {"delta": 0.0005},
            {"The plan spends epsilon 0.8781 of the 1 that was asked for"},
        ),
        # Of a preliminary plan only the size of epsilon is known.
        ({}, {"rounds": (), "delta": 0.0005}, set()),
        ({"epsilon": 20.0}, {"rounds": ()}, {"epsilon is 20, a weak guarantee"}),
    ],
)
def test_what_a_plan_says_against_itself(
    values: dict[str, Any], change: dict[str, Any], begins: set[str]
) -> None:
    said = plan_cautions(replace(plan_of(**values), **change))
    # The plan's releases stay as they are: a larger delta makes them cheaper.
    own = [
        sentence
        for sentence in said
        if re.match("The unit is|delta is|epsilon is|The plan spends", sentence)
    ]
    if change.get("delta", 0.0) > 0.0005:
        own = [
            sentence for sentence in own if not sentence.startswith("The plan spends")
        ]
    assert {sentence[: max(map(len, begins), default=0)] for sentence in own} == begins


def test_a_report_says_what_its_plan_says() -> None:
    plan = plan_of(epsilon=20.0)
    assert build_report(plan, ()).warnings == plan_cautions(plan)
    assert plan_cautions(plan)[0].startswith("epsilon is 20")


def test_columns_that_private_histograms_did_not_find_are_named() -> None:
    assert (
        unclear_cautions((), ("a",), standard=True)
        == unclear_cautions((), (), standard=False)
        == ()
    )
    (spread,), (values,) = (
        unclear_cautions([1], ("a", "b"), standard=True),
        unclear_cautions([0], (), standard=False),
    )
    assert spread.startswith("The spread of column 'b' is not told from noise")
    assert values.startswith(
        "Private bounds found no values of column 0 (counted from 0)"
    )
    report = build_report(plan_of(), (), unclear=[1], names=("a", "b"))
    assert "found no values of column 'b'" in report.warnings[-1]
    report = build_report(plan_of(feature_names=("x", "y")), (), unclear=[1])
    assert "found no values of column 'y'" in report.warnings[-1]


def test_rows_on_the_bounds_do_not_lie_outside() -> None:
    parts = [
        np.array([[-1.0, 3.0], [-1.5, 0.0]]),
        np.array([[2.0, 3.5], [1.0, 0.0], [2.5, 4.0]]),
    ]
    assert count_outside(((-1.0, 0.0), (2.0, 3.0)), parts).tolist() == [5.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            [[100, 51, 0], [100, 5, 0]],
            "party north lie outside the bounds of column 'age'",
        ),
        ([[100, 50, 0], [100, 5, 0]], None),
        # Of no other party are few outside: the bounds are wrong.
        ([[100, 51, 0], [100, 6, 0]], None),
        ([[100, 51, 0], [0, 0, 0]], None),
        ([[1, 0, 0], [1, 0, 1]], "party south lie outside the bounds of column 'pay'"),
        (
            [[100, 51, 0], [100, 6, 0], [100, 0, 90]],
            "party north, west lie outside the bounds of columns 'age', 'pay'",
        ),
    ],
)
def test_a_party_with_most_rows_outside_is_told_of_where_another_has_few(
    counts: list[list[int]], said: str | None
) -> None:
    told = party_cautions(
        np.array(counts, dtype=float), ("north", "south", "west"), ("age", "pay")
    )
    assert [
        sentence.startswith(f"{LOCAL}Most rows of {said} and were") for sentence in told
    ] == [True] * bool(said)
    (unnamed,) = party_cautions(np.array([[9.0, 0.0], [9.0, 9.0]]), (), ())
    assert unnamed.startswith(
        f"{LOCAL}Most rows of party 1 lie outside the bounds of column 0 (counted"
        " from 0)"
    )


def test_laplace_rounds_cost_no_more_than_they_do_with_the_evaluation_that_is_to_come() -> (
    None
):
    """Alone they add up.

    a mixture with Gaussian noise may be priced lower, here from the fourth round on.
    """
    plan = plan_of(algorithm="sulloyd", evaluation="private", max_iter=5)
    closing = plan.events([6])
    cheaper = []
    for n_rounds in range(1, 6):
        own = plan.events(range(1, n_rounds + 1))
        alone, mixed = (
            compose_epsilon(own, plan.delta),
            compose_epsilon((*own, *closing), plan.delta),
        )
        assert epsilon_after(
            plan, [(index, 0) for index in range(1, n_rounds + 1)]
        ) == min(alone, mixed)
        cheaper.append(mixed < alone)
    assert cheaper == [False, False, False, True, True]
    assert epsilon_after(plan, [(6, 0)]) == compose_epsilon(closing, plan.delta)
    assert epsilon_after(plan, ()) == 0.0
    for evaluation in ("none", "exact"):
        plan = plan_of(algorithm="sulloyd", max_iter=2, evaluation=evaluation)
        assert epsilon_after(plan, [(1, 0)]) == compose_epsilon(
            plan.events([1]), plan.delta
        )


def test_what_is_told_of_one_step() -> None:
    plan = plan_of(evaluation="private", max_retries=1)
    step = describe_step(plan, ((1, 0), (2, 0), (2, 1)), 4, 0.25)
    assert (
        step.round_index,
        step.n_rounds,
        step.attempt,
        step.name,
        step.n_clients,
    ) == (2, 3, 1, "lloyd-2", 4)
    assert step.epsilon == compose_epsilon(plan.events([1, 2, 2]), plan.delta)
    assert step.noise_scales == tuple(
        (block.name, block.noise_scale) for block in plan.rounds[1].blocks
    )
    assert (step.radius, step.movement) == (plan.rounds[1].radius, 0.25)
    assert describe_step(plan, ((3, 0),), 4, 0.25).movement is None


@pytest.mark.parametrize(("max_silent", "colluding"), [(0, 1), (1, 1), (2, 2)])
def test_a_count_with_noise_of_the_clients_holds_against_at_least_one_of_them(
    max_silent: int, colluding: int
) -> None:
    told = build_report(plan_of(n_examples=None, max_silent=max_silent), ()).guarantee
    assert f"against a server, or against up to {colluding} of 5 clients." in told


@pytest.mark.parametrize(
    "values", [{"algorithm": "lloyd"}, BY_CLIENT | {"algorithm": "sphere_packing"}]
)
def test_rows_that_delta_says_nothing_of_are_not_spoken_of(
    values: dict[str, Any],
) -> None:
    """Exact sums have no delta to suit the rows, and clients are not rows."""
    told = build_report(
        plan_of(n_examples=None, trust="central", **values), ()
    ).assumptions
    assert not [sentence for sentence in told if "number of rows is" in sentence]


def test_whoever_holds_all_rows_assumes_nothing_of_links_and_names() -> None:
    told = build_report(
        plan_of(trust="curator", masking=False, max_retries=0),
        (),
        "nobody else is there",
    ).assumptions
    assert told == (
        (
            "The bounds (-1 to 1) are public knowledge and were not taken from the"
            " data; values outside are clipped."
        ),
        (
            "Columns reach fit as they are: what another step learnt from the rows"
            " before it (the means of a scaler, what an imputer fills in, a choice of"
            " columns) is exact and not covered; scale = 'standard' of a schema finds"
            " spreads privately."
        ),
        "The number of rows, 1000, is public knowledge.",
    )
    assert (
        "nobody else is there"
        in build_report(plan_of(), (), "nobody else is there").assumptions
    )


@pytest.mark.parametrize(
    ("attempts", "n_released"),
    [((), 0), (((1, 0), (1, 1)), 1), (((1, 0), (2, 0)), 2), (((1, 0), (4, 0)), 1)],
)
def test_of_rounds_that_may_end_early_those_that_were_released_are_counted(
    attempts: tuple[tuple[int, int], ...], n_released: int
) -> None:
    """Of the three that move centroids; the evaluation is the fourth."""
    plan = plan_of(trust="central", tolerance=0.25, evaluation="private", max_iter=3)
    told = build_report(plan, attempts).assumptions
    assert (
        f"a released step is at most 0.25 long: {n_released} of 3 planned rounds were"
        " released." in told[-1]
    )
    assert not any(
        "planned rounds" in one
        for one in build_report(plan_of(trust="central"), attempts[:1]).assumptions
    )
