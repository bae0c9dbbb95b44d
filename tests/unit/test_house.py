"""No figure of the house rises again: `house.CEILINGS` has what each may come to."""

from __future__ import annotations

import house


def test_no_figure_is_above_its_ceiling() -> None:
    assert house.exceeded(house.measured()) == []


def test_a_figure_above_its_ceiling_is_named() -> None:
    rows = [(name, "0 in none", "0") for name in house.CEILINGS]
    assert house.exceeded(rows) == []
    rows[1] = (rows[1][0], "2 in two", "0")
    sentence = "files in the largest circle of imports: 2 in two, at most 1"
    assert house.exceeded(rows) == [sentence]


def test_a_node_loads_no_server() -> None:
    loaded = set(house.executed_modules())
    assert {"sums.client.transitions", "secagg.retry", "secagg.recover"} <= loaded
    server_side = {
        "secagg.session", "secagg.retry_session", "secagg.recover_session",
        "sums.server", "sums.local", "sums.checks.plausible",
    }  # fmt: skip
    assert loaded & server_side == set()
