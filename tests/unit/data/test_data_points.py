"""Checks of arrays that a caller hands over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from flwr_dpkmeans.data.frame_names import frame_columns, require_names
from flwr_dpkmeans.data.validated import (
    validate_columns,
    validate_labels,
    validate_points,
)
from flwr_dpkmeans.errors import DataError


def failure(points: object) -> str:
    with pytest.raises(DataError) as caught:
        validate_points(points)
    return str(caught.value)


@pytest.mark.parametrize(
    "points",
    [
        [[1, 0], [3, 4]],
        np.array([[1, 0], [3, 4]], dtype=np.float32),
        np.asfortranarray([[1.0, 0.0], [3.0, 4.0]]),
        np.array([[1, 0], [3, 4]], dtype=object),
        pd.DataFrame({"a": [1, 3], "b": [0.0, 4.0]}),
        pd.DataFrame({"a": pd.array([1, 3], dtype="Int64"), "b": [0.0, 4.0]}),
    ],
)
def test_accepted_forms(points: object) -> None:
    values = validate_points(points)
    assert values.tolist() == [[1.0, 0.0], [3.0, 4.0]]
    assert values.dtype == np.float64
    assert values.flags.c_contiguous


def test_frame_with_truth_values_and_numbers() -> None:
    frame = pd.DataFrame({"a": [True, False], "b": [1.5, 2.5]})
    assert validate_points(frame).tolist() == [[1.0, 1.5], [0.0, 2.5]]


def test_array_in_the_right_form_is_not_copied() -> None:
    points = np.ones((3, 2))
    assert validate_points(points) is points


def test_no_rows_are_fine() -> None:
    assert validate_points(np.empty((0, 4))).shape == (0, 4)


def test_dimensions() -> None:
    assert (
        failure([1.0, 2.0])
        == "the points have 1 dimensions, but they must have 2 (rows and features)."
        " Reshape your data: points.reshape(-1, 1) for a single feature or"
        " points.reshape(1, -1) for a single row."
    )
    assert failure([[[1.0, 2.0]], [[3.0, 4.0]]]).endswith(
        "data: np.concatenate(points) for a list of tables."
    )


class Lazy:
    """As a frame of polars that nobody has computed yet."""

    def collect(self) -> list[list[float]]:
        return [[1.0]]


@pytest.mark.parametrize(
    ("given", "kind", "mend"),
    [
        (None, "NoneType", "give an array of shape (rows, features)"),
        ("rows.csv", "str", "read the file, as pandas.read_csv does"),
        (Path("rows.csv"), "PosixPath", "read the file, as pandas.read_csv does"),
        ({"a": [1.0], "b": [2.0]}, "dict", "give pandas.DataFrame(points)"),
        (zip([1.0], [2.0], strict=True), "zip", "give list(points)"),
        (pa.table({"a": [1.0]}).to_reader(), "RecordBatchReader",
         "give pyarrow.table(points)"),
        (ds.dataset(pa.table({"a": [1.0]})), "InMemoryDataset",
         "give points.to_table()"),
        (Lazy(), "Lazy", "give points.collect()"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_told_how_to_become_one(
    given: object, kind: str, mend: str
) -> None:
    assert (
        failure(given) == f"the points are a {kind}, but they must be a table: {mend}."
    )


def test_width() -> None:
    assert (
        failure(np.empty((3, 0)))
        == "X has 0 feature(s) (shape=(3, 0)) while a minimum of 1 is required: add a"
        " column."
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(bad: float) -> None:
    assert (
        failure([[0.0, bad], [0.0, bad], [bad, 1.0], [1.0, 1.0]])
        == "the points have 3 rows with a missing or infinite value (the first such"
        " feature is 0), but every value must be finite: fill in the values or"
        " remove the rows."
    )


def test_masked_values_are_missing() -> None:
    masked = np.ma.MaskedArray([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    assert (
        "the points have 1 rows with a missing or infinite value (the first such"
        " feature is 1)" in failure(masked)
    )
    assert validate_points(np.ma.MaskedArray([[1, 2]])).tolist() == [[1.0, 2.0]]
    objects = np.ma.MaskedArray(
        np.array([[1, 2.5], [3, 4]], dtype=object), mask=[[True, False], [False, False]]
    )
    assert (
        "the points have 1 rows with a missing or infinite value (the first such"
        " feature is 0)" in failure(objects)
    )
    words = np.ma.MaskedArray([["a", "b"]], mask=[[True, False]])
    assert failure(words).startswith(
        "the points have dtype <U1, but they must be real numbers"
    )


@pytest.mark.parametrize(
    "points",
    [np.array([["1", "2"]]), np.array([[1j]]), np.array([["2020"]], dtype="M8[Y]")],
)
def test_dtype(points: object) -> None:
    assert (
        "but they must be real numbers: convert them with points.astype('float64')."
        in failure(points)
    )


@pytest.mark.parametrize("cell", ["3", None, pd.NA, 1j, np.timedelta64(1, "D")])
def test_objects_that_are_no_numbers(cell: object) -> None:
    message = failure(np.array([[1.0, cell], [2.0, 4.0]], dtype=object))
    assert (
        "the points have values in feature 1 which are no numbers, but all must be real"
        " numbers" in message
    )


def test_integer_beyond_the_range_of_floats() -> None:
    assert "the points have an integer beyond float64's range" in failure([[10**400]])


def test_ragged_rows() -> None:
    assert "the points have rows of different lengths" in failure([[1.0], [1.0, 2.0]])


def test_sparse() -> None:
    from scipy.sparse import csr_matrix

    assert (
        failure(csr_matrix([[1.0]]))
        == "the points are a sparse csr_matrix, but they must be dense: give"
        " points.toarray(), or, in a pipeline, OneHotEncoder(sparse_output=False)"
        " and ColumnTransformer(sparse_threshold=0)."
    )


def test_names_are_those_of_a_frame_and_put_its_columns_in_order() -> None:
    frame = pd.DataFrame({"b": [1.0], "a": [2.0]})
    assert frame_columns(frame) == ("b", "a")
    assert frame_columns([[1, 2]]) == frame_columns(pd.DataFrame([[1, 2]])) == ()
    assert validate_columns(frame, ["a", "b"]).tolist() == [[2.0, 1.0]]


def test_without_names_on_either_side_columns_stay_in_their_order() -> None:
    frame = pd.DataFrame({"b": [1.0], "a": [2.0]})
    assert validate_columns([[1.0, 2.0]], ["a", "b"]).tolist() == [[1.0, 2.0]]
    assert (
        validate_columns(frame, []).tolist()
        == validate_columns(frame, ["b", "a"]).tolist()
        == [[1.0, 2.0]]
    )


@pytest.mark.parametrize(("columns", "n_texts"), [(["a", 1, 2], 1), (["a", "b", 2], 2)])
def test_names_of_which_only_some_are_text_are_refused(
    columns: list[Any], n_texts: int
) -> None:
    with pytest.raises(
        DataError, match=f"{n_texts} of 3 column names are text and the others are not"
    ):
        frame_columns(pd.DataFrame([[1, 2, 3]], columns=columns))


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_each_column_needs_a_name_or_none_has_one(names: tuple[str, ...]) -> None:
    assert require_names((), 2) == ()
    assert require_names(("a", "b"), 2) == ("a", "b")
    with pytest.raises(
        DataError,
        match=(
            f"2 columns have {len(names)} names, but each needs one: name all of them"
        ),
    ):
        require_names(names, 2)


class Numbered:
    """As a frame of polars, which has another way to change types."""

    def to_numpy(self) -> list[list[float]]:
        return [[1.0, 2.0]]


def test_what_can_be_turned_into_an_array_is_taken_as_it_is() -> None:
    assert validate_points(Numbered()).tolist() == [[1.0, 2.0]]


def test_whole_floats_are_labels() -> None:
    assert validate_labels([1.0, 0.0], 2).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "n_classes", "told"),
    [
        ([0, 0], 1, ""),
        ([0, 1], 2, ""),
        ([7, 7], None, ""),
        ([0, 2], 2, "labels go from 0 to 2, but they must be from 0 to 1"),
        ([1, 1], 1, "labels go from 0 to 1, but they must be from 0 to 0"),
        ([-1, 1], 2, "labels go from -1 to 1, but they must be from 0 to 1"),
        ([-1, 0], None, "labels go from -1 to 0, but they must be at least 0"),
        ([-5, -5], 2, "labels go from -5 to 0, but they must be from 0 to 1"),
        ([], 1, ""),
        ([0.5, 1], None, "labels must be whole numbers"),
        (np.ma.MaskedArray([0, 1], [False, True]), 2, "labels must be whole numbers"),
        (["0", "1"], None, "labels must be whole numbers"),
        ([[0], [1]], None, r"labels have shape \(2, 1\), but the table has 2 rows"),
        ([[0], [1, 2]], None, r"labels have shape \(2, 0\), but the table has 2 rows"),
    ],
)
def test_labels_are_whole_numbers_below_the_number_of_classes(
    labels: Any, n_classes: int | None, told: str
) -> None:
    if told:
        with pytest.raises(DataError, match=told):
            validate_labels(labels, len(labels), n_classes)
    else:
        assert validate_labels(labels, len(labels), n_classes).tolist() == labels


def test_complex_numbers_are_named_as_such() -> None:
    assert failure(np.array([[1j]])).startswith(
        "Complex data not supported: the points have dtype complex128, but"
    )
    assert failure(np.array([["1"]])).startswith("the points have dtype <U1, but")
