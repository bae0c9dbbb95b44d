"""The same rounds, noise and masks without Flower's messages: for experiments with thousands of virtual clients.

`run_direct` plays all parties of a final plan in one process. For equal seeds its centroids are those of the Flower
engines, with masks and without: masks cancel exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import ReleasedSum, vector_length
from flwr_dpkmeans.secagg.client import ClientState, admit, admit_finish, answer, unblind
from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumRequest
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, Ring, encode
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.server import ServerSession
from flwr_dpkmeans.sums.draft import build_algorithm, initial_state, redraft_plan
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, make_noise_source, takes_part
from flwr_dpkmeans.sums.round import Labels, State
from flwr_dpkmeans.sums.statement import Step, describe_step
from flwr_dpkmeans.sums.task import Found, Result
from flwr_dpkmeans.sums.trust import as_released, trust_model, with_noise

Array = NDArray[np.float64]

FIRST_NODE_ID = 2
"""As in the other engines, where node 1 is the SuperLink: seeded noise depends on a client's id."""
_ATTEMPT = 0


@dataclass(frozen=True)
class DirectResult:
    """What a direct run leaves.

    Parameters
    ----------
    state : State
        After the last round.
    steps : tuple of Step
        One for each aggregation.
    attempts : tuple of (round, attempt)
        Every aggregation, for the report.
    plan : Plan
        The final one.
    found : Found
        What preliminary releases told.
    """

    state: State
    steps: tuple[Step, ...]
    attempts: tuple[tuple[int, int], ...]
    plan: Plan
    found: Found

    @property
    def result(self) -> Result:
        """What the task makes of the last state."""
        return self.plan.task.result(self.plan, self.state)


@dataclass(frozen=True)
class Seen:
    """Everything that passes by in one aggregation, for audits: what one party sees of a run is a part of it.

    Parameters
    ----------
    plan : Plan
        In force.
    round_index, attempt : int
        Which aggregation.
    state : State or Found
        What the clients' statistics were taken at; `Found` in preliminary rounds.
    sent : tuple of ndarray of uint64
        Each client's vector before it is masked, with its share of the noise: known to that client alone.
    received : tuple of ndarray of uint64
        What the server gets of each client.
    aggregate : AggregateVector
        What the server adds up.
    broadcast : ndarray of uint64
        What the server sends on.
    released : ndarray of uint64
        What a client reads.
    """

    plan: Plan = field(repr=False)
    round_index: int
    attempt: int
    state: State | Found = field(repr=False)
    sent: tuple[Ring, ...] = field(repr=False)
    received: tuple[Ring, ...] = field(repr=False)
    aggregate: AggregateVector = field(repr=False)
    broadcast: Ring = field(repr=False)
    released: Ring = field(repr=False)


def _as_given(plan: Plan, points: Array) -> Array:
    """Take points that are in the plan's box already."""
    del plan
    return points


def run_direct(
    plan: Plan,
    parts: Sequence[Array],
    *,
    scale: Callable[[Plan, Array], Array] = _as_given,
    server_points: Array | None = None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = lambda _: None,
    watch: Callable[[Seen], None] | None = None,
) -> DirectResult:
    """Run a plan over clients in this process.

    Parameters
    ----------
    plan : Plan
        Final, or with its width and preliminary rounds; `config.settings.masking` decides on masks.
    parts : sequence of ndarray, (n_i, n_features)
        One table for each client.
    scale : callable
        ``scale(plan, points)`` puts one table into the final plan's box, on the grid; by default it is there already.
    server_points : ndarray, (n_server, n_features), optional
        The server's own points, likewise, if the plan does not hold them.
    labels : sequence of ndarray of int, (n_i,), optional
        For each client, if the plan evaluates against labels.
    on_step : callable
        Told a `Step` after each aggregation.
    watch : callable, optional
        For audits: told what all parties saw of each aggregation.

    Returns
    -------
    DirectResult

    Raises
    ------
    PlanError
        If the plan waits for something that no round of its own finds, or is for another number of clients.
    """
    if plan.is_final == bool(plan.preliminary) or plan.n_features is None:
        raise PlanError("the plan waits for the tables' width, or knows what it is still to find: draft it again.")
    if len(parts) != plan.n_clients:
        raise PlanError(f"the plan is for {plan.n_clients} clients, but there are {len(parts)}: draft it again.")
    cohort: _Cohort = _MaskedCohort(plan) if plan.settings.masking else _PlainCohort(plan)
    steps: list[Step] = []
    attempts: list[tuple[int, int]] = []

    def record(index: int, movement: float | None) -> None:
        attempts.append((index, _ATTEMPT))
        steps.append(describe_step(plan, attempts, plan.n_clients, movement))
        on_step(steps[-1])

    def aggregate(index: int, statistics: Iterable[Sequence[Array]], state: State | Found) -> ReleasedSum:
        cohort.open_round(index)
        sent, received = [], []
        for position, arrays in enumerate(statistics):
            vector = _contribution(plan, arrays, index, position)
            masked = cohort.take(position, vector)
            if watch is not None:
                sent.append(vector.values)
                received.append(masked)
        result = cohort.released(index)
        if watch is not None:
            watch(Seen(plan, index, _ATTEMPT, state, tuple(sent), tuple(received), *cohort.passed))
        return result

    found = Found()
    for index in range(plan.first_round, 1):
        exact = (plan.task.preliminary_statistic(plan, index, points, found) for points in parts)
        found = plan.task.take_preliminary(plan, index, aggregate(index, exact, found), found)
        record(index, None)
    if plan.preliminary:
        plan = redraft_plan(plan, n_features=plan.n_features, n_examples=found.n_examples, box=found.box)
        cohort.plan = plan
    scaled = [scale(plan, points) for points in parts]
    state = initial_state(plan, server_points)
    for index, step in enumerate(build_algorithm(plan).rounds, start=1):
        shown = state.view(step.reads)
        own = (
            step.arrays_of(points, shown, None if labels is None else labels[position])
            for position, points in enumerate(scaled)
        )
        state = step.advance(state, aggregate(index, own, shown))
        record(index, state.movements[-1] if state.movements else None)
    return DirectResult(state, tuple(steps), tuple(attempts), plan, found)


def _contribution(plan: Plan, arrays: Sequence[Array], index: int, position: int) -> FixedPointVector:
    """One client's clipped statistic, or zeros, with its share of the noise where the trust model asks for it."""
    planned, node = plan.round_at(index), FIRST_NODE_ID + position
    if takes_part(plan, node, index, _ATTEMPT):
        flat = np.concatenate([np.ravel(array) for array in arrays])
    else:
        flat = np.zeros(vector_length(planned.blocks))
    trust = trust_model(planned.trust)
    vector = encode(flat, plan.fraction_bits)
    if not trust.shared_noise:
        return vector
    noise = make_noise_source(plan, "client", node, index, _ATTEMPT)
    return trust.contribute(vector, planned.blocks, plan.fraction_bits, plan.shares, noise)


class _Cohort:
    """Adds vectors up and releases the sum as the trust model says."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.noise = make_noise_source(plan, "server")
        nothing: Ring = np.zeros(0, dtype=np.uint64)
        self.passed: tuple[AggregateVector, Ring, Ring] = (AggregateVector(nothing, blinded=False), nothing, nothing)
        """Of the last aggregation: the server's sum, what it sends on, and what a client reads."""

    def open_round(self, index: int) -> None:
        """Begin a round."""
        raise NotImplementedError

    def take(self, position: int, vector: FixedPointVector) -> Ring:
        """Take one client's vector, and return what the server gets of it."""
        raise NotImplementedError

    def released(self, index: int) -> ReleasedSum:
        """Finish the round."""
        raise NotImplementedError

    def planned(self, index: int) -> PlannedRound:
        """The round as it stands in the plan."""
        return self.plan.round_at(index)


class _PlainCohort(_Cohort):
    """Without masks: every vector is seen by whoever runs this."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._total: Ring = np.zeros(0, dtype=np.uint64)

    def open_round(self, index: int) -> None:
        self._total = np.zeros(vector_length(self.planned(index).blocks), dtype=np.uint64)

    def take(self, position: int, vector: FixedPointVector) -> Ring:
        del position
        self._total += vector.values
        return vector.values

    def released(self, index: int) -> ReleasedSum:
        planned, bits = self.planned(index), self.plan.fraction_bits
        values, aggregate = self._total, AggregateVector(self._total, blinded=False)
        if not trust_model(planned.trust).shared_noise:
            values = with_noise(aggregate, planned.blocks, bits, self.noise)
        self.passed = (aggregate, values, values)
        return as_released(values, planned.blocks, bits)


class _MaskedCohort(_Cohort):
    """With masks: the clients' and the server's side of the aggregation protocol, without a transport."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        trust = trust_model(plan.settings.trust)
        keys = {FIRST_NODE_ID + i: generate_private_key() for i in range(plan.n_clients)}
        self._roster = Roster.of(_ATTEMPT, {node: public_key_of(key) for node, key in keys.items()})
        self._session = ServerSession(
            self._roster,
            min_cohort=plan.min_cohort,
            max_retries=0,
            max_silent=plan.max_silent,
            authored=trust.blinded,
        )
        self._clients = {
            node: ClientState(
                run_id=plan.run_id,
                node_id=node,
                private_key=key,
                min_cohort=plan.min_cohort,
                max_silent=plan.max_silent,
                authored=trust.blinded,
                plan_digest=b"direct",
            )
            for node, key in keys.items()
        }
        self._last: Release | None = None

    def open_round(self, index: int) -> None:
        """Every client's request is admitted when its vector is taken."""
        self._session.open_round(index, vector_length(self.planned(index).blocks))

    def take(self, position: int, vector: FixedPointVector) -> Ring:
        """Mask one client's vector and hand it to the server's side."""
        node, index = FIRST_NODE_ID + position, self._session.round_index
        first = self._session.expects_roster()
        boxes = self._session.take_boxes(node)
        request = SumRequest(index, _ATTEMPT, self._roster if first else None, self._last, boxes)
        admitted = admit(self._clients[node], request, first_round=self.plan.first_round)
        blinded = trust_model(self.planned(index).trust).blinded
        self._clients[node], reply = answer(admitted, request, vector, blinded=blinded, state_digest=b"")
        self._session.receive(node, reply)
        return reply.masked.values

    def released(self, index: int) -> ReleasedSum:
        """Aggregate, add noise, and read the result as a client does."""
        planned, bits = self.planned(index), self.plan.fraction_bits
        trust = trust_model(planned.trust)
        aggregate = self._session.aggregate(blinded=trust.blinded)
        values = trust.broadcast(aggregate, planned.blocks, bits, self.noise).values
        self._last = Release(index, _ATTEMPT, values)
        reader = self._clients[FIRST_NODE_ID]
        if trust.blinded and not reader.group_keys:
            # The boxes go to the client again with its next request, so they are only looked at here.
            boxes = self._session.take_boxes(FIRST_NODE_ID)
            reader = admit_finish(reader, FinishRequest(self._last, boxes))
            self._clients[FIRST_NODE_ID] = replace(reader, phase=self._clients[FIRST_NODE_ID].phase)
        readable = unblind(reader, self._last, blinded=trust.blinded)
        self.passed = (aggregate, values, readable.values)
        return trust.read(readable, planned.blocks, bits)
