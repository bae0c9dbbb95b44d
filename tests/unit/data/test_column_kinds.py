"""What a column of a schema means: transforms, cycles, mapped cells, sentinels, cells
outside the bounds, dates.
"""

from __future__ import annotations

import math
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import Schema
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema, look_by_schema
from flwr_dpkmeans.data.own_table import open_table
from flwr_dpkmeans.errors import ConfigurationError

SOURCES = ["frame", "objects", "mapping", "csv", "simulated", "parquet"]


def points_of(
    column: dict[str, Any], cells: list[Any], **options: Any
) -> list[list[float]]:
    """What a column makes of cells, a row that is left out as NaN."""
    encoded = Schema(columns={"x": column}, **options).encode({"x": cells})
    return encoded.spread(encoded.points, math.nan).tolist()


def distances(schema: Schema, rows: dict[str, list[Any]]) -> Any:
    """Between all rows, in the box."""
    scaled = schema.bounds.scale(schema.encode(rows).points)
    return np.linalg.norm(scaled[:, None] - scaled, axis=2)


def read_everywhere(schema: Schema, cells: list[Any], source: str, folder: Path) -> Any:
    """The points of one column from a source of each kind."""
    if source in ("csv", "simulated"):
        path = folder / "t.csv"
        path.write_text(
            "\n".join(["x,n", *(f"{'' if cell is None else cell},0" for cell in cells)])
            + "\n"
        )
        if source == "simulated":
            encoded = schema.encode(open_table(path))
            return encoded.spread(encoded.points, math.nan)
        table = load_by_schema(path, schema)
        whole = np.full((len(cells), table.points.shape[1]), math.nan)
        whole[table.rows] = table.points
        return whole
    frame = pd.DataFrame({"x": pd.Series(cells)})
    if source == "objects":
        frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    if source == "parquet":
        frame.to_parquet(folder / "t.parquet")
        table = load_by_schema(folder / "t.parquet", schema)
        whole = np.full((len(cells), table.points.shape[1]), math.nan)
        whole[table.rows] = table.points
        return whole
    encoded = schema.encode({"x": cells} if source == "mapping" else frame)
    return encoded.spread(encoded.points, math.nan)


# Logarithms


def test_a_logarithm_is_of_the_cell_and_bounds_and_is_clipped_in_units() -> None:
    lactate = {"kind": "number", "bounds": [0.5, 32], "transform": "log"}
    expected = [
        [math.log(4)], [math.log(0.5)], [math.log(0.5)], [math.log(32)], [math.nan],
        [math.log(0.5)],
    ]  # fmt: skip
    np.testing.assert_allclose(
        points_of(lactate, [4, 0.5, -3, 1e9, "x", 0]), expected, rtol=1e-15
    )
    schema = Schema(columns={"x": lactate})
    np.testing.assert_allclose(
        [schema.bounds.lower[0], schema.bounds.upper[0]], np.log([0.5, 32]), rtol=1e-15
    )
    assert schema.feature_names == ("x (log)",)
    assert schema.shown_names == ("x (geometric mean)",)


def test_doubling_is_as_far_wherever_a_logarithm_is() -> None:
    schema = Schema(
        columns={
            "x": {"kind": "number", "bounds": [1, 64], "transform": "log",
                  "weight": 0.5},
        }
    )  # fmt: skip
    apart = distances(schema, {"x": [1, 2, 16, 32, 64]})
    assert apart[0, 1] == pytest.approx(apart[2, 3])
    assert apart[0, 4] == pytest.approx(6 * apart[0, 1])
    assert apart.max() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("bounds", "offset", "shift"),
    [
        ([0, 1000], None, 1.0),
        ([-5, 5], None, 5.01),
        ([1, 9], None, 0.0),
        ([0, 9], 2, 2),
    ],
)
def test_a_logarithm_starts_above_zero(
    bounds: list[float], offset: float | None, shift: float
) -> None:
    stated = {"kind": "number", "bounds": bounds, "transform": "log"} | (
        {} if offset is None else {"offset": offset}
    )
    assert points_of(stated, [3])[0][0] == pytest.approx(math.log(3 + shift))
    shown = Schema(columns={"x": stated}).decode([[math.log(3 + shift)]])
    assert shown["x"] == [pytest.approx(3)]


def test_centres_of_logarithms_are_shown_as_geometric_means() -> None:
    schema = Schema(
        columns={"x": {"kind": "number", "bounds": [1, 100], "transform": "log"}}
    )
    cells = [1, 10, 100]
    centre = schema.encode({"x": cells}).points.mean(axis=0, keepdims=True)
    assert schema.decode(centre)["x"] == [pytest.approx(10.0)]
    # Whatever noise made of it.
    assert math.isfinite(schema.decode([[1e6]])["x"][0])


def test_a_missing_cell_is_in_the_middle_of_the_logarithms_or_what_fills_it() -> None:
    stated = {"kind": "number", "bounds": [1, 100], "transform": "log"}
    assert points_of(stated | {"missing": "centre"}, [None], gap_share=0.0) == [
        [pytest.approx(math.log(10))]
    ]
    assert points_of(stated | {"missing": "fill", "fill": 7}, [None]) == [
        [pytest.approx(math.log(7))]
    ]


# Cycles

HOUR = {"kind": "cycle", "period": 24}


def test_a_cycle_is_two_columns_on_a_circle() -> None:
    expected = [[1, 0], [0, 1], [-1, 0], [0, -1], [1, 0], [0, -1], [math.nan, math.nan]]
    np.testing.assert_allclose(
        points_of(HOUR, [0, 6, 12, 18, 24, -6, "night"]), expected, atol=1e-12
    )
    schema = Schema(columns={"x": HOUR})
    assert schema.feature_names == ("x (cos)", "x (sin)")
    assert schema.bounds.lower == (-1.0, -1.0)
    assert schema.bounds.upper == (1.0, 1.0)


@pytest.mark.parametrize("scale", ["bounds", "none"])
@pytest.mark.parametrize("weight", [1.0, 0.5, 3.0])
def test_opposite_values_are_as_far_as_the_ends_of_a_number(
    scale: str, weight: float
) -> None:
    """With scale none as far as the way around."""
    columns = {
        "x": HOUR | {"weight": weight},
        "n": {"kind": "number", "bounds": [0, 12]},
    }
    schema = Schema(columns=columns, scale=scale)
    apart = distances(schema, {"x": [3, 15, 3], "n": [0, 0, 12]})
    assert apart[0, 1] == pytest.approx(weight * apart[0, 2])


def test_a_cycle_is_never_longer_than_one_column() -> None:
    """Both together are at most as long as a number at an end of its bounds."""
    schema = Schema(columns={"x": HOUR, "n": {"kind": "number", "bounds": [0, 1]}})
    scaled = schema.bounds.scale(
        schema.encode({"x": np.linspace(-50, 50, 1001), "n": np.zeros(1001)}).points
    )
    assert np.linalg.norm(scaled[:, :2], axis=1).max() <= 1.0 + 1e-12


def test_the_mean_of_a_cycle_is_where_its_values_gather() -> None:
    schema = Schema(
        columns={"hour": HOUR, "day": {"kind": "cycle", "period": 7, "start": 1}}
    )
    points = schema.encode({"hour": [23, 1, 0], "day": [7, 1, 7.5]}).points
    shown = schema.decode(points.mean(axis=0, keepdims=True))
    assert min(shown["hour"][0], 24 - shown["hour"][0]) < 1e-9
    assert 7 < shown["day"][0] < 8
    angle = Schema(columns={"a": {"kind": "cycle", "period": 360, "start": -180}})
    assert angle.decode(angle.encode({"a": [-90, 450]}).points)["a"] == [
        pytest.approx(-90),
        pytest.approx(90),
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_times_of_day_are_cells_of_hours(source: str, tmp_path: Path) -> None:
    cells = [
        "2026-01-31T06:00", "18:30", "7:30:00", "2026-01-31 12:00:00+02:00", "6",
        "2026-01-31", "25:00", "x",
    ]  # fmt: skip
    encoded = read_everywhere(Schema(columns={"x": HOUR}), cells, source, tmp_path)
    hours = (
        np.array([6, 18.5, 7.5, 12, 6, math.nan, math.nan, math.nan]) * 2 * math.pi / 24
    )
    np.testing.assert_allclose(
        encoded, np.stack([np.cos(hours), np.sin(hours)], axis=1), atol=1e-12
    )


def test_times_of_day_are_no_days_of_the_week() -> None:
    assert np.isnan(points_of({"kind": "cycle", "period": 7}, ["06:00"])).all()


def test_a_missing_hour_is_as_far_from_all_others() -> None:
    schema = Schema(columns={"x": HOUR | {"missing": "centre"}}, gap_share=0.0)
    apart = distances(schema, {"x": [None, 0, 5, 12, 23]})
    np.testing.assert_allclose(apart[0, 1:], 1.0)
    assert points_of(HOUR | {"missing": "fill", "fill": 6}, [None]) == [
        [pytest.approx(0), pytest.approx(1)]
    ]


def test_hours_of_more_than_a_turn_are_shown_to_their_owner() -> None:
    (seen,) = Schema(columns={"x": HOUR}).encode({"x": [0, 24, 12, 999, None]}).seen
    assert seen[1:5] == (4, 1, 0, 1)


# What is written in another way


@pytest.mark.parametrize("source", SOURCES)
def test_texts_mean_what_the_map_says(source: str, tmp_path: Path) -> None:
    flag = {"kind": "flag", "map": {"ja": True, "nein": False}}
    found = read_everywhere(
        Schema(columns={"x": flag}),
        ["ja", " nein ", "Ja", "1", None, "0"],
        source,
        tmp_path,
    )
    np.testing.assert_array_equal(found.ravel(), [1, 0, math.nan, 1, math.nan, 0])


@pytest.mark.parametrize("source", SOURCES)
def test_codes_mean_what_the_map_says(source: str, tmp_path: Path) -> None:
    sex = {
        "kind": "category",
        "values": ["male", "female"],
        "map": {"1": "male", "2": "female"},
    }
    found = read_everywhere(Schema(columns={"x": sex}), [1, 2, 3, 1], source, tmp_path)
    np.testing.assert_array_equal(found[:, 0], [1, 0, math.nan, 1])
    with_a_gap = read_everywhere(
        Schema(columns={"x": sex}), [1.0, 2.0, None, 1.0], source, tmp_path
    )
    np.testing.assert_array_equal(with_a_gap[:, 0], [1, 0, math.nan, 1])


@pytest.mark.parametrize("source", SOURCES)
def test_a_map_of_numbers_leaves_others_as_they_are(
    source: str, tmp_path: Path
) -> None:
    stated = {"kind": "number", "bounds": [0, 10], "map": {"<1": 0.5, "7": 8}}
    found = read_everywhere(
        Schema(columns={"x": stated}), ["<1", "0.1", "7.0", "12", "x"], source, tmp_path
    )
    np.testing.assert_array_equal(found.ravel(), [0.5, 0.1, 8, 10, math.nan])


def test_a_map_may_say_dates() -> None:
    when = {
        "kind": "date",
        "bounds": ["1970-01-01", "1970-01-11"],
        "map": {"never": date(1970, 1, 3)},
    }
    assert points_of(when, ["never", "1970-01-02"]) == [[2.0], [1.0]]
    assert Schema(**Schema(columns={"x": when}).to_dict()) == Schema(
        columns={"x": when}
    )


def test_what_the_map_says_is_no_unknown_cell() -> None:
    flag = {"kind": "flag", "map": {"ja": True, "nein": False}}
    (seen,) = (
        Schema(columns={"x": flag})
        .encode({"x": ["ja", "nein", "vielleicht", None]})
        .seen
    )
    assert seen == ("x", 2, 1, 1, 0, ("vielleicht",), None)


# Sentinels


@pytest.mark.parametrize("source", SOURCES)
def test_sentinels_are_missing_cells(source: str, tmp_path: Path) -> None:
    stated = {"kind": "number", "bounds": [0, 100], "missing_values": [-999, 999.0]}
    found = read_everywhere(
        Schema(columns={"x": stated}), [-999, 5, 999, None, 500], source, tmp_path
    )
    np.testing.assert_array_equal(found.ravel(), [math.nan, 5, math.nan, math.nan, 100])


@pytest.mark.parametrize("source", SOURCES)
def test_sentinels_may_be_texts(source: str, tmp_path: Path) -> None:
    stated = {"kind": "number", "bounds": [0, 100], "missing_values": ["not done", -9]}
    found = read_everywhere(
        Schema(columns={"x": stated}), ["not done", "5", "-9.0", "x"], source, tmp_path
    )
    np.testing.assert_array_equal(found.ravel(), [math.nan, 5, math.nan, math.nan])


def test_sentinels_are_counted_as_missing_and_not_as_outside(tmp_path: Path) -> None:
    columns = {
        "x": {"kind": "number", "bounds": [0, 9], "missing_values": [-999, "n.d."]},
        "c": {"kind": "category", "values": ["a"], "missing_values": ["?", 9]},
        "n": {"kind": "number", "bounds": [0, 9], "missing_values": [-999]},
    }
    rows = {
        "x": [-999, "n.d.", 5, "z"],
        "c": ["?", "9.0", "a", "b"],
        "n": [-999.0, 1.0, 99.0, math.nan],
    }
    schema = Schema(columns=columns)
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    for seen in (
        schema.encode(rows).seen,
        look_by_schema(tmp_path / "t.csv", schema)[0],
    ):
        assert [one[1:5] for one in seen] == [(1, 2, 1, 0), (1, 2, 1, 0), (2, 2, 0, 1)]


def test_a_bound_may_be_a_sentinel() -> None:
    """999 is not measured, 998.9 is the largest value, and a bound is round."""
    assert points_of(
        {"kind": "number", "bounds": [0, 999], "missing_values": [999]}, [998.9, 999]
    ) == [
        [998.9],
        [pytest.approx(math.nan, nan_ok=True)],
    ]


# Cells outside the bounds


def test_cells_outside_the_bounds_are_clipped_or_missing() -> None:
    stated = {"kind": "number", "bounds": [0, 9]}
    cells = [-1, 0, 9, 9.5]
    np.testing.assert_array_equal(points_of(stated, cells), [[0], [0], [9], [9]])
    np.testing.assert_array_equal(
        points_of(stated | {"outside": "missing"}, cells),
        [[math.nan], [0], [9], [math.nan]],
    )
    filled = stated | {"outside": "missing", "missing": "fill", "fill": 4}
    np.testing.assert_array_equal(points_of(filled, cells), [[4], [0], [9], [4]])
    when = {
        "kind": "date",
        "bounds": ["2020-01-01", "2020-12-31"],
        "outside": "missing",
    }
    assert np.isnan(
        points_of(when, ["1900-01-01", "2020-06-01", "9999-12-31"])
    ).ravel().tolist() == [True, False, True]
    logarithm = {
        "kind": "number",
        "bounds": [1, 9],
        "outside": "missing",
        "transform": "log",
    }
    assert np.isnan(points_of(logarithm, [0, -1, 1, 9])).ravel().tolist() == [
        True, True, False, False,
    ]  # fmt: skip


def test_their_owner_sees_how_many_cells_lie_outside_whatever_becomes_of_them() -> None:
    for outside in ("clip", "missing"):
        stated = {"kind": "number", "bounds": [0, 9], "outside": outside}
        encoded = Schema(columns={"x": stated}).encode({"x": [-1, 5, 99, None]})
        assert encoded.seen[0][1:5] == (3, 1, 0, 2)
        assert encoded.foreign == ("x",)


# Dates


@pytest.mark.parametrize(
    ("cell", "days"),
    [
        ("1970-01-03", 2.0),
        ("19700103", 2.0),
        (19700103, 2.0),
        ("1970-01-03T12:00:00", 2.5),
        ("1970-01-03 12:00:00.123456789", 2.5),
        ("1970-01-03T12:00:00+12:00", 2.0),
        ("1583020800000", math.nan),
        (1583020800000, math.nan),
        (1583020800, math.nan),
        ("2026W05", math.nan),
        ("2026-W05-1", math.nan),
        ("1970-01-03x12:00", math.nan),
        ("1970-1-3", math.nan),
        ("03.01.1970", math.nan),
    ],
)
def test_a_date_is_written_with_all_of_its_digits(cell: Any, days: float) -> None:
    """Milliseconds since 1970 were the year 1583."""
    when = {"kind": "date", "bounds": ["1900-01-01", "2100-01-01"]}
    assert points_of(when, [cell]) == [[pytest.approx(days, abs=1e-5, nan_ok=True)]]


@pytest.mark.parametrize(
    "bounds", ["[2020, 2021]", '["01/01/2020", "01/01/2021"]', '["2020-01-01", "2020"]']
)
def test_bounds_of_dates_are_those_of_iso_8601(bounds: str) -> None:
    stated = tomllib.loads(f'a = {{ kind = "date", bounds = {bounds} }}')
    with pytest.raises(ConfigurationError, match="ISO 8601 has them: give 2020-01-31"):
        Schema(columns=stated)


# All of them

EVERY = {
    "lactate": {"kind": "number", "bounds": [0, 30], "transform": "log", "offset": 0.5,
                "outside": "missing"},
    "hour": {"kind": "cycle", "period": 24, "start": 1, "missing": "centre",
             "weight": 0.5},
    "smokes": {"kind": "flag", "map": {"ja": True, "nein": False},
               "missing_values": ["?", -9]},
    "sex": {"kind": "category", "values": ["m", "f"], "map": {"1": "m", "2": "f"},
            "missing_values": [9]},
    "when": {"kind": "date", "bounds": ["2020-01-01", "2021-01-01"],
             "missing_values": ["1900-01-01"]},
}  # fmt: skip


def test_each_key_is_in_the_digest_and_survives_a_file(tmp_path: Path) -> None:
    schema = Schema(columns=EVERY, scale="standard")
    assert schema.to_dict()["columns"] == EVERY
    again = Schema(**schema.to_dict())
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.digest == schema.digest
    digests = {schema.digest}
    for name, column in EVERY.items():
        for key in column.keys() - {"kind", "bounds", "values", "period"}:
            without = {other: value for other, value in column.items() if other != key}
            if key != "transform":
                digests.add(
                    Schema(columns=EVERY | {name: without}, scale="standard").digest
                )
    assert len(digests) == 1 + 10


def test_a_map_has_no_order() -> None:
    flag = {"kind": "flag", "map": {"nein": False, "ja": True}}
    turned = {"kind": "flag", "map": {"ja": True, "nein": False}}
    assert Schema(columns={"x": flag}).digest == Schema(columns={"x": turned}).digest


def test_a_digest_says_nothing_of_keys_that_are_left_out() -> None:
    """Schemas of earlier versions are the same."""
    stated = {"kind": "number", "bounds": [0.0, 1.0]}
    assert Schema(columns={"x": stated}).to_dict() == {
        "scale": "bounds",
        "columns": {"x": stated},
    }


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ({"kind": "category", "values": ["a"], "transform": "log"},
         "a category, so transform must not be: leave it"),
        ({"kind": "date", "bounds": ["2020-01-01", "2021-01-01"], "transform": "log"},
         "so transform must not be"),
        ({"kind": "number", "bounds": [1, 2], "transform": "sqrt"},
         "transform is 'sqrt'"),
        ({"kind": "number", "bounds": [1, 2], "offset": 1},
         "transform is 'none', so offset must not be: leave it out"),
        ({"kind": "number", "bounds": [-1, 2], "transform": "log", "offset": 1},
         "the lower bound is -1 and offset 1, but a logarithm is of what is"
         " above 0: give an offset above 1"),
        ({"kind": "number", "bounds": [1, 2], "transform": "log", "offset": math.inf},
         "offset is inf"),
        ({"kind": "flag", "outside": "missing"}, "so outside must not be: leave"),
        ({"kind": "cycle", "period": 24, "outside": "missing"},
         "it is a cycle, so outside must not be"),
        ({"kind": "cycle"}, "it is a cycle, so period must be given: add it"),
        ({"kind": "cycle", "period": 0}, "period is 0"),
        ({"kind": "cycle", "period": math.inf}, "period is inf"),
        ({"kind": "cycle", "period": 24, "bounds": [0, 24]},
         "it is a cycle, so bounds must not be: leave it out"),
        ({"kind": "number", "bounds": [0, 1], "period": 24},
         "it is a number, so period must not be: leave it out"),
        ({"kind": "number", "bounds": [0, 1], "start": 1}, "it is a number, so start"),
        ({"kind": "flag", "map": {"ja": "yes"}}, "map has the value 'yes'"),
        ({"kind": "flag", "map": {"ja": 2}}, "map has the value 2, which it may"),
        ({"kind": "category", "values": ["a"], "map": {"x": "b"}},
         "map has the value 'b', which it may not hold"),
        ({"kind": "flag", "map": {"NA": False}}, "map has 'NA', which is a missing"),
        ({"kind": "flag", "map": {"1": True, "1.0": False}}, "are not all different"),
        ({"kind": "flag", "map": {"x": True}, "missing_values": [True]},
         "map has the value True"),
        ({"kind": "flag", "map": 3}, "map is 3"),
        ({"kind": "category", "values": ["a", "9"], "missing_values": [9]},
         "values has '9', which missing_values has"),
        ({"kind": "number", "bounds": [0, 1], "missing_values": [math.nan]},
         "missing_values has nan, which is missing"),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together_have_a_sentence(
    column: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        Schema(columns={"x": column})
    assert sentence in str(error.value)
    assert str(error.value).startswith("the schema's column 'x': ")


def test_a_cycle_is_in_no_profile() -> None:
    with pytest.raises(ConfigurationError, match="profile has 'x', but a cycle"):
        Schema(columns={"x": HOUR, "n": {"kind": "flag"}}, profile=["x"])


ANYTHING = [
    None, "", "x", "NA", "-9", -9, 9, 1e300, -1e300, 5e-324, math.inf, math.nan,
    "1583020800000", "25:61", "ja",
]  # fmt: skip
ANYTHING += [
    "2020-02-30", "20200230", "2020-01-01T99", "\ud83d", 10**400, "\0", [1], "1_000",
    True, "99999999", "٣",
]  # fmt: skip


def test_no_cell_is_an_error_or_changes_another_row() -> None:
    """Each row alone, and all together, whatever stands there."""
    schema = Schema(
        columns={
            name: column | {"missing": "centre"} for name, column in EVERY.items()
        },
        gap_share=0.0,
    )
    rows = dict.fromkeys(EVERY, ANYTHING)
    whole = schema.encode(rows).points
    assert np.isfinite(whole).all()
    low, high = schema.bounds.lower, schema.bounds.upper
    assert ((whole >= low) & (whole <= high)).all()
    for index in range(len(ANYTHING)):
        alone = schema.encode(
            {name: [cells[index]] for name, cells in rows.items()}
        ).points
        np.testing.assert_array_equal(alone[0], whole[index])
