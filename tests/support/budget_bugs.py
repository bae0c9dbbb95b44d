"""Slips in what is charged: plans, reports and ledgers beside what was released."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from flwr_dpkmeans.privacy.release import Event
from flwr_dpkmeans.privacy.report import EVALUATION_ROUND
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import build_report, epsilon_after
from support.price_detectors import Claims, claims_of
from support.wire_detectors import Watched

Wrong = Callable[[Plan], Plan]
"""Says of a plan something else than what it releases."""


def wrong_plan(plan: Plan, **members: Any) -> Plan:
    """The same plan with members that say something else."""
    kind = type("WrongPlan", (Plan,), members)
    values = {one.name: getattr(plan, one.name) for one in fields(plan) if one.init}
    wrong: Plan = kind(**values)
    return wrong


def _uncharged(plan: Plan, is_free: Callable[[Plan, int], bool]) -> Plan:
    """The plan's price knows nothing of some rounds."""

    def events(self: Plan, indices: Iterable[int] | None = None) -> tuple[Event, ...]:
        if indices is None:
            indices = range(self.first_round, self.last_round + 1)
        return plan.events([index for index in indices if not is_free(self, index)])

    return wrong_plan(plan, events=events)


def evaluation_not_charged(plan: Plan) -> Plan:
    return _uncharged(
        plan, lambda self, index: self.round_at(index).name == EVALUATION_ROUND
    )


def count_not_charged(plan: Plan) -> Plan:
    return _uncharged(plan, lambda _, index: index <= 0)


def rounds_not_charged(plan: Plan) -> Plan:
    """The price of the run is that of a run of one round."""
    return _uncharged(plan, lambda _, index: index > 1)


def delta_counted_twice(plan: Plan) -> Plan:
    """The epsilon is that at twice the delta that is stated."""
    return wrong_plan(plan, epsilon=replace(plan, delta=2.0 * plan.delta).epsilon)


Slip = Callable[[Watched], Claims]
"""What is said of a run by a program with a slip, beside what was sent."""


def _once(run: Watched) -> list[tuple[int, int]]:
    """The run without repetitions."""
    return [*dict(sorted(run.vectors)).items()]


def report_by_round(run: Watched) -> Claims:
    """The report lists, and so prices, one release a round."""
    report = build_report(run.federation.plan, _once(run))
    return replace(claims_of(run), report=report.epsilon)


def ledger_by_round(run: Watched) -> Claims:
    """What is charged leaves repetitions out."""
    claims = claims_of(run)
    charged = dict.fromkeys(
        claims.ledgers, epsilon_after(run.federation.plan, _once(run))
    )
    return replace(claims, ledgers=charged)


def worst_case_without_retries(run: Watched) -> Claims:
    return replace(claims_of(run), worst_case=run.federation.plan.epsilon)
