"""One command for each paper: it names its parts, and hands its arguments to them."""

from __future__ import annotations

import importlib

import pytest

from simulations.papers import run_part

PAPERS = ("fastlloyd", "feddp", "proxy")


def parts_of(paper: str) -> dict[str, str]:
    """The parts that a paper's command names."""
    command = importlib.import_module(f"simulations.papers.{paper}.__main__")
    parts: dict[str, str] = command.PARTS
    return parts


@pytest.mark.parametrize("paper", PAPERS)
def test_help_of_a_paper_names_its_parts_and_each_part_has_help(
    paper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, parts = f"python -m simulations.papers.{paper}", parts_of(paper)
    assert run_part(command, parts, ["--help"]) == 0
    printed = capsys.readouterr().out
    for name, about in parts.items():
        assert f"{name} " in printed
        assert about in printed
        with pytest.raises(SystemExit) as end:
            run_part(command, parts, [name, "--help"])
        assert end.value.code == 0
        assert f"usage: {command} {name}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("arguments", [[], ["table4"], ["--seeds", "3"]])
def test_a_part_that_does_not_exist_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = "python -m simulations.papers.fastlloyd"
    with pytest.raises(SystemExit) as end:
        run_part(command, parts_of("fastlloyd"), arguments)
    assert end.value.code == 2
    assert "part" in capsys.readouterr().err
