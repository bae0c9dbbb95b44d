"""What one run of a plan sends, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flwr_dpkmeans.planner.run_cost import Cost, cost_of
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, Plan, round_trips
from flwr_dpkmeans.sums.wire import dump_plan

START_UP_SECONDS = 20.0
"""From `flwr run` to the first message, with the app's dependencies installed."""
# Bytes around the numbers in each of the six messages as Flower serialises their
# content, measured in process.
_PLAN_REQUEST = 280
_KEYS_REPLY = 380
_ROSTER_REQUEST = 250
_ROSTER_MEMBER = 40
_SUM_REQUEST = 772
_SUM_REPLY = 773
_FINISH_REQUEST = 749
_FINISH_REPLY = 249
_BOX = 80
_BYTES_PER_ENTRY = 8


@dataclass(frozen=True)
class Deployment:
    """What one run without dropouts sends, and how long it takes."""

    n_rounds: int
    """Aggregations without those that steer the plan (a private count, private bounds).
    """
    n_round_trips: int
    n_messages: int
    bytes_down: int
    """Payload for one client on average, without transport and TLS; so is `bytes_up`.
    """
    bytes_up: int
    minutes: float
    """Start-up and polling; a client's own computation comes on top."""
    cost: Cost | None = None
    """Of processors, memory and aggregators, by a model.

    None of what was not planned here.
    """


def deployment_of(plan: Plan) -> Deployment:
    """Count what a final plan's run sends."""
    planned_rounds = [
        plan.round_at(index) for index in range(plan.first_round, plan.last_round + 1)
    ]
    vectors = [_BYTES_PER_ENTRY * planned.length for planned in planned_rounds]
    trips = round_trips(plan)
    # Every author seals a box for every other client: on average each client sends as
    # many as it receives.
    boxed = any(planned.trust_model.hides_sums() for planned in plan.rounds)
    boxes = (
        _BOX * (plan.max_silent + 2) * (plan.n_clients - 1) // plan.n_clients
        if boxed
        else 0
    )
    # Before releases that steer it, the plan travels without its rounds.
    first = replace(
        plan,
        rounds=(),
        n_examples=plan.config.n_examples,
        box=None,
    )
    sent_plans = [first, plan] if plan.preliminary else [plan]
    down = sum(len(dump_plan(sent)) + _PLAN_REQUEST for sent in sent_plans) + boxes
    down += _ROSTER_REQUEST + _ROSTER_MEMBER * plan.n_clients
    down += (
        sum(vector + _SUM_REQUEST for vector in vectors[:-1])
        + vectors[-1]
        + _FINISH_REQUEST
    )
    up = (
        _KEYS_REPLY
        + sum(vector + _SUM_REPLY for vector in vectors)
        + _FINISH_REPLY
        + boxes
    )
    more_down, more_up = plan.aggregator.bytes_besides(plan, len(vectors))
    down, up = down + more_down, up + more_up
    minutes = (START_UP_SECONDS + SECONDS_PER_ROUND_TRIP * trips) / 60.0
    n_messages = 2 * plan.n_clients * trips
    return Deployment(
        len(plan.rounds),
        trips,
        n_messages,
        down,
        up,
        minutes,
        cost_of(plan, n_messages, up),
    )
