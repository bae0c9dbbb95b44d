"""The Hydra entry: one experiment from the configuration that is shipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hydra")
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


def test_a_wrong_value_is_one_sentence(tmp_path: Path) -> None:
    completed = run(tmp_path, "data=iris", "algorithm.schedule=stepp")
    assert completed.returncode == 2
    assert "did you mean 'step'?" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "row.json").exists()
