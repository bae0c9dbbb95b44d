"""The Hydra entry: one experiment from the configuration that is shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.data.bundled import load_bundled
from flwr_dpkmeans.data.mixtures import MIXTURE_BOUNDS
from flwr_dpkmeans.errors import ConfigurationError

pytest.importorskip("hydra")
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from simulations.run import run_experiment

PROJECT = Path(__file__).resolve().parents[2]


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "simulations.run", *overrides, f"hydra.run.dir={folder}"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_one_experiment_writes_its_row_and_report(tmp_path: Path) -> None:
    completed = run(tmp_path, "data=iris", "algorithm=glloyd", "trust=central", "privacy.epsilon=0.5", "seed=3")
    assert completed.returncode == 0, completed.stderr
    row = json.loads(completed.stdout)
    assert row == json.loads((tmp_path / "row.json").read_text())
    assert (row["algorithm"], row["trust"], row["seed"], row["data"]) == ("glloyd", "central", 3, "iris")
    assert 0.499 < row["epsilon"] <= 0.5
    assert 0.0 < row["cost_per_point"] < 16.0
    assert not json.loads((tmp_path / "privacy_report.json").read_text())["is_private"]


def test_the_mixture_of_the_paper(tmp_path: Path) -> None:
    completed = run(tmp_path, "algorithm=feddp_kmeans", "data=mixture", "privacy.epsilon=0.5")
    assert completed.returncode == 0, completed.stderr
    row = json.loads(completed.stdout)
    assert (row["trust"], row["unit"], row["engine"]) == ("distributed", "record", "inprocess")
    assert (row["data"], row["n_clients"], row["n_clusters"]) == ("mixture", 2, 10)
    assert 0.499 < row["epsilon"] <= 0.5


@pytest.mark.parametrize(
    ("algorithm", "name", "overrides", "expected"),
    [
        (
            "feddp_kmeans",
            "feddp_kmeans",
            ("unit=client", "engine=direct", "masking=false", "n_clients=150", "data.n_clusters=5"),
            {"trust": "distributed", "unit": "client", "engine": "direct", "n_clients": 150, "n_clusters": 5},
        ),
        (
            "server_kmeans_plus_plus",
            "server_kmeans++",
            ("privacy.unit=client", "engine=direct", "n_clients=20", "trust=central"),
            {"trust": "central", "unit": "client", "n_iterations": 5},
        ),
        ("sphere_packing", "sphere_packing", ("engine=direct", "algorithm.max_iter=3"), {"n_iterations": 3}),
    ],
)
def test_the_baselines_and_client_level_on_the_mixture(
    algorithm: str, name: str, overrides: tuple[str, ...], expected: dict[str, Any]
) -> None:
    with initialize_config_dir(str(PROJECT / "conf"), version_base=None):
        composed = compose("config", [f"algorithm={algorithm}", "data=mixture", "privacy.epsilon=0.5", *overrides])
    model, row = run_experiment(OmegaConf.to_container(composed, resolve=True, throw_on_missing=True))
    assert model.masking == ("masking=false" not in overrides)
    assert {key: row[key] for key in expected} == expected
    assert (row["algorithm"], row["data"], row["noise"]) == (name, "mixture", "seeded")
    assert 0.499 < row["epsilon"] <= 0.5
    # 100 coordinates of variance 0.5 around the right means; 0.5 + 1/12 around one centre for all.
    assert 45.0 < row["cost_per_point_unscaled"] < 80.0


@pytest.mark.parametrize(
    ("values", "name", "trust", "bounds"),
    [
        ({"algorithm": {"name": "server_lloyd"}}, "server_lloyd", "distributed", "server"),
        ({"algorithm": {"name": "fastlloyd"}}, "fastlloyd", "oblivious", "documented"),
        (
            {"algorithm": {"name": "fastlloyd"}, "trust": {"name": "distributed"}},
            "fastlloyd",
            "distributed",
            "documented",
        ),
    ],
)
def test_server_points_come_with_the_algorithms_that_need_them(
    values: dict[str, Any], name: str, trust: str, bounds: str
) -> None:
    data = {"source": "mixture", "n_clusters": 3, "bounds": None, "server": None, "rows_per_client": 100}
    privacy = {"epsilon": 4.0, "delta": None, "unit": "record", "noise": "seeded"}
    config = {"data": data, "privacy": privacy, "trust": {"name": None}, "seed": 0, "n_clients": 3}
    config |= {"engine": "direct", "masking": False} | values
    model, row = run_experiment(config)
    assert (row["algorithm"], row["trust"]) == (name, trust)
    assert (model.server_data is not None) == (bounds == "server")
    assert (model.bounds == (MIXTURE_BOUNDS.lower, MIXTURE_BOUNDS.upper)) == (bounds == "documented")
    # The server's points of another seed are other points.
    again, _ = run_experiment(config | {"seed": 1})
    assert bounds == "documented" or not np.array_equal(again.server_data, model.server_data)


def test_server_points_may_come_from_a_file(tmp_path: Path) -> None:
    points = load_bundled("iris").points[::5]
    np.save(tmp_path / "server.npy", points)
    overrides = ["algorithm=feddp_kmeans", "data=iris", "engine=direct"]
    with initialize_config_dir(str(PROJECT / "conf"), version_base=None):
        with_file = compose("config", [*overrides, f"data.server={tmp_path / 'server.npy'}"])
        without = compose("config", overrides)
    model, row = run_experiment(OmegaConf.to_container(with_file, resolve=True))
    assert row["trust"] == "distributed"
    assert np.array_equal(model.server_data, points)
    with pytest.raises(ConfigurationError, match="'feddp_kmeans' starts from the server's own points: give server_"):
        run_experiment(OmegaConf.to_container(without, resolve=True))


def test_a_wrong_value_is_one_sentence(tmp_path: Path) -> None:
    completed = run(tmp_path, "data=iris", "algorithm=fastlloyd", "algorithm.schedule=stepp")
    assert completed.returncode == 2
    assert "did you mean 'step'?" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "row.json").exists()
