"""The page "A method in an afternoon", typed as it stands.

The two files that it points to, then every command of it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest
from support.local_superlink import PROJECT, LocalSuperLink

PAGE = PROJECT / "flwr_dpkmeans" / "docs" / "how-to" / "add_a_method.md"
SIGNS = PROJECT / "simulations" / "notebooks" / "signs"
BLOCKS = re.findall(
    r"^```([a-z ]+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
)
COMMANDS = [
    line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()
]
BOUND = "root_at_least(d),"
HALF = "root_at_least(d) / 2,"
TIMEOUT = 600.0


def block(kind: str) -> str:
    """The only block of a kind."""
    (text,) = [text for one, text in BLOCKS if one == kind]
    return text


def write_package(folder: Path, *, bound: str = BOUND) -> Path:
    """The two files, and beside them what `pip install -e` leaves.

    The entry points as the first file has them.
    """
    import tomllib

    folder.mkdir()
    source = (SIGNS / "signs.py").read_text()
    assert source.count(BOUND) == 1
    (folder / "signs.py").write_text(source.replace(BOUND, bound))
    about = (SIGNS / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(about)
    project = tomllib.loads(about)["project"]
    installed = folder / f"{project['name']}-{project['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion:"
        f" {project['version']}\n"
    )
    lines = [
        f"[{group}]\n"
        + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()
    ]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    return folder


def test_what_the_page_shows_is_in_the_files() -> None:
    # Ruff sets a function on a page off by two lines, in a method by one.
    part = indent(block("python part"), " " * 8).replace("\n\n\n", "\n\n")
    assert part in (SIGNS / "signs.py").read_text()
    assert block("toml") in (SIGNS / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("mine") / "signs")


def typed(
    arguments: list[str], package: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python with both packages installed, in a folder of its own."""
    paths = os.pathsep.join(map(str, (package, PROJECT)))
    environment = dict(os.environ) | {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def command(start: str) -> list[str]:
    """A command of the page, without its first word."""
    (line,) = [one for one in COMMANDS if one.startswith(start)]
    return shlex.split(line)[1:]


def test_the_check_on_neighbours_reaches_the_bounds_and_fails_on_half(
    package: Path, tmp_path: Path
) -> None:
    completed = typed(["-c", block("python check")], package, tmp_path)
    assert completed.returncode == 0, completed.stderr
    (used,) = completed.stdout.splitlines()
    assert re.fullmatch(r"\{'votes': 1.0, 'pulls': (1.0|0.9999\d*)\}", used)
    planted = write_package(tmp_path / "half", bound=HALF)
    refused = typed(["-c", block("python check")], planted, tmp_path)
    assert refused.returncode == 1
    assert "'pulls' moves by 1.41421356 between two neighbouring" in refused.stderr
    assert "0.707106781" in refused.stderr


REFUSED = """
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
try:
    settings = {"algorithm": "signs", "n-clusters": 3}
    settings |= {"bounds": "-1,1", "num-clients": 3}
    strategy_from_run_config(settings | {"signs.pull": 3.0})
except ConfigurationError as error:
    print(error)
"""


def test_the_estimator_runs_it_with_its_option(package: Path, tmp_path: Path) -> None:
    code = (
        block("python run")
        + "print('kept', model.get_params()['algorithm__pull'])\n"
        + REFUSED
    )
    completed = typed(["-W", "ignore", "-c", code], package, tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "one row has one vote" in completed.stdout or "votes" in completed.stdout
    *_, kept, refused = completed.stdout.splitlines()
    assert kept == "kept 0.4"
    # That `flwr run` ends with such a sentence, e2e/test_ray_engine.py says.
    assert refused.startswith(
        "pull is 3.0, but it must be a finite number strictly between 0 and 1"
    )


def test_every_command_of_the_page_is_typed_here() -> None:
    assert [shlex.split(line)[2] for line in COMMANDS] == [
        "simulations.run",
        "simulations.figures",
        "simulations.audit",
    ]


@pytest.fixture(scope="module")
def swept(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    completed = typed(
        [*command("python -m simulations.run"), "workers=0"], package, folder
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return folder


def test_a_sweep_over_its_option_has_a_row_for_each_run(swept: Path) -> None:
    import pandas as pd

    table = pd.read_parquet(swept / "outputs" / "signs" / "table.parquet")
    assert len(table) == 8
    assert set(table["status"]) == {"done"}
    assert set(table["algorithm.pull"]) == {0.3, 0.5}
    assert set(table["algorithm.name"]) == {"signs"}


def test_its_configuration_is_shown_as_others_are(
    package: Path, tmp_path: Path
) -> None:
    shown = typed(
        ["-m", "simulations.run", "--cfg", "job", "algorithm=signs"], package, tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    assert "  name: signs\n  pull: 0.3\n" in shown.stdout


def test_a_sweep_goes_on_unless_the_methods_own_source_changed(
    swept: Path, tmp_path: Path
) -> None:
    sweep = [*command("python -m simulations.run"), "workers=0"]
    own, output = write_package(tmp_path / "own"), "outputs/signs"
    shutil.copytree(swept / output, tmp_path / output)
    with (own / "signs.py").open("a") as file:
        file.write("# mended\n")
    refused = typed(sweep, own, tmp_path)
    assert refused.returncode == 2, refused.stderr
    assert "8 of 8 finished runs" in refused.stderr
    sweep = [
        "-m",
        "simulations.run",
        "-m",
        "data=iris",
        "workers=0",
        f"output={output}",
    ]
    # Methods of this project do not care.
    assert typed([*sweep, "algorithm=glloyd"], own, tmp_path).returncode == 0
    own.joinpath("signs.py").write_text("raise ImportError\n")
    again = typed([*sweep, "algorithm=glloyd"], own, tmp_path)
    assert "0 runs (1 were finished before" in again.stderr


def test_the_table_is_drawn(package: Path, swept: Path) -> None:
    completed = typed(command("python -m simulations.figures"), package, swept)
    assert completed.returncode == 0, completed.stderr
    (picture,) = (swept / "outputs" / "signs" / "figures").glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def audited(
    package: Path, folder: Path
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, object]]]:
    completed = typed(
        [*command("python -m simulations.audit"), "workers=1"], package, folder
    )
    found = json.loads((folder / "outputs" / "signs-audit" / "audit.json").read_text())
    return completed, found["audits"] if isinstance(found, dict) else found


def test_the_audit_finds_nothing(package: Path, tmp_path: Path) -> None:
    completed, found = audited(package, tmp_path)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert len(found) == 1


def test_the_audit_finds_half_of_a_bound(tmp_path: Path) -> None:
    planted = write_package(tmp_path / "half", bound=HALF)
    completed, _ = audited(planted, tmp_path)
    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert "ABOVE THE CLAIM" in completed.stdout
    assert "moves releases by 2 of a sensitivity" in completed.stderr


# -- on Ray ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSuperLink]:
    """One SuperLink for both runs, with the package on its path."""
    link = LocalSuperLink.make(tmp_path_factory.mktemp("home"))
    yield link
    link.stop()


@pytest.mark.ray
def test_flwr_run_runs_it_on_ray(
    superlink: LocalSuperLink, package: Path, tmp_path: Path
) -> None:
    words = shlex.split(block("bash flwr"))
    assert words[:5] == ["flwr", "run", ".", "--stream", "--federation-config"]
    assert words[5] == "num-supernodes=3"
    (config,) = words[7:]
    output = tmp_path / "out"
    completed = superlink.run(
        f"{config} output='{output}'", nodes=3, app=package, paths=(PROJECT, package)
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    reports = list(output.glob("run-*/client-*/privacy_report.json"))
    assert len(reports) == 3, completed.stdout
    report = json.loads(reports[0].read_text())
    assert report["algorithm"] == "signs"
    assert report["is_private"]
    assert "signs" in completed.stdout


WATCHED = """
def print(*words):
    open({folder!r} + "/printed", "w").write(" ".join(map(str, words)))


def draw(message, context, call_next):
    import json, os, sys, uuid
    sys.path.insert(0, {probe!r})
    from entropy_probe import draw_all
    with open({folder!r} + "/" + uuid.uuid4().hex + ".drawn", "w") as file:
        json.dump([os.getpid(), context.node_id, draw_all(), draw_all()], file)
    return call_next(message, context)
"""
"""Flower's stream may end before the last lines that an app prints, where the machine
is busy: hence a file. And with every message a virtual client draws everything secret
twice, in Ray's workers, whose seeds are all equal.
"""
MODS = "ClientApp(mods=[secure_sum_mod])"


@pytest.fixture(scope="module")
def summed(superlink: LocalSuperLink, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page of sums, typed, left: its app on ten nodes."""
    page = PROJECT / "flwr_dpkmeans" / "docs" / "how-to" / "own_flower_app.md"
    after = page.read_text().partition("\n## Sums of any arrays\n")[2]
    section = after.partition("\n## ")[0]
    typed_of = dict(
        re.findall(r"^```(toml|python)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    )
    folder, left = (
        tmp_path_factory.mktemp("sums") / "fedavg",
        tmp_path_factory.mktemp("left"),
    )
    folder.mkdir()
    (folder / "pyproject.toml").write_text(typed_of["toml"])
    probe = PROJECT / "tests" / "nightly" / "statistical"
    assert typed_of["python"].count(MODS) == 1
    source = typed_of["python"].replace(MODS, MODS.replace("[", "[draw, "))
    (folder / "fedavg.py").write_text(
        WATCHED.format(folder=str(left), probe=str(probe)) + source
    )
    completed = superlink.run(
        "max-iter=2", nodes=10, workers=2, app=folder, paths=(PROJECT,)
    )
    (left / "said").write_text(completed.stdout + completed.stderr)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return left


@pytest.mark.ray
def test_an_app_of_two_files_sums_arrays_on_ray(summed: Path) -> None:
    said = (summed / "said").read_text()
    assert (summed / "printed").exists(), said
    (accuracy,) = re.findall(r"accuracy (0\.\d+)", (summed / "printed").read_text())
    assert 0.85 < float(accuracy) < 0.96
    assert "exact sums are released" in said


@pytest.mark.ray
def test_workers_and_virtual_clients_share_no_stream(summed: Path) -> None:
    drawn = [json.loads(path.read_text()) for path in summed.glob("*.drawn")]
    assert len({node for _, node, *_ in drawn}) == 10
    assert len({process for process, *_ in drawn}) > 1
    draws = [one for _, _, *twice in drawn for one in twice]
    assert len(draws) >= 40
    repeated = {
        kind for kind in draws[0] if len({own[kind] for own in draws}) < len(draws)
    }
    assert repeated == {"planted"}
