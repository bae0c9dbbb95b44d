"""The standard scale of a schema: private spreads, and the box that everybody works out
from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import ClientLevel, DPKMeans, FederatedKMeans, Schema, federate
from flwr_dpkmeans.algorithms.statistics.standard_scale import moments_of, standard_box
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import flat_options, read_config, schema_settings
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan

SAID: dict[str, Any] = {
    "age": {"kind": "number", "bounds": [0, 100]},
    "income": {"kind": "number", "bounds": [-1000, 1000], "weight": 2.0},
    "ward": {"kind": "category", "values": ["A", "B", "C"], "missing": "centre"},
    "sick": {"kind": "flag", "weight": 0.5},
}
SCHEMA = Schema(columns=SAID, scale="standard")
GENERATOR = np.random.default_rng(3)
ROWS = pd.DataFrame(
    {
        "age": GENERATOR.normal(40, 12, 6000),
        "income": GENERATOR.normal(100, 90, 6000),
        "ward": GENERATOR.choice([*"AABC", None], 6000),
        "sick": GENERATOR.random(6000) < 0.3,
    }
)


def fitted(**options: Any) -> FederatedKMeans:
    """A fit whose noise is seeded, and small unless epsilon is given."""
    given: dict[str, Any] = {
        "epsilon": 500.0, "noise": "seeded", "random_state": 1, "bounds": SCHEMA,
    } | options  # fmt: skip
    return FederatedKMeans(3, **given).fit([ROWS[:2500], ROWS[2500:]])


def planned(n_features: int | None = 6, **options: Any) -> Plan:
    """A plan that is still to find the spreads."""
    given = flat_options(
        {"bounds": SCHEMA, "n_clusters": 3, "n_examples": 6000, **options}
    )
    box = SCHEMA.bounds
    values = given | schema_settings(SCHEMA) | {"bounds": (box.lower, box.upper)}
    return draft_plan(
        read_config(**values), run_id=1, n_clients=2, seed=1, n_features=n_features
    )


def test_spreads_wait_for_the_width() -> None:
    assert [one.blocks for one in planned(None).preliminary] == [()]
    assert [one.shape for one in planned().preliminary[0].blocks] == [
        (1,),
        (1, 6),
        (1, 6),
    ]


def test_columns_have_one_spread_times_their_weight() -> None:
    km = fitted()
    encoded = SCHEMA.encode(ROWS).points[:, :6]
    deviations = Bounds(*km.bounds_).scale(encoded).std(axis=0)
    ward = np.sqrt(np.square(deviations[2:5]).sum())
    spreads = np.array([deviations[0], deviations[1] / 2.0, ward, deviations[5] / 0.5])
    np.testing.assert_allclose(spreads / spreads[0], 1.0, rtol=0.02)
    # The stated bounds lie in the box, and one of the columns fills it.
    lower, upper = (np.array(side) for side in km.bounds_)
    assert (lower <= np.array(SCHEMA.bounds.lower)).all()
    assert np.isclose(
        upper - lower, np.array(SCHEMA.bounds.upper) - np.array(SCHEMA.bounds.lower)
    ).any()


def test_spreads_follow_the_rows_and_their_price_is_in_the_report() -> None:
    for engine in ("inprocess", "direct"):
        km = fitted(epsilon=1.0, engine=engine, n_examples=6000)
        lines = [line for line in km.privacy_.releases if line.round_name == "spreads"]
        assert [line.array for line in lines] == [
            "group_counts",
            "group_sums",
            "group_squares",
        ]
        assert [line.trust for line in lines] == ["distributed"] * 3
        # A twentieth of the budget of squares is about sqrt(1/20) of epsilon.
        assert 0.1 < lines[-1].epsilon_so_far < 0.3
        assert km.privacy_.epsilon <= 1.0
        assert any(
            "private spreads that are listed below" in one
            for one in km.privacy_.assumptions
        )
    # A schema that drops rows has them counted.
    for options in ({}, {"n_examples": "private"}):
        assert (
            fitted(epsilon=1.0, **options).privacy_.releases[0].round_name
            == "count and spreads"
        )


def test_spreads_of_one_table_have_its_holders_noise_once() -> None:
    """There is nobody to share it with: two shares had twice the variance."""
    report = (
        DPKMeans(3, epsilon=500.0, noise="seeded", random_state=1, bounds=SCHEMA)
        .fit(ROWS)
        .privacy_
    )
    assert {line.trust for line in report.releases} == {"curator"}
    assert "clients" not in report.guarantee


def test_a_spread_that_noise_hides_is_named() -> None:
    wide = Schema(
        columns=SAID | {"age": {"kind": "number", "bounds": [-9000, 9000]}},
        scale="standard",
    )
    warnings = fitted(bounds=wide, epsilon=1.0, n_examples=6000).privacy_.warnings
    assert any(
        "The spread of column 'age' is not told from noise" in one for one in warnings
    )
    assert not any(
        "The spread of" in one for one in fitted(epsilon=8.0).privacy_.warnings
    )


def test_no_neighbours_move_spreads_beyond_what_they_declare() -> None:
    plan = planned()
    (round_,) = plan.preliminary
    stated = Bounds(*plan.settings.bounds)

    def statistic(points: np.ndarray) -> list[np.ndarray]:
        return list(moments_of(plan, stated.unscale(points)).values())

    largest = check_sensitivity(round_.blocks, statistic, n_features=6)
    assert largest == pytest.approx(
        {"group_counts": 1.0, "group_sums": 1.0, "group_squares": 1.0}, rel=1e-6
    )


def test_what_has_no_private_spread_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="are of rows, but unit is 'client'"):
        fitted(unit=ClientLevel(3000))
    with pytest.raises(ConfigurationError, match="the schema's scale is private"):
        federate("moments", [ROWS, ROWS], bounds=SCHEMA)
    with pytest.raises(ConfigurationError, match="standard_columns follow from"):
        read_config(n_clusters=3, bounds=((0.0,), (1.0,)), standard_columns=((1, 1.0),))


def test_the_planner_knows_the_share_of_the_spreads() -> None:
    km = FederatedKMeans(3, bounds=SCHEMA)
    plain = FederatedKMeans(3, bounds=Schema(columns=SAID))
    shape = {
        "n_examples": 6000,
        "n_features": 6,
        "n_clients": 2,
        "seeds": 2,
        "algorithms": ["fastlloyd"],
    }
    standard, stated = (
        one.plan(**shape).algorithms[0].deployment.n_round_trips for one in (km, plain)
    )
    assert standard == stated + 1


def test_spreads_are_of_all_rows_as_one_group() -> None:
    (first,) = planned().preliminary
    assert {block.name: block.shape for block in first.blocks} == {
        "group_counts": (1,),
        "group_sums": (1, 6),
        "group_squares": (1, 6),
    }


def test_columns_without_a_counted_row_are_unclear_and_have_a_box() -> None:
    released = {
        "group_counts": np.zeros(1),
        "group_sums": np.zeros((1, 6)),
        "group_squares": np.full((1, 6), -0.5),
    }
    box, unclear = standard_box(planned(), released, 2.0)  # type: ignore[arg-type]
    assert unclear == (0, 1, 2, 3, 4, 5)
    assert np.isfinite(box).all()
    assert (np.array(box[0]) < np.array(box[1])).all()


SIDES = [50.0, 1000.0, 0.5, 0.5, 0.5, 0.5]
"""Halves of the columns' stated ranges: age, income, the ward's three, sick."""


@pytest.mark.parametrize(
    ("rows", "variances", "noise", "deviations", "unclear"),
    [
        # Of a category's three columns together 0.16 + 0.05 + 0.04; 1,024 rows.
        (1024.0, [0.04, 2.0**-6, 0.16, 0.05, 0.04, 0.25], 0.0, [0.2, 0.125, 0.5, 0.5],
         ()),
        # Two deviations of a variance's noise: 2 * 8 / 1024 = 0.125^2, which income
        # just has, and is not told from.
        (1024.0, [0.04, 2.0**-6, 0.16, 0.05, 0.04, 0.25], 8.0, [0.2, 0.125, 0.5, 0.5],
         (1,)),
        # 1/64 of a half of the range at least; a variance below 0 takes nothing from
        # the category's others.
        (1024.0, [0.04, 1e-4, 0.16, -0.5, 0.0, 2.0**-12], 0.0,
         [0.2, 1 / 64, 0.4, 1 / 64], (1, 5)),
        (1024.0, [0.25, 0.25, 0.003, 0.003, 0.003, 0.25], 8.0, [0.5, 0.5, 0.125, 0.5],
         (2, 3, 4)),
        # Less than a row is one row.
        (0.25, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.125, [1.0, 0.5, 0.5, 0.5],
         (1, 2, 3, 4, 5)),
    ],
)  # fmt: skip
def test_the_standard_box_by_hand(
    rows: float, variances: list[float], noise: float, deviations: list[float],
    unclear: tuple[int, ...],
) -> None:  # fmt: skip
    """The column widest in weighted deviations keeps its range, others widen."""
    # A variance below 0 is that of a mean which noise made too large.
    released: Any = {
        "group_counts": np.array([rows]),
        "group_sums": (
            max(1.0, rows) * np.sqrt(np.maximum([[-one for one in variances]], 0.0))
        ),
        "group_squares": max(1.0, rows) * (np.maximum([variances], 0.0) - 0.5),
    }
    (lower, upper), found = standard_box(planned(), released, noise)
    assert found == unclear
    columns = [0, 1, 2, 2, 2, 3]
    lengths = [
        deviation / weight
        for deviation, weight in zip(deviations, [1.0, 2.0, 1.0, 0.5], strict=True)
    ]
    units = [
        lengths[column] * side for column, side in zip(columns, SIDES, strict=True)
    ]
    widest = max(side / unit for side, unit in zip(SIDES, units, strict=True))
    assert [
        (high - low) / 2.0 for low, high in zip(lower, upper, strict=True)
    ] == pytest.approx([widest * unit for unit in units])
    middles = [(low + high) / 2.0 for low, high in zip(lower, upper, strict=True)]
    assert middles == pytest.approx([50.0, 0.0, 0.5, 0.5, 0.5, 0.5])
