"""Frames that are not pandas': polars, pyarrow, whatever has an Arrow stream, in each
door that takes frames.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.flat import flat_estimator

from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.results.model import Model

N = 60
SCHEMA = Schema(
    columns={
        "age": {"kind": "number", "bounds": (0, N)},
        "id": {"kind": "category", "values": [2**53 + 1, 7], "missing": "centre"},
        "sex": {"kind": "category", "values": ["F", "M"], "missing": "centre"},
        "on": {"kind": "date", "bounds": ("2020-01-01", "2020-03-01")},
        "night": {"kind": "flag", "missing": "centre"},
    },
    gap_share=0.0,
)
FRAME = pd.DataFrame(
    {
        "note": ["x"] * N,
        "night": pd.array([True, False, None] * 20, dtype="boolean"),
        "on": pd.date_range("2020-01-01", periods=N).date,
        "sex": ["F", "M ", "NA"] * 20,
        "id": pd.array([2**53 + 1, 7, None] * 20, dtype="Int64"),
        "age": np.arange(float(N)),
    }
)


class Stream:
    """Nothing but an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _polars(frame: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars")
    table = polars.from_pandas(frame)
    return (
        table.with_columns(polars.col("sex").cast(polars.Categorical))
        if "sex" in frame
        else table
    )


Maker = Callable[[pd.DataFrame], Any]
MAKERS: list[Maker] = [
    pa.Table.from_pandas,
    lambda frame: Stream(pa.Table.from_pandas(frame)),
    _polars,
]


@pytest.mark.parametrize("make", MAKERS, ids=["pyarrow", "stream", "polars"])
def test_a_schema_reads_every_frame_alike(make: Maker, tmp_path: Path) -> None:
    points = SCHEMA.encode(FRAME).points
    assert points[:3].tolist() == [
        [0.0, 1.0, 0.0, 1.0, 0.0, 18262.0, 1.0],
        [1.0, 0.0, 1.0, 0.0, 1.0, 18263.0, 0.0],
        [2.0, 0.5, 0.5, 0.5, 0.5, 18264.0, 0.5],
    ]
    np.testing.assert_array_equal(SCHEMA.encode(make(FRAME)).points, points)
    with pytest.raises(DataError, match="no columns named 'age'"):
        SCHEMA.encode(make(FRAME.rename(columns={"age": "Age"})))
    fits = []
    for table in (FRAME, make(FRAME)):
        model = flat_estimator(
            2, bounds=SCHEMA, engine="direct", noise="seeded", random_state=1,
            max_iter=2,
        )  # fmt: skip
        fits.append(model.fit([table, FRAME]))
    np.testing.assert_array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    np.testing.assert_array_equal(fits[1].predict(make(FRAME)), fits[0].predict(FRAME))
    np.testing.assert_array_equal(
        Model.load(fits[1].save(tmp_path / "m.json")).predict(make(FRAME)),
        fits[0].predict(FRAME),
    )


class Own(Stream):
    """As polars' frames: Arrow cannot read its stream's texts, but its table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise TypeError

    def to_arrow(self) -> pa.Table:
        return self._table


def test_a_frame_that_makes_a_table_of_arrows_is_asked_for_that() -> None:
    np.testing.assert_array_equal(
        SCHEMA.encode(Own(pa.Table.from_pandas(FRAME))).points,
        SCHEMA.encode(FRAME).points,
    )


@pytest.mark.parametrize(
    "make", [pa.Table.from_pandas, _polars], ids=["pyarrow", "polars"]
)
def test_columns_are_matched_by_name_without_a_schema(make: Maker) -> None:
    """pyarrow's `columns` are cells, not names."""
    numbers = FRAME[["age"]].assign(mass=500.0 - FRAME["age"])

    def centers(*tables: Any) -> Any:
        model = flat_estimator(
            2, bounds=(0, 500), engine="direct", noise="seeded", random_state=1,
            max_iter=2,
        )  # fmt: skip
        return model.fit(list(tables)).cluster_centers_

    expected = centers(numbers, numbers)
    np.testing.assert_array_equal(
        centers(make(numbers), make(numbers[["mass", "age"]])), expected
    )
    with pytest.raises(DataError, match="have no column 'mass'"):
        centers(make(numbers), make(numbers.rename(columns={"mass": "weight"})))
    with pytest.raises(DataError, match="the first such feature is 'mass'"):
        centers(make(numbers), make(numbers.assign(mass=np.nan)))


@pytest.mark.parametrize(
    "make",
    [lambda frame: frame, pa.Table.from_pandas, _polars],
    ids=["pandas", "pyarrow", "polars"],
)
@pytest.mark.parametrize(
    "cell",
    [pd.Timestamp("2020-01-01"), pd.Timedelta(1, "D"), time(6)],
    ids=["date", "span", "time"],
)
def test_dates_and_times_beside_numbers_are_no_numbers(make: Maker, cell: Any) -> None:
    """polars made numbers of them, nanoseconds of a time."""
    with pytest.raises(DataError, match=r"in feature 'when'.* real numbers: .* schema"):
        validate_points(make(FRAME[["age"]].assign(when=cell)))


def test_time_differences_in_an_array_of_objects_are_no_numbers() -> None:
    with pytest.raises(DataError, match="values in feature 0 which are no numbers"):
        validate_points(np.array([[np.timedelta64(1, "D"), 2.0]], dtype=object))


@pytest.mark.parametrize(
    "make", [pa.Table.from_pandas, _polars], ids=["pyarrow", "polars"]
)
def test_bounds_in_other_frames_are_read_by_name(make: Maker) -> None:
    bounds = pd.DataFrame(
        {"feature": ["b", "a"], "lower": [0.0, 1.0], "upper": [5.0, 6.0]}
    )
    assert read_ranges(make(bounds)) == read_ranges(bounds)
