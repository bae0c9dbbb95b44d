"""What a report says of a run, against prices and plans written out here."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.drafts import draft_of

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy import report
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import (
    LOCAL,
    build_report,
    why_not_private,
)
from flwr_dpkmeans.sums.statement.row_cautions import local_cautions, party_cautions

plan_of = partial(
    draft_of, algorithm="glloyd", n_clusters=3, n_examples=1000, max_iter=2, run_id=4
)


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


def test_seeded_coins_protect_nobody_either() -> None:
    coins = "So do the clients' coins: whoever knows the seed knows who takes part."
    all_take_part = {
        "algorithm": "proxy_lloyd", "unit": "client", "noise": "seeded",
        "n_examples": 1000, "trust": "central",
    }  # fmt: skip
    assert coins not in why_not_private(plan_of(**all_take_part))
    assert coins in why_not_private(plan_of(**all_take_part, client_sampling_rate=0.5))


def test_clipped_columns_are_named_as_the_table_or_else_the_run_names_them() -> None:
    named = plan_of(feature_names=("x", "y")).config
    for names, column in ((("a", "b"), "b"), ((), "y")):
        (said,) = local_cautions(named, 1e-6, np.array([100.0, 0.0, 50.0]), names)
        assert f"outside the bounds of column '{column}' and were clipped" in said


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


def test_sentences_of_the_table_are_those_that_are_used() -> None:
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
        ({"n_examples": None},
         "is released to everybody, with noise from the clients: that release holds"),
        ({"private_bounds": True}, "histograms of each column's range are"),
        ({"private_bounds": True, "n_examples": None},
         "number of rows and histograms of each column's range are"),
        ({"private_bounds": True, "n_examples": None},
         "with noise from the clients: these releases hold"),
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
)  # fmt: skip
def test_a_guarantee_says_what_else_everybody_sees(
    values: dict[str, Any], words: str | None
) -> None:
    told = build_report(plan_of(**({"trust": "oblivious"} | values)), ()).guarantee
    assert any(
        part in told for part in ("number of rows", "histograms", "spreads")
    ) is (words is not None)
    assert words is None or words in told


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([[100, 51, 0], [100, 5, 0]],
         "party north lie outside the bounds of column 'age'"),
        ([[100, 50, 0], [100, 5, 0]], None),
        # Of no other party are few outside: the bounds are wrong.
        ([[100, 51, 0], [100, 6, 0]], None),
        ([[100, 51, 0], [0, 0, 0]], None),
        ([[1, 0, 0], [1, 0, 1]], "party south lie outside the bounds of column 'pay'"),
        ([[100, 51, 0], [100, 6, 0], [100, 0, 90]],
         "party north, west lie outside the bounds of columns 'age', 'pay'"),
    ],
)  # fmt: skip
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


def test_whoever_holds_all_rows_assumes_nothing_of_links_and_names() -> None:
    told = build_report(
        plan_of(trust="curator", masking=False, max_retries=0),
        (),
        "nobody else is there",
    ).assumptions
    assert told == (
        "The bounds (-1 to 1) are public knowledge and were not taken from the"
        " data; values outside are clipped.",
        "Columns reach fit as they are: what another step learnt from the rows"
        " before it (the means of a scaler, what an imputer fills in, a choice of"
        " columns) is exact and not covered; scale = 'standard' of a schema finds"
        " spreads privately.", "The number of rows, 1000, is public knowledge.",
    )  # fmt: skip
    assert (
        "nobody else is there"
        in build_report(plan_of(), (), "nobody else is there").assumptions
    )
