"""One run of the real code, and the view of it.

Without Flower's messages (fast), or with them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.statement import steps
from simulations.audit.cases import Case, Neighbours
from simulations.audit.information import in_box
from simulations.audit.views import Adversary, View, view_of
from simulations.audit.watched import Seen, run_watched

Runner = Callable[[bool], View]
"""``run(present) -> View``: one fresh run with the target or without."""


class Engine(Enum):
    """What carries a run."""

    DIRECT = "direct"
    MESSAGES = "messages"


class _Enough(Exception):
    """The adversary looks no further."""


def make_runner(
    case: Case,
    neighbours: Neighbours,
    adversary: Adversary,
    engine: Engine = Engine.DIRECT,
    *,
    until: int | None = None,
    retries: int = 0,
) -> Runner:
    """Return a function that runs once, with fresh keys, masks and noise.

    Parameters
    ----------
    case : Case
    neighbours : Neighbours
    adversary : Adversary
    engine : Engine
    until : int, optional
        Last round that the adversary looks at; the claim is then that of the rounds up
        to it.
    retries : int
        Sums that are asked for twice, since a reply is held back; `Engine.MESSAGES`
        only.

    Returns
    -------
    callable

    Raises
    ------
    ConfigurationError
        If there is no such round, or the engine cannot lose replies.
    """
    last = case.plan.last_round if case.plan.is_final else 0
    if until is not None and not case.plan.first_round <= until <= last:
        raise ConfigurationError(
            f"until is {until}, but the plan has rounds {case.plan.first_round} to"
            f" {last}: give one of them."
        )
    if engine is Engine.DIRECT:
        if retries:
            raise ConfigurationError(
                f"retries is {retries}, but engine='direct' loses no reply: choose"
                " engine='messages'."
            )
        return partial(run_directly, case, neighbours, adversary, until)
    if until is not None:
        raise ConfigurationError(
            "until was given, but engine='messages' runs to the end: choose"
            " engine='direct'."
        )
    return partial(_run_with_messages, case, neighbours, adversary, retries)


def _run_with_messages(
    case: Case,
    neighbours: Neighbours,
    adversary: Adversary,
    retries: int,
    present: bool,
) -> View:
    """Run with messages, which take Flower to import."""
    from simulations.audit.message_runs import run_with_messages

    return run_with_messages(case, neighbours, adversary, retries, present)


def run_directly(
    case: Case,
    neighbours: Neighbours,
    adversary: Adversary,
    until: int | None,
    present: bool,
) -> View:
    """Run without messages; masks are on."""
    seen: list[Seen] = []

    def watch(aggregation: Seen) -> None:
        seen.append(aggregation)
        if aggregation.round_index == until:
            raise _Enough

    parts = neighbours.present if present else neighbours.absent
    try:
        run = run_watched(
            case.plan,
            parts,
            scale=in_box,
            server_points=case.private_points,
            watch=watch,
        )
    except _Enough:
        attempts = tuple(
            (aggregation.round_index, aggregation.attempt) for aggregation in seen
        )
        # A run that is left early has no account of its own.
        claimed = steps.epsilon_after(seen[-1].plan, attempts)
        return view_of(seen, adversary, seen[-1].plan, None, attempts, claimed)
    return view_of(
        seen,
        adversary,
        run.plan,
        run.state,
        run.attempts,
        run.steps[-1].epsilon,
    )
