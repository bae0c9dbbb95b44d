"""An algorithm's rounds, functions included, from a plan's public values."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.closeness import SAME, joint_closeness
from flwr_dpkmeans.privacy.release import Block, Event, ReleasedSum, round_events
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import FIRST_TASK_ROUND, Plan
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.price import closing_multiplier
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import EvaluationKind
from flwr_dpkmeans.threads import one_thread


@lru_cache(maxsize=64)
def build_algorithm(plan: Plan) -> Algorithm:
    """Build the algorithm's rounds, functions included, from a plan's public values."""
    return _built(public_facts(plan))


def task_round(plan: Plan, index: int) -> PrivateSum:
    """One of the task's own rounds, functions included, by its index in the plan."""
    return build_algorithm(plan).rounds[index - FIRST_TASK_ROUND]


def as_arrays(plan: Plan, index: int, values: Ring) -> ReleasedSum:
    """A noised and readable sum as the arrays of its round."""
    planned = plan.round_at(index)
    readable = AggregateVector(values, blinded=False)
    return planned.trust_model.read(readable, planned.blocks, plan.fraction_bits)


def discoveries_after(
    plan: Plan, index: int, discoveries: Discoveries, values: Ring
) -> Discoveries:
    """Add what a preliminary release tells."""
    released = as_arrays(plan, index, values)
    return plan.task.take_preliminary(plan, index, released, discoveries)


@lru_cache(maxsize=4)
def state_after(plan: Plan, index: int, state: State, values: bytes) -> State:
    """Make the step that follows from a readable release, as its bytes.

    Server and clients each make it, since clients believe no server. All that are in
    one process share it: it may take eigenvectors, or k-means with restarts.
    """
    released = as_arrays(plan, index, np.frombuffer(values, dtype=np.uint64))
    return task_round(plan, index).advance(state, released)


def initial_state(plan: Plan, server_points: Array | None = None) -> State:
    """Make the start of a final plan, from public randomness and the server's points.

    `server_points`, (n_server, n_features) in the scaled box, are handed in where the
    plan does not hold them.
    """
    if server_points is None:
        return _started(public_facts(plan), plan.seed, plan.public_points)
    algorithm = build_algorithm(plan)
    state = algorithm.initial_state(plan.seed, server_points)
    return state.frozen()


def public_facts(plan: Plan) -> PublicFacts:
    """The public values that an algorithm's rounds follow from."""
    if plan.n_features is None:
        raise PlanError(
            "the number of features is not known yet: wait for the clients' answers."
        )
    profile = _profile_blocks(plan)
    evaluation = _evaluation_blocks(plan)
    gaussians = [
        event
        for event in _other_events(plan, profile, evaluation)
        if isinstance(event, release.GaussianRelease)
    ]
    of_all = [event for event in gaussians if event.sampling_rate == 1.0]
    sampled = [event for event in gaussians if event.sampling_rate < 1.0]
    released_multiplier = None
    released_closeness = SAME
    if of_all:
        squares = math.fsum(event.noise_multiplier**-2 for event in of_all)
        # Of noise beyond all numbers, whose share is refused later, nothing is left.
        if squares > 0.0:
            released_multiplier = 1.0 / math.sqrt(squares)
        released_closeness = joint_closeness(event.closeness for event in of_all)
    return PublicFacts(
        config=plan.config.unseeded,
        n_examples=plan.n_examples,
        n_features=plan.n_features,
        delta=plan.delta,
        released_multiplier=released_multiplier,
        released_closeness=released_closeness,
        fraction_bits=plan.fraction_bits,
        server=plan.server,
        noise_factor=plan.trust_model.released_factor(plan.shares),
        n_clients=plan.n_clients,
        evaluation=evaluation,
        profile=profile,
        sampled=tuple(sampled),
    )


def _profile_blocks(plan: Plan) -> tuple[Block, ...]:
    """What a description of the groups releases; empty without one."""
    settings = plan.settings
    if not settings.n_beside:
        return ()
    multiplier = closing_multiplier(plan, settings.profile_share)
    return plan.task.profile(plan.config, multiplier)


def _evaluation_blocks(plan: Plan) -> tuple[Block, ...]:
    """What an evaluation of the result releases; empty without one."""
    settings = plan.settings
    if settings.evaluation is EvaluationKind.NONE:
        return ()
    # An exact one has no share, and beside Laplace rounds no noise follows where
    # nothing has one.
    multiplier = 0.0
    if settings.evaluation is EvaluationKind.PRIVATE:
        multiplier = closing_multiplier(plan, settings.evaluation_share)
    return plan.task.evaluation(plan.config, multiplier)


def _other_events(
    plan: Plan,
    profile: tuple[Block, ...],
    evaluation: tuple[Block, ...],
) -> tuple[Event, ...]:
    """Privacy events of all releases that are not the task's own."""
    n_shares = plan.trust_model.counted_shares(plan.shares)
    rate = plan.settings.client_sampling_rate
    events = plan.events(range(plan.first_round, 1))
    for blocks in (profile, evaluation):
        if blocks:
            events += round_events(
                blocks,
                plan.fraction_bits,
                n_shares,
                rate,
            )
    return events


@lru_cache(maxsize=64)
def _built(public: PublicFacts) -> Algorithm:
    """Rounds are pure functions of the public values, so equal values share them."""
    task = public.config.task
    algorithm = task.build(public)
    rounds = list(algorithm.rounds)
    if public.profile:
        rounds.append(task.profile_round(public))
    if public.evaluation:
        rounds.append(task.evaluation_round(public))
    # Every engine and node takes its rounds from here, so the limit on threads holds
    # for all of them.
    limited = one_thread()
    return Algorithm(
        name=algorithm.name,
        rounds=tuple(_with_one_thread(step) for step in rounds),
        initial_state=limited(algorithm.initial_state),
    )


def _with_one_thread(step: PrivateSum) -> PrivateSum:
    """A round whose functions run in one thread."""
    limited = one_thread()
    return replace(
        step,
        statistic=limited(step.statistic),
        advance=limited(step.advance),
        labelled=None if step.labelled is None else limited(step.labelled),
        weighted=None if step.weighted is None else limited(step.weighted),
        of_each=None if step.of_each is None else limited(step.of_each),
    )


@lru_cache(maxsize=16)
def _started(
    public: PublicFacts,
    seed: int,
    public_points: PublicPoints | None,
) -> State:
    """Make a start, once in a process.

    Its arrays are read-only because they are shared.
    """
    points = None if public_points is None else public_points.table
    state = _built(public).initial_state(seed, points)
    return state.frozen()
