"""What each aggregation, and the run so far, cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr_dpkmeans.privacy.release import PureRelease
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import price

Attempts = Sequence[tuple[int, int]]
"""Aggregations of a run, (round, attempt) each."""


@dataclass(frozen=True)
class Step:
    """What the server may say of one aggregation.

    Scales of all noise by array, and the radius, are in scaled units.
    """

    round_index: int
    n_rounds: int
    attempt: int
    name: str
    n_clients: int
    epsilon: float
    noise_scales: tuple[tuple[str, float], ...]
    radius: float | None
    movement: float | None
    """Largest step of a centroid, where the server may know it."""


def epsilon_after(plan: Plan, attempts: Attempts) -> float:
    """Cost of the given (round, attempt) pairs together, at the plan's delta.

    Infinite if one released an exact sum.
    """
    events = plan.events([index for index, _ in attempts])
    cost = price(events, plan.delta)
    if all(isinstance(event, PureRelease) for event in events):
        # Laplace noise alone is priced by addition, which the mixture with what is
        # still to come may undercut; without this the cost would fall in the last
        # rounds.
        closing_rounds = range(plan.closing_round, plan.last_round + 1)
        with_closing = (*events, *plan.events(closing_rounds))
        cost = min(cost, price(with_closing, plan.delta))
    return cost


def run_epsilon(plan: Plan, attempts: Attempts) -> float:
    """What a run with these (round, attempt) pairs is said to cost.

    The price of the whole plan, also where the run ended early: who sees releases may
    have ended it for what they said. The worst case as soon as an aggregation was
    repeated: who sees releases may have silenced a client.
    """
    if not attempts:
        return epsilon_after(plan, ())
    rounds = {index for index, _ in attempts}
    is_repeated = len(rounds) < len(attempts)
    if is_repeated or not plan.is_final:
        return worst_case(plan)
    return plan.epsilon


def describe_step(
    plan: Plan,
    attempts: Attempts,
    n_clients: int,
    movement: float | None,
) -> Step:
    """Describe the last of some aggregations.

    `movement` is the largest step of a centroid, where it may be known.
    """
    index, attempt = attempts[-1]
    planned = plan.round_at(index)
    surplus = planned.trust_model.released_factor(plan.shares)
    scales = [(block.name, block.noise_scale * surplus) for block in planned.blocks]
    # What closes a run moves nothing.
    is_closing = planned.name in CLOSING_ROUNDS
    return Step(
        round_index=index,
        n_rounds=plan.last_round,
        attempt=attempt,
        name=planned.name,
        n_clients=n_clients,
        epsilon=epsilon_after(plan, attempts),
        noise_scales=tuple(scales),
        radius=planned.radius,
        movement=None if is_closing else movement,
    )
