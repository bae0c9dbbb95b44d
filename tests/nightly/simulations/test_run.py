"""The entry for experiments: one run from the configuration that is shipped, and what
is refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hydra")


from flwr_dpkmeans.data.bundled import load_bundled
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS
from simulations.experiments.datasets import load_data_set
from simulations.experiments.engines import run_settings
from simulations.experiments.expansion import expand
from simulations.experiments.federation import (
    reference_box,
    server_points_of,
    split,
)
from simulations.experiments.job import result_row, run_job
from simulations.experiments.table import read_table
from simulations.run import main

PROJECT = Path(__file__).resolve().parents[3]


def settings_of(*overrides: str) -> dict[str, Any]:
    [settings] = expand(overrides).settings
    return dict(settings)


def row_of(*overrides: str) -> dict[str, Any]:
    settings = settings_of(*overrides)
    return result_row(settings, *run_settings(settings))


def test_one_experiment_writes_its_row_and_report(tmp_path: Path) -> None:
    overrides = [
        "data=iris",
        "algorithm=glloyd",
        "trust=central",
        "privacy.epsilon=0.5",
        "seed=3",
    ]
    command = [
        sys.executable,
        "-m",
        "simulations.run",
        *overrides,
        f"output={tmp_path}",
    ]
    completed = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    row = json.loads(completed.stdout)
    assert row == json.loads((tmp_path / "row.json").read_text())
    assert "warning: The noise comes from a seeded generator" in completed.stderr
    assert (
        row["algorithm.name"],
        row["trust.name"],
        row["seed"],
        row["data.name"],
    ) == ("glloyd", "central", 3, "iris")
    assert (row["status"], row["reason"], row["engine.name"]) == (
        "done",
        None,
        "inprocess",
    )
    assert 0.499 < row["epsilon"] <= row["privacy.epsilon"] == 0.5
    assert 0.0 < row["nicv"] < 16.0
    assert not json.loads((tmp_path / "privacy_report.json").read_text())["is_private"]


def test_the_mixture_of_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "algorithm=feddp_kmeans",
                "data=mixture",
                "privacy.epsilon=0.5",
                f"output={tmp_path}",
            ]
        )
        == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert (row["privacy.unit"], row["engine.name"]) == ("record", "inprocess")
    assert (row["data.name"], row["n_clients"], row["data.n_clusters"]) == (
        "mixture",
        2,
        10,
    )
    assert (row["n_rows"], row["n_columns"], row["n_found_clusters"]) == (100, 100, 10)
    assert 0.499 < row["epsilon"] <= 0.5
    report = json.loads((tmp_path / "privacy_report.json").read_text())
    assert report["trust"] == "distributed"


@pytest.mark.parametrize(
    ("algorithm", "name", "overrides", "expected"),
    [
        (
            "feddp_kmeans",
            "feddp_kmeans",
            (
                "privacy.unit=client",
                "engine=direct",
                "engine.masking=false",
                "n_clients=150",
                "data.n_clusters=5",
            ),
            {
                "privacy.unit": "client",
                "engine.name": "direct",
                "engine.masking": False,
                "data.n_clusters": 5,
            },
        ),
        (
            "server_kmeans_plus_plus",
            "server_kmeans++",
            ("privacy.unit=client", "engine=direct", "n_clients=20", "trust=central"),
            {
                "trust.name": "central",
                "privacy.unit": "client",
                "n_iterations": 5,
                "engine.masking": True,
            },
        ),
        (
            "sphere_packing",
            "sphere_packing",
            ("engine=direct", "algorithm.max_iter=3", "algorithm.packing=bisect"),
            {"n_iterations": 3},
        ),
    ],
)
def test_the_baselines_and_client_level_on_the_mixture(
    algorithm: str, name: str, overrides: tuple[str, ...], expected: dict[str, Any]
) -> None:
    row = row_of(
        f"algorithm={algorithm}", "data=mixture", "privacy.epsilon=0.5", *overrides
    )
    assert {key: row[key] for key in expected} == expected
    assert (row["algorithm.name"], row["data.name"], row["privacy.noise"]) == (
        name,
        "mixture",
        "seeded",
    )
    assert 0.499 < row["epsilon"] <= 0.5
    # 100 coordinates of variance 0.5 around the right means; 0.5 + 1/12 around one
    # centre for all.
    assert 45.0 < row["cost_per_point"] < 80.0


@pytest.mark.parametrize(
    ("overrides", "has_points"),
    [
        (("algorithm=server_lloyd",), True),
        (("algorithm=fastlloyd",), False),
        (("algorithm=fastlloyd", "trust=distributed"), False),
        (("algorithm=fastlloyd", "data.server=own"), False),
        (("algorithm=proxy_lloyd",), False),
        (("algorithm=proxy_lloyd", "data.server=own"), True),
    ],
)
def test_server_points_come_with_the_algorithms_that_need_them(
    overrides: tuple[str, ...], has_points: bool
) -> None:
    common = (
        "data=mixture",
        "data.n_clusters=3",
        "data.rows_per_client=100",
        "n_clients=3",
        "privacy.epsilon=4",
    )
    settings = settings_of(*common, "engine=direct", "engine.masking=false", *overrides)
    data = load_data_set(settings)
    points = server_points_of(settings, data)
    assert (points is not None) == has_points
    # All methods are compared in one box.
    assert reference_box(settings, data) == MIXTURE_BOUNDS.for_features(100)
    assert run_job(settings)["status"] == "done"
    if points is not None:
        # The server's points of another seed are other points.
        other = {**settings, "data": {**settings["data"], "seed": 1}}
        again = server_points_of(other, load_data_set(other))
        assert again is not None
        assert not np.array_equal(again, points)


def test_rows_may_come_from_a_file_with_a_column_of_labels(tmp_path: Path) -> None:
    table = load_bundled("iris")
    lines = [
        ",".join([*(str(value) for value in row), "abc"[row.argmax() % 3]])
        for row in table.points
    ]
    path = tmp_path / "my rows.csv"
    path.write_text("\n".join(["a,b,c,d,kind", *lines]) + "\n")
    given = (
        "data=file",
        f"data.path='{path}'",
        "data.n_clusters=3",
        "data.label_column=kind",
        "metrics=[purity]",
    )
    row = row_of(*given, "data.bounds='0,10'", "engine=direct")
    assert (row["data.name"], row["n_rows"], row["n_columns"]) == (str(path), 150, 4)
    assert 0.0 < row["purity"] <= 1.0
    # A list needs no quotes that a shell would take away.
    assert row_of(*given, "data.bounds=[0,10]", "engine=direct")["nicv"] == row["nicv"]


def test_held_out_points_are_no_clients_rows() -> None:
    settings = settings_of(
        "data=iris", "data.server=held_out", "algorithm=feddp_kmeans", "engine=direct"
    )
    data = load_data_set(settings)
    every = load_bundled("iris").points
    assert data.server_points is not None
    # A tenth of the rows, and half as many uniform points.
    assert (len(data.points), len(data.server_points)) == (135, 15 + 7)
    together = np.concatenate([data.points, data.server_points[:15]])
    assert np.array_equal(np.sort(together, axis=0), np.sort(every, axis=0))
    assert sorted(np.concatenate(split(settings, data)).tolist()) == list(range(135))


def test_metrics_measure_the_centroids_that_were_released_also_beyond_the_bounds() -> (
    None
):
    noisy = (
        "algorithm=sulloyd",
        "algorithm.post_processing=none",
        "privacy.epsilon=0.1",
    )
    settings = settings_of(
        "data=iris", "data.bounds=[0,8]", "metrics=[centroid_error]", *noisy
    )
    outcome, data = run_settings(settings)
    assert outcome.centers.min() < 0.0
    row = result_row(settings, outcome, data)
    # One range for all columns: a length of 4 is 1 in the box.
    assert row["nicv"] == pytest.approx(row["cost_per_point"] / 16.0)
    gap = np.abs(outcome.centers).max() / 4.0 - 1.0
    assert row["centroid_error"] > (gap - 1.0) ** 2 / len(outcome.centers)


@pytest.mark.parametrize("algorithm", ["glloyd", "lloyd", "optimal"])
def test_rows_that_no_client_has_are_not_measured(algorithm: str) -> None:
    given = (
        f"algorithm={algorithm}",
        "data=iris",
        "data.bounds=range",
        "privacy.epsilon=4",
        "engine=direct",
    )
    sizes = ("partition=fixed_sizes", "partition.sizes=[40,10]", "metrics=[accuracy]")
    settings = settings_of(*given, *sizes)
    outcome, data = run_settings(settings)
    row = result_row(settings, outcome, data)
    whole = load_data_set(settings)
    rows = np.concatenate(split(settings, whole))
    assert whole.labels is not None
    assert data.labels is not None
    assert np.array_equal(data.points, whole.points[rows])
    assert np.array_equal(data.labels, whole.labels[rows])
    assert row["n_rows"] == len(rows) == 50
    distances = (
        ((whole.points[rows][:, None] - outcome.centers) ** 2).sum(axis=2).min(axis=1)
    )
    assert row["cost_per_point"] == pytest.approx(distances.mean())
    # Rows that are all taken are those that were loaded.
    assert (
        row_of(*given, "partition=fixed_sizes", "partition.sizes=[100,50]")["n_rows"]
        == 150
    )


def test_a_sweep_writes_a_table_that_says_what_was_swept(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    sweep = [
        "-m",
        "data=iris",
        "engine=direct",
        "algorithm=glloyd,lloyd",
        "seed=range(0,2)",
        "workers=0",
    ]
    assert main([*sweep, "variant=of my own", f"output='{folder}'"]) == 0
    table, experiment, figures = read_table(folder)
    assert (experiment, figures) == ("", [])
    assert sorted(zip(table["algorithm.name"], table["seed"], strict=True)) == [
        ("glloyd", 0),
        ("glloyd", 1),
        ("lloyd", 0),
        ("lloyd", 1),
    ]
    assert set(table["variant"]) == {"of my own"}
    assert set(table["status"]) == {"done"}
    assert table.loc[table["algorithm.name"] == "lloyd", "epsilon"].isna().all()
    assert table.loc[table["algorithm.name"] == "glloyd", "epsilon"].notna().all()
