"""The utility benchmark beside reference figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simulations.experiments.clustering_metrics import area_under
from simulations.papers.fastlloyd import utility
from simulations.papers.fastlloyd.utility import find_source


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs that are easy to reckon with, and without fits."""

    def run_jobs(_: object, jobs: list[utility.Job], **options: object) -> list[float]:
        del options
        return [
            (4.0 if job.algorithm == "proxy_lloyd" else 8.0) + job.epsilon
            for job in jobs
        ]

    monkeypatch.setattr(utility, "run_jobs", run_jobs)


def write_reference(folder: Path, optimum: bool = True) -> str:
    cells = {
        f"iris|FastLloyd|{epsilon}": {"mean": 12.0, "se": 1.0} for epsilon in (0.5, 1.0)
    }
    cells |= {"iris|opt|": {"mean": 2.0, "se": 0.0}} if optimum else {}
    path = folder / "reference.json"
    path.write_text(json.dumps(cells))
    return str(path)


def lines_of(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]


def test_proxy_lloyd_stands_beside_fastlloyd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--sets",
        "iris:3",
        "--seeds",
        "2",
        "--epsilons",
        "0.5",
        "1",
        "--methods",
        "fastlloyd",
        "proxy_lloyd",
    ]
    assert utility.main([*arguments, "--reference", write_reference(tmp_path)]) == 0
    lines = lines_of(capsys.readouterr().out)
    # Cost, standard error, median; reference, difference, ratio: as for every method.
    assert lines[2] == [
        "iris",
        "proxy_lloyd",
        "0.5",
        *["4.50000", "0.00000", "4.50000"],
        *["12.00000", "-7.50", "0.375"],
    ]
    assert lines[4] == ["iris", "0.5", "2.50000", "10.00000", "0.250"]
    assert lines[5] == ["iris", "1", "3.00000", "10.00000", "0.300"]
    assert lines[6] == ["iris", "area under cost", "2.37500", "6.00000", "0.396"]
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("methods", "optimum"), [(["fastlloyd", "lloyd"], True), (["proxy_lloyd"], False)]
)
def test_without_proxy_lloyd_or_an_optimum_nothing_is_added(
    methods: list[str],
    optimum: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [
        "--sets",
        "iris:3",
        "--seeds",
        "1",
        "--epsilons",
        "0.5",
        "1",
        "--methods",
        *methods,
    ]
    assert (
        utility.main([*arguments, "--reference", write_reference(tmp_path, optimum)])
        == 0
    )
    out = capsys.readouterr().out
    assert "Cost per point (NICV)" in out
    assert "cost above the optimum" not in out


def test_one_fit_of_proxy_lloyd() -> None:
    job = utility.Job("iris", "iris", 3, "proxy_lloyd", 2.0, 0, "halve", 2, None)
    assert 0.18 < utility.run_job(job) < 0.6


def test_area_does_not_depend_on_the_order() -> None:
    assert (
        area_under([0.5, 1.0, 2.0], [4.0, 2.0, 2.0])
        == area_under([2.0, 0.5, 1.0], [2.0, 4.0, 2.0])
        == 3.5
    )


def test_sources_are_files_or_bundled_names(tmp_path: Path) -> None:
    np.save(tmp_path / "s1.npy", np.zeros((3, 2)))
    assert find_source("s1", [str(tmp_path)]) == str(tmp_path / "s1.npy")
    assert find_source("iris", [str(tmp_path)]) == "iris"


def test_a_fit_says_nothing_between_the_rows_of_the_table(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(utility.logging, "disable", lambda level: None)
    assert (
        utility.run_job(
            utility.Job("iris", "iris", 3, "fastlloyd", 0.5, 0, "bisect", 2, None)
        )
        > 0.0
    )
    assert not recwarn.list
