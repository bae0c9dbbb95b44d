"""The command that counts how often the intervals of centres hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulations.benchmarks.calibration import EPSILONS, ROWS, SHAPES, main, summary


def test_there_are_twelve_shapes_from_a_thousand_to_three_hundred_thousand_rows() -> (
    None
):
    assert len(SHAPES) == 12
    assert (min(ROWS), max(ROWS)) == (1_000, 300_000)
    assert (min(EPSILONS), max(EPSILONS)) == (0.25, 10.0)


@pytest.mark.parametrize("name", list(SHAPES))
def test_a_shape_is_drawn_again_for_the_same_seed(name: str) -> None:
    shape = SHAPES[name]
    first, second = (shape.draw(np.random.default_rng(1), 200) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.shape == (200, len(shape.bounds[0]))
    assert np.isfinite(first).all()


def test_coverage_and_width_by_hand() -> None:
    cell = {"shape": "x", "n_rows": 10, "epsilon": 1.0, "column": 0}
    values = [(1.0, 1.96), (-1.0, 0.5), (1.0, 3.92), (-1.0, 1.96)]
    cells = pd.DataFrame(
        [cell | {"error": error, "half_width": width} for error, width in values]
    )
    found = summary(cells).loc["x"]
    assert found["coverage"] == 0.75
    # The median half-width is 1.96, the root mean square error 1.
    assert found["width"] == pytest.approx(1.0)
    assert found["n"] == 4


def test_the_command_prints_its_table_and_draws_its_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, numbers = tmp_path / "calibration.png", tmp_path / "calibration.json"
    shapes = ["--shapes", "Gaussian", "lognormal"]
    assert (
        main(
            [
                "--quick",
                "--seeds",
                "1",
                *shapes,
                "--figure",
                str(picture),
                "--output",
                str(numbers),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "Gaussian" in printed
    assert "coverage" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert set(json.loads(numbers.read_text())) == {"Gaussian", "lognormal"}
