"""An algorithm's rounds, functions included, from a plan's public values."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from flwr_dpkmeans.errors import (
    PlanError,
)
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.closeness import SAME, joint_closeness
from flwr_dpkmeans.privacy.release import (
    Block,
    round_events,
)
from flwr_dpkmeans.sums.plan import Plan, PublicPoints
from flwr_dpkmeans.sums.price import (
    _multiplier_of,
)
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import EvaluationKind
from flwr_dpkmeans.threads import one_thread


@lru_cache(maxsize=64)
def build_algorithm(plan: Plan) -> Algorithm:
    """Build the algorithm's rounds, functions included, from a plan's public values."""
    return _built(_known(plan))


def initial_state(plan: Plan, server_points: Array | None = None) -> State:
    """The start of a final plan, from public randomness and the server's points, if
    there are any.

    `server_points`, (n_server, n_features) in the scaled box, are given where the plan
    does not hold them.
    """
    if server_points is not None:
        return build_algorithm(plan).initial_state(plan.seed, server_points).frozen()
    return _started(_known(plan), plan.seed, plan.public_points)


def _known(plan: Plan) -> PublicFacts:
    """The public values that an algorithm's rounds follow from."""
    if plan.n_features is None:
        raise PlanError(
            "the number of features is not known yet: wait for the clients' answers."
        )
    settings, evaluation, profile = (
        plan.settings,
        tuple[Block, ...](),
        tuple[Block, ...](),
    )
    if settings.n_beside:
        profile = plan.task.profile(
            plan.config, _multiplier_of(plan, settings.profile_share)
        )
    if settings.evaluation is EvaluationKind.PRIVATE:
        evaluation = plan.task.evaluation(
            plan.config, _multiplier_of(plan, settings.evaluation_share)
        )
    elif settings.evaluation is EvaluationKind.EXACT:
        # It has no share, and beside Laplace rounds no noise follows where nothing has
        # one.
        evaluation = plan.task.evaluation(plan.config, 0.0)
    n_shares = plan.model.counted_shares(plan.shares)
    others = plan.events(range(plan.first_round, 1))
    for blocks in filter(None, (profile, evaluation)):
        others += round_events(
            blocks, plan.fraction_bits, n_shares, settings.client_sampling_rate
        )
    released = [
        event
        for event in others
        if isinstance(event, release.GaussianRelease) and event.sampling_rate == 1.0
    ]
    squares = math.fsum(event.noise_multiplier**-2 for event in released)
    return PublicFacts(
        config=plan.config.unseeded,
        n_examples=plan.n_examples,
        n_features=plan.n_features,
        delta=plan.delta,
        released_multiplier=1.0 / math.sqrt(squares) if squares else None,
        released_closeness=(
            joint_closeness(event.closeness for event in released) if released else SAME
        ),
        fraction_bits=plan.fraction_bits,
        server=plan.server,
        noise_factor=plan.model.released_factor(plan.shares),
        n_clients=plan.n_clients,
        evaluation=evaluation,
        profile=profile,
        sampled=tuple(
            e
            for e in others
            if isinstance(e, release.GaussianRelease) and e.sampling_rate < 1.0
        ),
    )


@lru_cache(maxsize=64)
def _built(public: PublicFacts) -> Algorithm:
    """Rounds are pure functions of the public values, so equal values share them."""
    task = public.config.task
    algorithm = task.build(public)
    rounds = (
        *algorithm.rounds,
        *([task.profile_round(public)] if public.profile else []),
    )
    rounds = (
        rounds if not public.evaluation else (*rounds, task.evaluation_round(public))
    )
    # Every engine and node takes its rounds from here, so the limit on threads holds
    # for all of them.
    limited = one_thread()
    return Algorithm(
        algorithm.name, tuple(map(_limited, rounds)), limited(algorithm.initial_state)
    )


def _limited(step: PrivateSum) -> PrivateSum:
    limited = one_thread()
    labelled = None if step.labelled is None else limited(step.labelled)
    return replace(
        step,
        statistic=limited(step.statistic),
        advance=limited(step.advance),
        labelled=labelled,
    )


@lru_cache(maxsize=16)
def _started(
    public: PublicFacts, seed: int, public_points: PublicPoints | None
) -> State:
    """A start is made once in a process.

    Its arrays are read-only because they are shared.
    """
    return (
        _built(public)
        .initial_state(seed, None if public_points is None else public_points.table)
        .frozen()
    )
