"""What one unit can move, and what a run shows of it.

AssertionError if it is more than the plan says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.server.held_points import HeldPoints, hold_points
from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.release import Block, NoiseShape
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.round import State
from simulations.audit.cases import build_cases
from simulations.audit.information import Truth, information_of
from simulations.audit.runs import run_directly
from simulations.audit.views import Adversary
from simulations.audit.watched import Seen, run_watched
from support.protocol_federation import grid_parts

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

LAST_DIGITS = 1e-9
GRID = 2.0**16


def plan_for(
    algorithm: str, unit: str = "record", **values: Any
) -> tuple[Plan, HeldPoints | None]:
    """A plan of three clusters, and the server's points if it needs any."""
    wanted: dict[str, Any] = {
        "n_clusters": 3,
        "bounds": ((-1.0,), (1.0,)),
        "random_state": 5,
        "epsilon": 4.0,
        "delta": 1e-5,
    }
    wanted |= {
        "n_examples": 300,
        "n_features": 3,
        "algorithm": algorithm,
        "unit": unit,
        "trust": "central",
    }
    wanted |= values
    needed = algorithm_entry(algorithm).server_data is ServerData.NEEDED
    config = read_config(has_server_data=needed, **wanted)
    d = int(wanted["n_features"])
    held = (
        hold_points(config, grid_parts([12], d, seed=3)[0] * 0.25) if needed else None
    )
    plan = draft_plan(
        config, run_id=1, n_clients=3, seed=5, n_features=d,
        server=None if held is None else held.facts,
        public_points=None if held is None else held.public,
    )  # fmt: skip
    return plan, held


def require_bounds(
    algorithm: str, unit: str = "record", *, stretched: float = 1.0, **values: Any
) -> None:
    """In the states of a real run no unit moves an array further than its sensitivity.

    Exact, in whole grid steps.

    Parameters
    ----------
    algorithm, unit : str
    stretched : float
        Factor on the lengths in the state, which a server could make up.
    **values
        Of the configuration.
    """
    # Seeded, so that the states, and with them the verdict, are always the same.
    plan, held = plan_for(algorithm, unit, noise="seeded", **values)
    parts = grid_parts([40, 30, 30], plan.n_features or 1, seed=8)
    seen: list[Seen] = []
    try:
        run_watched(
            plan,
            parts,
            server_points=None if held is None else held.on_server,
            watch=seen.append,
        )
    except ProtocolError as error:
        raise AssertionError(
            f"a unit moves a sum so far that the server refuses it: {error}"
        ) from error
    for one in seen:
        assert isinstance(one.state, State)
        step = build_algorithm(one.plan).rounds[one.round_index - 1]
        state = _stretched(one.state, stretched)
        for absent, present in _neighbours(unit, plan.n_features or 1, state):
            arrays = zip(
                step.blocks,
                step.arrays_of(absent, state),
                step.arrays_of(present, state),
                strict=True,
            )
            for block, without, with_unit in arrays:
                _require_bound(
                    block,
                    np.rint((with_unit - without) * GRID).astype(np.int64).ravel(),
                    step.name,
                )


def _require_bound(block: Block, steps: NDArray[np.int64], place: str) -> None:
    bound = Fraction(block.sensitivity.bound) * 2**16
    moved = [abs(int(step)) for step in steps]
    if block.noise is NoiseShape.LAPLACE:
        size, largest = Fraction(sum(moved)), bound
    else:
        size, largest = Fraction(sum(step * step for step in moved)), bound**2
    assert size <= largest, (
        f"{place}: a unit moves {block.name!r} by more than"
        f" {block.sensitivity.bound:.6g}"
    )


def _stretched(state: State, factor: float) -> State:
    """The state with other lengths in it."""
    lengths = {
        name: array * factor
        for name, array in state.extras.items()
        if array.shape == (1,) and name != "seed"
    }
    return state.changed(**lengths)


def _neighbours(unit: str, d: int, state: State) -> Iterator[tuple[Array, Array]]:
    """Tables without and with one unit: in corners, on a centroid's far side, anywhere,
    beside few rows and many.
    """
    generator = np.random.default_rng(2)
    anywhere = grid_parts([60], d, seed=4)[0]
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=min(d, 4))))
    corners = np.pad(corners, ((0, 0), (0, d - corners.shape[1])), constant_values=1.0)
    for i, row in enumerate(np.concatenate([corners, anywhere])):
        others = anywhere[generator.integers(0, 60, i % 3 * 7)]
        if unit == "record":
            yield others, np.concatenate([others, row[None]])
        else:
            yield (
                np.zeros((0, d)),
                np.concatenate([row[None]] * (1 + i % 40) + [others]),
            )
    if unit == "client":
        yield np.zeros((0, d)), np.clip(state.centroids, -1.0, 1.0)


def require_nothing_of_nobody(algorithm: str, unit: str = "record") -> None:
    """A client without rows sends zeros, and two clients send together what one with
    all their rows would send.

    The second only for records: what a client sends is a clipped mean where clients are
    protected.
    """
    plan, held = plan_for(algorithm, unit)
    d = plan.n_features or 1
    one, other = grid_parts([20, 15], d, seed=9)
    seen: list[Seen] = []
    run_watched(
        plan,
        [one, other, one[:0]],
        server_points=None if held is None else held.on_server,
        watch=seen.append,
    )
    for passed in seen:
        assert isinstance(passed.state, State)
        step = build_algorithm(passed.plan).rounds[passed.round_index - 1]
        nothing, apart, more, both = (
            np.concatenate(
                [np.ravel(array) for array in step.arrays_of(rows, passed.state)]
            )
            for rows in (one[:0], one, other, np.concatenate([one, other]))
        )
        assert not nothing.any(), (
            f"{step.name}: a client without rows does not send zeros"
        )
        if unit == "record" and "outer" not in step.blocks[0].name:
            assert np.array_equal(apart + more, both), (
                f"{step.name}: the number of clients moves the sum"
            )


def require_information(
    algorithm: str,
    unit: str = "record",
    *,
    case: str = "edge",
    claimed: Callable[[Plan], Plan] = lambda plan: plan,
    **values: Any,
) -> None:
    """No run shows more than is claimed of any target, when what its releases show is
    added up.

    ``claimed(plan)`` makes the claim, by default the run's own plan.
    """
    trust = values.pop("trust", "central")
    built = build_cases(algorithm, trust, unit, case, values)[0]
    for candidate in built.candidates:
        view = run_directly(built, candidate, Adversary.CLIENTS, None, True)
        truth = Truth(candidate)
        parts = [
            truth.part(one.plan, one.round_index, one.state, one.members)
            for one in view.sums
        ]
        found = information_of(parts, claimed(view.plan), view.attempts)
        assert found.bound_used <= 1.0 + LAST_DIGITS, (
            f"{candidate.name}: {found.bound_used:.3f} of a sensitivity"
        )
        assert found.share <= 1.0 + LAST_DIGITS, (
            f"{candidate.name}: {found.share:.3f} of what is claimed"
        )
