"""Noise schedules of Lloyd rounds: who gets which part of the budget, and that the
whole costs no more.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseSchedule
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan


def drafted(algorithm: str, schedule: str, **options: Any) -> Plan:
    config = parse_config(
        algorithm=algorithm, n_clusters=3, bounds=((-1,), (1,)), epsilon=1.0,
        n_examples=5000, max_iter=4, noise_schedule=schedule, **options,
    )  # fmt: skip
    return draft_plan(config, run_id=1, n_clients=3, seed=1, n_features=2)


def test_parts_by_hand() -> None:
    assert NoiseSchedule.EQUAL.parts(3) == [1.0, 1.0, 1.0]
    assert NoiseSchedule.GROWING.parts(4) == pytest.approx([0.4, 0.8, 1.2, 1.6])
    assert NoiseSchedule.GEOMETRIC.parts(3) == pytest.approx([3 / 7, 6 / 7, 12 / 7])
    assert NoiseSchedule.GEOMETRIC.parts(0) == []


@pytest.mark.parametrize(
    ("algorithm", "power"),
    [("fastlloyd", 2), ("glloyd", 2), ("sphere_packing", 2), ("sulloyd", 1)],
)
@pytest.mark.parametrize("schedule", ["growing", "geometric"])
def test_noise_follows_the_parts_and_the_whole_costs_epsilon(
    algorithm: str, power: int, schedule: str
) -> None:
    plan, equal = drafted(algorithm, schedule), drafted(algorithm, "equal")
    parts = {
        "growing": [0.4, 0.8, 1.2, 1.6],
        "geometric": [4 / 15, 8 / 15, 16 / 15, 32 / 15],
    }[schedule]
    for array in range(2):
        ours, theirs = (
            [planned.blocks[array].noise_multiplier for planned in one.rounds]
            for one in (plan, equal)
        )
        # Under joint Gaussian accounting the parts are of 1 / sigma^2, under Laplace
        # noise of 1 / b.
        assert [
            (b / a) ** power for a, b in zip(ours, theirs, strict=True)
        ] == pytest.approx(parts, rel=1e-4)
        spent = math.fsum(one**-power for one in ours)
        assert spent == pytest.approx(
            math.fsum(one**-power for one in theirs), rel=1e-4
        )
    assert 0.999 < plan.epsilon <= 1.0


def test_linear_parts_where_each_release_has_its_own_epsilon() -> None:
    plan = drafted("sphere_packing", "growing", noise_kind="paper")
    counts = [planned.blocks[1].noise_multiplier for planned in plan.rounds]
    assert [counts[0] / one for one in counts] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert plan.epsilon <= 1.0
