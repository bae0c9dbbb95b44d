"""The utility benchmark beside reference figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulations.papers.fastlloyd import utility


def cost_of(job: utility.Job) -> float:
    """A cost that stands for a fit's."""
    return (4.0 if job.algorithm == "proxy_lloyd" else 8.0) + job.epsilon


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
    command = [*arguments, "--workers", "0"]
    command += ["--reference", write_reference(tmp_path)]
    assert utility.main(command, cost_of) == 0
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
        utility.main(
            [
                *arguments,
                "--workers",
                "0",
                "--reference",
                write_reference(tmp_path, optimum),
            ],
            cost_of,
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "Cost per point (NICV)" in out
    assert "cost above the optimum" not in out
