"""What is declared of the rows, held against the counts that a run released.

Post-processing, so it costs nothing.

A true declaration is hardly ever doubted: the difference must be of five standard
deviations of the noise, and large enough to matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine, counts_rows, told
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
        return self.rows - _DEVIATIONS * self.deviation > least

    def is_below(self, most: float) -> bool:
        """Whether the exact number is clearly smaller."""
        return self.rows + _DEVIATIONS * self.deviation < most


def declared_cautions(
    plan: Plan, report: PrivacyReport, state: State
) -> tuple[str, ...]:
    """Say so where the counts in a run's last state do not agree with the numbers of
    rows that were declared.
    """
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
    if plan.settings.n_examples is None:
        return ()
    # Who falls silent takes rows along.
    is_whole = report.n_attempts == len({line.round_index for line in report.releases})
    return _against_rows(plan, total, counted, is_whole=is_whole)


def _last_line(report: PrivacyReport, array: str) -> ReleaseLine | None:
    lines = [line for line in report.releases if line.array == array]
    return lines[-1] if lines else None


def _against_rows(
    plan: Plan, total: _Total, counted: CountedRows, *, is_whole: bool
) -> tuple[str, ...]:
    declared = plan.settings.n_examples or 0
    values = {
        "declared": declared,
        "rows": max(0.0, total.rows),
        "deviation": total.deviation,
    }
    least = min(1.0 - _PART, counted.least_part) * declared
    if is_whole and total.is_below(least):
        silent = "" if plan.model.alone else told("silent")
        reasons = " or ".join(filter(None, [counted.others, silent]))
        unless = told("unless", reasons=reasons) if reasons else ""
        return (told("fewer_counted", unless=unless, **values),)
    if not total.is_above((1.0 + _PART) * declared):
        return ()
    is_large = plan.delta * total.rows >= 1.0
    delta = told("large_delta", delta=plan.delta) if is_large else ""
    return (told("more_counted", delta=delta, **values),)


def _against_rows_of_a_client(
    plan: Plan, total: _Total, bound: float
) -> tuple[str, ...]:
    """Of counts that were clipped to the norm `bound`.

    a client with as many rows as declared reaches either.
    """
    declared = plan.settings.examples_per_client
    n_clients = plan.n_clients * plan.settings.client_sampling_rate
    # Which clients a round samples is chance, too.
    chance = math.sqrt(n_clients * (1.0 - plan.settings.client_sampling_rate))
    deviation = math.hypot(total.deviation, chance * declared)
    average = _Total(total.rows / n_clients, deviation / n_clients)
    values = {
        "declared": declared,
        "rows": max(0.0, average.rows),
        "deviation": average.deviation,
    }
    if average.is_below((1.0 - _PART_OF_A_CLIENT) * min(declared, bound)):
        return (told("fewer_of_a_client", **values),)
    if average.is_above((1.0 + _PART) * declared):
        return (told("more_of_a_client", **values),)
    return ()
