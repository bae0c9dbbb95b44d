"""The benchmark of ProxyLloyd on synthetic data.

Its cases, and one row of a small federation.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulations.papers.feddp.mixture_runs import PAPER
from simulations.papers.proxy.utility import (
    Case,
    Job,
    Outcome,
    _row,
    _table,
    cases,
    run_job,
)


def test_limits_stand_where_they_were_asked_for() -> None:
    limited = {
        (c.data, c.unit, c.server, c.n_clusters, c.epsilon): c.limit
        for c in cases()
        if c.limit is not None
    }
    assert len(limited) == 12
    assert limited["mixture", "record", True, 10, 0.16] == 0.05
    assert limited["mixture", "record", False, 10, 1.3] == 0.01
    assert limited["mixture", "client", True, 10, 1.49] == 0.08
    assert limited["max-cover", "record", False, 64, 0.5] == 600.0


@pytest.mark.parametrize(
    ("unit", "server"), [("record", True), ("record", False), ("client", True)]
)
def test_a_job_measures_what_is_above_the_optimum(unit: str, server: bool) -> None:
    small = {
        name: replace(setting, n_clients=30, rows=40) for name, setting in PAPER.items()
    }
    case = Case("mixture", unit, server, 10, 1e4, None)
    outcome = run_job(Job(case, "proxy_lloyd", 0), small)
    # Without noise to speak of, clipping and assignment leave a little above the
    # optimum of some 49 per point.
    assert -0.01 < outcome.value < 3.0
    assert outcome.seconds > 0.0


def test_a_row_above_its_limit_is_marked() -> None:
    case = Case("mixture", "record", True, 10, 0.16, 0.05)
    good = _row(case, "proxy_lloyd", [Outcome(0.04, 1.0), Outcome(0.05, 2.0)])
    bad = _row(case, "proxy_lloyd", [Outcome(0.04, 1.0), Outcome(0.09, 2.0)])
    assert good["mean"] == pytest.approx(0.045)
    assert [row.style for row in _table([good, bad]).rows] == [None, "bold red"]
