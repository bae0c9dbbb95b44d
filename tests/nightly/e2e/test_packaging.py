"""The app as a FAB and as a wheel."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
AROUND_A_FEDERATION = ("baselines", "cli", "deploy", "planner")
"""Rooms that no node runs, and no bundle of the app holds."""
pytestmark = pytest.mark.ray


def copy_of(folder: Path, *, mode: int, time: int) -> Path:
    """What a package is made of, copied in another order, with other modes and other
    times.
    """
    listed = [
        path
        for room in ("flwr_dpkmeans", "simulations", "conf")
        for path in (PROJECT / room).rglob("*")
    ]
    listed += [*(PROJECT / name for name in ("README.md", "LICENSE"))]
    paths = sorted(
        (p for p in listed if p.is_file() and "__pycache__" not in p.parts),
        reverse=bool(time % 2),
    )
    for path in [*paths, PROJECT / "pyproject.toml"]:
        target = folder / path.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(mode)
        os.utime(target, (time, time))
    return folder


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two copies of the project in different folders, with other umasks, times, modes
    and leftovers, and their builds.

    But for whether a file can be run, which wheels keep. The first one's wheel is made
    of its sdist, and its FAB of the project itself.
    """
    folder = tmp_path_factory.mktemp("packages")
    first = copy_of(folder / "a", mode=0o644, time=1_700_000_000)
    second = copy_of(folder / "elsewhere" / "b", mode=0o600, time=1_800_000_001)
    (second / "flwr_dpkmeans" / "__pycache__").mkdir()
    (second / "flwr_dpkmeans" / "__pycache__" / "plan.cpython-311.pyc").write_bytes(
        b"old"
    )
    environment = {
        name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"
    }
    flwr = Path(sys.executable).with_name("flwr")
    commands = [
        (first, 0o022, [sys.executable, "-m", "build", "--no-isolation"]),
        (first, 0o022, [str(flwr), "build", "--app", str(PROJECT)]),
        (
            second,
            0o077,
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist"],
        ),
        (second, 0o077, [str(flwr), "build"]),
    ]
    running = [
        subprocess.Popen(
            command,
            cwd=copy,
            umask=umask,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for copy, umask, command in commands
    ]
    for process in running:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output.decode()
    return [first, second]


def packages_of(copy: Path) -> list[Path]:
    return [*sorted(copy.glob("dist/*")), *copy.glob("*.fab")]


def test_flwr_build_makes_a_complete_fab(copies: list[Path]) -> None:
    (fab,) = copies[0].glob("*.fab")
    inside = set(zipfile.ZipFile(fab).namelist())
    package = PROJECT / "flwr_dpkmeans"
    listed = [
        *package.rglob("*.py"),
        *(path for path in package.rglob("*.toml") if ".example" not in path.name),
    ]
    paths = {path.relative_to(PROJECT) for path in listed}
    around = {path for path in paths if path.parts[1] in AROUND_A_FEDERATION}
    assert {str(path) for path in paths - around} <= inside
    assert {str(path) for path in around} & inside == set()
    assert "flwr_dpkmeans/data/tables.py" in inside
    assert not any(name.startswith("tests/unit") for name in inside)


def test_the_app_for_the_hub_keeps_its_limits(tmp_path: Path) -> None:
    """As Flower would upload it."""
    from flwr.cli.app_cmd.publish import _validate_files
    from flwr.cli.build import build_fab_from_files
    from flwr.cli.utils import collect_files

    from simulations.flower.hub import PAGE, write_app

    written = write_app(tmp_path / "hub")
    _validate_files(written)
    fab, about = build_fab_from_files(collect_files((tmp_path / "hub").resolve()))
    assert (
        about.fab_format_version,
        about.flwr_version_min,
        about.flwr_version_target,
    ) == (1, "1.41", "1.41.0")
    with zipfile.ZipFile(io.BytesIO(fab)) as archive:
        readme = archive.read("README.md").decode()
        inside = {
            name for name in archive.namelist() if not name.startswith("flwr_dpkmeans/")
        }
    assert inside == {".info/CONTENT", "LICENSE", "README.md", "pyproject.toml"}
    assert readme == PAGE.read_text()
    assert "](" not in readme
    assert "<img" not in readme
    with pytest.raises(SystemExit, match="is not empty"):
        write_app(tmp_path / "hub")
    installed = tmp_path  # As where a wheel is, beside nothing of the project.
    with pytest.raises(SystemExit, match="is no copy of the project, whose files"):
        write_app(tmp_path / "other", installed)


def test_the_wheel_installs_and_runs(copies: list[Path], tmp_path: Path) -> None:
    (wheel,) = copies[0].glob("dist/*.whl")
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    ]
    subprocess.run([*install, str(wheel)], check=True)
    assert not (target / "simulations").exists()
    host = target / "flwr_dpkmeans" / "deploy" / "host"
    assert (host / "flower-supernode.service").is_file()
    script = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import flwr_dpkmeans as f;"
        f" assert f.__file__.startswith({str(target)!r}), f.__file__; from"
        " flwr_dpkmeans.flower.client_app import app; from"
        " flwr_dpkmeans.flower.server_app import app as s;"
        " f.FederatedKMeans(n_clusters=3).plan(2_000, 2, 3, seeds=2,"
        " algorithms=['fastlloyd']); tables = [[[0.1, 0.2]] * 9, [[0.3, 0.4]] * 9];"
        " f.FederatedKMeans(1, algorithm='optimal', bounds=(0, 1)).fit(tables); km ="
        " f.FederatedKMeans(n_clusters=1, bounds=(0, 1)).fit(tables);"
        " print(km.cluster_centers_.shape)"
    )
    environment = os.environ | {"PYTHONPATH": str(target)}
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().endswith("(1, 2)")


def test_two_builds_are_equal_byte_for_byte(copies: list[Path]) -> None:
    one, other = map(packages_of, copies)
    assert [path.suffix for path in one] == [".whl", ".gz", ".fab"]
    for first, second in zip(one, other, strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes(), (
            f"{first.name} differs between two builds"
        )


def test_packages_hold_no_private_modes_and_no_leftovers(copies: list[Path]) -> None:
    _, copy = copies
    (wheel,) = copy.glob("dist/*.whl")
    entries = zipfile.ZipFile(wheel).infolist()
    assert {entry.external_attr >> 16 & 0o777 for entry in entries} == {0o644}
    names = {entry.filename for entry in entries}
    assert [name for name in names if "__pycache__" in name] == []
    kept = [
        path
        for kind in ("*.py", "*.toml", "py.typed")
        for path in (PROJECT / "flwr_dpkmeans").rglob(kind)
    ]
    assert {str(path.relative_to(PROJECT)) for path in kept} <= names
    (sdist,) = copy.glob("dist/*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert {(member.uid, member.gid, member.mode & 0o777) for member in members} == {
        (0, 0, 0o644)
    }
    assert [member.name for member in members if "__pycache__" in member.name] == []
