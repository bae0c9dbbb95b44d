"""Which rows of its persons a round looks at, where one person is protected.

Every sum is over rows, of which each moves it by no more than its bound. All rows of a
person weigh no more than one row together, or one of them counts: so a person moves a
sum by no more than that bound, in every norm [C16].
"""

from __future__ import annotations

from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.persons.counted_persons import Counted, Persons
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, Labels, PrivateSum, State
from flwr_dpkmeans.sums.settings import MOST_ROWS_OF_A_PERSON, Settings


def rows_of_each(settings: Settings, step: PrivateSum | None) -> int:
    """How many rows of a person a round looks at, at most.

    One where the round cannot weigh rows, as those that come before the task's own
    (None).
    """
    if step is None or step.weighted is None:
        return 1
    return settings.rows_per_person or MOST_ROWS_OF_A_PERSON


def weighing_rounds(plan: Plan) -> tuple[str, ...]:
    """Names of a final plan's rounds that weigh a person's rows, each once."""
    names: dict[str, None] = {}
    for step in build_algorithm(plan).rounds:
        if rows_of_each(plan.settings, step) > 1:
            names[step.name] = None
    return tuple(names)


def require_weighing(plan: Plan) -> None:
    """Refuse a number of rows for each person that no round can weigh."""
    most = plan.settings.rows_per_person
    if most in (None, 1) or not plan.is_final:
        return
    if not weighing_rounds(plan):
        raise ConfigurationError(
            f"rows_per_person is {most}, but no sum of {plan.task.name!r} can weigh"
            " rows, so that one of each person counts: leave it out, or give 1."
        )


def counted_rows(
    plan: Plan,
    step: PrivateSum | None,
    persons: Persons | None,
) -> Counted | None:
    """Return the rows of a table that a round looks at; None: all of them."""
    if plan.settings.unit is not PrivacyUnit.PERSON:
        return None
    if persons is None:
        raise PlanError(
            "the plan protects one person, but nothing says which rows are one's: name"
            " their column, or give their ids, or choose unit='record'."
        )
    return persons.counted(rows_of_each(plan.settings, step))


def arrays_of_counted(
    step: PrivateSum,
    counted: Counted | None,
    points: Array,
    state: State,
    labels: Labels | None,
    beside: Array | None,
    *,
    settings: Settings,
) -> list[Array]:
    """Return a round's arrays of the rows that count; `points` are these rows alone.

    `labels` and `beside` are those of all rows.
    """
    if counted is None:
        return list(step.arrays_of(points, state, labels, beside))
    rows, weights = counted
    labels_of_rows = None if labels is None else labels[rows]
    beside_rows = None if beside is None else beside[rows]
    # Not by the weights that there are, on which nothing but a sum may depend.
    if rows_of_each(settings, step) == 1:
        return list(step.arrays_of(points, state, labels_of_rows, beside_rows))
    arrays = step.arrays_of(points, state, labels_of_rows, beside_rows, weights)
    return list(arrays)
