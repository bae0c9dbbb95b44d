"""Rounds that follow from a private count.

The price of the whole, over all outcomes of the count.

Each plan alone may cost what was asked for, and the whole more: an outcome that speaks
for one of two neighbours can also be one after which more is told. All that may follow
must be priced as one mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import ndtr
from support.pricing import mixture_delta

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.release import Block, dominating_release
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import price
from flwr_dpkmeans.sums.public_facts import ServerFacts

Array = NDArray[np.float64]
Outcome = tuple[float, float, Plan]
"""From which count to which one a plan follows."""
DELTA = 1e-6
STEPS = 20_000
"""The grid of losses has so many steps to an epsilon of 1."""


def plan_of(n_examples: int | None, n_features: int = 1, **values: Any) -> Plan:
    settings = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "sulloyd",
        "trust": "central",
    }
    config = parse_config(**settings | {"delta": DELTA, "epsilon": 1.0} | values)
    box = ((-1.0,) * n_features, (1.0,) * n_features) if config.private_bounds else None
    return draft_plan(
        config,
        run_id=1,
        n_clients=10,
        seed=7,
        n_features=n_features,
        n_examples=n_examples,
        box=box,
    )


def is_laplace(block: Block) -> bool:
    return block.noise.value == "laplace"


def epsilons_of(plan: Plan) -> list[float]:
    return [
        1.0 / block.noise_multiplier
        for one in plan.rounds
        for block in one.blocks
        if is_laplace(block)
    ]


@cache
def outcomes() -> tuple[Outcome, ...]:
    """All plans that can follow, by their numbers of rounds: 2 to 7."""
    low, found = -math.inf, []
    for n_rounds in range(2, 8):
        inside, outside = (10, 4000) if n_rounds == 2 else (math.ceil(low), 4000)
        plan = plan_of(inside)
        assert len(plan.rounds) == n_rounds
        while outside - inside > 1:
            middle = (inside + outside) // 2
            inside, outside = (
                (middle, outside)
                if len(plan_of(middle).rounds) == n_rounds
                else (inside, middle)
            )
        found.append((low, inside + 0.5 if n_rounds < 7 else math.inf, plan))
        low = inside + 0.5
    return tuple(found)


# -- the loss of the rounds ------------------------------------------------------------


def laplace_losses(epsilon: float, *, upward: bool) -> Array:
    """Probabilities of the loss of Laplace noise on a number that moves by its bound,
    each moved to the next step.
    """
    reach = math.ceil(epsilon * STEPS)
    edges = np.arange(-reach, reach) / STEPS
    # A loss of at most l < epsilon has the probability exp((l - epsilon)/2)/2; that of
    # epsilon is 1/2.
    below = np.where(edges < -epsilon, 0.0, 0.5 * np.exp((edges - epsilon) / 2.0))
    masses = np.diff(np.concatenate([[0.0], below, [1.0]]))
    return masses if upward else np.concatenate([masses[1:], [0.0]])


def round_losses(epsilons: Sequence[float], *, upward: bool) -> tuple[Array, Array]:
    """The loss of all noise together, and its probabilities where the row is there."""
    masses = np.ones(1)
    for epsilon in epsilons:
        masses = np.maximum(
            fftconvolve(masses, laplace_losses(epsilon, upward=upward)), 0.0
        )
    reach = len(masses) // 2
    return np.arange(-reach, reach + 1) / STEPS, masses


def response_losses(epsilons: Sequence[float]) -> tuple[Array, Array]:
    """The same for the worst mechanism of each epsilon, which is the noise of one grid
    step on a bound of one.
    """
    losses, masses = np.zeros(1), np.ones(1)
    for epsilon in epsilons:
        yes = 1.0 / (1.0 + math.exp(-epsilon))
        losses = np.add.outer(losses, [epsilon, -epsilon]).ravel()
        masses = np.multiply.outer(masses, [yes, 1.0 - yes]).ravel()
    return losses, masses


def delta_of_all(
    losses: Sequence[tuple[Array, Array]], rows: int, *, more: bool
) -> float:
    """Delta between `rows` and one row less, or one more, with `losses` after each
    outcome: an integral over the count.

    A count y speaks for the rows by (y - middle)/std^2 times the difference; where that
    and the rounds' loss are above epsilon, the difference of the two probabilities
    counts, in closed form.
    """
    total, difference = 0.0, 1.0 if more else -1.0
    other = rows - difference
    (block,) = outcomes()[0][2].preliminary[0].blocks
    std = block.noise_scale
    for (low, high, _), (values, masses) in zip(outcomes(), losses, strict=True):
        turning = 0.5 * (rows + other) + difference * std**2 * (1.0 - values)
        starts, ends = (
            (np.maximum(low, turning), high)
            if more
            else (low, np.minimum(high, turning))
        )
        own, others = (
            ndtr((ends - at) / std) - ndtr((starts - at) / std) for at in (rows, other)
        )
        inside = np.broadcast_to(starts < ends, masses.shape)
        total += float(
            masses @ np.where(inside, own - np.exp(1.0 - values) * others, 0.0)
        )
    return total


def largest_delta(losses: Sequence[tuple[Array, Array]]) -> float:
    """Between 932 and 933 rows, whichever is the one with more."""
    return max(
        delta_of_all(losses, 933, more=True), delta_of_all(losses, 932, more=False)
    )


# -- what the whole costs --------------------------------------------------------------

CALIBRATED_ALONE = (0.984148, 0.987017, 0.990373, 0.994488, 1.000104, 1.009890)
"""Totals with which 2 to 7 rounds cost epsilon 1, each number for itself."""


def alone(plan: Plan, total: float) -> list[float]:
    own = epsilons_of(plan)
    return [epsilon * total / math.fsum(own) for epsilon in own]


def test_the_test_sees_that_plans_which_are_priced_alone_cost_more_together() -> None:
    lists = [
        alone(plan, total)
        for (*_, plan), total in zip(outcomes(), CALIBRATED_ALONE, strict=True)
    ]
    assert (
        largest_delta([round_losses(each, upward=False) for each in lists])
        > 1.5 * DELTA
    )
    assert largest_delta([response_losses(each) for each in lists]) > 2.5 * DELTA


def test_a_count_and_the_rounds_that_follow_from_it_cost_what_is_claimed() -> None:
    lists = [epsilons_of(plan) for *_, plan in outcomes()]
    assert largest_delta([round_losses(each, upward=True) for each in lists]) <= DELTA
    assert largest_delta([response_losses(each) for each in lists]) <= DELTA
    # Nor if all that follows is the worst that is as private.
    worst = largest_delta([response_losses([math.fsum(each)]) for each in lists])
    assert 0.99 * DELTA < worst <= DELTA


OPTIONS: dict[str, dict[str, Any]] = {
    "alone": {},
    "with an evaluation": {"evaluation": "private"},
    "with private bounds": {
        "private_bounds": True,
        "bounds": ((-8.0,), (8.0,)),
        "n_features": 3,
    },
    "with both": {
        "private_bounds": True,
        "evaluation": "private",
        "count_share": 0.2,
        "epsilon": 4.0,
    },
    "with a given number": {"max_iter": 5},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_all_numbers_of_rounds_have_one_total_and_one_price(kind: str) -> None:
    plans = [plan_of(n, **OPTIONS[kind]) for n in (20, 450, 580, 700, 850, 10**5)]
    totals = [math.fsum(epsilons_of(plan)) for plan in plans]
    assert max(totals) <= min(totals) * (1.0 + 1e-14)
    gaussian = [
        b
        for one in (*plans[0].preliminary, *plans[0].rounds)
        for b in one.blocks
        if not is_laplace(b)
    ]
    mu = math.sqrt(math.fsum(block.noise_multiplier**-2 for block in gaussian))
    for plan in plans:
        assert plan.epsilon == pytest.approx(plans[0].epsilon, rel=1e-12)
        assert (
            0.999 * plan.config.epsilon
            < plan.epsilon
            <= plan.config.epsilon * (1.0 + 1e-12)
        )
        assert mixture_delta(plan.config.epsilon, mu, [max(totals)]) <= DELTA
    if "max_iter" not in OPTIONS[kind]:
        assert len({len(plan.rounds) for plan in plans}) > 1


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "proxy_lloyd"])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-9), (1.0, None), (1.0, 1e-9), (20.0, 1e-9)]
)
def test_gaussian_rounds_that_follow_from_a_count_have_one_total(
    algorithm: str, epsilon: float, delta: float | None
) -> None:
    """Squared multipliers are then a filter."""
    counts = (300, 1000, 5000, 10**5, 5 * 10**5)
    plans = [
        plan_of(n, 5, n_clusters=4, algorithm=algorithm, epsilon=epsilon, delta=delta)
        for n in counts
    ]
    assert plans[0].rounds != plans[-1].rounds
    squares = [
        math.fsum(
            b.noise_multiplier**-2
            for r in (*p.preliminary, *p.rounds)
            for b in r.blocks
        )
        for p in plans
    ]
    levels = {plan.delta for plan in plans}
    for level in levels:
        within = [
            square
            for plan, square in zip(plans, squares, strict=True)
            if plan.delta == level
        ]
        assert max(within) <= min(within) * (1.0 + 1e-12)
        assert delta is None or len(levels) == 1
    assert max(squares) <= squares[0] * (1.0 + 1e-12)
    worst = dominating_release([plan.events() for plan in plans])
    assert price((worst,), max(plan.delta for plan in plans)) <= epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize("algorithm", ["sulloyd", "sphere_packing"])
def test_no_noise_beside_laplace_noise_follows_from_private_bounds(
    algorithm: str,
) -> None:
    values = {"algorithm": algorithm, "private_bounds": True, "n_examples": 1000}
    values |= (
        {"noise_kind": "paper", "n_examples": None}
        if algorithm == "sphere_packing"
        else {}
    )
    config = parse_config(
        n_clusters=2, bounds=((-8.0,), (8.0,)), trust="central", **values
    )
    boxes = [((-1.0, -8.0), (1.0, 8.0)), ((0.0, 0.5), (1e-6, 0.75))]
    plans = [
        draft_plan(config, run_id=1, n_clients=10, seed=7, n_features=2, box=box)
        for box in boxes
    ]
    assert any(is_laplace(block) for one in plans[0].rounds for block in one.blocks)
    assert plans[0].rounds == plans[1].rounds


def test_paper_noise_counts_nothing() -> None:
    """Its plan follows from no release, so that each array is priced for itself."""
    server = ServerFacts(50, (0.0, 0.0), 0.7, 0.5, 1.0, 2.0, 1.5)
    config = parse_config(
        n_clusters=2,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        noise_kind="paper",
        trust="central",
    )
    plan = draft_plan(
        config, run_id=1, n_clients=10, seed=7, n_features=2, server=server
    )
    assert plan.is_final
    assert plan.preliminary == ()
