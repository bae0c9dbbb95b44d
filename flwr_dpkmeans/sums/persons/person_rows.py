"""Which rows a round looks at, and by how much each counts.

Every sum is over rows, of which each moves it by no more than its bound. A row's weight
is at most 1, all rows of a person weigh no more than one row together, or one of them
counts: so a row or person moves a sum by no more than that bound, in every norm [C16].
"""

from __future__ import annotations

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.persons.row_units import RowUnits, most_rows_of_a_person
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, State


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
    """Refuse weights, or a number of rows for each person, that no round can weigh."""
    if not plan.is_final or plan.preliminary:
        return
    rounds = build_algorithm(plan).rounds
    max_weight = plan.settings.max_weight
    unweighed = unweighed_rounds(plan)
    if max_weight is not None and unweighed:
        raise ConfigurationError(
            f"max_weight is {max_weight:g}, but the sum {unweighed[0]!r} of"
            f" {plan.task.name!r} cannot weigh rows: leave max_weight out, or choose"
            " another algorithm."
        )
    most = plan.settings.rows_per_person
    if most in (None, 1):
        return
    if all(step.weighted is None for step in rounds):
        raise ConfigurationError(
            f"rows_per_person is {most}, but no sum of {plan.task.name!r} can weigh"
            " rows, so that one of each person counts: leave it out, or give 1."
        )


def arrays_of_units(
    plan: Plan,
    step: PrivateSum,
    units: RowUnits,
    points: Array,
    state: State,
    labels: Labels | None,
    beside: Array | None,
) -> list[Array]:
    """Return a round's arrays of the rows of a table that count.

    `points`, `labels` and `beside` are those of all rows.
    """
    can_weigh = step.weighted is not None
    counted = units.counted(plan.settings, len(points), can_weigh=can_weigh)
    rows = counted.rows
    if len(rows) < len(points):
        points = points[rows]
        labels = None if labels is None else labels[rows]
        beside = None if beside is None else beside[rows]
    weights = counted.weights if can_weigh and _weighs(plan) else None
    return list(step.arrays_of(points, state, labels, beside, weights))


def preliminary_of_units(
    plan: Plan,
    index: int,
    units: RowUnits,
    points: Array,
    discoveries: Discoveries,
) -> list[Array]:
    """Return the arrays of a round before a task's own, of the rows that count."""
    counted = units.counted(plan.settings, len(points))
    if len(counted.rows) < len(points):
        points = points[counted.rows]
    weights = counted.weights if _weighs(plan) else None
    task = plan.task
    return task.preliminary_statistic(plan, index, points, discoveries, weights)


def _weighs(plan: Plan) -> bool:
    """Whether rows that count may have other weights than 1.

    By the plan, not by the weights that there are: nothing but a sum may depend on
    them.
    """
    settings = plan.settings
    return settings.max_weight is not None or most_rows_of_a_person(settings) > 1
