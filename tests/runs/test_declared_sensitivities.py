"""Declared sensitivities against brute force.

Every algorithm's rounds, at the states that a run comes to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_contract import LOWER, SERVER_DATA, SUPPORTED, UPPER, mixture

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import own_options, read_config
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from simulations.audit.watched import Seen, run_watched

Array = NDArray[np.float64]
WIDTH = 3
Case = tuple[str, str, str]


@cache
def seen_of(case: Case, *, discovers: bool) -> tuple[Seen, ...]:
    """What every round's statistic was taken at in a run with as many kinds of releases
    as it can have.
    """
    algorithm, unit, kind = case
    values: dict[str, Any] = {
        "n_clusters": 3,
        "epsilon": 5.0,
        "noise": "seeded",
        "random_state": 1,
    }
    values |= {
        "algorithm": algorithm,
        "unit": unit,
        "noise_kind": kind,
        "bounds": ((LOWER,), (UPPER,)),
    }
    values |= {"trust": SUPPORTED[case][-1], "evaluation": "private"}
    values |= own_options({"max_iter": 2, "n_init": 2}, algorithm, clusterings())
    values |= (
        {"n_examples": None, "private_bounds": True}
        if discovers
        else {"n_examples": 20_000}
    )
    values |= {"choose_n_clusters": True} if algorithm == "feddp_choose_k" else {}
    config = read_config(has_server_data=algorithm in SERVER_DATA, **values)
    held = (
        hold_points(config, mixture().server_points)
        if algorithm in SERVER_DATA
        else None
    )
    facts, public, kept = (
        (None, None, None)
        if held is None
        else (held.facts, held.public, held.on_server)
    )
    plan = draft_plan(
        config,
        run_id=1,
        n_clients=5,
        seed=1,
        n_features=WIDTH,
        server=facts,
        public_points=public,
    )
    seen: list[Seen] = []
    run_watched(
        plan,
        list(mixture().clients),
        scale=in_box,
        server_points=kept,
        watch=seen.append,
    )
    return tuple(seen)


def in_box(plan: Plan, points: Array) -> Array:
    return round_to_grid(Bounds(*plan.bounds).for_features(WIDTH).scale(points))


def statistic_of(one: Seen) -> Callable[[Array], Sequence[Array]]:
    """A round's statistic, which is taken of the same tables for right and for wrong
    bounds: once of each.
    """
    known: dict[bytes, Sequence[Array]] = {}
    planned = (
        None
        if isinstance(one.state, Discoveries)
        else build_algorithm(one.plan).rounds[one.round_index - 1]
    )

    def statistic(points: Array) -> Sequence[Array]:
        if points.tobytes() not in known:
            if planned is None:
                found = one.plan.task.preliminary_statistic(
                    one.plan, one.round_index, points, one.state
                )
            else:
                found = planned.arrays_of(points, one.state)
            known[points.tobytes()] = found
        return known[points.tobytes()]

    return statistic


def with_bound(blocks: Sequence[Block], place: int, factor: float) -> list[Block]:
    """The blocks with one bound that is another than its reason shows."""
    sensitivity = blocks[place].sensitivity
    wrong = replace(
        blocks[place],
        sensitivity=replace(sensitivity, bound=sensitivity.bound * factor),
    )
    return [*blocks[:place], wrong, *blocks[place + 1 :]]


CASES = [
    (case, discovers)
    for case in SUPPORTED
    for discovers in (False, True)[: 2 - (case[0] in SERVER_DATA)]
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("case", "discovers"), CASES, ids=str)
def test_no_neighbours_move_a_round_beyond_what_it_declares(
    case: Case, discovers: bool
) -> None:
    seen = seen_of(case, discovers=discovers)
    assert len(seen) >= 3
    assert (seen[0].round_index <= 0) == discovers
    for one in seen:
        blocks, statistic = one.plan.round_at(one.round_index).blocks, statistic_of(one)
        found = check_sensitivity(blocks, statistic, WIDTH, n_tables=1)
        assert all(0.3 < share <= 1.0 for share in found.values()), found
        # A bound 100 times too small does not pass, whatever its reason says.
        for place, block in enumerate(blocks):
            with pytest.raises(
                PlanError,
                match=f"'{block.name}' moves by .* but its sensitivity is declared as",
            ):
                check_sensitivity(
                    with_bound(blocks, place, 0.01), statistic, WIDTH, n_tables=1
                )


# -- what the check finds --------------------------------------------------------------


def block_of(
    name: str = "rows",
    *,
    unit: PrivacyUnit = PrivacyUnit.RECORD,
    entry: float = 1.0,
    **values: Any,
) -> Block:
    sensitivity = Sensitivity(Norm.L2, 1.0, unit, "it is said to", **values)
    return Block(name, (1,), sensitivity, NoiseShape.GAUSSIAN, 9.0, entry)


WRONG: dict[str, tuple[Block, Callable[[Array], Array], str]] = {
    "a step too long": (
        block_of(),
        lambda rows: np.array([len(rows) * (1.0 + 2.0**-16)]),
        "moves by 1.0000",
    ),
    "another shape": (block_of(), lambda rows: np.zeros(2), "has shape"),
    "off the grid": (
        block_of(),
        lambda rows: np.array([len(rows) / 3.0]),
        "between multiples",
    ),
    "negative": (
        block_of(nonnegative=True),
        lambda rows: rows.sum(axis=0)[:1],
        "below 0",
    ),
    "a larger entry": (
        block_of(entry=0.5),
        lambda rows: np.array([1.0 * len(rows)]),
        "and 0.5 for one entry",
    ),
    "a client that is not clipped": (
        block_of(unit=PrivacyUnit.CLIENT),
        lambda rows: np.array([1.0 * len(rows)]),
        "moves by",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_statistic_that_is_not_what_it_declares_is_found(kind: str) -> None:
    block, statistic, sentence = WRONG[kind]
    with pytest.raises(PlanError, match=sentence) as caught:
        check_sensitivity([block], lambda rows: [statistic(rows)], n_features=2)
    assert str(caught.value).endswith(".")


def test_one_entry_below_zero_refuses_a_statistic_declared_nonnegative() -> None:
    block = replace(block_of("counts", nonnegative=True), shape=(2,))
    with pytest.raises(PlanError, match="'counts' has an entry below 0"):
        check_sensitivity(
            [block], lambda rows: [np.array([-(2.0**-16), 1.0])], n_features=2
        )
