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
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, State
from flwr_dpkmeans.sums.task import Task

ValueT = TypeVar("ValueT")
_FIRST_ROUNDS, _LAST_ROUNDS = 2, 3
"""Rounds between them are like the second."""


def is_foreign(task: Task) -> bool:
    """Whether a task is of another package, whose tests are not ours."""
    return type(task).__module__.split(".")[0] != __name__.split(".")[0]


@lru_cache(maxsize=16)
def rehearse(plan: Plan, build: Callable[[Plan], Algorithm]) -> None:
    """Refuse a final plan whose task fails, or answers nonsense, on releases of zeros,
    by a `PlanError`.
    """
    task = plan.task
    algorithm = build(plan)
    state = _called(task, "initial_state", lambda: _beginning(plan, algorithm))
    rounds = list(enumerate(algorithm.rounds))
    for index, step in rounds[:_FIRST_ROUNDS] + rounds[_FIRST_ROUNDS:][-_LAST_ROUNDS:]:
        blocks = plan.rounds[index].blocks
        size = sum(block.size for block in blocks)
        nothing = as_released(
            np.zeros(size, dtype=np.uint64), blocks, plan.fraction_bits
        )
        before = state
        state = _called(task, "advance", lambda: step.advance(before, nothing))  # noqa: B023
        if not isinstance(state, State):
            raise _refused(task, "advance", f"it returns {state!r}, which is no State")
    _require_sentences(
        task, "cautions", _called(task, "cautions", lambda: task.cautions(plan))
    )
    names = plan.settings.feature_names
    _require_sentences(
        task, "doubts", _called(task, "doubts", lambda: task.doubts(plan, state, names))
    )
    result = _called(task, "result", lambda: task.result(plan, state))
    if not isinstance(result, Result):
        raise _refused(task, "result", f"it returns {result!r}, which is no Result")


def _beginning(plan: Plan, algorithm: Algorithm) -> State:
    """The start; points that the server keeps are taken to be zeros."""
    points = None if plan.public_points is None else plan.public_points.table
    if points is None and plan.server is not None and plan.server.n_points:
        points = np.zeros((plan.server.n_points, plan.n_features or 1))
    return algorithm.initial_state(plan.seed, points).frozen()


def _called(task: Task, method: str, call: Callable[[], ValueT]) -> ValueT:
    try:
        return call()
    except Exception as error:
        raise _refused(task, method, f"{type(error).__name__}: {error}") from error


def _require_sentences(task: Task, method: str, sentences: Iterable[str]) -> None:
    if not isinstance(sentences, tuple) or not all(
        isinstance(sentence, str) for sentence in sentences
    ):
        raise _refused(
            task, method, f"it returns {sentences!r}, which is no tuple of sentences"
        )


def _refused(task: Task, method: str, reason: str) -> PlanError:
    return PlanError(
        f"the algorithm {task.name!r} fails in its {method!r} where releases are zeros"
        f" ({reason}), but noise may leave no more of a sum, after clients have paid"
        " for it: mend it there."
    )
