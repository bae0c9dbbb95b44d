"""The server's public points, from arrays, files and bundled data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans.data.loading.server_table import load_server_table
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError, DataError

POINTS = np.array([[1.0, 2.0], [3.0, 4.5]])


def failure(source: object) -> str:
    with pytest.raises(DataError) as caught:
        load_server_table(source)
    return str(caught.value)


@pytest.mark.parametrize(
    "source", [POINTS, POINTS.tolist(), POINTS.astype(np.float32), pd.DataFrame(POINTS)]
)
def test_points_that_are_given(source: object) -> None:
    points = load_server_table(source).points
    assert points.tolist() == POINTS.tolist()
    assert points.dtype == np.float64
    assert points.flags.c_contiguous


@pytest.mark.parametrize("suffix", ["csv", "npy", "npz", "parquet"])
@pytest.mark.parametrize("as_text", [True, False])
def test_files(tmp_path: Path, suffix: str, as_text: bool) -> None:
    path, frame = (
        tmp_path / f"server.{suffix}",
        pd.DataFrame(POINTS, columns=["a", "b"]),
    )
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "npy":
        np.save(path, POINTS)
    else:
        np.savez(path, X=POINTS)
    points = load_server_table(str(path) if as_text else path).points
    assert points.tolist() == POINTS.tolist()
    assert points.dtype == np.float64


@pytest.mark.parametrize("kind", ["frame", "encoded", "file", "text", "table"])
def test_points_of_a_schema_come_from_everything_that_it_reads(
    tmp_path: Path, kind: str
) -> None:
    """Without what is only profiled."""
    said = {
        "a": {"kind": "number", "bounds": (0, 9)},
        "b": {"kind": "flag", "weight": 0.0, "missing": "centre"},
    }
    schema, frame = (
        Schema(columns=said, profile=["b"]),
        pd.DataFrame({"a": [5.0, None], "b": [1.0, 0.0]}),
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    sources: dict[str, Any] = {
        "frame": frame,
        "encoded": schema.encode(frame),
        "file": tmp_path / "t.csv",
    }
    sources |= {
        "text": str(tmp_path / "t.csv"),
        "table": load_server_table(frame, schema=schema),
    }
    found = load_server_table(sources[kind], schema=schema)
    assert (found.points.tolist(), found.names, found.schema) == (
        [[5.0]],
        ("a",),
        schema.clustered,
    )


def test_columns_that_clients_leave_out(tmp_path: Path) -> None:
    path = tmp_path / "server.csv"
    path.write_text("a,label\n1,7\n2,8\n")
    assert load_server_table(path, ignored=("label", "other")).points.tolist() == [
        [1.0],
        [2.0],
    ]
    assert load_server_table(str(path), ignored=("a",)).points.tolist() == [
        [7.0],
        [8.0],
    ]


def test_bundled_data() -> None:
    assert load_server_table("wine").points.shape == (178, 13)
    with pytest.raises(ConfigurationError, match="but it must be a bundled data set"):
        load_server_table("wein")


def test_no_rows(tmp_path: Path) -> None:
    message = (
        "the server's data have 0 rows, but at least 1 is needed: give public points to"
        " the server."
    )
    assert failure(np.empty((0, 3))) == message
    path = tmp_path / "server.csv"
    path.write_text("a,b\n")
    assert failure(path) == message


def test_missing_values(tmp_path: Path) -> None:
    assert "the points have 1 rows with a missing or infinite value" in failure(
        [[1.0, np.nan]]
    )
    path = tmp_path / "server.csv"
    path.write_text("a,b\n1,\n2,3\n")
    assert "the column 'b' of" in failure(path)
    assert "has 1 rows with a value that is missing or infinite" in failure(path)


def test_what_is_no_number(tmp_path: Path) -> None:
    assert "the points have dtype <U1, but they must be real numbers" in failure(
        [["x"]]
    )
    assert "the points have 1 dimensions, but they must have 2" in failure([1.0, 2.0])
    assert "the points are a NoneType, but they must be a table" in failure(None)
    path = tmp_path / "server.csv"
    path.write_text("a,b\n1,x\n2,3\n")
    assert "that is not a number among numbers" in failure(path)
    path.write_text("a\nx\ny\n")
    assert "has 0 numeric columns" in failure(path)
