"""Classes of rows: whatever stands in a label column, nothing fails."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.loading.class_labels import as_classes
from flwr_dpkmeans.data.loading.source import load_source_once
from flwr_dpkmeans.errors import DataError


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([0, 1, 41], [0, 1, 41]),
        (np.array([0, 255, 3], dtype=np.uint8), [0, 255, 3]),
        ([2.0, -0.0, 1.0], [2, 0, 1]),
        ([True, False, True], [1, 0, 1]),
        ([-1, 0.5, 7], [-1, -1, 7]),
        ([math.nan, math.inf, -math.inf], [-1, -1, -1]),
        ([1e30, 2.0**63, 2**31], [-1, -1, 2**31]),
        ([2**64, 1, 0], [-1, 1, 0]),
        (["a", "1", ""], [-1, -1, -1]),
        ([None, 1, "x"], [-1, 1, -1]),
        ([0, 1, "x"], [0, 1, -1]),
        ([0, b"1", 1], [0, -1, 1]),
        ((2, 1, [3]), [2, 1, -1]),
        ([2, 1, np.array([3, 4])], [2, 1, -1]),
        ([10**400, 1, 0], [-1, 1, 0]),
        ([1j, 1, 0], [-1, 1, 0]),
        (np.array(["2026-01-01"] * 3, dtype="datetime64[D]"), [-1, -1, -1]),
        ([0, 1], [-1, -1, -1]),
        ([[0], [1], [2]], [-1, -1, -1]),
        ([[0], [1, 2], [2]], [-1, -1, -1]),
        ([0, [1, 2], 2], [0, -1, 2]),
        (None, [-1, -1, -1]),
    ],
)
def test_what_is_no_class_becomes_minus_1(values: Any, classes: list[int]) -> None:
    found = as_classes(values, 3)
    assert found.dtype == np.int64
    assert found.tolist() == classes


def test_no_rows_have_no_classes() -> None:
    assert as_classes([], 0).shape == (0,)


def classes_of(path: Path, column: str, n_rows: int) -> list[int]:
    return as_classes(
        load_source_once(str(path), label_column=column, columns=("a",)).labels, n_rows
    ).tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_classes_of_a_file(tmp_path: Path, suffix: str) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {
        "kind": [0.0, math.nan, 2.0],
        "mixed": ["1", "b", None],
        "text": ["x", "y", "z"],
    }
    path = tmp_path / f"rows.{suffix}"
    if suffix == "npz":
        np.savez(
            path, X=np.zeros((3, 2)), short=np.zeros(2), square=np.zeros((3, 3)),
            **_arrays(columns),
        )  # fmt: skip
    else:
        frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], **columns})
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    assert classes_of(path, "kind", 3) == [0, -1, 2]
    assert classes_of(path, "mixed", 3) == (
        [1, -1, -1] if suffix != "npz" else [-1, -1, -1]
    )
    assert classes_of(path, "text", 3) == [-1, -1, -1]
    for name in ("short", "square") if suffix == "npz" else ():
        assert classes_of(path, name, 3) == [-1, -1, -1]
    with pytest.raises(DataError, match="label_column is 'knd'"):
        classes_of(path, "knd", 3)


def _arrays(columns: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: np.array(values) for name, values in columns.items()}


def test_a_changed_file_is_read_again_and_nobody_may_change_the_classes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,kind\n1,0\n2,1\n")
    table = load_source_once(str(path), label_column="kind")
    assert table.labels is not None
    assert table.labels is load_source_once(str(path), label_column="kind").labels
    assert not table.labels.flags.writeable
    path.write_text("a,kind\n1,0\n2,1\n3,1\n")
    assert classes_of(path, "kind", 3) == [0, 1, 1]
    # A table that has grown since its rows were read keeps the labels that were read
    # with them.
    assert as_classes(table.labels, len(table.points)).tolist() == [0, 1]


def test_labels_of_some_rows_are_theirs() -> None:
    table = load_source_once("iris")
    assert as_classes(table.part(np.array([0, 60, 149])).labels, 3).tolist() == [
        0,
        1,
        2,
    ]


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
def test_a_table_whose_rows_all_have_labels_is_said_to_have_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.linspace(-1.0, 1.0, 40).reshape(20, 2)
    km = FederatedKMeans(
        2, bounds=(-1.0, 1.0), random_state=0, noise="seeded", engine="direct"
    ).fit([rows, rows])
    np.save(tmp_path / "rows.npy", rows)
    arguments = [
        str(km.save(tmp_path / "model.json")),
        str(tmp_path / "rows.npy"),
        "-o",
        str(tmp_path / "labels.csv"),
    ]
    assert main(["predict", *arguments]) == 0
    assert "no label" not in capsys.readouterr().out
