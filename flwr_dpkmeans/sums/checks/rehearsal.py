"""A rehearsal of what a foreign task does with releases, before anybody pays for one.

What a task of another package makes of a release, and says of the result, first runs
when the clients' ledgers are charged: an error there costs them a run. So it is called
once where nothing is in any release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import ReleasedSum, as_released
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, State
from flwr_dpkmeans.sums.task import Task

ValueT = TypeVar("ValueT")
_MOST_ROUNDS = 40
_FIRST_ROUNDS, _LAST_ROUNDS = 2, 3
"""Where there are more, those between the first and the last are like the second."""


@lru_cache(maxsize=16)
def rehearse(plan: Plan, build: Callable[[Plan], Algorithm]) -> None:
    """Refuse a final plan whose task fails, or answers nonsense, on zeros.

    By a `PlanError`.
    """
    task = plan.task
    state = _last_state(plan, build(plan))
    names = plan.settings.feature_names
    cautions = _called(task, "cautions", task.cautions, plan)
    _require_sentences(task, "cautions", cautions)
    doubts = _called(task, "doubts", task.doubts, plan, state, names)
    _require_sentences(task, "doubts", doubts)
    result = _called(task, "result", task.result, plan, state)
    if not isinstance(result, Result):
        raise _refused(task, "result", f"it returns {result!r}, which is no Result")


def _last_state(plan: Plan, algorithm: Algorithm) -> State:
    """The state after rounds whose releases are all zeros."""
    task = plan.task
    state = _called(task, "initial_state", _first_state, plan, algorithm)
    rounds = list(enumerate(algorithm.rounds))
    if len(rounds) > _MOST_ROUNDS:
        rounds = rounds[:_FIRST_ROUNDS] + rounds[-_LAST_ROUNDS:]
    for index, step in rounds:
        released = _zeros(plan, index)
        state = _called(task, "advance", step.advance, state, released)
        if not isinstance(state, State):
            raise _refused(task, "advance", f"it returns {state!r}, which is no State")
    return state


def _zeros(plan: Plan, index: int) -> ReleasedSum:
    """A release of one round in which everything is 0."""
    blocks = plan.rounds[index].blocks
    size = sum(block.size for block in blocks)
    values = np.zeros(size, dtype=np.uint64)
    return as_released(values, blocks, plan.fraction_bits)


def _first_state(plan: Plan, algorithm: Algorithm) -> State:
    """The start; points that the server does not show are taken to be zeros."""
    points = None
    if plan.public_points is not None:
        points = plan.public_points.table
    elif plan.server is not None and plan.server.n_points:
        # Of tables whose width is not known yet, any will do.
        width = 1 if plan.n_features is None else plan.n_features
        points = np.zeros((plan.server.n_points, width))
    state = algorithm.initial_state(plan.seed, points)
    return state.frozen()


def _called(
    task: Task,
    method: str,
    function: Callable[..., ValueT],
    *arguments: object,
) -> ValueT:
    """What a function of the task answers; whatever it raises is a `PlanError`."""
    try:
        return function(*arguments)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise _refused(task, method, reason) from error


def _require_sentences(
    task: Task,
    method: str,
    sentences: Iterable[str],
) -> None:
    """Refuse what is no tuple of sentences."""
    is_tuple = isinstance(sentences, tuple)
    are_texts = is_tuple and all(isinstance(item, str) for item in sentences)
    if not are_texts:
        raise _refused(
            task, method, f"it returns {sentences!r}, which is no tuple of sentences"
        )


def _refused(
    task: Task,
    method: str,
    reason: str,
) -> PlanError:
    """The error that says which method fails, and why."""
    return PlanError(
        f"the algorithm {task.name!r} fails in its {method!r} where releases are zeros"
        f" ({reason}), but noise may leave no more of a sum, after clients have paid"
        " for it: mend it there."
    )
