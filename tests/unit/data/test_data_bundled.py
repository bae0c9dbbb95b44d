"""Bundled data sets and the choice between them and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets

from flwr_dpkmeans.data.bundled import BUNDLED, load_bundled
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError, DataError


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_description_fits_the_data(name: str) -> None:
    reference = getattr(datasets, f"load_{name}")()
    description, table = BUNDLED[name], load_bundled(name)
    assert table.points.shape == (description.n_examples, description.n_features)
    np.testing.assert_array_equal(table.points, reference.data)
    assert table.names == description.feature_names == tuple(reference.feature_names)
    assert description.n_clusters == len(np.unique(reference.target))
    assert len(description.bounds.lower) == description.n_features
    assert (table.points >= description.bounds.lower).all()
    assert (table.points <= description.bounds.upper).all()


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_bounds_are_not_the_extremes_of_the_rows(name: str) -> None:
    points, bounds = load_bundled(name).points, BUNDLED[name].bounds
    assert (points.max(axis=0) < bounds.upper).all()
    assert sum(points.min(axis=0) > bounds.lower) >= 0.6 * points.shape[1]


def test_digits_are_images_of_counts_up_to_16() -> None:
    digits = BUNDLED["digits"]
    assert digits.image_shape == (8, 8)
    assert set(digits.bounds.lower) == {0.0}
    assert set(digits.bounds.upper) == {16.0}
    assert BUNDLED["iris"].image_shape is None


@pytest.mark.parametrize(
    ("name", "lower", "upper"),
    [
        ("iris", 4, 25),
        ("wine", 66, 2302),
        ("breast_cancer", 180, 10098.1),
        ("digits", 0, 1024),
    ],
)
def test_bounds_stay_what_earlier_runs_were_scaled_with(
    name: str, lower: float, upper: float
) -> None:
    """Sums over the features: another bound is another result for equal seeds."""
    bounds = BUNDLED[name].bounds
    assert (sum(bounds.lower), sum(bounds.upper)) == (
        pytest.approx(lower),
        pytest.approx(upper),
    )


def test_descriptions_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        BUNDLED["other"] = BUNDLED["iris"]  # type: ignore[index]


def test_source_by_name_and_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_source("iris").points.shape == (150, 4)
    (tmp_path / "own.csv").write_text("a,label\n1,x\n")
    assert load_source(
        str(tmp_path / "own.csv"), label_column="label"
    ).points.tolist() == [[1.0]]
    monkeypatch.chdir(tmp_path)
    assert load_source("own.csv", label_column="label").points.tolist() == [[1.0]]


def test_a_schema_reads_a_bundled_data_set_with_its_labels() -> None:
    wine = datasets.load_wine()
    schema = Schema(columns={"alcohol": {"kind": "number", "bounds": (12.0, 14.0)}})
    found = load_source("wine", schema=schema, partition_column="target")
    assert (found.names, found.points[:, 0].tolist()) == (
        ("alcohol",),
        wine.data[:, 0].clip(12.0, 14.0).tolist(),
    )
    assert found.labels is not None
    assert found.partition_values is not None
    assert (
        found.labels.tolist() == found.partition_values.tolist() == wine.target.tolist()
    )


@pytest.mark.parametrize(
    ("header", "text"), [(None, "a\n1\n2\n"), (True, "a\n1\n2\n"), (False, "1\n2\n")]
)
def test_a_schema_reads_a_file_without_header_where_that_is_said(
    tmp_path: Path, header: bool | None, text: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    options = {
        "dialect": Dialect(header=header),
        "columns": ("a",) if header is False else (),
    }
    schema = Schema(columns={"a": {"kind": "number", "bounds": (0, 9)}})
    assert load_source(
        str(tmp_path / "t.csv"), schema=schema, **options
    ).points.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("source", "tail"), [("digit", "did you mean 'digits'?"), ("xyz", "choose one of ")]
)
def test_unknown_name(source: str, tail: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_source(source)
    assert str(caught.value).startswith(
        f"the data source is {source!r}, but it must be a bundled data set or the path"
        " of a file (.csv, .tsv, .csv.gz, .npy, .npz, .parquet, .xlsx, .dta,"
        f" .sas7bdat, .feather): {tail}"
    )


@pytest.mark.parametrize("source", ["digits.csv", "./digits", "folder/table"])
def test_what_looks_like_a_path_is_looked_up(source: str) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_source(source)


def test_label_column_of_a_bundled_data_set() -> None:
    with pytest.raises(DataError) as caught:
        load_source("iris", label_column="target")
    assert (
        str(caught.value)
        == "label_column is 'target', but the bundled data set 'iris' is loaded without"
        " its labels: leave label_column empty."
    )
