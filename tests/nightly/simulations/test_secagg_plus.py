"""`SecureSum` beside Flower's SecAgg+: both find the mean, and ours takes less of
everything.
"""

from __future__ import annotations

import pytest

from simulations.benchmarks.secagg_plus import (
    NAMES,
    SECAGG_PLUS,
    Updates,
    main,
    measure,
)


def test_both_find_the_mean() -> None:
    costs = {name: measure(name, Updates.drawn(8, 50), 2) for name in NAMES}
    assert {name: cost.round_trips for name, cost in costs.items()} == dict(
        zip(NAMES, (8, 7, 4), strict=True)
    )
    assert costs[SECAGG_PLUS].error < 1e-5
    for name in NAMES[1:]:
        # Answers are rounded to 2^-24 of the clip norm, 1.5, and so are weights.
        assert costs[name].error < 1e-6
        assert costs[name].sent < costs[SECAGG_PLUS].sent


def test_the_command_prints_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--clients", "3", "--rounds", "1", "--entries", "4", "--only", NAMES[2]])
    assert (
        capsys.readouterr()
        .out.splitlines()[2]
        .startswith("| 3 | 1 | SecureSum, retry | 3 | ")
    )
