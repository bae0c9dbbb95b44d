"""What a run costs in messages, bytes and minutes of a deployment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flwr_dpkmeans.config import Dropout
from flwr_dpkmeans.flower.exchange import SECONDS_PER_ROUND_TRIP, round_trips
from flwr_dpkmeans.privacy.release import vector_length
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.recovery.agreement import GIVEN_BYTES
from flwr_dpkmeans.secagg.recovery.graph import recovery_graph
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.trust import trust_model
from flwr_dpkmeans.sums.wire import dump_plan

START_UP_SECONDS = 20.0
"""From `flwr run` to the first message, with the app's dependencies installed."""
# Bytes around the numbers in each of the six messages as Flower serialises their content, measured in process.
_PLAN_REQUEST, _KEYS_REPLY = 280, 380
_ROSTER_REQUEST, _ROSTER_MEMBER = 250, 40
_SUM_REQUEST, _SUM_REPLY = 772, 773
_FINISH_REQUEST, _FINISH_REPLY = 749, 249
_BOX = 80
_BYTES_PER_ENTRY = 8
# Likewise where sums are recovered; boxes, shares and tickets each come with a node id and a length.
_SHARE_REPLY, _UNMASK_REQUEST, _UNMASK_REPLY = 250, 100, 80
_ID, _ID_AND_LENGTH, _SEALED = 8, 12, 28


@dataclass(frozen=True)
class Deployment:
    """What one run without dropouts sends, and how long it takes.

    Parameters
    ----------
    n_rounds : int
        T, the aggregations; those that steer the plan (a private count, private bounds) are not included.
    n_round_trips : int
        T + 2 (keys and the last release), and one for each aggregation that steers the plan; where sums are recovered,
        one more for each aggregation and one for the key shares.
    n_messages : int
        Requests and replies of all clients.
    bytes_down, bytes_up : int
        Payload of one client on average, without transport and TLS.
    minutes : float
        Start-up and polling; a client's own computation comes on top.
    """

    n_rounds: int
    n_round_trips: int
    n_messages: int
    bytes_down: int
    bytes_up: int
    minutes: float


def deployment_of(plan: Plan) -> Deployment:
    """Count what a final plan's run sends.

    Parameters
    ----------
    plan : Plan
        Final.

    Returns
    -------
    Deployment
    """
    planned_rounds = [plan.round_at(index) for index in range(plan.first_round, plan.last_round + 1)]
    vectors = [_BYTES_PER_ENTRY * vector_length(planned.blocks) for planned in planned_rounds]
    trips = round_trips(plan)
    # Every author seals a box for every other client: on average each client sends as many as it receives.
    boxed = any(trust_model(planned.trust).blinded for planned in plan.rounds)
    boxes = _BOX * max(2, plan.max_silent + 2) * (plan.n_clients - 1) // plan.n_clients if boxed else 0
    down = sum(len(dump_plan(sent)) for sent in _sent_plans(plan)) + _PLAN_REQUEST + boxes
    down += _ROSTER_REQUEST + _ROSTER_MEMBER * plan.n_clients
    down += sum(vector + _SUM_REQUEST for vector in vectors[:-1]) + vectors[-1] + _FINISH_REQUEST
    up = _KEYS_REPLY + sum(vector + _SUM_REPLY for vector in vectors) + _FINISH_REPLY + boxes
    if plan.dropout is Dropout.RECOVER:
        more_down, more_up = _recovery_bytes(plan, len(vectors))
        down, up = down + more_down, up + more_up
    minutes = (START_UP_SECONDS + SECONDS_PER_ROUND_TRIP * trips) / 60.0
    return Deployment(len(plan.rounds), trips, 2 * plan.n_clients * trips, down, up, minutes)


def _recovery_bytes(plan: Plan, n_aggregations: int) -> tuple[int, int]:
    """What one client receives and sends besides, where sums are recovered and nobody falls silent."""
    degree, keys = recovery_graph(plan.n_clients, plan.max_silent).degree, KEY_BYTES * plan.slots.number
    boxes = degree * (_ID_AND_LENGTH + _SEALED + 3 * keys)
    tickets, given = degree * (_ID_AND_LENGTH + KEY_BYTES), degree * (_ID_AND_LENGTH + GIVEN_BYTES)
    down = boxes + n_aggregations * (2 * _ID * plan.n_clients + _UNMASK_REQUEST)
    up = boxes + _SHARE_REPLY + 2 * keys + n_aggregations * (tickets + given + _UNMASK_REPLY)
    return down, up


def _sent_plans(plan: Plan) -> list[Plan]:
    """The plans that travel in a run which ends with this one: before releases that steer it, it is shorter."""
    if not plan.preliminary:
        return [plan]
    first = replace(plan, rounds=(), n_examples=plan.config.n_examples, box=None)
    return [first, plan]
