"""What a plan answers of itself, and which tables it is for, at the edges of each
answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import DataError, ProtocolError, RefusalError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND, PROFILE_ROUND
from flwr_dpkmeans.sums.checks.columns import (
    agreed_names,
    column_positions,
    columns_digest,
    require_agreed_columns,
    require_columns,
    require_schema,
    require_width,
    schema_agreement,
)
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan, takes_part
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import State

EACH: dict[str, Any] = {"bounds": ((-1.0, 0.0), (1.0, 2.0))}
NAMED: dict[str, Any] = {"feature_names": ("age", "pay")}


def plan_of(
    n_clients: int = 5, width: int | None = 2, counted: int | None = None, **values: Any
) -> Plan:
    settings = {
        "algorithm": "glloyd",
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 1000,
        "max_iter": 2,
    }
    config = parse_config(**(settings | values))
    return draft_plan(
        config,
        run_id=4,
        n_clients=n_clients,
        seed=11,
        n_features=width,
        n_examples=counted,
    )


def sampled(rate: float, **values: Any) -> Plan:
    """Without the noise that a sample would have, which takes long to find."""
    plan = plan_of(algorithm="proxy_lloyd", unit="client", trust="central", **values)
    return replace(plan, config=plan.config.changed(client_sampling_rate=rate))


# -- the server's points ---------------------------------------------------------------


def test_points_travel_as_whole_numbers_of_grid_steps() -> None:
    table = np.array([[-1.0, 0.5], [2.0**-16, 1.0], [0.0, -(2.0**-15)]])
    points = PublicPoints.of(table)
    steps = np.array([-65536, 32768, 1, 65536, 0, -2], dtype="<i4")
    assert points == PublicPoints(3, 2, base64.b64encode(steps.tobytes()).decode())
    assert np.array_equal(points.table, table)
    with pytest.raises(ValueError, match="read-only"):
        points.table[0, 0] = 0.0


@pytest.mark.parametrize(
    ("steps", "shape", "mark", "sentence"),
    [
        ([65536, -65536], (1, 2), "", None),
        ([65537, 0], (1, 2), "", "leave the box of its bounds"),
        ([0, -65537], (1, 2), "", "leave the box of its bounds"),
        ([0, 0, 0, 0], (2, 2), "", None),
        ([0, 0, 0], (2, 2), "", "have another shape"),
        ([0], (2, 2), "", "have another shape"),
        ([0, 0], (1, 2), "*", "are not base64"),
    ],
)
def test_points_of_a_plan_are_base64_of_as_many_values_inside_the_box(
    steps: list[int], shape: tuple[int, int], mark: str, sentence: str | None
) -> None:
    text = mark + base64.b64encode(np.array(steps, dtype="<i4").tobytes()).decode()
    if sentence is None:
        assert (
            PublicPoints(*shape, text).table.tolist()
            == (np.array(steps).reshape(shape) / 65536).tolist()
        )
    else:
        with pytest.raises(ProtocolError, match=sentence):
            _ = PublicPoints(*shape, text).table


# -- rounds ----------------------------------------------------------------------------


def closed_by(plan: Plan, *names: str) -> Plan:
    return replace(
        plan,
        rounds=(*plan.rounds, *[replace(plan.rounds[0], name=name) for name in names]),
    )


def test_rounds_that_close_a_run_come_after_all_others() -> None:
    plan = plan_of(trust="central", tolerance=0.5)
    for names, last in (
        ((), 2),
        ((EVALUATION_ROUND,), 3),
        ((PROFILE_ROUND, EVALUATION_ROUND), 4),
    ):
        closed = closed_by(plan, *names)
        assert (
            closed.first_round,
            closed.last_round,
            closed.closing_round,
            closed.skips_to,
        ) == (1, last, 3, 3)
    assert (plan_of().skips_to, plan_of(evaluation="private").skips_to) == (0, 0)
    preliminary = plan_of(n_examples=None, trust="central", tolerance=0.5)
    assert (preliminary.first_round, preliminary.last_round, preliminary.skips_to) == (
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("index", "movements", "follows"),
    [
        (1, None, 2),
        (1, (), 2),
        (1, (2.0,), 5),
        (1, (math.nextafter(2.0, 3.0),), 2),
        (2, (9.0, 1.0), 5),
        (2, (1.0, 9.0), 3),
        # Noise moves whatever is found.
        (2, (1.0, 0.0), 3),
        (4, (1.0,), 5),
        (3, (9.0,), 4),
        # What closes a run, and what comes before round 1, is not left out.
        (5, (1.0,), 6),
        (0, (1.0,), 1),
    ],
)
def test_rounds_are_left_out_once_one_has_moved_the_result_no_farther_than_the_tolerance(
    index: int, movements: tuple[float, ...] | None, follows: int
) -> None:
    plan = closed_by(
        plan_of(trust="central", tolerance=2.0, max_iter=4),
        PROFILE_ROUND,
        EVALUATION_ROUND,
    )
    state = None if movements is None else State({}, movements)
    assert plan.round_after(index, state) == follows
    assert replace(plan, config=plan_of().config).round_after(index, state) == index + 1


def test_without_noise_a_result_may_stand_still() -> None:
    """A round with noise on one of two arrays has noise."""
    plan = plan_of(algorithm="lloyd", trust="central", tolerance=2.0, max_iter=4)
    still = State({}, (0.0,))
    assert plan.round_after(1, still) == 5
    exact, noisy = plan.rounds[0].blocks[0], plan_of().rounds[0].blocks[1]
    assert (
        replace(
            plan, rounds=(replace(plan.rounds[0], blocks=(exact, noisy)),) * 4
        ).round_after(1, still)
        == 2
    )


@pytest.mark.parametrize(
    ("values", "width", "slots"),
    [
        ({"max_iter": 2}, 2, (1, 2, 2)),
        ({"max_iter": 2, "max_retries": 0, "evaluation": "private"}, 2, (1, 3, 1)),
        # Not known yet: eight more than the iterations, or than sixteen.
        ({"max_iter": 2, "n_examples": None, "max_retries": 2}, 2, (0, 10, 3)),
        ({"n_examples": None}, 2, (0, 24, 2)),
        ({"max_iter": 2}, None, (1, 10, 2)),
    ],
)
def test_keys_are_shared_for_every_aggregation_that_a_run_may_have(
    values: dict[str, Any], width: int | None, slots: tuple[int, int, int]
) -> None:
    settings = {
        "algorithm": "glloyd",
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "n_examples": 1000,
    }
    config = parse_config(**(settings | values), dropout="recover")
    found = draft_plan(config, run_id=4, n_clients=8, seed=11, n_features=width).slots
    assert (found.first_round, found.last_round, found.n_attempts) == slots


def test_everybody_takes_part_in_what_steers_the_plan_and_a_sample_in_the_rest() -> (
    None
):
    plan = sampled(0.25)
    assert set(plan.rates.values()) == {0.25}
    before = replace(plan, preliminary=(plan.rounds[0],) * 2)
    assert [before.rates[index] for index in (-1, 0, 1)] == [1.0, 1.0, 0.25]
    with pytest.raises(ProtocolError, match="but not -2"):
        _ = before.rates[-2]


def test_data_are_scaled_by_the_released_box_if_there_is_one() -> None:
    plan, box = plan_of(private_bounds=True), ((-0.5, -0.25), (0.5, 0.75))
    assert (plan.bounds, replace(plan, box=box).bounds) == (((-1.0,), (1.0,)), box)


# -- coins and noise -------------------------------------------------------------------


def stream_of(*purpose: str | int) -> int:
    """The first eight bytes of a hash of the plan's seed, 11, and of what the stream is
    for.
    """
    return int.from_bytes(
        hashlib.sha256(repr((11, *purpose)).encode()).digest()[:8], "little"
    )


def test_seeded_coins_follow_from_seed_node_round_and_attempt() -> None:
    plan = sampled(0.25, noise="seeded")
    places = [
        (node, index, attempt)
        for node in range(40)
        for index in (1, 2)
        for attempt in (0, 1)
    ]
    coins = [
        int(np.random.default_rng(stream_of("coin", *place)).integers(2**53)) < 2**51
        for place in places
    ]
    assert [takes_part(plan, *place) for place in places] == coins
    assert 20 < sum(coins) < 60


@pytest.mark.parametrize(
    ("rate", "threshold"),
    [
        (0.25, 2**51),
        (0.1, int(0.1 * 2**53)),
        (math.nextafter(1.0, 0.0), 2**53 - 1),
        (1e-300, 0),
    ],
)
def test_a_client_takes_part_below_a_threshold_that_is_rounded_down(
    rate: float, threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody, plan, coins = sampled(1.0), sampled(rate), list[int]()
    for drawn in (max(0, threshold - 1), threshold):
        monkeypatch.setattr(
            secrets,
            "randbelow",
            lambda sides, drawn=drawn: coins.append(sides) or drawn,
        )
        assert takes_part(plan, 7, 1, 0) is (drawn < threshold)
        assert takes_part(everybody, 7, 1, 0) is True
    assert coins == [2**53] * 2


# -- tables ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "names", "agreed"),
    [
        ({}, ("pay", "age"), ("age", "pay")),
        (EACH, ("pay", "age"), ("pay", "age")),
        ({"allow_unnamed": True}, ("pay", "age"), ("pay", "age")),
        (NAMED | EACH, ("pay", "age"), ("age", "pay")),
        ({"feature_names": ("pay", "age")}, ("age", "pay"), ("pay", "age")),
        ({}, (), ()),
    ],
)
def test_the_order_of_names_that_a_run_agrees_on(
    values: dict[str, Any], names: tuple[str, ...], agreed: tuple[str, ...]
) -> None:
    plan = plan_of(**values)
    assert agreed_names(plan, names) == agreed
    expected = (
        hashlib.sha256(
            json.dumps(["flwr-dpkmeans columns", 4, *agreed]).encode()
        ).hexdigest()
        if agreed
        else ""
    )
    if names:
        assert require_columns(plan, names) == columns_digest(4, agreed) == expected
    else:
        assert columns_digest(4, ()) == require_columns(plan, names) == ""


@pytest.mark.parametrize(
    ("names", "order", "places"),
    [
        (("a", "b", "c"), ("c", "a", "b"), [2, 0, 1]),
        (("a", "b"), ("a", "b"), None),
        ((), ("a", "b"), None),
        (
            ("a", "b"),
            ("a", "d"),
            "1 of 2 columns that were agreed on are not in a table of 2",
        ),
        (
            ("a", "b", "c"),
            ("a", "b"),
            "0 of 2 columns that were agreed on are not in a table of 3",
        ),
        (
            ("a",),
            ("a", "b"),
            "1 of 2 columns that were agreed on are not in a table of 1",
        ),
    ],
)
def test_where_the_columns_of_an_order_stand(
    names: Sequence[str], order: Sequence[str], places: list[int] | str | None
) -> None:
    if isinstance(places, str):
        with pytest.raises(DataError, match=places):
            column_positions(names, order)
    else:
        assert column_positions(names, order) == places


@pytest.mark.parametrize(
    ("values", "width", "n_features", "sentence"),
    [
        ({}, 2, 2, None),
        ({}, 2, 3, "table has 3 features, but the plan has 2"),
        ({}, 2, 1, "table has 1 features, but the plan has 2"),
        ({}, None, 9, None),
        (EACH, None, 2, None),
        (EACH, None, 3, "table has 3 features, but the plan has bounds for 2"),
        (EACH, None, 1, "table has 1 features, but the plan has bounds for 2"),
    ],
)
def test_tables_have_the_plans_width_and_its_bounds(
    values: dict[str, Any], width: int | None, n_features: int, sentence: str | None
) -> None:
    plan = plan_of(width=width, **values)
    if sentence is None:
        require_width(plan, n_features)
    else:
        with pytest.raises(RefusalError, match=sentence):
            require_width(plan, n_features)


@pytest.mark.parametrize(
    ("planned", "own", "words"),
    [
        ("", "", None),
        ("", "other", "the plan has no schema, but this client's table follows one"),
        (
            "ab" * 32,
            "",
            (
                "the plan follows the schema abababababab, but this client's table has"
                " none"
            ),
        ),
        (
            "ab" * 32,
            "other",
            (
                "the plan follows the schema abababababab, but this client's table"
                " follows another one"
            ),
        ),
        ("ab" * 32, "same", None),
    ],
)
def test_a_plan_and_a_table_follow_one_schema(
    planned: str, own: str, words: str | None
) -> None:
    plan = plan_of(**NAMED)
    settings = replace(plan.settings, schema_digest=planned)
    plan = replace(plan, config=replace(plan.config, settings=settings))
    said = json.dumps([planned, "age", "pay", [-1.0], [1.0], [], [], [0.05], []])
    digest = hashlib.sha256(said.encode()).hexdigest()
    schema = digest if own == "same" else own
    if words is None:
        require_schema(plan, schema)
        assert (
            schema_agreement(
                planned, ["age", "pay"], ((-1.0,), (1.0,)), (), (), (0.05,), ()
            )
            == schema
        )
    else:
        with pytest.raises(RefusalError, match=re.escape(words)):
            require_schema(plan, schema)


@pytest.mark.parametrize(
    ("values", "server", "names", "sentence"),
    [
        (
            NAMED,
            False,
            (),
            "this client's table has no column names, but the plan names 2",
        ),
        (NAMED | {"allow_unnamed": True}, False, (), None),
        ({}, False, ("x", "y"), None),
        (
            {},
            True,
            ("x", "y"),
            "the server's points have no column names, but this client's table has",
        ),
        ({}, True, (), None),
        ({"allow_unnamed": True}, True, ("x", "y"), None),
        (NAMED, True, ("pay", "age"), None),
        (
            NAMED,
            False,
            ("age", "rent"),
            "names 2 columns, of which this client's table of 2 lacks 1",
        ),
        (
            NAMED,
            False,
            ("age", "pay", "rent"),
            "names 2 columns, of which this client's table of 3 lacks 0",
        ),
        (
            NAMED,
            False,
            ("age",),
            "names 2 columns, of which this client's table of 1 lacks 1",
        ),
    ],
)
def test_names_of_tables_are_held_against_the_plans(
    values: dict[str, Any], server: bool, names: tuple[str, ...], sentence: str | None
) -> None:
    facts = ServerFacts(20, (0.0, 0.0), 0.5, 0.1) if server else None
    plan = replace(plan_of(**values), server=facts, columns_digest="")
    if sentence is None:
        # A table without names has none to be compared, also where the plan has some.
        assert bool(require_columns(plan, names)) is bool(names)
    else:
        with pytest.raises(RefusalError, match=sentence):
            require_columns(plan, names)


@pytest.mark.parametrize(
    ("said", "own", "allowed", "refused"),
    [
        ("0" * 64, "0" * 64, False, False),
        ("0" * 64, "1" * 64, False, True),
        ("0" * 64, "1" * 64, True, True),
        ("0" * 64, "", False, True),
        ("0" * 64, "", True, False),
        ("", "1" * 64, True, True),
    ],
)
def test_a_digest_of_columns_is_the_tables_own(
    said: str, own: str, allowed: bool, refused: bool
) -> None:
    plan = replace(plan_of(allow_unnamed=allowed), columns_digest=said)
    if refused:
        with pytest.raises(
            RefusalError,
            match="the plan's digest of columns is not that of this client's table",
        ):
            require_agreed_columns(plan, own)
    else:
        require_agreed_columns(plan, own)
    if said and not own and refused:
        with pytest.raises(RefusalError, match="the plan's digest of columns"):
            require_columns(plan, ())
