"""Loading of tables: formats, headers, column types and every error sentence."""

from __future__ import annotations

import gzip
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.raw_table import RawTable, source_name
from flwr_dpkmeans.data.loading.declared_tables import load_declared
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.errors import DataError

SECRET = "s3cr3t"


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def failure(path: Path | str, label_column: str = "") -> str:
    with pytest.raises(DataError) as caught:
        load_table(path, label_column=label_column)
    return str(caught.value)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_with_header(tmp_path: Path, separator: str) -> None:
    text = "a,b\n1,2.5\n3,-4e1\n".replace(",", separator)
    table = load_table(write(tmp_path, text))
    assert table.names == ("a", "b")
    assert table.points.tolist() == [[1.0, 2.5], [3.0, -40.0]]
    assert table.points.dtype == np.float64
    assert table.points.flags.c_contiguous


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("height, cm;class;age", ("height, cm", "class", "age")),
        ("height, cm\tclass\tage", ("height, cm", "class", "age")),
        ('"height; cm",class,age', ("height; cm", "class", "age")),
        ("height;class,age", ("height;class", "age")),
    ],
)
def test_a_separator_is_what_parts_most_names(
    tmp_path: Path, header: str, names: tuple[str, ...]
) -> None:
    separator = next(
        one for one in ("\t", ",", ";") if header.count(one) == len(names) - 1
    )
    row = separator.join("123"[: len(names)])
    assert load_table(write(tmp_path, f"{header}\n{row}\n")).names == names


def test_a_separator_in_a_text_of_the_first_row_parts_no_table_without_header(
    tmp_path: Path,
) -> None:
    for text in ("1,2,a;b;c;d\n3,4,e\n5,6,f\n", "1,2,a\tb\tc\td\n3,4,e\n5,6,f\n"):
        assert load_table(write(tmp_path, text)).points.tolist() == [
            [1.0, 2.0],
            [3.0, 4.0],
            [5.0, 6.0],
        ]
    assert load_table(write(tmp_path, "x\n1\n2\n\n")).points.tolist() == [[1.0], [2.0]]


def test_csv_may_have_quotes_behind_a_space(tmp_path: Path) -> None:
    table = load_table(write(tmp_path, 'a, "b,c"\n1, "2"\n'))
    assert (table.names, table.points.tolist()) == (("a", "b,c"), [[1.0, 2.0]])


def test_csv_without_header_keeps_its_first_row(tmp_path: Path) -> None:
    table = load_table(write(tmp_path, "1,2\n3,4\n"))
    assert table.names == ()
    assert table.points.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_csv_header_after_byte_order_mark_blank_line_and_spaces(tmp_path: Path) -> None:
    table = load_table(write(tmp_path, "\ufeff\n a , b\n 1, 2\n"))
    assert table.names == ("a", "b")
    assert table.points.tolist() == [[1.0, 2.0]]


def test_first_row_with_a_number_is_no_header(tmp_path: Path) -> None:
    table = load_table(write(tmp_path, "39,clerk\n40,smith\n"))
    assert table.points.tolist() == [[39.0], [40.0]]


@pytest.mark.parametrize(
    "cell", [">89", "2020-01-01", "", "?", "Infinity", "-", "male"]
)
def test_a_first_row_of_censored_missing_or_equal_cells_is_no_header(
    tmp_path: Path, cell: str
) -> None:
    """A guess that takes it for data fails aloud."""
    assert "1 rows with a value that is" in failure(
        write(tmp_path, f"male,{cell}\nfemale,34\n")
    )


@pytest.mark.parametrize("first", ["over 89,male", "age,sex"])
def test_whether_there_is_a_header_can_be_said(tmp_path: Path, first: str) -> None:
    path = write(tmp_path, f"{first}\n34,female\n")
    assert load_table(path, dialect=Dialect(header=True)).names == (
        first.partition(",")[0],
    )
    with pytest.raises(DataError, match="1 rows with a value that is not a number"):
        load_table(path, dialect=Dialect(header=False))
    numbers = write(tmp_path, "1,2\n3,4\n")
    assert load_table(numbers, dialect=Dialect(header=True)).names == ("1", "2")
    assert load_table(numbers, dialect=Dialect(header=False)).names == ()
    assert load_table(
        numbers, dialect=Dialect(header=False), partition_column="0"
    ).points.tolist() == [[2.0], [4.0]]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("columns", [["a", "b", "c"], None])
def test_what_pandas_writes_is_read_back(
    tmp_path: Path, index: bool, columns: list[str] | None
) -> None:
    points = np.array([[0.1, 5.0, 7.0], [0.2, 6.0, 8.0]])
    pd.DataFrame(points, columns=columns).to_csv(tmp_path / "frame.csv", index=index)
    table = load_table(tmp_path / "frame.csv")
    assert table.points.tolist() == points.tolist()
    assert table.names == tuple(columns or ["0", "1", "2"])


def test_an_index_beside_a_single_column_is_no_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",age\n0,31\n1,40\n")
    table = load_table(path)
    assert (table.names, table.points.tolist()) == (("age",), [[31.0], [40.0]])


def test_a_single_empty_cell_is_no_index_of_a_header(tmp_path: Path) -> None:
    assert "'x0' of" in failure(write(tmp_path, '""\n5\n'))


def test_a_part_knows_which_rows_of_the_source_it_has() -> None:
    whole = Table(np.arange(4.0)[:, None], ("a",), labels=np.array([7, 8, 9, 6]))
    part = whole.part(np.array([0, 2, 3]))
    again = part.part(np.array([1, 2]))
    for table, rows in ((part, [0, 2, 3]), (again, [2, 3])):
        assert table.rows is not None
        assert table.labels is not None
        assert (table.rows.tolist(), table.points[:, 0].tolist(), table.names) == (
            rows,
            rows,
            ("a",),
        )
        assert table.labels.tolist() == [[7, 8, 9, 6][row] for row in rows]


def test_two_numbered_cells_are_data(tmp_path: Path) -> None:
    assert load_table(write(tmp_path, "0,1\n1,0\n")).points.shape == (2, 2)


def test_csv_booleans_become_zero_and_one(tmp_path: Path) -> None:
    table = load_table(write(tmp_path, "a,b\nTrue,1\nfalse,2\n"))
    assert table.points.tolist() == [[1.0, 1.0], [0.0, 2.0]]
    headerless = load_table(write(tmp_path, "True,False\nFalse,False\n"))
    assert headerless.points.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_text_columns_are_left_out_and_logged_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, f"age,town,day\n1,{SECRET},2020-01-01\n2,,2020-01-02\n")
    with caplog.at_level(logging.WARNING, logger="flwr_dpkmeans.data"):
        table = load_table(path)
    assert table.names == ("age",)
    assert "left out 'town', 'day', which hold no numbers" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "text", ["id;age\n1;3,5\n2;\n", 'id,age\n1,"1.200,50"\n', "1;3,5;2\n2;4,5;7\n"]
)
def test_numbers_with_a_decimal_comma_are_refused_and_not_left_out_as_text(
    tmp_path: Path, text: str
) -> None:
    assert "write a point, 3.5 and not 3,5" in failure(write(tmp_path, text))
    assert load_table(write(tmp_path, "id;age\n1;3,5\n2;\n"), columns=["id"]).names == (
        "id",
    )
    assert load_table(write(tmp_path, "id;code\n1;3,5,A\n2;3,5\n")).names == ("id",)


def test_label_column_is_left_out_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = load_table(
        write(tmp_path, "a,species,b\n1,x,2\n3,y,4\n"), label_column="species"
    )
    assert table.names == ("a", "b")
    assert table.points.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert not caplog.records


@pytest.mark.parametrize(
    ("label", "kept"), [("0", [[2.0, 3.0]]), ("-1", [[1.0, 2.0]]), ("x1", [[1.0, 3.0]])]
)
def test_label_column_of_headerless_file(
    tmp_path: Path, label: str, kept: list[list[float]]
) -> None:
    assert (
        load_table(write(tmp_path, "1,2,3\n"), label_column=label).points.tolist()
        == kept
    )


def test_label_column_may_mix_numbers_and_text(tmp_path: Path) -> None:
    assert load_table(
        write(tmp_path, "a,label\n1,7\n2,b\n"), label_column="label"
    ).points.tolist() == [[1.0], [2.0]]


def test_unknown_label_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a,species\n1,x\n")
    assert (
        failure(path, "speces")
        == f"label_column is 'speces', but the table {str(path)!r} has no such column:"
        " did you mean 'species'?"
    )
    # A named file is never addressed by index.
    assert "label_column is '1', but" in failure(path, "1")


@pytest.mark.parametrize("label", ["2", "-3", "species"])
def test_unknown_label_index(tmp_path: Path, label: str) -> None:
    message = failure(write(tmp_path, "1,2\n"), label)
    assert f"label_column is {label!r}" in message
    assert (
        "has no column names and 2 columns: give an index from '0' to '1'." in message
    )


def test_unparsable_cells_name_the_column_and_not_the_cell(tmp_path: Path) -> None:
    path = write(tmp_path, f"a,age\n1,2\n2,{SECRET}\n3,{SECRET}\n")
    assert (
        failure(path)
        == f"the column 'age' of {str(path)!r} has 2 rows with a value that is not a"
        " number among numbers, but every value must be a finite number: correct"
        " these cells, or remove the column from the file."
    )


def test_a_header_that_names_a_column_twice_is_one_and_the_others_can_be_clustered(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "a,b,a\n1,2,3\n4,5,6\n")
    assert (
        "2 of 3 columns have the name 'a', but each needs one of its own: rename them"
        in failure(path)
    )
    assert load_table(path, columns=["b"]).points.tolist() == [[2.0], [5.0]]


@pytest.mark.parametrize("cell", ["1_000", "0x10", "1 2", "?"])
def test_what_only_resembles_a_number_is_refused(tmp_path: Path, cell: str) -> None:
    assert "the column 'b' of" in failure(write(tmp_path, f"a,b\n1,{cell}\n2,5\n"))


def test_integer_beyond_64_bits_is_a_number(tmp_path: Path) -> None:
    assert load_table(
        write(tmp_path, "a\n100000000000000000000000\n1\n")
    ).points.tolist() == [[1e23], [1.0]]


@pytest.mark.parametrize("cell", ["", "NaN", "NA", "inf", "-Infinity", "9" * 400])
def test_missing_and_infinite_values_are_counted(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, f"a,age\n1,2\n2,{cell}\n3,{cell}\n")
    assert (
        failure(path)
        == f"the column 'age' of {str(path)!r} has 2 rows with a value that is missing"
        " or infinite, but every value must be a finite number: fill in these"
        " cells, or remove the rows or the column."
    )


def test_several_bad_columns_are_counted(tmp_path: Path) -> None:
    message = failure(write(tmp_path, "a,b,c\n1,2,3\n,,\n"))
    assert "the column 'a' of" in message
    assert "(and 2 more columns have such rows)" in message
    assert "(and 1 more columns have such rows)" in failure(
        write(tmp_path, "a,b,c\n1,2,3\n,,4\n")
    )


def test_missing_truth_value_and_empty_column(tmp_path: Path) -> None:
    assert "has 1 rows with a value that is missing" in failure(
        write(tmp_path, "a,b\nTrue,1\n,2\n")
    )
    assert "has 2 rows with a value that is missing" in failure(
        write(tmp_path, "a,b\n,1\n,2\n", "two.csv")
    )


def test_constant_column_is_fine(tmp_path: Path) -> None:
    assert load_table(write(tmp_path, "a\n5\n5\n")).points.tolist() == [[5.0], [5.0]]


def test_only_text_columns(tmp_path: Path) -> None:
    assert "has 0 numeric columns, but clustering needs at least 1" in failure(
        write(tmp_path, "a,b\nx,y\n")
    )


def test_only_the_label_column(tmp_path: Path) -> None:
    assert "has 0 numeric columns" in failure(write(tmp_path, "a\n1\n"), "a")


def test_header_without_rows_is_an_empty_client(tmp_path: Path) -> None:
    table = load_table(write(tmp_path, "a,b,label\n"), label_column="label")
    assert table.points.shape == (0, 2)
    assert table.names == ("a", "b")


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_empty_file_has_no_columns(tmp_path: Path, text: str) -> None:
    assert (
        "has 0 columns, but it needs at least 1: add a row of column names."
        in failure(write(tmp_path, text))
    )


def test_records_of_which_none_has_the_cells_of_the_header_are_refused(
    tmp_path: Path,
) -> None:
    message = failure(write(tmp_path, "a,b\n1,2,3\n4,5,6\n"))
    assert (
        "ALL 2 records are left out: they have one cell more than there are columns"
        in message
    )
    assert "state row-names = true if the first is a record's name" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n4,5,6\n", "have one cell more than there are columns"),
        ("1,2\n4,5,6,7\n", "have more cells than there are columns"),
        ("a,b\n1,2\n3\n", "have fewer cells than there are columns"),
    ],
)
def test_a_record_of_another_width_is_left_out_which_is_said(
    tmp_path: Path, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_table(write(tmp_path, text)).points.tolist() == [[1.0, 2.0]]
    assert f"1 of 2 records are left out: they {reason}" in caplog.text


def test_missing_file_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = failure("absent.csv")
    assert message.startswith(
        f"the table {str(tmp_path / 'absent.csv')!r} does not exist"
    )
    assert (
        f"correct the path, which begins in the working directory, {str(tmp_path)!r}."
        in message
    )


def test_directory_is_refused(tmp_path: Path) -> None:
    told = (
        "is a directory, but it must be one file: give the path of the file, or put"
        " .parquet files into it."
    )
    assert failure(tmp_path).endswith(told)


def test_no_sentence_shows_the_url_of_a_database(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "sqlite:///t.db?password=s3cr3t": "database",
        f"{tmp_path}/t.csv": f"{tmp_path}/t.csv",
    }
    assert [source_name(source) for source in given] == list(given.values())
    assert source_name(pa.table({"a": [1]})) == "table"  # type: ignore[arg-type]
    named = [
        RawTable(Path(name), (), named=True) for name in ("database", "a/t.csv", "")
    ]
    assert list(map(str, named)) == [
        "the table 'database'",
        "the table 'a/t.csv'",
        "the table",
    ]


def test_unknown_suffix(tmp_path: Path) -> None:
    message = failure(write(tmp_path, "a\n1\n", "table.doc"))
    assert (
        "has the suffix '.doc', but only .csv, .tsv, .csv.gz, .npy, .npz, .parquet"
        in message
    )


def test_suffix_in_capitals(tmp_path: Path) -> None:
    assert load_table(write(tmp_path, "a\n1\n", "TABLE.CSV")).points.tolist() == [[1.0]]


def test_other_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not utf-8 text, but names") as caught:
        load_table(path)
    # The decoding error holds the bytes of the file, so it must not be chained.
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "gzip", "xlsx"])
def test_other_files_named_csv(tmp_path: Path, encoding: str) -> None:
    """A node reads bytes as they are, and would look in vain for its columns."""
    path, text = tmp_path / "rows.csv", "PK,b\n1,2\n"
    content = {"gzip": gzip.compress(text.encode()), "xlsx": b"PK\3\4 and more"}
    path.write_bytes(content.get(encoding) or text.encode(encoding))
    kind = {"gzip": "gzip", "xlsx": "an Excel or zip file"}.get(encoding, "UTF-16")
    sentence = rf"rows.csv' is {kind}[, ].* but .*text"
    with pytest.raises(DataError, match=sentence):
        load_table(path)
    with pytest.raises(DataError, match=sentence):
        load_declared(path, Layout(columns=("PK", "b")))
    path.write_text(text)
    assert load_declared(path, Layout(columns=("PK", "b"))).points.tolist() == [
        [1.0, 2.0]
    ]


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
@pytest.mark.parametrize("content", [b"", b"not this format"])
def test_content_of_another_format(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"broken.{suffix}"
    path.write_bytes(content)
    assert f"cannot be read as .{suffix} (" in failure(path)


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]], dtype=np.int8))
    table = load_table(tmp_path / "a.npy")
    assert table.points.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert table.names == ()
    assert load_table(tmp_path / "a.npy", label_column="1").points.tolist() == [
        [1.0],
        [3.0],
    ]


def test_npy_booleans_and_no_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[True], [False]]))
    assert load_table(tmp_path / "a.npy").points.tolist() == [[1.0], [0.0]]
    np.save(tmp_path / "empty.npy", np.empty((0, 3)))
    assert load_table(tmp_path / "empty.npy").points.shape == (0, 3)


def test_npy_errors(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.arange(3))
    assert "has 1 dimensions, but it must have 2 (rows and features)" in failure(
        tmp_path / "flat.npy"
    )
    np.save(tmp_path / "number.npy", np.array(3.0))
    assert "has 0 dimensions, but it must have 2 (rows and features)" in failure(
        tmp_path / "number.npy"
    )
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    assert "has dtype <U1, but it must hold real numbers" in failure(
        tmp_path / "text.npy"
    )
    np.save(tmp_path / "object.npy", np.array([[None]]), allow_pickle=True)
    assert "cannot be read as .npy (ValueError)" in failure(tmp_path / "object.npy")
    np.save(tmp_path / "nan.npy", np.array([[0.0, np.nan]]))
    assert "the column 'x1' of" in failure(tmp_path / "nan.npy")
    np.save(tmp_path / "narrow.npy", np.empty((4, 0)))
    assert "has 0 columns" in failure(tmp_path / "narrow.npy")


@pytest.mark.parametrize("label", ["", "y"])
def test_npz_with_points_and_labels(tmp_path: Path, label: str) -> None:
    np.savez(tmp_path / "a.npz", X=[[1.0, 2.0]], other=[[9.0]], y=[1])
    assert load_table(tmp_path / "a.npz", label_column=label).points.tolist() == [
        [1.0, 2.0]
    ]


def test_npz_with_a_single_matrix(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz", points=[[1.0, 2.0]], labels=np.array(["a"], dtype=object)
    )
    assert load_table(tmp_path / "a.npz").points.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("arrays", "count"), [({"a": [[1.0]], "b": [[2.0]]}, 2), ({"y": [1.0]}, 0)]
)
def test_npz_without_a_clear_matrix(
    tmp_path: Path, arrays: dict[str, list[float]], count: int
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    message = failure(tmp_path / "a.npz")
    assert (
        f"has {count} two-dimensional arrays and none named 'X', but one must hold the"
        " points" in message
    )


def test_parquet_round_trip(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame(
        {
            "count": pd.array([1, 2], dtype="Int64"),
            "share": [0.25, 0.5],
            "flag": [True, False],
            "price": [Decimal("1.50"), Decimal("2.25")],
            "town": ["x", "y"],
            "digits": ["1", "2"],
            "label": ["p", "q"],
        },
        index=[7, 9],
    )
    frame.to_parquet(tmp_path / "a.parquet")
    table = load_table(tmp_path / "a.parquet", label_column="label")
    assert table.names == ("count", "share", "flag", "price")
    assert table.points.tolist() == [[1.0, 0.25, 1.0, 1.5], [2.0, 0.5, 0.0, 2.25]]
    # The stored type decides: text stays text although all its cells happen to be
    # digits; classes may be written so.
    assert "left out 'town', 'digits'" in caplog.text
    labels = load_table(tmp_path / "a.parquet", label_column="digits").labels
    assert labels is not None
    assert labels.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("index", ["__null_dask_index__", "__index_level_0__"])
def test_an_unnamed_index_is_no_column(tmp_path: Path, index: str) -> None:
    """Dask's `to_parquet` writes the number of a row, which would be clustered."""
    pq.write_table(
        pa.table({"a": [0.5, 1.5], index: [0, 1]}), tmp_path / "part.0.parquet"
    )
    assert load_table(tmp_path / "part.0.parquet").names == ("a",)


def test_parquet_without_rows_and_below_a_partition_directory(tmp_path: Path) -> None:
    folder = tmp_path / "client=3"
    folder.mkdir()
    pq.write_table(
        pa.table({"a": pa.array([], pa.float32()), "t": pa.array([], pa.string())}),
        folder / "a.parquet",
    )
    table = load_table(folder / "a.parquet")
    assert table.points.shape == (0, 1)
    assert table.names == ("a",)


def test_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    for name, columns in (("a", "xy"), ("b", "yx"), ("c", "xz")):
        pd.DataFrame([[1.0, 2.0]], columns=list(columns)).to_parquet(
            tmp_path / f"{name}.parquet"
        )
        if name == "b":
            assert load_table(tmp_path).points.tolist() == [[1.0, 2.0], [2.0, 1.0]]
    assert (
        failure(tmp_path)
        == f"the .parquet files in {str(tmp_path)!r} do not all have the same columns:"
        " make them so."
    )


def test_a_column_without_a_value_in_one_file_is_text_where_it_is_in_another(
    tmp_path: Path,
) -> None:
    pq.write_table(
        pa.table({"note": pa.nulls(2), "b": [1.0, 2.0]}), tmp_path / "0.parquet"
    )
    pq.write_table(pa.table({"note": ["x"], "b": [3.0]}), tmp_path / "1.parquet")
    table = load_table(tmp_path)
    assert (table.names, table.points.tolist()) == (("b",), [[1.0], [2.0], [3.0]])


def test_parquet_missing_values(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"a": [1, None, None], "b": [1, 2, 3]}), tmp_path / "a.parquet"
    )
    assert "the column 'a' of" in failure(tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [None, None], "b": [1, 2]}), tmp_path / "b.parquet")
    assert "the column 'n' of" in failure(tmp_path / "b.parquet")
    pq.write_table(pa.table({"f": [None, True], "b": [1, 2]}), tmp_path / "c.parquet")
    assert "the column 'f' of" in failure(tmp_path / "c.parquet")


@pytest.mark.parametrize("kind", ["of numbers", "of text"])
def test_a_file_of_a_folder_does_not_decide_how_other_files_are_read(
    tmp_path: Path, kind: str
) -> None:
    """Text of numbers in one file made text of all labels."""
    half = np.float32(5 / 131072)
    pq.write_table(
        pa.table({"a": pa.array([half, 0.1], pa.float32()), "kind": [1, 0]}),
        tmp_path / "0.parquet",
    )
    more = (
        {"a": ["0"], "kind": ["1"]}
        if kind == "of text"
        else {"a": pa.array([0.0], pa.float32()), "kind": [1]}
    )
    pq.write_table(pa.table(more), tmp_path / "1.parquet")
    found = load_declared(tmp_path, Layout(("a",), "kind"))
    assert found.points[:, 0].tolist() == [float(half), float(np.float32(0.1)), 0.0]
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1]
