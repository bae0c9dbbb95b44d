"""A schema: what it makes of cells, what distance of columns, and that each row is
turned into points alone.
"""

from __future__ import annotations

import logging
import math
import re
import sqlite3
import tomllib
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.columns.dates import iso_date
from flwr_dpkmeans.data.columns.seen import Seen
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.formats.foreign import as_text_query
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema, look_by_schema
from flwr_dpkmeans.data.own_table import open_table
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.data.schema import Encoded, Schema
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import ColumnError, ConfigurationError, DataError

FILE = """gap_share = 0
[columns]
delay = { kind = "number", bounds = [-20, 80], missing = "centre" }
origin = { kind = "category", values = ["EWR", "JFK", "LGA"], \
missing = "fill", fill = "JFK", weight = 0.5 }
late = { kind = "flag", missing = "centre" }
when = { kind = "date", bounds = [2013-01-01, "2013-01-11"] }
month = { kind = "category", values = [1, 2], missing = "centre" }
"""
CSV = """month,carrier,when,late,origin,delay
1,UA,2013-01-03T12:00:00,true,LGA,12.5
2.0,AA,2013-01-05,0,"EWR",900
,,2013-01-02,,SFO,
1,UA,soon,1,LGA,1
1,UA,2013-01-03,1
"""
POINTS = [
    [12.5, 0, 0, 1, 1, 15708.5, 1, 0],
    [80, 1, 0, 0, 0, 15710, 0, 1],
    [30, 0, 1, 0, 0.5, 15707, 0.5, 0.5],
]
"""By hand; the fourth row has no date, the fifth not all cells, so that it is none."""


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    """The schema as a file."""
    (tmp_path / "schema.toml").write_text(FILE)
    return Schema.load(tmp_path / "schema.toml")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The table as a file."""
    (tmp_path / "rows.csv").write_text(CSV)
    return tmp_path / "rows.csv"


def test_shares_are_shown_at_the_nearer_end_and_numbers_as_they_are(
    schema: Schema,
) -> None:
    shown = schema.decode(
        [
            [-30, -0.5, 0.25, 2.5, share, 15708, 0, 1]
            for share in (-0.5, 0.0, 0.25, 1.0, 1.5)
        ]
    )
    assert shown["late"] == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert shown["delay"] == [-30.0] * 5
    assert shown["origin"] == [{"EWR": 0.0, "JFK": 0.25, "LGA": 1.0}] * 5


def test_a_table_becomes_the_points_that_are_computed_by_hand(
    schema: Schema, table: Path
) -> None:
    found = load_by_schema(table, schema, Layout(label_column="month"))
    assert found.points.tolist() == POINTS
    assert found.names == (
        *(
            "delay",
            "origin=EWR",
            "origin=JFK",
            "origin=LGA",
            "late",
            "when",
            "month=1",
            "month=2",
        ),
    )
    assert found.labels is not None
    assert found.labels.tolist()[:2] == [1.0, 2.0]
    assert schema.decode(POINTS[0])["when"] == ["2013-01-03"]
    assert schema.decode(POINTS[0])["origin"] == [{"EWR": 0.0, "JFK": 0.0, "LGA": 1.0}]


def sources(folder: Path) -> dict[str, Any]:
    """The same rows from everywhere."""
    frame = pd.read_csv(
        folder / "rows.csv", dtype={"origin": str}, skipfooter=1, engine="python"
    )
    frame["late"] = [True, False, None, True]
    frame.to_parquet(folder / "rows.parquet")
    (folder / "many").mkdir()
    frame[:2].to_parquet(folder / "many" / "a.parquet")
    frame[2:].to_parquet(folder / "many" / "b.parquet")
    with sqlite3.connect(folder / "rows.db") as database:
        frame.to_sql("flights", database, index=False)
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    found: dict[str, Any] = {
        "csv": folder / "rows.csv",
        "parquet": folder / "rows.parquet",
        "folder": folder / "many",
    }
    return found | {
        "pandas": frame,
        "arrow": arrow,
        "dict": frame.to_dict("list"),
        "category": frame.astype("category"),
    }


@pytest.mark.parametrize(
    "kind",
    ["csv", "parquet", "folder", "pandas", "arrow", "dict", "category", "sqlite"],
)
def test_every_source_gives_the_same_points(
    schema: Schema, table: Path, kind: str
) -> None:
    given = sources(table.parent)
    if kind == "sqlite":
        pytest.importorskip("sqlalchemy")
        layout = Layout(query="SELECT * FROM flights")
        assert (
            load_by_schema(
                f"sqlite:///{table.parent}/rows.db", schema, layout
            ).points.tolist()
            == POINTS
        )
    elif isinstance(given[kind], Path):
        assert load_by_schema(given[kind], schema).points.tolist() == POINTS
    else:
        encoded = schema.encode(given[kind])
        assert encoded.points.tolist() == POINTS
        assert encoded.spread(np.array([7, 8, 9])).tolist() == [7, 8, 9, -1]


def test_cells_at_the_edge_of_what_a_column_holds() -> None:
    flag, when = (
        {"kind": "flag"},
        {"kind": "date", "bounds": ["1900-01-01", "2100-01-01"]},
    )
    cells = {
        "flag": [0, "TRUE", 2, 0.5, None, "yes", 1.0],
        "when": ["0001-01-01T00:00:00+10:00", "9999-12-31", "x"],
    }
    dropped = Schema(columns={"flag": flag}).encode({"flag": cells["flag"]})
    assert dropped.rows.tolist() == [0, 1, 6]
    assert dropped.points.ravel().tolist() == [0, 1, 1]
    clipped = Schema(columns={"when": when}).encode({"when": cells["when"]})
    assert clipped.points.ravel().tolist() == [-25567.0, 47482.0]


def test_arrays_and_files_without_names_need_some(
    schema: Schema, tmp_path: Path
) -> None:
    numbers = Schema(
        columns={name: {"kind": "number", "bounds": [0, 9]} for name in ("b", "a")}
    )
    np.save(tmp_path / "rows.npy", [[1.0, 2.0], [np.nan, 3.0]])
    assert load_by_schema(
        tmp_path / "rows.npy", numbers, Layout(("a", "b"))
    ).points.tolist() == [[2.0, 1.0]]
    (tmp_path / "rows.csv").write_text("1,2\nNaN,3\n")
    layout = Layout(("a", "b"), dialect=Dialect(header=False))
    assert load_by_schema(tmp_path / "rows.csv", numbers, layout).points.tolist() == [
        [2.0, 1.0]
    ]
    with pytest.raises(DataError, match="columns are named beside a schema"):
        load_by_schema(tmp_path / "rows.csv", numbers, Layout(("a", "b")))
    with pytest.raises(DataError, match="has no column names, but a schema tells"):
        load_by_schema(tmp_path / "rows.npy", numbers)
    with pytest.raises(DataError, match="of type ndarray, but a schema tells columns"):
        schema.encode(np.zeros((3, 5)))


def test_other_columns_and_their_order_change_nothing(
    schema: Schema, table: Path
) -> None:
    frame = pd.read_csv(table, skipfooter=1, engine="python")
    for columns in (frame.columns[::-1], sorted(frame.columns)):
        assert (
            schema.encode(frame[list(columns)].assign(other="text")).points.tolist()
            == POINTS
        )


def test_a_column_that_is_not_there_is_told_by_name_here_and_by_position_elsewhere(
    schema: Schema, table: Path
) -> None:
    table.write_text(CSV.replace("late", "latte", 1))
    with pytest.raises(ColumnError, match="no columns named 'late'") as e:
        load_by_schema(table, schema)
    assert "column 3 of the schema's 5" in e.value.public
    assert "lat" not in e.value.public
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(ColumnError, match="2 columns named 'a', but the schema"):
        Schema(columns={"a": {"kind": "flag"}}).encode(frame)


def test_values_are_as_far_apart_as_weights_say() -> None:
    said = {
        "size": {"kind": "number", "bounds": [0, 10], "weight": 2.0},
        "age": {"kind": "number", "bounds": [-5, 5]},
        "ward": {"kind": "category", "values": ["A", "B", "C"]},
        "sick": {"kind": "flag", "weight": 0.5},
    }
    rows = pd.DataFrame(
        {
            "size": [0, 10, 0, 0, 0],
            "age": [0, 0, 0, 5, 0],
            "ward": list("AAABA"),
            "sick": [0, 0, 1, 0, 0],
        }
    )
    schema = Schema(columns=said)
    scaled = schema.bounds.scale(schema.encode(rows).points)
    full = 1.0  # half of a number's full range of the largest weight, in the box
    distances = np.linalg.norm(scaled - scaled[4], axis=1)
    np.testing.assert_allclose(distances[:3], [0.0, 2 * full, 0.5 * full])
    np.testing.assert_allclose(
        distances[3], math.hypot(0.5 * full, full / math.sqrt(2))
    )
    assert np.abs(scaled).max() == 1.0
    # In units of their own the columns differ by 10 and 5, a flag by 1 and a category
    # by 1/sqrt(2), times weight.
    units = Schema(columns=said, scale="none")
    scaled = units.bounds.scale(units.encode(rows).points)
    distances = np.linalg.norm(scaled - scaled[4], axis=1)
    np.testing.assert_allclose(distances[1:3] / distances[1] * 20, [20.0, 0.5])
    np.testing.assert_allclose(
        distances[3] / distances[1] * 20, math.hypot(5, 1 / math.sqrt(2))
    )


def test_a_row_is_turned_into_points_by_itself(schema: Schema, table: Path) -> None:
    """Whatever other rows are there: dropping is no statistic of them."""
    header, *lines = CSV.splitlines()
    alone = []
    for line in lines:
        table.write_text(f"{header}\n{line}\n")
        alone.append(load_by_schema(table, schema).points)
    assert [len(points) for points in alone] == [1, 1, 1, 0, 0]
    for chosen in range(2 ** len(lines)):
        kept = [i for i in range(len(lines)) if chosen >> i & 1]
        table.write_text("\n".join([header, *(lines[i] for i in kept)]) + "\n")
        expected = np.concatenate([np.zeros((0, 8)), *(alone[i] for i in kept)])
        np.testing.assert_array_equal(load_by_schema(table, schema).points, expected)


def test_one_row_moves_the_sums_of_categories_by_its_own_length() -> None:
    """Brute force over all one-hot rows, beside a number at its ends."""
    values = [*"ABCDE", None]
    said: dict[str, Any] = {
        "kind": "category",
        "values": list("ABCDE"),
        "missing": "centre",
    }
    columns = {"ward": said, "age": {"kind": "number", "bounds": [0, 1], "weight": 0.5}}
    schema = Schema(columns=columns, gap_share=0.0)
    rows = pd.DataFrame(
        [(ward, age) for ward in values for age in (-9, 0, 0.3, 9)],
        columns=["ward", "age"],
    )
    scaled = schema.bounds.scale(schema.encode(rows).points)
    assert len(scaled) == 24
    for row in range(len(rows)):
        without = schema.bounds.scale(schema.encode(rows.drop(index=row)).points)
        moved = scaled.sum(axis=0) - without.sum(axis=0)
        np.testing.assert_allclose(moved, scaled[row], atol=1e-12)
        assert np.linalg.norm(moved) <= math.sqrt(len(schema.feature_names)) + 1e-12


def test_a_file_and_an_object_say_the_same(schema: Schema, tmp_path: Path) -> None:
    again = Schema(**schema.to_dict())
    assert again == schema
    assert again.digest == schema.digest
    assert schema_of(tmp_path / "schema.toml") == schema
    assert schema_of(schema) is schema
    assert schema_of("0,1") is None
    others = [
        ("80", "81"),
        ('"JFK", "LGA"', '"LGA", "JFK"'),
        ("0.5", "0.6"),
        ("drop", "centre"),
        ("late =", "lated ="),
    ]
    others += [
        ("2013-01-11", "2013-01-12"),
        ('fill = "JFK"', 'fill = "EWR"'),
        ("[columns]", 'scale = "none"\n[columns]'),
    ]
    digests = set()
    for old, new in others:
        (tmp_path / "other.toml").write_text(FILE.replace(old, new))
        digests.add(Schema.load(tmp_path / "other.toml").digest)
    assert len(digests | {schema.digest}) == len(
        others
    )  # "drop" is nowhere in the file
    (tmp_path / "other.toml").write_text(
        "# with a comment\n" + FILE.replace(", ", ",  ")
    )
    assert Schema.load(tmp_path / "other.toml").digest == schema.digest


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ('a = { kind = "nummer", bounds = [0, 1] }', "the schema's column 'a'"),
        ('a = { kind = "number" }', "it is a number, so bounds must be given: add it"),
        ('a = { kind = "flag", bounds = [0, 1] }', "so bounds must not be: leave"),
        ('a = { kind = "number", bounds = [1, 0] }', "then an upper one: give both"),
        ('a = { kind = "number", bounds = ["a", "b"] }', "a number has a lower, then"),
        ('a = { kind = "number", bounds = [1, 0.5] }', "then an upper one: give both"),
        ('a = { kind = "number", bounds = [1, 1] }', "then an upper one: give both"),
        ('a = { kind = "number", bounds = [0, inf] }', "a number has a lower, then"),
        ('a = { kind = "date", bounds = ["2014-01-01", "2013-01-01"] }',
         "a date has a lower, then an upper one"),
        ('a = { kind = "category" }', "it is a category, so values must be given"),
        ('a = { kind = "category", values = ["x"], fill = "x" }',
         "missing is 'drop', so fill must not be"),
        ('a = { kind = "category", values = ["x"], missing = "fill", fill = "y" }',
         "it is filled with 'y', which it may"),
        ('a = { kind = "number", bounds = [0, 1], missing = "fill", fill = 2 }',
         "it is filled with 2.0, which it may"),
        ('a = { kind = "flag", wieght = 2 }',
         "the key 'wieght' is not known: did you mean 'weight'?"),
        ('a = { kind = "flag", weight = 0 }', "weight is 0"),
        ("a = 3", "columns.0 is 3"),
        ('a = { kind = "category", values = ["x", "x"] }', "are not all different"),
        ('"a=x" = { kind = "flag" }\na = { kind = "category", values = ["x"] }',
         "are not all different"),
        ("", "columns is"),
    ],
)  # fmt: skip
def test_what_a_schema_may_not_say_has_a_sentence(
    tmp_path: Path, column: str, sentence: str
) -> None:
    (tmp_path / "schema.toml").write_text(f"[columns]\n{column}\n")
    with pytest.raises(ConfigurationError, match=r"schema.toml") as error:
        Schema.load(tmp_path / "schema.toml")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_column_that_is_wrong_is_all_that_is_said_of_a_schema() -> None:
    with pytest.raises(ConfigurationError, match=r"^the schema's column 'a'"):
        Schema(columns={"a": {"kind": "nummer"}})


def test_a_draft_has_names_and_kinds_and_cannot_be_used_as_it_is(
    table: Path, schema: Schema, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        CSV.replace("soon", "2013-01-01")
        .replace(",0,", ",false,")
        .replace(",1,LGA", ",,LGA")
        .split("1,UA,2013-01-03,1\n")
    )
    table.write_text(text[0])
    assert main(["schema", "draft", str(table)]) == 0
    drafted = table.with_suffix(".toml")
    said = tomllib.loads(drafted.read_text())["columns"]
    kinds = {
        "delay": "number", "origin": "category", "late": "flag", "when": "date",
        "month": "number",
    }  # fmt: skip
    assert {name: column.pop("kind") for name, column in said.items()} == kinds | {
        "carrier": "category"
    }
    assert {
        column.pop("weight")
        for name, column in said.items()
        if kinds.get(name) in ("category", "flag")
    } == {0.5}
    said["carrier"].pop("weight")
    assert all(not value for column in said.values() for value in column.values())
    assert not {"SFO", "900", "2013-01-05"} & set(re.split(r"\W+", drafted.read_text()))
    with pytest.raises(ConfigurationError, match="the schema's column 'month'"):
        Schema.load(drafted)
    before = drafted.read_bytes()
    assert main(["schema", "draft", str(table)]) == 1
    assert "exists and is left alone" in capsys.readouterr().err
    assert drafted.read_bytes() == before


def test_a_draft_says_which_cells_are_not_what_they_seem_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, names = tmp_path / "t.csv", "age;cost;id;born;seen;plz;none;ward;x"
    rows = [
        f"{20 + i % 7},5;1.2{i:02d},5;P{i};0{1 + i % 9}.02.2024;2024-01-1{i % 3};"
        f"0123{i % 9};;{'AB'[i % 2]};{i % 9}"
        for i in range(40)
    ]
    table.write_text("\ufeff" + "\n".join([names, *rows]) + "\n")
    assert main(["schema", "draft", str(table)]) == 0
    text, said = (
        table.with_suffix(".toml").read_text(),
        capsys.readouterr().out.splitlines()[1:],
    )
    kinds = {
        name: column["kind"] for name, column in tomllib.loads(text)["columns"].items()
    }
    numbers, texts = (
        dict.fromkeys(["age", "cost", "none", "x"], "number"),
        dict.fromkeys(["plz", "ward"], "category"),
    )
    assert kinds == numbers | texts | dict.fromkeys(["born", "seen"], "date")
    assert [line.partition(":")[0] for line in said] == [
        "'age'", "'cost'", "'id'", "'born'", "'plz'", "'none'",
    ]  # fmt: skip
    assert "40 of 40 cells, such as '20,5', are not read as a number" in said[0]
    assert "such as '01.02.2024', are not read as a date" in said[3]
    assert '# "id" = ' in text
    assert "20,5" not in text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no rows"),
        ("age,ward\n", "has no rows"),
        ("1,2\n3,4\n", "called x0,x1"),
    ],
)
def test_a_draft_of_nothing_or_without_names_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    main(["schema", "draft", str(tmp_path / "t.csv")])
    said = capsys.readouterr()
    assert sentence in said.out + said.err
    assert (tmp_path / "t.toml").exists() == ("x0" in sentence)


def test_how_many_rows_have_gaps_is_said_here(
    schema: Schema, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans"):
        load_by_schema(table, schema)
    assert (
        "1 of 5 records are left out: they have fewer cells than there are columns"
        in caplog.text
    )
    assert (
        "of 4 rows, cells are missing in 'delay' 1, 'origin' 1, 'late' 1, 'when' 1,"
        " 'month' 1; 1 rows" in caplog.text
    )
    assert "over 1% of the cells lie outside the bounds of delay" in caplog.text


def test_a_database_that_does_not_answer_tells_nothing(
    tmp_path: Path, schema: Schema
) -> None:
    pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/none.db?password=s3cret"
    for layout, said in (
        (Layout(), "'query' does not say"),
        (Layout(query="SELECT 's3cret' FROM no"), "FileNotFoundError"),
        (Layout(query="SELECT 's3cret' FROM no"), "OperationalError"),
    ):
        if said == "OperationalError":
            assert not (tmp_path / "none.db").exists()
            sqlite3.connect(tmp_path / "none.db").close()
        with pytest.raises(DataError, match=said) as error:
            load_by_schema(url, schema, layout)
        assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("values", [["1", "2"], [1, 2], ["1.0", "2.0"], [1.0, 2.0]])
@pytest.mark.parametrize(
    "source", ["csv", "node", "parquet", "frame", "integers", "text", "database", "npy"]
)
def test_equal_numbers_are_one_value_of_a_category_wherever_they_come_from(
    tmp_path: Path, source: str, values: list[Any]
) -> None:
    schema = Schema(
        columns={"ward": {"kind": "category", "values": values, "missing": "centre"}},
        gap_share=0.0,
    )
    frame = pd.DataFrame({"ward": [1.0, 2.0, None, 3.0]})
    expected = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
    if source in ("csv", "node"):
        frame.to_csv(tmp_path / "rows.csv", index=False)
        assert "1.0" in (tmp_path / "rows.csv").read_text()
        load = (
            load_by_schema
            if source == "node"
            else lambda path, schema: schema.encode(open_table(path))
        )
        found = load(tmp_path / "rows.csv", schema).points
    elif source == "database":
        pytest.importorskip("sqlalchemy")
        with sqlite3.connect(tmp_path / "rows.db") as database:
            frame.to_sql("rows", database, index=False)
        query = Layout(query="SELECT * FROM rows")
        found = load_by_schema(f"sqlite:///{tmp_path}/rows.db", schema, query).points
    elif source == "npy":
        np.save(tmp_path / "rows.npy", frame.to_numpy())
        found = load_by_schema(tmp_path / "rows.npy", schema, Layout(("ward",))).points
    elif source == "parquet":
        frame.to_parquet(tmp_path / "rows.parquet")
        found = load_by_schema(tmp_path / "rows.parquet", schema).points
    else:
        kinds = {"integers": "Int64", "text": object, "frame": float}
        found = schema.encode(frame.astype(kinds[source])).points
    assert found.tolist() == expected


def test_a_code_that_begins_with_zero_is_no_number() -> None:
    schema = Schema(
        columns={"ward": {"kind": "category", "values": ["01", "1", "1e5", "false"]}}
    )
    encoded = schema.encode(
        {"ward": ["01", "1", "1.0", "001", "100000", "1e5", "False"]}
    )
    assert encoded.rows.tolist() == [0, 1, 2, 5, 6]
    assert encoded.points.argmax(axis=1).tolist() == [0, 1, 1, 2, 3]
    for same in (["1", "1.0"], [1, "1"], [1, True], [1, 1.0]):
        with pytest.raises(ConfigurationError, match="are not all different"):
            Schema(columns={"ward": {"kind": "category", "values": same}})

    stated_as_numbers = Schema(
        columns={"month": {"kind": "category", "values": [1, 2]}}
    )
    assert stated_as_numbers.encode(
        {"month": ["01", "1", "2.0", 2, "x"]}
    ).points.argmax(axis=1).tolist() == [
        0, 0, 1, 1,
    ]  # fmt: skip


IDS = {"shop": {"kind": "category", "values": ["1234567890123456", "7"]}}


@pytest.mark.parametrize(
    "more",
    [
        None,
        0.5,
        1j,
        "x",
        "\ud83d",
        pytest.param(10**5000, id="huge"),
        Decimal("sNaN"),
        pd.NA,
        pd.NaT,
        [1, 2],
    ],
)
@pytest.mark.parametrize("kind", ["mapping", "frame"])
def test_a_cell_decides_about_its_own_row_only(kind: str, more: Any) -> None:
    """A gap made floats of a column, whose large ones were spelt as 1e15."""
    schema = Schema(columns=IDS)
    cells = [1234567890123456, 7, more]
    table: Any = (
        {"shop": cells}
        if kind == "mapping"
        else pd.DataFrame({"shop": pd.Series(cells, dtype=object)})
    )
    encoded = schema.encode(table)
    assert encoded.rows.tolist() == [0, 1]
    assert encoded.points.argmax(axis=1).tolist() == [0, 1]


@pytest.mark.parametrize(
    "column", [[1234567890123456.0, 7.0, np.nan], [1234567890123456.0, 7.0, 1j]]
)
def test_a_column_of_another_type_has_the_same_values(
    column: list[Any], tmp_path: Path
) -> None:
    frame, schema = pd.DataFrame({"shop": column}), Schema(columns=IDS)
    assert schema.encode(frame).points.argmax(axis=1).tolist() == [0, 1]
    if frame["shop"].dtype.kind == "f":
        frame.to_parquet(tmp_path / "t.parquet")
        assert load_by_schema(tmp_path / "t.parquet", schema).points.argmax(
            axis=1
        ).tolist() == [0, 1]


def test_a_mapping_of_other_rows_in_each_column_is_refused() -> None:
    schema = Schema(columns=IDS)
    some = pd.Series(["7", "7"], index=[4, 2])
    assert (
        len(
            schema.encode(
                {"shop": some, "n": [1, None], "m": np.ones(2), "k": 3}
            ).points
        )
        == 2
    )
    shuffled = {"shop": pd.Series(["7", "7"], index=[1, 0]), "n": pd.Series([1, 2])}
    for table in ({"shop": ["7"], "n": [1, 2]}, {"shop": 3}, shuffled):
        with pytest.raises(DataError, match="a table of columns by name is none"):
            schema.encode(table)


def test_a_file_of_a_folder_is_read_by_its_own_types(tmp_path: Path) -> None:
    """One file whose only row has a text instead of a number made it fail."""
    number = {"x": {"kind": "number", "bounds": (0, 1)}}
    for place, cells in enumerate(([0.25, 0.5], ["rare"], [True], ["0.75"])):
        pd.DataFrame({"x": cells}).to_parquet(tmp_path / f"{place}.parquet")
    found = load_by_schema(tmp_path, Schema(columns=number))
    assert found.points.ravel().tolist() == [0.25, 0.5, 1.0, 0.75]
    declared = load_declared(tmp_path, Layout.of("x"))
    assert declared.points.ravel().tolist() == [0.25, 0.5, 1.0, 0.75]


def test_a_text_of_a_database_that_is_no_utf_8_is_an_unknown_cell(
    tmp_path: Path,
) -> None:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("create table t (x, note)")
        database.execute(
            "insert into t values (0.25, 'a'), (0.5, cast(x'ff41' as text)),"
            " (cast(x'ff' as text), 'b')"
        )
    layout = Layout(query="select * from t")
    found = load_by_schema(
        f"sqlite:///{tmp_path}/t.db",
        Schema(columns={"x": {"kind": "number", "bounds": (0, 1)}}),
        layout,
    )
    assert found.points.ravel().tolist() == [0.25, 0.5]


def test_each_cell_is_counted_as_read_missing_unknown_or_outside() -> None:
    """Cells at a bound are inside."""
    number, word = (
        {"kind": "number", "bounds": (0, 10)},
        {"kind": "category", "values": ["a"]},
    )
    table = {
        "n": [0.0, 10.0, -0.5, 10.5, math.inf, math.nan, 5.0],
        "w": ["a", "a", "a", "a", "b", "a", "c"],
    }
    found = Schema(columns={"n": number, "w": word}).encode(table)
    assert found.seen == (Seen("n", 5, 2, 0, 2, ()), Seen("w", 5, 0, 2, 0, ("b", "c")))
    assert found.left_out_by.tolist() == [-1, -1, -1, -1, 0, 0, 1]
    assert found.points[:, 0].tolist() == [0.0, 10.0, 0.0, 10.0]
    assert found.spread(np.array([4, 5, 6, 7])).tolist() == [4, 5, 6, 7, -1, -1, -1]


@pytest.mark.parametrize(("n_outside", "foreign"), [(0, False), (1, False), (2, True)])
def test_over_a_quarter_of_the_cells_outside_are_of_another_unit(
    n_outside: int, foreign: bool
) -> None:
    cells = [200.0] * n_outside + [50.0] * (4 - n_outside) + [math.nan]
    found = Schema(columns={"n": {"kind": "number", "bounds": (0, 100)}}).encode(
        {"n": cells}
    )
    assert (found.seen[0].looks_foreign, found.foreign) == (foreign, ("n",) * foreign)


def test_a_column_with_unknown_cells_may_be_of_another_unit_too() -> None:
    """Cells of all kinds are this party's own where they add up to its rows."""
    age = Schema(columns={"n": {"kind": "number", "bounds": (0, 100)}})
    found = age.encode({"n": ["200", "200", "50", "x", None]})
    assert found.seen[0][1:5] == (3, 1, 1, 2)
    assert found.foreign == ("n",)
    assert Encoded(age, found.points, found.left_out_by[1:], found.seen).foreign == ()


@pytest.mark.parametrize(
    ("read", "unknown", "outside", "level", "said"),
    [
        (100, 0, 0, None, ""),
        (100, 0, 1, None, ""),
        (100, 0, 2, logging.WARNING,
         "over 1% of the cells lie outside the bounds of a"),
        (90, 0, 0, logging.INFO,
         "of 100 rows, cells are missing in 'a' 10; 10 rows left out"),
        (89, 0, 0, logging.WARNING,
         "of 100 rows, cells are missing in 'a' 11; 11 rows left out"),
        (99, 1, 0, logging.WARNING,
         "of 100 rows, cells are missing in 'a' 1; 1 rows left out; of these"
         " cells, spelt as nothing that the column may hold: 'a' 1"),
        (0, 0, 0, logging.ERROR,
         "of 100 rows, cells are missing in 'a' 100; 100 rows left out"),
    ],
)  # fmt: skip
def test_an_owner_is_told_of_gaps_the_louder_the_more_there_are(
    caplog: pytest.LogCaptureFixture, read: int, unknown: int, outside: int,
    level: int | None, said: str,
) -> None:  # fmt: skip
    say_once.cache_clear()
    seen = [
        Seen("b", 100, 0, 0, 0, ()),
        Seen("a", read, 100 - read - unknown, unknown, outside, ()),
    ]
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans"):
        Schema.tell("the table", 100, seen, read)
    told = (
        [] if level is None else [("flwr_dpkmeans.data", level, f"the table: {said}")]
    )
    assert caplog.record_tuples == told


@pytest.mark.parametrize(
    ("called", "name"), [("", "the table"), ("north's", "north's")]
)
def test_a_table_without_a_file_is_called_as_its_owner_calls_it(
    caplog: pytest.LogCaptureFixture, called: str, name: str
) -> None:
    say_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans"):
        Schema(columns={"sick": {"kind": "flag"}}).encode({"sick": [1, None]}, called)
    assert [record.message.partition(":")[0] for record in caplog.records] == [name]


AGE, WARD = (
    {"kind": "number", "bounds": [0.0, 9.0]},
    {"kind": "category", "values": ["A", "B"]},
)


def test_a_schema_says_in_plain_values_what_was_stated_and_no_defaults() -> None:
    """All parties' digests are of this."""
    assert Schema(columns={"age": AGE}).to_dict() == {
        "scale": "bounds",
        "columns": {"age": AGE},
    }
    ward = WARD | {"weight": 0.0}
    profiled = Schema(
        columns={"age": AGE, "ward": ward}, profile=["ward"], profile_share=0.1
    )
    assert profiled.to_dict() == {
        "scale": "bounds",
        "profile": ["ward"],
        "profile_share": 0.1,
        "columns": {"age": AGE, "ward": ward},
    }
    assert (
        Schema(**profiled.to_dict()).digest
        == profiled.digest
        != Schema(columns={"age": AGE}).digest
    )


def test_a_gap_may_be_filled_with_a_date_as_toml_has_it() -> None:
    when = {
        "kind": "date",
        "bounds": ["1970-01-01", "1970-01-11"],
        "missing": "fill",
        "fill": date(1970, 1, 4),
    }
    assert Schema(columns={"when": when}).encode(
        {"when": [None, "1970-01-02"]}
    ).points.tolist() == [[3.0], [1.0]]


def test_private_deviations_are_units_of_the_bounds_as_they_are_stated() -> None:
    said = {
        "age": AGE | {"weight": 0.5},
        "size": {"kind": "number", "bounds": [-1.0, 1.0]},
    }
    assert Schema(columns=said, scale="standard").bounds == Bounds(
        (0.0, -1.0), (9.0, 1.0)
    )


def test_an_encoded_table_is_encoded_again_with_its_profile_or_without() -> None:
    schema = Schema(columns={"age": AGE, "ward": WARD}, profile=["age", "ward"])
    found = schema.encode({"age": [9.0, 0.0], "ward": ["A", "B"]})
    assert found.points.tolist() == [
        [9.0, 1.0, 0.0, 1.0, 1.0, -1.0],
        [0.0, 0.0, 1.0, -1.0, -1.0, 1.0],
    ]
    assert schema.encode(found).points.tolist() == found.points.tolist()
    assert schema.clustered.encode(found).points.tolist() == [
        [9.0, 1.0, 0.0],
        [0.0, 0.0, 1.0],
    ]
    with pytest.raises(DataError, match="the table was encoded by another schema"):
        Schema(columns={"age": AGE, "ward": WARD}, profile=["age"]).encode(found)


def test_rounding_does_not_widen_bounds() -> None:
    """14 times 2.1 / 14, over 2.1 / 14, is 1.8e-15 more than 14."""
    assert Schema(
        columns={"t": {"kind": "number", "bounds": (-7, 7), "weight": 2.1}}
    ).bounds == Bounds((-7.0,), (7.0,))


def test_a_schema_that_is_not_there_has_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Schema.load(tmp_path / "no.toml")
    told = "cannot be read (No such file or directory): correct its path."
    assert str(caught.value) == f"the schema {tmp_path / 'no.toml'}: {told}"


def test_a_number_that_a_flag_or_category_may_not_hold_is_unknown_however_it_came(
    tmp_path: Path,
) -> None:
    schema = Schema(
        columns={
            "flag": {"kind": "flag"},
            "ward": {"kind": "category", "values": ["A", "B"]},
        }
    )
    frame = pd.DataFrame({"flag": [2.0, 1.0, 0.0, math.nan], "ward": [1, 1, 2, 2]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for name in ("t.parquet", "t.csv"):
        (flag, ward), _ = look_by_schema(tmp_path / name, schema)
        assert (flag[1:5], ward[1:5]) == ((2, 1, 1, 0), (0, 0, 4, 0)), name
    flag, ward = schema.encode(frame).seen
    assert (flag[1:5], ward[1:5]) == ((2, 1, 1, 0), (0, 0, 4, 0))


def test_the_nearest_date_is_shown_as_far_as_there_is_one() -> None:
    days = [
        -0.49, 0.5, -0.5, -699_999.0, -700_000.0, -700_001.0, -1e300, 2_899_999.0,
        2_900_000.0, 2_900_001.0,
    ]  # fmt: skip
    shown = (
        ["1970-01-01"] * 2
        + ["1969-12-31", "0053-06-20"]
        + ["0053-06-19"] * 3
        + ["9909-12-06"]
        + ["9909-12-07"] * 2
    )
    assert list(map(iso_date, days)) == shown


def test_rows_are_split_by_a_column_beside_the_schema(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,town\n1,x\n,y\n3,z\n")
    schema = Schema(columns={"age": {"kind": "number", "bounds": (0, 9)}})
    found = load_by_schema(tmp_path / "t.csv", schema, partition_column="town")
    assert found.partition_values is not None
    assert (found.points.tolist(), found.partition_values.tolist()) == (
        [[1.0], [3.0]],
        ["x", "z"],
    )
    assert load_by_schema(tmp_path / "t.csv", schema).partition_values is None


def test_a_file_of_bounds_is_no_schema(schema: Schema, tmp_path: Path) -> None:
    (tmp_path / "bounds.toml").write_text("lower = 0\nupper = 1\n")
    assert schema_of(tmp_path / "bounds.toml") is None
    assert schema_of(str(tmp_path / "schema.toml")) == schema_of(schema) == schema
    assert schema_of("0,1") is None


KINDS = Schema(
    columns={
        "g": {"kind": "category", "values": ["A", "B"]},
        "x": {"kind": "number", "bounds": (0, 1)},
    }
)


def test_texts_that_are_equal_up_to_a_nul_are_not() -> None:
    """Releases of pandas before 3.1 hash text up to its first NUL."""
    found = KINDS.encode({"g": ["A\0", "A", "A", "B"], "x": [0.5] * 4})
    assert found.points[:, :2].tolist() == [[1, 0], [1, 0], [0, 1]]


@pytest.mark.parametrize("missing", ["centre", "drop"])
def test_a_record_of_many_lines_is_one_row_at_most(
    tmp_path: Path, missing: str, caplog: Any
) -> None:
    """Each line was a row of gaps, which a schema filled."""
    note = "\n".join(["x"] * 60)
    (tmp_path / "notes.csv").write_text(
        f'age,sex,note\n30,f,"none"\n40,m,"{note}"\n50,f,"none"\n'
    )
    age = {"kind": "number", "bounds": (0, 100), "missing": missing}
    found = load_by_schema(tmp_path / "notes.csv", Schema(columns={"age": age}))
    assert found.points[:, :1].tolist() == [[30], [40], [50]]
    assert "records are left out" not in caplog.text


def test_cells_of_arrow_beyond_what_python_knows_are_their_own_rows_only() -> None:
    pa = pytest.importorskip("pyarrow")
    days = pd.Series([18_000, 3_000_000, None], dtype="int32[pyarrow]").astype(
        pd.ArrowDtype(pa.date32())
    )
    late = Schema(
        columns={"when": {"kind": "date", "bounds": ("2019-01-01", "2020-01-01")}}
    )
    assert late.encode(pd.DataFrame({"when": days})).points.tolist() == [[18_000.0]]


class _PostgreSQL:
    """Names the columns of a query, and keeps what it is told."""

    def __init__(self) -> None:
        self.told = list[str]()

    def exec_driver_sql(self, statement: str) -> None:
        self.told.append(statement)

    def execute(self, statement: Any) -> Any:
        self.told.append(str(statement))
        return self

    def keys(self) -> list[str]:
        return ['the "a":b%', "day"]


def test_postgresql_is_asked_for_text_whose_cells_no_driver_can_refuse(
    tmp_path: Path,
) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    connection = _PostgreSQL()
    asked = as_text_query(connection, "SELECT * FROM t -- all\n; ")
    assert connection.told[0] == "SET datestyle TO ISO"
    assert connection.told[1].endswith("LIMIT 0")
    # It says the same to any database.
    with sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'a.db'}").connect() as other:
        other.exec_driver_sql('CREATE TABLE t ("the ""a"":b%" REAL, day TEXT)')
        other.exec_driver_sql("INSERT INTO t VALUES (0.5, 'infinity')")
        found = other.execute(sqlalchemy.text(asked))
        assert (list(found.keys()), found.all()) == (
            connection.keys(),
            [("0.5", "infinity")],
        )


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        (
            "2024-03-31",
            [
                "2024-03-30T08:00",
                "2024-03-30T18:00",
                "2024-03-30T00:00",
                "2024-03-30T12:34",
            ],
        ),
        (
            "2024-04-08T23:59",
            [
                "2024-03-30T08:00",
                "2024-03-30T18:00",
                "2024-03-30T00:00",
                "2024-03-30T12:34",
            ],
        ),
        ("2024-04-09", ["2024-03-30", "2024-03-31", "2024-03-30", "2024-03-31"]),
    ],
)
def test_dates_have_times_where_the_bounds_are_a_few_days_apart(
    end: str, shown: list[str]
) -> None:
    """Clusters of the morning and of the evening of one day were of two days."""
    schema = Schema(columns={"seen": {"kind": "date", "bounds": ["2024-03-30", end]}})
    days = 19812.0 + np.array([[8 / 24], [18 / 24], [0.0], [(12 * 60 + 34.4) / 1440]])
    assert schema.decode(days)["seen"] == shown
