"""What is declared of the rows, held against the counts that a run released.

That is post-processing, so it costs nothing.

A true declaration is hardly ever doubted: the difference must be of five standard
deviations of the noise, and large enough to matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.released_counts import counts_rows
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.outcome import CountedRows
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

_DEVIATIONS = 5.0
_PART = 0.1
"""Part of the declared rows by which released ones must differ, besides."""
_PART_OF_A_CLIENT = 0.5
"""The same of a client's rows, which may differ from client to client."""


@dataclass(frozen=True)
class _Total:
    """A released number of rows, with the standard deviation of its noise."""

    rows: float
    deviation: float

    def is_above(self, least: float) -> bool:
        """Whether the exact number is clearly larger."""
        margin = _DEVIATIONS * self.deviation
        return self.rows - margin > least

    def is_below(self, most: float) -> bool:
        """Whether the exact number is clearly smaller."""
        margin = _DEVIATIONS * self.deviation
        return self.rows + margin < most

    def words(self, declared: int) -> dict[str, object]:
        """What sentences say of it."""
        return {
            "declared": declared,
            "rows": max(0.0, self.rows),
            "deviation": self.deviation,
        }


def declared_cautions(
    plan: Plan,
    report: PrivacyReport,
    state: State,
) -> tuple[str, ...]:
    """Say so where released counts do not agree with the declared numbers of rows."""
    counted = plan.task.counted_rows(state)
    if counted is None:
        return ()
    line = _last_line(report, counted.array)
    if line is None:
        return ()
    deviation = line.standard_deviation * math.sqrt(counted.n_added)
    total = _Total(counted.total, deviation)
    if plan.settings.unit is PrivacyUnit.CLIENT:
        if counts_rows(line.array, line.sensitivity):
            return _against_rows_of_a_client(plan, total, line.sensitivity)
        return ()
    declared = plan.settings.n_examples
    if declared is None:
        return ()
    # Who falls silent takes rows along.
    rounds = {release.round_index for release in report.releases}
    is_whole = report.n_attempts == len(rounds)
    if is_whole:
        fewer = _fewer_than_declared(
            plan,
            total,
            counted,
            declared,
        )
        if fewer:
            return fewer
    return _more_than_declared(plan, total, declared)


def _last_line(report: PrivacyReport, array: str) -> ReleaseLine | None:
    """The last release of an array."""
    lines = [line for line in report.releases if line.array == array]
    if not lines:
        return None
    return lines[-1]


def _fewer_than_declared(
    plan: Plan,
    total: _Total,
    counted: CountedRows,
    declared: int,
) -> tuple[str, ...]:
    """What is said of clearly fewer rows than were declared."""
    least_part = min(1.0 - _PART, counted.least_part)
    if not total.is_below(least_part * declared):
        return ()
    reasons = [counted.others] if counted.others else []
    if not plan.trust_model.alone:
        reasons.append(report_sentence("silent"))
    unless = report_sentence("unless", reasons=" or ".join(reasons)) if reasons else ""
    things = plan.settings.unit.things
    words = total.words(declared)
    return (report_sentence("fewer_counted", unless=unless, things=things, **words),)


def _more_than_declared(
    plan: Plan,
    total: _Total,
    declared: int,
) -> tuple[str, ...]:
    """What is said of clearly more rows than were declared."""
    if not total.is_above((1.0 + _PART) * declared):
        return ()
    is_large = plan.delta * total.rows >= 1.0
    delta = report_sentence("large_delta", delta=plan.delta) if is_large else ""
    things = plan.settings.unit.things
    words = total.words(declared)
    return (report_sentence("more_counted", delta=delta, things=things, **words),)


def _against_rows_of_a_client(
    plan: Plan,
    total: _Total,
    bound: float,
) -> tuple[str, ...]:
    """Doubt counts that were clipped to a norm `bound` for each client.

    A client with as many rows as declared reaches it either.
    """
    settings = plan.settings
    declared = settings.examples_per_client
    rate = settings.client_sampling_rate
    n_clients = plan.n_clients * rate
    # Which clients a round samples is chance, too.
    chance = math.sqrt(n_clients * (1.0 - rate))
    deviation = math.hypot(total.deviation, chance * declared)
    average = _Total(total.rows / n_clients, deviation / n_clients)
    least = (1.0 - _PART_OF_A_CLIENT) * min(declared, bound)
    if average.is_below(least):
        return (report_sentence("fewer_of_a_client", **average.words(declared)),)
    if average.is_above((1.0 + _PART) * declared):
        return (report_sentence("more_of_a_client", **average.words(declared)),)
    return ()
