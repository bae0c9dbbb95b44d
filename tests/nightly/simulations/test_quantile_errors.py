"""The command that compares quantiles with the exponential mechanism."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.benchmarks import quantile_errors


def test_ranks_are_off_by_no_rows_within_equal_ones() -> None:
    columns = np.array([[0.0], [0.0], [0.0], [1.0], [2.0]])
    values = np.array([[0.0, 0.5, 3.0]])
    errors = quantile_errors.rank_errors(columns, values, (0.5, 0.5, 0.5))
    assert errors.tolist() == [[0.0, 0.5, 2.5]]


def test_draws_share_epsilon_by_sums_or_by_concentration() -> None:
    assert quantile_errors.share_of_each(1.0, 1) == pytest.approx(1.0, rel=1e-3)
    assert 0.02 < quantile_errors.share_of_each(1.0, 100) < 0.1


def test_the_command_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--seeds", "1", "--rows", "500", "--shapes", "zero-inflated"]
    assert quantile_errors.main(quick) == 0
    printed = capsys.readouterr().out
    assert printed.count("zero-inflated") == len(quantile_errors.SIZES)
