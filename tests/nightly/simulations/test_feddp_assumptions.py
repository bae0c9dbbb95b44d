"""The conditions of FedDP-KMeans' theory.

By hand, on a set that meets them, and the command.
"""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest

pytest.importorskip("hydra")

from simulations.papers import feddp_theory as feddp_assumptions
from simulations.papers.feddp_theory import Measured, conditions, main, measure


def test_examples() -> None:
    assert doctest.testmod(feddp_assumptions).failed == 0


def test_bounds_by_hand() -> None:
    # The paper's numbers of appendix G.2: k = 10, d = 100, w_min = 1/10, n = 10^6,
    # sigma = 0.5, |Q| = 300.
    found = Measured(10**6, 100, 10, 300, 10.57, 10.57, 0.5, 0.1, 1.0, 1.0, 4.0)
    assert found.diameter_bound == pytest.approx(
        10 * math.log(10**6) ** 2 * 0.5 * 10 / 0.1
    )
    assert found.server_bound == pytest.approx(
        10**6 * 10 * math.log(10**6) * 0.25 / 10.57**2
    )
    assert found.lemma_distance == pytest.approx(4 * math.log(10**6) * 10 * 0.5)
    # The loop of Algorithm 4 starts at 0, so that the run has one round more than T.
    assert found.simplify_rounds == 1 + math.ceil(
        10 * math.log(4 * math.log(300) / 0.1)
    )
    assert found.separation_bound == pytest.approx(
        math.sqrt(10 / 0.1) * 0.5 * math.log(10**6)
    )
    assert found.rows_bound == pytest.approx(
        10 * math.log(10**6) ** 3 * 10 * 0.5 / 0.1**2
    )
    assert "definition 2, centres >= 69.08 apart, here 4: does not hold" in conditions(
        found
    )
    assert any(
        "changes nothing in a set of diameter 21.14" in line
        for line in conditions(found)
    )
    tight = Measured(100, 2, 2, 10**6, 10.0, 10.0, 0.001, 1.0, 1.0, 1.0, 4.0)
    lines = conditions(tight)
    assert lines[1].endswith("does not hold")
    assert lines[2].endswith("does not hold")
    assert lines[3].endswith("here 4: holds")
    assert lines[4].endswith("holds")
    assert "it may part" in lines[5]


def test_what_is_measured() -> None:
    rng = np.random.default_rng(0)
    means = np.array([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    points = np.concatenate(
        [
            means[0] + rng.normal(0, 0.1, (300, 3)),
            means[1] + rng.normal(0, 0.1, (100, 3)),
        ]
    )
    for true in (means, None):
        found = measure(points, means, 2, 0.5, means=true)
        assert (found.n, found.d, found.k, found.n_server, found.server_radius) == (
            400,
            3,
            2,
            2,
            4.0,
        )
        assert found.radius == np.linalg.norm(points, axis=1).max()
        assert found.least_weight == 0.25
        assert found.clear == 1.0
        assert found.apart == pytest.approx(5.0, rel=0.01)
        # Of one coordinate where the centres are true ones, of a whole row else.
        assert found.deviation == pytest.approx(
            0.1 if true is not None else 0.1 * math.sqrt(3), rel=0.1
        )


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["data=mixture", "n_clients=2", "data.rows_per_client=200", "seed=1"]) == 0
    )
    printed = capsys.readouterr().out
    assert printed.startswith("mixture\n  table 1: Delta = ")
    assert "n = 400, d = 100, k = 10" in printed
    assert main(["data=iris"]) == 2
    assert "the server's points: give both" in capsys.readouterr().err
