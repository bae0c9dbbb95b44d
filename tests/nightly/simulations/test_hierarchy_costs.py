"""The command that compares cuts with runs of their own."""

from __future__ import annotations

import pytest

from simulations.benchmarks import hierarchy_costs


def test_the_command_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--sets", "iris", "--seeds", "1", "--epsilon", "50"]
    assert hierarchy_costs.main(quick) == 0
    printed = capsys.readouterr().out
    assert "iris" in printed
    assert "geometric mean" in printed
