"""What a plan answers of itself, and which tables it is for, at the edges of each
answer.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.drafts import draft_of

from flwr_dpkmeans.errors import DataError, ProtocolError, RefusalError
from flwr_dpkmeans.sums.checks.columns import (
    column_positions,
    require_agreed_columns,
    require_columns,
    require_width,
)
from flwr_dpkmeans.sums.plan import Plan, takes_part
from flwr_dpkmeans.sums.plan_points import PublicPoints

EACH: dict[str, Any] = {"bounds": ((-1.0, 0.0), (1.0, 2.0))}


plan_of = partial(
    draft_of, algorithm="glloyd", n_examples=1000, max_iter=2, run_id=4, seed=11
)


def sampled(rate: float, **values: Any) -> Plan:
    """Without the noise that a sample would have, which takes long to find."""
    plan = plan_of(algorithm="proxy_lloyd", unit="client", trust="central", **values)
    return replace(plan, config=plan.config.changed(client_sampling_rate=rate))


# -- the server's points ---------------------------------------------------------------


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


def test_everybody_takes_part_in_what_steers_the_plan_and_a_sample_in_the_rest() -> (
    None
):
    plan = sampled(0.25)
    assert set(plan.rates.values()) == {0.25}
    before = replace(plan, preliminary=(plan.rounds[0],) * 2)
    assert [before.rates[index] for index in (-1, 0, 1)] == [1.0, 1.0, 0.25]
    with pytest.raises(ProtocolError, match="but not -2"):
        _ = before.rates[-2]


# -- coins and noise -------------------------------------------------------------------


def stream_of(*purpose: str | int) -> int:
    """The first eight bytes of a hash of the plan's seed and of the purpose."""
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
    rate: float, threshold: int
) -> None:
    plan = sampled(rate)
    for coin in (max(0, threshold - 1), threshold):
        coins = {2**53: coin}
        is_in = takes_part(plan, 7, 1, 0, draw=coins.__getitem__)
        assert is_in is (coin < threshold)


def test_a_client_that_is_always_drawn_throws_no_coin() -> None:
    def draw(_: int) -> int:
        raise AssertionError("a coin")

    assert takes_part(sampled(1.0), 7, 1, 0, draw=draw) is True


# -- tables ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "order", "places"),
    [
        (("a", "b", "c"), ("c", "a", "b"), [2, 0, 1]),
        (("a", "b"), ("a", "b"), None),
        ((), ("a", "b"), None),
        (("a", "b"), ("a", "d"),
         "1 of 2 columns that were agreed on are not in a table of 2"),
        (("a", "b", "c"), ("a", "b"),
         "0 of 2 columns that were agreed on are not in a table of 3"),
        (("a",), ("a", "b"),
         "1 of 2 columns that were agreed on are not in a table of 1"),
    ],
)  # fmt: skip
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
        with pytest.raises(RefusalError, match="the plan's digest of columns"):
            require_agreed_columns(plan, own)
    else:
        require_agreed_columns(plan, own)
    if said and not own and refused:
        with pytest.raises(RefusalError, match="the plan's digest of columns"):
            require_columns(plan, ())
