"""A deployed node's table under its owner's schema.

Each row is read by itself and decides about no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cases import pairs

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.loading.declared_tables import load_declared, load_stated
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import load_by_schema
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ColumnError, ConfigurationError, DataError

ROWS = ["31,a,170", "47,b,160", "52,c,180"]
NUMBERS = [[31.0, 170.0], [47.0, 160.0], [52.0, 180.0]]
SCHEMA = Layout.of("age,height")

HOSTILE = {
    "nothing": "", "too few cells": "1", "too many cells": "1,2,3,4,5,6",
    "an open quote": '9,"open,170', "a quote in a number": '"9,x,170',
    "censored": ">89,x,170", "a leading zero and text": "007x,x,170",
    "infinity": "Infinity,x,170", "beyond float64": "1e999,x,170",
    "a huge integer": f"{'9' * 5000},x,170", "a missing value": ",x,170",
    "a missing word": "NA,x,170", "a date": "2020-01-01,x,170",
    "an underscore": "1_0,x,170", "a null byte": "9\0,x,170",
    "bytes that are no UTF-8": "\udcff,x,170",
    "a cell of a megabyte": f'"{"x" * 10**6}",x,170',
    "the header again": "age,kind,height",
}  # fmt: skip


def write(folder: Path, lines: list[str], name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(
        "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    )
    return path


@pytest.mark.parametrize(
    ("what", "place", "header"), pairs(HOSTILE, [0, 1, 3], [True, False])
)
def test_one_row_changes_nothing_but_itself(
    tmp_path: Path, what: str, place: int, header: bool
) -> None:
    lines = [*ROWS[:place], HOSTILE[what], *ROWS[place:]]
    schema = (
        SCHEMA
        if header
        else Layout(("age", "kind", "height"), "kind", Dialect(header=False))
    )
    loaded = load_declared(
        write(tmp_path, ["age,kind,height"] * header + lines), schema
    )
    assert loaded.points.tolist() == NUMBERS
    assert loaded.names == ("age", "height")


@pytest.mark.parametrize(
    "begins", ["9\0,1", "PK\3\4,1", "\udcff\udcfe,1", "\x1f\udc8b,1", "\0,1"]
)
def test_no_row_makes_a_file_look_like_one_of_another_kind(
    tmp_path: Path, begins: str
) -> None:
    """What a file begins with was looked at where that was a row."""
    for end in ("\n", "\r", "\r\n"):
        for header in ([], ["a,b"], ["a"]):
            layout = Layout(
                ("a",) if header == ["a"] else ("a", "b"),
                dialect=Dialect(header=bool(header)),
            )
            lines = [*header, begins, "1" if header == ["a"] else "1,2"]
            path = write(tmp_path, [end.join(lines)])
            assert load_declared(path, layout).points.tolist() == [
                [1.0, 2.0][: len(layout.columns)]
            ]
            schema = Schema(
                columns={
                    name: {"kind": "number", "bounds": (0, 9)}
                    for name in layout.columns
                }
            )
            layout = Layout() if header else layout
            assert load_by_schema(path, schema, layout).points.tolist() == [
                [1.0, 2.0][: len(schema.columns)]
            ]


@pytest.mark.parametrize(
    ("first", "second", "numbers"),
    [
        (pa.array([1, 2**53 + 1]), pa.array([1.5]), [1.0, 2.0**53, 1.5]),
        (pa.array([1, 2**63 + 1], pa.uint64()), pa.array([-1]), [1.0, 2.0**63, -1.0]),
        (pa.array([Decimal("1.25")]), pa.array([10**15]), [1.25, 1e15]),
        (pa.array([None, None]), pa.array([2.0]), [2.0]),
    ],
)
def test_no_number_in_one_file_is_too_large_for_what_another_holds(
    tmp_path: Path, first: Any, second: Any, numbers: list[float]
) -> None:
    """All files had one type, and a row's large integer was the node's error."""
    for place, cells in enumerate((first, second)):
        pq.write_table(pa.table({"a": cells}), tmp_path / f"{place}.parquet")
    assert load_declared(tmp_path, Layout(("a",))).points[:, 0].tolist() == numbers


def test_no_date_in_one_file_is_too_late_for_what_another_holds(tmp_path: Path) -> None:
    days = [datetime(1970, 1, 2), datetime(2500, 1, 1)]
    pq.write_table(
        pa.table({"a": pa.array(days, pa.timestamp("s"))}), tmp_path / "0.parquet"
    )
    pq.write_table(
        pa.table({"a": pa.array(days[:1], pa.timestamp("ns"))}), tmp_path / "1.parquet"
    )
    schema = Schema(
        columns={"a": {"kind": "date", "bounds": ("1970-01-01", "1970-01-11")}}
    )
    assert load_by_schema(tmp_path, schema).points.tolist() == [[1.0], [10.0], [1.0]]


def test_bytes_that_are_no_text_are_one_row_s_own_fault(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"a": pa.array([b"x", b"\xff", b"y", None])}), tmp_path / "t.parquet"
    )
    schema = Schema(columns={"a": {"kind": "category", "values": ["x", "y"]}})
    assert load_by_schema(tmp_path / "t.parquet", schema).points.tolist() == [
        [1.0, 0.0],
        [0.0, 1.0],
    ]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("007", 7.0), ("true", 1.0), (" 1e2 ", 100.0), ('"5"', 5.0), ("-.5", -0.5)],
)
def test_a_number_is_one_in_whatever_company(
    tmp_path: Path, cell: str, value: float
) -> None:
    for others in ([], ["x"], ["1", "True"]):
        path = write(
            tmp_path, ["id,age", *(f"a,{other}" for other in others), f"b,{cell}"]
        )
        assert load_declared(path, Layout.of("age")).points[-1].tolist() == [value]


def test_a_table_without_rows_has_the_same_columns(tmp_path: Path) -> None:
    loaded = load_declared(write(tmp_path, ["age,kind,height"]), SCHEMA)
    assert (loaded.points.shape, loaded.names) == ((0, 2), ("age", "height"))
    empty = load_declared(
        write(tmp_path, []), Layout(("age", "height"), dialect=Dialect(header=False))
    )
    assert (empty.points.shape, empty.names) == ((0, 2), ("age", "height"))


def test_a_column_of_text_costs_all_rows_and_says_so_on_the_node_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, ["age,kind,height", *ROWS])
    with caplog.at_level(logging.WARNING, logger="flwr_dpkmeans.data"):
        assert load_declared(path, Layout.of("age,kind")).points.shape == (0, 2)
        load_declared(path, Layout.of("age,kind"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(
        "NO row has a finite number in each of the columns; look at 'kind'."
    )


@pytest.mark.parametrize(
    ("rows", "level", "told"),
    [
        (["1,2", ">89,3"], logging.WARNING,
         "left out rows with cells that are no finite number, in 'age'."),
        (["1,2", ">89,3", "4,x"], logging.WARNING,
         "left out rows with cells that are no finite number, in 'age', 'cm'."),
        ([">89,3", "4,x"], logging.ERROR,
         "NO row has a finite number in each of the columns; look at 'age', 'cm'."),
    ],
)  # fmt: skip
def test_the_columns_that_cost_rows_are_named_on_the_node(
    rows: list[str], level: int, told: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans.data"):
        load_declared(path := write(tmp_path, ["age,cm", *rows]), Layout.of("age,cm"))
    assert caplog.record_tuples == [("flwr_dpkmeans.data", level, f"{path}: {told}")]


@pytest.mark.parametrize("rows", [[], ["1,2"]])
def test_nothing_is_said_of_a_table_that_loses_no_row(
    rows: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="flwr_dpkmeans.data"):
        assert len(
            load_declared(
                write(tmp_path, ["age,height", *rows]), Layout.of("age,height")
            ).points
        ) == len(rows)
    assert caplog.records == []


@pytest.mark.parametrize("header", ['age,kg,"cm', 'age;kg;"cm', '"age,kg,cm'])
def test_no_row_closes_a_quote_that_the_header_leaves_open(
    tmp_path: Path, header: str
) -> None:
    """Rows above such a row were taken for names, and the node answered only then."""
    rows = ["1,2,3", "4,5,6", '7,8,9"', "1,2,3"]
    schema = Schema(columns={"age": {"kind": "number", "bounds": (0, 9)}})
    doors: list[Callable[[Path], object]] = [
        lambda path: load_declared(path, Layout.of("age,kg")),
        lambda path: load_by_schema(path, schema),
        lambda path: schema.encode(path),
    ]
    for load in doors:
        sentences = set()
        for lines in (rows, [*rows[:2], rows[3]]):
            with pytest.raises((DataError, ColumnError)) as refused:
                load(write(tmp_path, [header, *lines]))
            sentences.add(str(refused.value))
        assert len(sentences) == 1


def test_a_header_has_the_line_breaks_of_the_stated_names_and_no_more(
    tmp_path: Path,
) -> None:
    """A row with a quote was one more name than the owner stated."""
    rows = ["1,2,3", "4,5,6"]
    two_lines = ['age,"kg\n(at night)",cm', *rows]
    stated = Layout(("age", "kg\n(at night)"))
    assert load_declared(write(tmp_path, two_lines), stated).points.tolist() == [
        [1.0, 2.0],
        [4.0, 5.0],
    ]
    stated = Layout(stated.columns, dialect=Dialect(separator=","))
    for lines in (rows, ['1,2,3"', *rows]):
        left_open = ['age,"kg\n(at night)","cm', *lines]
        with pytest.raises(DataError, match="has a quote that does not close"):
            load_declared(write(tmp_path, left_open), stated)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_header_says_the_separator(tmp_path: Path, separator: str) -> None:
    lines = [line.replace(",", separator) for line in ["age,kind,height", *ROWS]]
    assert load_declared(write(tmp_path, lines), SCHEMA).points.tolist() == NUMBERS


def test_other_files_lose_rows_too(tmp_path: Path) -> None:
    points = np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, np.inf], [5.0, 6.0]])
    np.save(tmp_path / "a.npy", points)
    np.savez(tmp_path / "a.npz", X=points, kind=np.arange(4))
    frame = pd.DataFrame(points, columns=["a", "b"]).assign(kind=[3, 2, 1, 0], text="x")
    frame.to_parquet(tmp_path / "a.parquet")
    cases: list[tuple[str, Layout, tuple[str, ...], Any]] = [
        ("a.npy", Layout(), (), None),
        ("a.npy", Layout.of("a,b"), ("a", "b"), None),
        ("a.npz", Layout(label_column="kind"), (), [0, 3]),
        ("a.parquet", Layout.of("b,a", "kind"), ("b", "a"), [3, 0]),
    ]
    for name, schema, names, labels in cases:
        loaded = load_declared(tmp_path / name, schema)
        rows = [[1.0, 2.0], [5.0, 6.0]]
        assert loaded.points.tolist() == (
            [row[::-1] for row in rows] if names == ("b", "a") else rows
        )
        assert loaded.names == names
        assert (None if loaded.labels is None else loaded.labels.tolist()) == labels
    assert load_declared(tmp_path / "a.parquet", Layout.of("a,text")).points.shape == (
        0,
        2,
    )


def test_labels_go_with_the_rows_that_are_left(tmp_path: Path) -> None:
    path = write(tmp_path, ["age,kind", "1,0", ">89,1", "3,x", "4,2"])
    labels = load_declared(path, Layout.of("age", "kind")).labels
    assert labels is not None
    np.testing.assert_array_equal(labels, [0.0, np.nan, 2.0])


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (Layout(), "nothing says which columns of"),
        (Layout.of("age,hight"), "columns has 'hight', but"),
        (Layout.of("age,twice"), "does not have one column of that name"),
        (Layout.of("age", "knd"), "label_column is 'knd', but"),
        (Layout.of("age", "age"), "is left to be clustered"),
    ],
)
def test_what_the_owner_got_wrong_is_said_on_the_node(
    tmp_path: Path, schema: Layout, sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        load_declared(write(tmp_path, ["age,kind,twice,twice", "1,2,3,4"]), schema)


def test_a_table_that_is_no_file_has_no_path_in_sentences() -> None:
    """As blocks of a Ray cluster are: their path was '.'."""
    for layout in (Layout(), Layout.of("hight"), Layout.of("age", "age")):
        with pytest.raises(DataError, match=r"(of|but) the table (are|does|is)"):
            load_stated(pa.table({"age": [1.0]}), layout, None)


def test_an_array_needs_as_many_names_as_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    with pytest.raises(DataError, match="columns has 2 names, but"):
        load_declared(tmp_path / "a.npy", Layout.of("a,b"))


def test_names_of_columns_are_separated_by_commas_and_may_be_quoted() -> None:
    assert Layout.of(' age , "height, cm",, x ').columns == ("age", "height, cm", "x")
    assert Layout.of("") == Layout()


def test_a_header_is_said_with_yes_or_no() -> None:
    def header(value: object) -> bool | None:
        return Dialect.of_scalars({"header": value}).header

    assert [header(value) for value in (True, "yes", "TRUE", False, "no", "False")] == [
        True
    ] * 3 + [False] * 3
    assert [header(value) for value in (None, "", "auto")] == [None] * 3
    with pytest.raises(ConfigurationError, match="header is 'maybe', but it is a fact"):
        header("maybe")


@pytest.mark.nightly
def test_a_row_of_text_decides_about_no_other_row_however_numbers_are_padded(
    tmp_path: Path,
) -> None:
    """Blocks of plain numbers are read at once, others line by line."""
    padding = [
        chr(code)
        for code in range(0x3001)
        if chr(code) not in '",\n\r' and (code < 0x80 or chr(code).isspace())
    ]
    cells = [cell for pad in padding for cell in (f"5{pad}", f"{pad}5")]
    file = tmp_path / "people.csv"
    for cell in cells:
        found = []
        for more in ("", "censored,160\n"):
            file.write_text(f"age,height\n{cell},170\n{more}", encoding="utf-8")
            found.append(load_declared(file, SCHEMA).points.tolist())
        assert found[0] == found[1], repr(cell)
