"""The app as a FAB and as a wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.ray


def test_flwr_build_makes_a_complete_fab(tmp_path: Path) -> None:
    flwr = Path(sys.executable).with_name("flwr")
    command = [str(flwr), "build", "--app", str(PROJECT)]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    (fab,) = tmp_path.glob("*.fab")
    inside = set(zipfile.ZipFile(fab).namelist())
    shipped = {str(path.relative_to(PROJECT)) for path in (PROJECT / "flwr_dpkmeans").rglob("*.py")}
    assert shipped <= inside
    assert "flwr_dpkmeans/data/tables.py" in inside
    assert not any(name.startswith("tests/unit") for name in inside)


def test_the_wheel_installs_and_runs(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PROJECT)]
    completed = subprocess.run(build, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    (wheel,) = tmp_path.glob("*.whl")
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True)
    script = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import flwr_dpkmeans as f; "
        f"assert f.__file__.startswith({str(target)!r}), f.__file__; "
        "from flwr_dpkmeans.flower.client_app import app; from flwr_dpkmeans.flower.server_app import app as s; "
        "print(f.FederatedKMeans(n_clusters=1).fit([[[0.1, 0.2]] * 9, [[0.3, 0.4]] * 9]).cluster_centers_.shape)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("(1, 2)")
