"""A model in a file: the same numbers and labels wherever it is read, and one sentence
for whatever else is read.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.limits import SetLimits
from support.results import report_of

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import DataError, LocalMisuseError
from flwr_dpkmeans.results.model import Model

NAMES = ("age", "bmi")
REPORT = report_of(3, 2)
BOX = Bounds((0.0, 10.0), (100.0, 50.0))
SCALED = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.75]])
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def model_of(scaled: Any = SCALED, bounds: Bounds = BOX, **columns: Any) -> Model:
    return Model(
        np.array(scaled), np.arange(float(len(scaled))), bounds, REPORT, **columns
    )


def people(n: int = 200) -> pd.DataFrame:
    generator = np.random.default_rng(n)
    columns = {
        "age": generator.normal(50, 20, n).round(1),
        "bmi": generator.normal(28, 8, n).round(2),
    }
    return pd.DataFrame({**columns, "ward": generator.choice(["A", "B"], n)})


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=4),
    low=st.floats(-1e6, 1e6),
    width=st.floats(1, 1e6),
)
def test_every_float_is_read_again_bit_for_bit(
    rows: list[Any], low: float, width: float
) -> None:
    bounds = Bounds((low, low / 3.0), (low + width, low / 3.0 + width))
    points = np.clip(np.array(rows), -1e200, 1e200)  # beyond which units overflow
    model = Model(points, points[:, 0], bounds, REPORT)
    with tempfile.TemporaryDirectory() as folder:
        again = Model.load(model.save(Path(folder) / "model.json"))
    for name in ("scaled", "counts", "centroids"):
        assert getattr(again, name).tobytes() == getattr(model, name).tobytes()
    assert (again.bounds, again.privacy, again.privacy.provenance) == (
        model.bounds,
        REPORT,
        REPORT.provenance,
    )


def test_distances_and_margins_by_hand() -> None:
    # In the box: (0, 0), beyond its corner and so clipped to it, on a centre, and
    # between two.
    found = model_of().assign([[50.0, 30.0], [900.0, 90.0], [25.0, 20.0], [62.5, 20.0]])
    assert found["label"].tolist() == [0, 2, 0, 1]
    far = math.hypot(0.5, 1.5)
    assert found["distance"].tolist() == pytest.approx(
        [math.sqrt(0.5), math.hypot(0.5, 0.25), 0.0, 0.25]
    )
    assert found["margin"].tolist() == pytest.approx(
        [0.0, far - math.hypot(0.5, 0.25), 1.0, 0.5]
    )
    assert model_of(SCALED[:1]).assign([[50.0, 30.0]])["margin"].tolist() == [math.inf]


def test_one_row_without_a_label_is_an_error_and_a_number_that_is_none_no_model() -> (
    None
):
    with pytest.raises(DataError, match="1 rows have a cell that is missing"):
        model_of().predict([[50.0, 30.0], [math.nan, 30.0]])
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(model_of(), counts=np.array([1.0, math.nan, 2.0])).to_json()


def test_columns_lead_by_their_distance_from_the_mean() -> None:
    """Of the first the mean is 0.75, of the second 0."""
    model = model_of(
        [[0.5, -0.5, 0.0], [1.0, 0.5, 0.0], [0.75, 0.0, 0.0]], Bounds((0.0,), (1.0,))
    )
    assert [model.leading(most) for most in (1, 2, 3, 9)] == [
        [1],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2],
    ]


def test_a_model_without_names_says_that_it_takes_named_columns_by_position() -> None:
    model = replace(
        model_of([[-0.5, 0.5], [0.5, -0.5]], Bounds((-1.0,) * 2, (1.0,) * 2)),
        feature_names=(),
    )
    table = pd.DataFrame({"b": [-0.5], "a": [0.5]})
    with pytest.warns(
        UserWarning,
        match=(
            "the model has no column names, so the table's 'b', 'a' are taken by"
            " position"
        ),
    ):
        assert model.predict(table).tolist() == [0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict(table.to_numpy()).tolist() == [0]
        assert replace(model, feature_names=("a", "b")).predict(table).tolist() == [1]
        assert model.predict(
            pd.DataFrame([[-0.5, 0.5]], columns=["feature 0", "feature 1"])
        ).tolist() == [0]
        with pytest.raises(DataError, match="the table has 3 columns, but the model 2"):
            model.predict(table.assign(c=0.0))


@pytest.mark.parametrize(
    "table",
    ["abc", None, 5, [1.0, 2.0], [[1.0, 2.0, 3.0]], [[1.0], [1.0, 2.0]], [["a", 1.0]]],
)
def test_what_is_no_table_of_the_models_columns_is_refused(table: Any) -> None:
    with pytest.raises(DataError):
        model_of().predict(table)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "lloyd"},
        {"unit": "client", "algorithm": "feddp_kmeans", "server_data": True},
        {},
    ],
)
def test_an_estimator_from_a_file_is_the_fitted_one(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    frame = people()[[*NAMES]]
    given = {**options, "server_data": frame} if "server_data" in options else options
    km = FederatedKMeans(
        2, epsilon=4.0, bounds=((0, 10), (60, 50)), engine="direct", **given
    )
    km.fit([frame[["bmi", "age"]][["age", "bmi"]]] * 2)
    assert any("Private:" in one or "bounds of" in one for one in km.privacy_.warnings)
    again = FederatedKMeans.load(km.save(tmp_path / "model.json"))
    assert (
        again.predict(frame).tolist()
        == km.predict(frame).tolist()
        == again.model_.predict(people()).tolist()
    )
    assert again.transform(frame).tobytes() == km.transform(frame).tobytes()
    assert again.score(frame) == km.score(frame)
    assert again.cluster_centers_.tobytes() == km.cluster_centers_.tobytes()
    assert again.get_params()["algorithm"] == options.get("algorithm", "proxy_lloyd")
    # By name: columns of a later fit may come in another order.
    assert again.bounds == {"age": (0, 60), "bmi": (10, 50)}
    assert again.bounds_ == km.bounds_
    swapped = frame[["bmi", "age"]]
    refit = FederatedKMeans.load(tmp_path / "model.json").set_params(
        algorithm="proxy_lloyd", engine="direct"
    )
    assert refit.fit([swapped] * 2).bounds_ == ((10, 0), (50, 60))
    assert list(again.feature_names_in_) == [*NAMES]
    np.testing.assert_array_equal(
        np.sort(km.transform(frame), axis=1)[:, 0], km.model_.assign(frame)["distance"]
    )
    # What this program's own rows say against the run stays here.
    assert set(again.privacy_.warnings) < set(km.privacy_.warnings)
    assert "bounds of" not in (tmp_path / "model.json").read_text()


SCHEMA = Schema(
    columns={
        "age": {"kind": "number", "bounds": [0, 100]},
        "ward": {"kind": "category", "values": ["01", "1"], "missing": "drop"},
        "seen": {"kind": "date", "bounds": ["2020-01-01", "2024-01-01"],
                 "missing": "centre"},
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "scale"), [("csv", "bounds"), ("parquet", "standard"), ("folder", "none")]
)
def test_a_schema_goes_with_the_model(tmp_path: Path, kind: str, scale: str) -> None:
    schema = Schema(**{**SCHEMA.to_dict(), "scale": scale})
    generator = np.random.default_rng(0)
    rows = {
        "seen": ["2021-05-05", "", "2023-01-31"],
        "note": ["x,y", "z", "u"],
        "ward": ["01", "1", "2"],
    }
    frame = pd.DataFrame(
        {name: generator.choice(values, 300) for name, values in rows.items()}
    )
    frame["age"] = generator.normal(50, 20, 300).round(1)
    km = FederatedKMeans(3, epsilon=8.0, bounds=schema, engine="direct").fit(
        [frame, frame]
    )
    km.save(tmp_path / "model.json")
    again = FederatedKMeans.load(tmp_path / "model.json")
    assert again.schema_ == again.bounds == schema
    assert (
        again.predict(frame).tolist()
        == km.predict(frame).tolist()
        == km.model_.predict(frame).tolist()
    )
    np.testing.assert_array_equal(again.transform(frame), km.transform(frame))
    table = tmp_path / f"rows.{kind}"
    if kind == "folder":
        table.mkdir()
        for place in range(3):
            frame[place * 100 : place * 100 + 100].to_parquet(
                table / f"{place}.parquet"
            )
    else:
        frame.to_csv(table, index=False) if kind == "csv" else frame.to_parquet(table)
    assert command(tmp_path, table) == 0
    found = pd.read_csv(tmp_path / "labels.csv", dtype={"label": "Int64"})
    assert found["label"].fillna(-1).tolist() == km.predict(frame).tolist()
    assert 0 < (km.predict(frame) == -1).sum() == (frame["ward"] == "2").sum()
    profile = km.profile(frame).set_index(["cluster", "column"])
    assert profile.loc[("all", "ward"), "rows"] == (frame["ward"] != "2").sum()


# -- whatever else is in a file --------------------------------------------------------

PLAIN = json.loads(model_of(feature_names=NAMES).to_json())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [
        path,
        *(one for key, inner in items for one in paths_of(inner, (*path, key))),
    ]


def is_refused_or_sound(text: bytes) -> bool:
    """Whether a file is a model that works."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        path.write_bytes(text)
        try:
            model = Model.load(path)
        except DataError as error:
            told = str(error)
        else:
            told = ""
        if told:
            assert told.startswith(f"the model '{path}' cannot be read (")
            assert "\n" not in told
            return False
        assert Model.load(model.save(path)).to_json() == model.to_json()
    assert set(model.assign([[1.0, 2.0]])["label"]) <= {0, 1, 2}
    str(model.privacy)
    return True


@settings(max_examples=50)
@given(path=st.sampled_from(paths_of(PLAIN)), value=JSON, removed=st.booleans())
def test_hostile_json_is_one_sentence(
    path: tuple[Any, ...], value: Any, removed: bool
) -> None:
    whole = json.loads(json.dumps({"": PLAIN}))
    *above, last = ("", *path)
    place: Any = whole
    for key in above:
        place = place[key]
    if removed and path:
        del place[last]
    else:
        place[last] = value
    is_refused_or_sound(json.dumps(whole.get("")).encode())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 2}, "its version cannot stand"),
        ({"scale": 1}, "its scale cannot stand"),
        ({"scaled": [[0.0, 1.0]]}, "not those of one clustering"),
        ({"counts": [1.0, math.nan, 2.0]}, "counts"),
        ({"counts": [math.inf, 1.0, 2.0]}, "ValueError in what it holds"),
        ({"counts": ["1.0", 1.0, 2.0]}, "counts"),
        ({"centroids": [[25.0, 20.0], [75.0, 20.0], [75.0, 45.5]]},
         "its centroids cannot"),
        ({"counts_deviation": 1.0}, "its counts_deviation cannot"),
        ({"feature_names": ["age", "age"]}, "'age'"),
        ({"bounds": [[0.0, 10.0], [0.0, 50.0]]}, "the lower one must be smaller"),
        ({"privacy": {**PLAIN["privacy"], "epsilon": "1.0"}}, "privacy"),
        (
            {"privacy": {**PLAIN["privacy"], "delta": math.nan}},
            "cannot be read (",
        ),  # 3.13: is not itself
        ({"schema": {"columns": {"age": {"kind": "number", "bounds": 5}}}},
         "the schema's column"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    (tmp_path / "model.json").write_text(json.dumps(PLAIN | change))
    with pytest.raises(DataError) as caught:
        Model.load(tmp_path / "model.json")
    assert why in str(caught.value)
    assert not is_refused_or_sound(json.dumps(PLAIN | change).encode())


def test_a_long_reason_is_cut_after_300_characters(tmp_path: Path) -> None:
    names = ["a" * 1000] * 2
    with pytest.raises(LocalMisuseError) as whole:
        model_of(feature_names=tuple(names))
    (tmp_path / "model.json").write_text(json.dumps(PLAIN | {"feature_names": names}))
    with pytest.raises(DataError) as caught:
        Model.load(tmp_path / "model.json")
    assert f"cannot be read ({str(whole.value)[:300]}..): copy" in str(caught.value)


@pytest.mark.parametrize("name", PLAIN)
def test_a_missing_key_is_named(name: str) -> None:
    assert not is_refused_or_sound(
        json.dumps({key: PLAIN[key] for key in PLAIN if key != name}).encode()
    )


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xff", b"[" * 100_000, b"1" * 5000, b"{}", b"null",
        b'{"version": 1, "version": 1}',
    ],
)  # fmt: skip
def test_what_is_no_json_is_one_sentence(text: bytes) -> None:
    assert not is_refused_or_sound(text)


# -- the command -----------------------------------------------------------------------


def command(folder: Path, table: Any, output: str = "labels.csv") -> int:
    return main(
        ["predict", str(folder / "model.json"), str(table), "-o", str(folder / output)]
    )


@pytest.fixture
def folder(tmp_path: Path, set_limits: SetLimits) -> Path:
    set_limits(rows_read=7)
    model_of(feature_names=NAMES).save(tmp_path / "model.json")
    return tmp_path


def test_labels_are_those_of_the_notebook_row_for_row(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = people(100)
    expected = FederatedKMeans.load(folder / "model.json").model_.assign(frame)
    frame = frame[["ward", "bmi", "age"]]
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "index.csv", sep=";")
    frame.to_parquet(folder / "rows.parquet")
    np.save(folder / "rows.npy", frame[[*NAMES]].to_numpy())
    np.savez(folder / "rows.npz", X=frame[[*NAMES]].to_numpy())
    for name in ("rows.csv", "index.csv", "rows.parquet", "rows.npy", "rows.npz"):
        assert command(folder, folder / name) == 0
        exact = dict.fromkeys(
            ["distance", "margin"], float
        )  # older releases of pandas lose the last digit
        found = pd.read_csv(
            folder / "labels.csv", dtype={"label": "Int64"}, converters=exact
        )
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
        assert "100 rows in their order" in capsys.readouterr().out


def test_rows_with_gaps_have_no_label_and_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        "1,2,x", ",2,x", "1,>89,x", '3,4,"two\nlines"', "inf,1,x", "true,12,x",
        "1_0,1,x",
    ]  # fmt: skip
    (folder / "rows.csv").write_text("\n".join(["age,bmi,ward", *cells]) + "\n")
    assert command(folder, folder / "rows.csv") == 0
    labels = pd.read_csv(folder / "labels.csv")["label"]
    assert labels.isna().tolist() == [False, True, True, False, True, False, True]
    assert "4 rows have no label" in capsys.readouterr().out


def test_blank_lines_between_rows_of_one_column_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No reader sees them: the labels of later rows stood a line too early."""
    model_of([[0.5], [-0.5]], Bounds((0.0,), (100.0,)), feature_names=("age",)).save(
        folder / "model.json"
    )
    (folder / "rows.csv").write_text("age\n30\n\n80\n")
    assert command(folder, folder / "rows.csv") == 1
    assert (
        "rows.csv has blank lines between its rows of one column: write NA there, or"
        in capsys.readouterr().err
    )
    for text in ("\nage\n30\n80\n\n\n", "age\r\n30\r\n80\r\n\r\n"):
        (folder / "rows.csv").write_text(text, newline="")
        assert command(folder, folder / "rows.csv") == 0
        assert pd.read_csv(folder / "labels.csv")["label"].tolist() == [1, 0]
    model_of(feature_names=NAMES).save(folder / "model.json")
    (folder / "rows.csv").write_text("age,bmi\n30,20\n\n1,50\n")
    assert command(folder, folder / "rows.csv") == 0
    assert len(pd.read_csv(folder / "labels.csv")) == 2


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            "agee,bmi\n1,2\n",
            "no columns named 'age', but the model needs one: did you mean 'agee'?",
        ),
        ("age,bmi,age\n1,2,3\n", "2 columns named 'age'"),
        ("1,2\n3,4\n", "no columns named 'age'"),
        ("age,bmi\n1,2,3\n4,5,6\n", "ALL 2 records are left out"),
        ("age,bmi\n" + ",\n" * 3, "no row of the table has a finite number"),
        ("", "no columns named 'age'"),
    ],
)
def test_a_table_that_does_not_fit_leaves_nothing(
    folder: Path, rows: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.csv").write_text(rows)
    # Not even the folder, where the first rows tell.
    assert (
        command(
            folder,
            folder / "rows.csv",
            "out/labels.csv" if "column" in why else "labels.csv",
        )
        == 1
    )
    assert why in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "rows.csv"]


def test_a_record_that_is_no_row_has_a_line_without_label_at_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = ["1,2", "1,2,3", '5,"x', "90,45", "4", "90,45", "7"]
    (folder / "rows.csv").write_text("\n".join(["age,bmi", *records]) + "\n")
    assert command(folder, folder / "rows.csv") == 0
    labels = pd.read_csv(folder / "labels.csv")["label"]
    assert labels.isna().tolist() == [False, True, True, False, True, False, True]
    out = capsys.readouterr().out
    assert "7 rows in their order" in out
    assert "1 of 7 records are left out: they have a quote that does not close" in out
    assert (
        "2 of 7 records are left out: they have fewer cells than there are columns"
        in out
    )


def test_what_is_read_is_not_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people(5).to_csv(folder / "rows.csv", index=False)
    before = (folder / "rows.csv").read_bytes()
    assert command(folder, folder / "rows.csv", "./rows.csv") == 1
    assert command(folder, folder / "rows.csv", "model.json") == 1
    assert "choose another output file" in capsys.readouterr().err
    assert (folder / "rows.csv").read_bytes() == before


def test_a_table_without_rows_has_no_labels(folder: Path) -> None:
    (folder / "rows.csv").write_text("bmi,age\n")
    assert command(folder, folder / "rows.csv") == 0
    assert (folder / "labels.csv").read_text() == "label,distance,margin\n"
