"""Cells as strangers write them: each door reads them alike, or refuses them with a
sentence.
"""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.files.cell_numbers import number_of
from flwr_dpkmeans.data.files.cells import MISSING, text_of
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.formats.arrow_cells import numbers_in
from flwr_dpkmeans.data.files.formats.frames import frame_table
from flwr_dpkmeans.data.files.open_table import ColumnUse
from flwr_dpkmeans.data.files.raw_table import RawTable
from flwr_dpkmeans.data.files.reader import open_table as open_file
from flwr_dpkmeans.data.files.text.records import cells_of
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.own_table import open_table
from flwr_dpkmeans.data.said_once import say_once
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError

NUMBER = {"kind": "number", "bounds": (0, 100)}
WARD = {"kind": "category", "values": ["A", "B"]}


def doors(cells: Any, column: dict[str, Any], folder: Path) -> list[list[Any]]:
    """What a notebook, .csv, .parquet and `predict` make of a column."""
    schema = Schema(
        columns={"v": column, "row": {"kind": "number", "bounds": (0, 1000)}}
    )
    frame = pd.DataFrame({"v": cells, "row": range(len(cells))})
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    files = [folder / "t.csv", folder / "t.parquet"]
    found = [
        schema.encode(frame).points,
        *(load_by_schema(file, schema).points for file in files),
    ]
    texts = ("v",) if column["kind"] != "number" else ()
    for file in files:
        blocks = open_file(file).blocks(ColumnUse(("v", "row"), texts))
        found.append(np.concatenate([schema.encode(block).points for block in blocks]))
    whole = [
        dict(zip(points[:, -1].tolist(), points[:, :-1].tolist(), strict=True))
        for points in found
    ]
    return [[one.get(float(row)) for row in range(len(frame))] for one in whole]


def test_markers_of_missing_cells_are_those_of_pandas() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    assert MISSING == STR_NA_VALUES


@pytest.mark.parametrize(
    "column", [NUMBER, WARD, {"kind": "date", "bounds": ("2020-01-01", "2021-01-01")}]
)
def test_a_marker_is_a_missing_cell_in_every_door(
    column: dict[str, Any], tmp_path: Path
) -> None:
    markers = [*sorted(MISSING), None, " NA "]
    assert doors(markers, column, tmp_path) == [[None] * len(markers)] * 5
    # By an index of its own, as `partition_column` and a draft read text: alike in all
    # files.
    for file in ("t.csv", "t.parquet"):
        assert open_table(tmp_path / file).columns[0].text() == [None] * len(markers)


@pytest.mark.parametrize("value", ["NA", "None", "", " n/a"])
def test_no_category_has_a_marker_as_a_value(value: str) -> None:
    with pytest.raises(ConfigurationError, match="is a missing cell in all tables"):
        Schema(columns={"v": {"kind": "category", "values": ["A", value]}})


def test_a_gap_in_a_pandas_category_of_numbers_is_no_number() -> None:
    """Beside a column of integers pandas itself makes the least integer of it."""
    frame = pd.DataFrame({"v": pd.Categorical([10, 20, None]), "row": [0, 1, 2]})
    with pytest.raises(DataError, match="1 rows with a missing or infinite value"):
        validate_points(frame)
    assert validate_points(frame[:2]).tolist() == [[10.0, 0.0], [20.0, 1.0]]


@pytest.mark.parametrize(
    "cells",
    [
        pd.to_timedelta([1, 2], unit="D"),
        pd.period_range("2020-03", periods=2, freq="M"),
    ],
)
def test_durations_and_foreign_types_are_no_numbers_of_some_unit(
    cells: Any, tmp_path: Path
) -> None:
    file = tmp_path / "t.parquet"
    pd.DataFrame({"v": cells}).to_parquet(file)
    for column in (NUMBER, WARD):
        schema = Schema(columns={"v": column})
        with pytest.raises(DataError, match=r"'v' of .* holds neither numbers nor"):
            load_by_schema(file, schema)
    with pytest.raises(DataError, match=r"'v' of .* holds neither numbers nor text"):
        load_declared(file, Layout(("v",)))
    with pytest.raises(DataError, match=r"^the column 'v' holds neither numbers nor"):
        schema.encode(pa.Table.from_pandas(pd.DataFrame({"v": cells})))
    assert schema.encode(pd.DataFrame({"v": cells})).rows.size == 0


def test_short_floats_are_one_value_of_a_category_in_every_door(tmp_path: Path) -> None:
    column = {"kind": "category", "values": [0.1, 0.2]}
    cells = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    assert doors(cells, column, tmp_path) == [[[1.0, 0.0], [0.0, 1.0], None]] * 5


def test_long_whole_numbers_of_a_category_are_told_apart(tmp_path: Path) -> None:
    """As floats, 2^53 and 2^53 + 1 are one."""
    cells = [2**53, 2**53 + 1, 2**53 + 2]
    column = {"kind": "category", "values": [2**53 + 1, 2**53 + 2]}
    assert doors(cells, column, tmp_path) == [[None, [1.0, 0.0], [0.0, 1.0]]] * 5
    column["values"] = ["9007199254740993", "9007199254740994"]
    assert doors(cells, column, tmp_path) == [[None, [1.0, 0.0], [0.0, 1.0]]] * 5


@pytest.mark.parametrize(
    ("value", "cell", "known"),
    [
        (5 * 10**15, "5e+15", True),
        (2**53 - 1, "9007199254740991.0", True),
        (2**53, "9007199254740993", False),
        (2**53, "9007199254740992", True),
        (2**53 + 2, "9007199254740994.0", False),
        (-(2**53), "-9007199254740993", False),
    ],
)
def test_whole_numbers_below_2_to_53_are_compared_as_numbers_and_others_as_text(
    value: int, cell: str, known: bool
) -> None:
    schema = Schema(columns={"v": {"kind": "category", "values": [0, value]}})
    assert schema.encode({"v": [cell, "0"]}).points.tolist() == [[0.0, 1.0]] * known + [
        [1.0, 0.0]
    ]


def test_two_columns_of_one_name_are_refused_in_simulation_too(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("v,w, v\n1,2,3\n4,5,6\n")
    for columns in ((), ("v", "w")):
        with pytest.raises(DataError, match="2 of 3 columns have the name 'v'"):
            load_table(file, dialect=Dialect(header=True), columns=columns)
    assert load_table(
        file, dialect=Dialect(header=True), columns=("w",)
    ).points.tolist() == [[2.0], [5.0]]


@pytest.mark.parametrize("door", ["frame", "csv", "parquet", "predict"])
def test_cells_that_cannot_be_read_are_counted_beside_missing_ones(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Numbers written as "1,200" would else be left out without a word."""
    cells = ["1,200", "5", "", "NA"] + ["7"] * 96
    frame = pd.DataFrame(
        {"v": cells, "ward": ["A", "", "a", "A"] + ["B"] * 96, "clean": ["5"] * 100}
    )
    schema = Schema(columns={"v": NUMBER, "ward": WARD, "clean": NUMBER})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    say_once.cache_clear()
    with caplog.at_level("INFO", logger="flwr_dpkmeans"):
        if door == "frame":
            schema.encode(frame)
        elif door == "predict":
            list(
                map(
                    schema.encode,
                    open_file(tmp_path / "t.csv").blocks(
                        ColumnUse(("v", "clean"), ("ward",))
                    ),
                )
            )
        else:
            load_by_schema(tmp_path / f"t.{door}", schema)
    (line,) = [
        record for record in caplog.records if "cells are missing" in record.message
    ]
    assert (
        "of 100 rows, cells are missing in 'v' 3, 'ward' 2; 4 rows left out"
        in line.message
    )
    assert line.message.endswith(
        "; of these cells, spelt as nothing that the column may hold: 'v' 1, 'ward' 1"
    )
    assert line.levelname == "WARNING"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (True, "true"),
        (np.False_, "false"),
        (1.0, "1"),
        (-0.0, "0"),
        (np.float32(0.5), "0.5"),
        (1e23, "99999999999999991611392"),
        (math.inf, "inf"),
        (7, "7"),
        (date(2020, 1, 2), "2020-01-02"),
        (pd.Timestamp("2020-01-02 03:04"), "2020-01-02T03:04:00"),
        (" a ", "a"),
        (" NA ", None),
        (None, None),
        (math.nan, None),
        (pd.NaT, None),
        (np.datetime64("NaT"), None),
        (np.array([1, 2]), "<ndarray>"),
        (Decimal("sNaN"), "<Decimal>"),
        pytest.param(10**5000, "<int>", id="huge"),
        (pd.Series([1, 2]), "<Series>"),
        (pd.NA, None),
        (1j, "1j"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_an_object_is_written_as_a_file_would_have_it(
    cell: Any, text: str | None
) -> None:
    assert text_of(cell) == text


def test_a_frame_of_pandas_is_read_cell_by_cell_but_for_plain_numbers() -> None:
    cells = {
        "whole": pd.array([1, None], dtype="Int64"),
        "word": pd.array(["x", None], dtype="string"),
    }
    frame = pd.DataFrame(
        {
            **cells,
            "when": pd.to_datetime(["2020-01-02", None]),
            "short": np.float32([0.5, np.nan]),
        }
    )
    columns = {column.name: column for column in frame_table(frame).columns}
    assert [columns[name].text() for name in ("whole", "word")] == [
        ["1", None],
        ["x", None],
    ]
    assert [columns[name].text() for name in ("when", "short")] == [
        ["2020-01-02T00:00:00", None],
        ["0.5", None],
    ]
    assert [name for name, column in columns.items() if column.values is not None] == [
        "short"
    ]


def test_a_line_is_cut_at_its_separators_and_not_within_quotes() -> None:
    lines = ["", "1, 2", '1, "2,5",3', '"a ""b"" c",']
    cells = [[], ["1", "2"], ["1", "2,5", "3"], ['a "b" c', ""]]
    assert [cells_of(line, ",") for line in lines] == cells
    assert [cells_of(line.replace(",", ";"), ";") for line in lines] == [
        [cell.replace(",", ";") for cell in row] for row in cells
    ]
    assert RawTable(Path(), (), named=False).n_rows == 0


@pytest.mark.parametrize(
    ("cells", "numbers", "others"),
    [
        ([["1", "2.5"], ["-3e1", " 4 "]], [[1.0, 2.5], [-30.0, 4.0]], [0, 0]),
        ([["1_0", "2_0"]], [[None, None]], [1, 1]),
        ([["1_0", "2"], ["", "NA"]], [[None, 2.0], [None, None]], [1, 0]),
        ([["True", "x"], ["false", "y"]], [[1.0, None], [0.0, None]], [0, 2]),
        ([["9" * 400, "1e400"]], [[math.inf, math.inf]], [0, 0]),
    ],
)
def test_numbers_are_read_alike_in_whatever_company(
    cells: list[list[str]], numbers: list[list[float | None]], others: list[int]
) -> None:
    for column, expected, n_expected in zip(
        zip(*cells, strict=True), zip(*numbers, strict=True), others, strict=True
    ):
        found, n_others = numbers_in(pa.array(column))
        np.testing.assert_array_equal(found, np.array(expected, dtype=float))
        assert n_others == n_expected
    assert (number_of(10**400), number_of("1e400")) == (math.inf, math.inf)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true"]
)
def test_a_database_in_memory_is_no_file_that_must_be_there(url: str) -> None:
    pytest.importorskip("sqlalchemy")
    assert load_declared(
        url, Layout(("a",), query="SELECT 1.5 AS a")
    ).points.tolist() == [[1.5]]


def test_a_colon_in_a_query_is_a_colon(tmp_path: Path) -> None:
    """Of ' :30', as text, a parameter was made that nobody gave."""
    pytest.importorskip("sqlalchemy")
    query = "SELECT 1.5 AS a WHERE ' :30' LIKE '%:30' AND '07:45' <> ':x'"
    assert load_declared("sqlite://", Layout(("a",), query=query)).points.tolist() == [
        [1.5]
    ]


def test_columns_without_names_are_numbered_and_not_called_by_their_first_cells(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("1,0\n2,3\n")
    _, block = open_file(
        tmp_path / "t.csv", Dialect(header=False), may_guess=True
    ).blocks()
    assert ([column.name for column in block.columns], block.named) == (
        ["x0", "x1"],
        False,
    )
    by_index = block.column_of("label_column", "0")
    assert by_index is not None
    assert by_index.text() == ["1", "2"]


@pytest.mark.parametrize("method", ["to_pandas", "__dataframe__"])
@pytest.mark.filterwarnings("ignore:The Dataframe Interchange Protocol is deprecated")
def test_a_frame_may_say_in_two_other_ways_what_it_holds(method: str) -> None:
    frame = pd.DataFrame({"v": [1.0, 2.0]})
    gives = frame.__dataframe__ if method == "__dataframe__" else lambda: frame
    other = type("Frame", (), {method: lambda self, **how: gives(**how)})()
    (column,) = frame_table(other).columns
    assert (column.name, column.numbers().tolist()) == ("v", [1.0, 2.0])


@pytest.mark.parametrize("row", ["a,0,1,5", "a,0,1,"])
def test_a_decimal_comma_in_a_bounds_file_is_not_cut_off(
    row: str, tmp_path: Path
) -> None:
    (tmp_path / "bounds.csv").write_text(f"feature,lower,upper\n{row}\n")
    with pytest.raises(ConfigurationError, match="but the first one has 3"):
        read_ranges(tmp_path / "bounds.csv").matched(None)
