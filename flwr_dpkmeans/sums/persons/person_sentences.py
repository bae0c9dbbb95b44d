"""What a report says of persons' rows."""

from __future__ import annotations

from flwr_dpkmeans.errors import listed
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.persons.person_rows import unweighed_rounds
from flwr_dpkmeans.sums.plan import Plan


def persons_sentence(plan: Plan) -> str:
    """Say who a person is, and which of its rows count by how much."""
    rows = _rows_of_persons(plan)
    return report_sentence("persons", rows=rows)


def _rows_of_persons(plan: Plan) -> str:
    """Which rows of a person count, and by how much."""
    n_rows = plan.settings.rows_per_person
    unweighed: tuple[str, ...] = ()
    if plan.is_final:
        unweighed = unweighed_rounds(plan)
    names = {step.name for step in plan.all_rounds}
    if n_rows == 1 or set(unweighed) >= names:
        return report_sentence("one_row")
    others = ""
    if unweighed:
        rounds = listed(unweighed)
        others = report_sentence(
            "one_row_elsewhere",
            rounds=rounds,
        )
    most = report_sentence("all_rows")
    if n_rows is not None:
        most = report_sentence("most_rows", n=n_rows)
    return report_sentence(
        "weighed_rows",
        most=most,
        others=others,
    )
