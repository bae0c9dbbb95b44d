"""Which rows of its persons a round looks at, where one person is protected.

Every sum is over rows, of which each moves it by no more than its bound. All rows of a
person weigh no more than one row together, or one of them counts: so a person moves a
sum by no more than that bound, in every norm [C16].
"""

from __future__ import annotations

from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, State
from flwr_dpkmeans.sums.settings import MOST_ROWS_OF_A_PERSON


def unweighed_rounds(plan: Plan) -> tuple[str, ...]:
    """Name a final plan's rounds that cannot weigh rows, each once.

    They look at one row of each person.
    """
    names: dict[str, None] = {}
    for step in build_algorithm(plan).rounds:
        if step.weighted is None:
            names[step.name] = None
    return tuple(names)


def require_weighing(plan: Plan) -> None:
    """Refuse a number of rows for each person that no round can weigh."""
    most = plan.settings.rows_per_person
    if most in (None, 1) or not plan.is_final or plan.preliminary:
        return
    rounds = build_algorithm(plan).rounds
    if all(step.weighted is None for step in rounds):
        raise ConfigurationError(
            f"rows_per_person is {most}, but no sum of {plan.task.name!r} can weigh"
            " rows, so that one of each person counts: leave it out, or give 1."
        )


def arrays_of_persons(
    plan: Plan,
    step: PrivateSum,
    persons: Persons | None,
    points: Array,
    state: State,
    labels: Labels | None,
    beside: Array | None,
) -> list[Array]:
    """Return a round's arrays of the rows of a table that count.

    `points`, `labels` and `beside` are those of all rows.
    """
    most = 1
    if step.weighted is not None:
        most = _rows_of_each(plan)
    counted = _require_persons(persons).counted(most)
    rows = counted.rows
    if len(rows) < len(points):
        points = points[rows]
        labels = None if labels is None else labels[rows]
        beside = None if beside is None else beside[rows]
    # Not by the weights that there are, on which nothing but a sum may depend.
    weights = None if most == 1 else counted.weights
    return list(step.arrays_of(points, state, labels, beside, weights))


def preliminary_of_persons(
    plan: Plan,
    index: int,
    persons: Persons | None,
    points: Array,
    discoveries: Discoveries,
) -> list[Array]:
    """Return the arrays of a round before a task's own, of the rows that count."""
    most = _rows_of_each(plan)
    counted = _require_persons(persons).counted(most)
    if len(counted.rows) < len(points):
        points = points[counted.rows]
    weights = None if most == 1 else counted.weights
    task = plan.task
    return task.preliminary_statistic(plan, index, points, discoveries, weights)


def _rows_of_each(plan: Plan) -> int:
    """How many rows of a person are looked at, at most, where rows can be weighed."""
    return plan.settings.rows_per_person or MOST_ROWS_OF_A_PERSON


def _require_persons(persons: Persons | None) -> Persons:
    """Refuse a table of which nobody knows whose rows these are."""
    if persons is None:
        raise PlanError(
            "the plan protects one person, but nothing says which rows are one's: name"
            " their column, or give their ids, or choose unit='record'."
        )
    return persons
