"""The table of a sweep: a journal that survives a kill, and one Parquet file with
columns of one type each.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("hydra")

from flwr_dpkmeans.errors import ConfigurationError
from simulations.experiments.table import (
    JOURNAL_FILE,
    TABLE_FILE,
    Journal,
    only_sweep,
    read_table,
    write_table,
)

INF = float("inf")


def test_infinities_and_what_is_no_number_stay_what_they_are(tmp_path: Path) -> None:
    rows = [
        {"job": "a", "davies_bouldin": INF},
        {"job": "b", "davies_bouldin": math.nan},
        {"job": "c"},
    ]
    journal = Journal(tmp_path)
    journal.add(rows)
    again = list(Journal(tmp_path).finished().values())
    assert again[0]["davies_bouldin"] == INF
    assert math.isnan(again[1]["davies_bouldin"])
    table = pq.read_table(write_table(tmp_path, again, experiment=None, figures=[]))
    cells = table["davies_bouldin"].to_pylist()
    assert cells[0] == INF
    assert math.isnan(cells[1])
    assert cells[2] is None


def test_columns_have_one_type(tmp_path: Path) -> None:
    rows = [
        {
            "k": 10,
            "epsilon": 1,
            "shares": None,
            "flag": True,
            "curve": [2.0, 1.0],
            "big": 1,
            "odd": True,
            "none": None,
        },
        {
            "k": "auto",
            "epsilon": 0.5,
            "shares": "0.2 0.8",
            "flag": False,
            "curve": None,
            "big": 2**70,
            "odd": 1,
        },
        {"epsilon": None, "curve": []},
    ]
    frame, _, _ = read_table(write_table(tmp_path, rows, experiment="mine", figures=[]))
    assert frame["k"].tolist()[:2] == ["10", "auto"]
    assert frame["epsilon"].tolist()[:2] == [1.0, 0.5]
    assert frame["epsilon"].dtype == np.float64
    assert frame["shares"].isna().tolist() == [True, False, True]
    assert frame["shares"][1] == "0.2 0.8"
    assert frame["flag"].tolist()[:2] == [True, False]
    assert [None if one is None else list(one) for one in frame["curve"]] == [
        [2.0, 1.0],
        None,
        [],
    ]
    assert frame["big"].tolist()[:2] == [1.0, 2.0**70]
    assert frame["odd"].tolist()[:2] == ["True", "1"]
    assert frame["none"].isna().all()


def test_the_table_carries_its_experiment_and_figures(tmp_path: Path) -> None:
    figures = [
        {
            "name": "a",
            "kind": "curve",
            "title": "ε ≤ 1",
            "where": {"algorithm.name": ["x", "y"]},
        }
    ]
    path = write_table(tmp_path, [{"job": "a"}], experiment="mine", figures=figures)
    metadata = pq.read_schema(path).metadata
    assert metadata[b"experiment"] == b"mine"
    assert json.loads(metadata[b"figures"]) == figures
    # By its file or by its folder.
    for given in (path, tmp_path):
        frame, experiment, found = read_table(given)
        assert (list(frame["job"]), experiment, found) == (["a"], "mine", figures)


def test_a_torn_last_line_is_no_row_and_harms_none(tmp_path: Path) -> None:
    Journal(tmp_path).add(
        [{"job": "a", "status": "done"}, {"job": "b", "status": "done"}]
    )
    path = tmp_path / JOURNAL_FILE
    whole = path.read_bytes()
    for cut in range(1, len(whole) // 2):
        path.write_bytes(whole[:-cut])
        journal = Journal(tmp_path)
        # Without its newline alone the line is complete.
        assert set(journal.finished()) == ({"a", "b"} if cut == 1 else {"a"})
        journal.add([{"job": "c", "status": "done"}])
        assert set(journal.finished()) == ({"a", "b", "c"} if cut == 1 else {"a", "c"})


def test_a_second_sweep_is_kept_out_while_the_first_runs(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with only_sweep(folder):
        with (
            pytest.raises(
                ConfigurationError, match=r"another sweep is at work in .*folder"
            ),
            only_sweep(folder),
        ):
            raise AssertionError
        with only_sweep(tmp_path):
            pass
    with only_sweep(folder):
        pass


def test_an_old_table_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = write_table(tmp_path, [{"job": "a"}], experiment=None, figures=[])
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_table(tmp_path, [{"job": "b"}], experiment=None, figures=[object()])
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [TABLE_FILE]
