"""The privacy report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from flwr_dpkmeans.privacy.closeness import joint_closeness
from flwr_dpkmeans.privacy.release import Event
from flwr_dpkmeans.privacy.report import (
    PrivacyReport,
    ReleaseLine,
    told,
)
from flwr_dpkmeans.sums.checks.declared import declared_cautions
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import FIRST_TASK_ROUND, Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement.assumptions import (
    _assumptions,
    _guarantee,
    why_not_private,
)
from flwr_dpkmeans.sums.statement.cautions import (
    _told_if,
    plan_cautions,
    released_cautions,
    unclear_cautions,
)
from flwr_dpkmeans.sums.statement.steps import epsilon_after, run_epsilon


def build_report(
    plan: Plan,
    attempts: Sequence[tuple[int, int]],
    identities: str = "",
    *,
    state: State | None = None,
    unclear: Sequence[int] = (),
    names: Sequence[str] = (),
) -> PrivacyReport:
    """Write the report of a run with these (round, attempt) pairs, in order.

    Warnings speak of the noisy counts in the last `state`, where it may be known, and
    of columns that private bounds did not find (`unclear`, by their `names`).
    `identities` says who the clients are, by default that nobody knows.
    """
    settings = plan.settings
    events = plan.events([index for index, _ in attempts])
    # An experiment that protects nobody has the same noise: only what is said of the
    # guarantee does not hold for it.
    reasons = why_not_private(plan)
    warnings = (*reasons, *plan.task.cautions(plan)) if reasons else plan_cautions(plan)
    report = PrivacyReport(
        is_private=plan.is_private,
        epsilon=run_epsilon(plan, attempts),
        delta=plan.delta,
        epsilon_requested=settings.epsilon,
        epsilon_worst_case=worst_case(plan),
        unit=settings.unit.value,
        neighbours=told(settings.unit.value),
        trust=settings.trust,
        guarantee=_guarantee(plan),
        algorithm=plan.task.name,
        noise=settings.noise.value,
        n_clients=plan.n_clients,
        n_attempts=len(attempts),
        n_examples=plan.n_examples,
        n_examples_source=(
            "declared public"
            if settings.n_examples
            else "private count"
            if plan.count
            else "not needed"
        ),
        slack=discreteness_cost(events),
        assumptions=_assumptions(plan, identities or told("not_pinned"))
        + _ending(plan, attempts),
        warnings=warnings
        + unclear_cautions(
            unclear,
            names or settings.feature_names,
            standard=bool(settings.standard_columns),
        ),
        releases=_lines(plan, tuple(attempts)),
    )
    known = {} if state is None else state.arrays
    doubts = (
        ()
        if state is None
        else plan.task.doubts(plan, state, names or settings.feature_names)
    )
    if state is not None:
        doubts = declared_cautions(plan, report, state) + doubts
    counts = known.get("counts", known.get("rows", np.zeros(0)))
    # Another task's arrays of these names may be of another shape.
    counts = counts if counts.ndim == 1 else np.zeros(0)
    sizes = released_cautions(
        report, counts, "clusters" if "counts" in known else "groups"
    )
    return replace(report, warnings=report.warnings + sizes + doubts)


def discreteness_cost(events: Sequence[Event]) -> float:
    """Part of epsilon that pays for discrete instead of continuous noise."""
    return joint_closeness([event.closeness for event in events]).log_ratio


@lru_cache(maxsize=16)
def _lines(
    plan: Plan, attempts: tuple[tuple[int, int], ...]
) -> tuple[ReleaseLine, ...]:
    """One line per released array; the clients of one process report the same ones."""
    lines = []
    for position, (index, attempt) in enumerate(attempts, start=1):
        planned, rate = plan.round_at(index), plan.rates[index]
        so_far = epsilon_after(plan, attempts[:position])
        lines += [
            ReleaseLine(
                round_index=index,
                attempt=attempt,
                round_name=planned.name,
                array=block.name,
                norm=block.sensitivity.norm.value,
                sensitivity=block.sensitivity.bound,
                trust=planned.trust,
                noise=block.noise.value,
                noise_scale=block.noise_scale,
                noise_multiplier=block.noise_multiplier,
                theorem=planned.model.theorem(block, rate),
                epsilon_so_far=so_far,
                radius=planned.radius,
                surplus=planned.model.released_factor(plan.shares),
            )
            for block in planned.blocks
        ]
    return tuple(lines)


def _ending(plan: Plan, attempts: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Where rounds may end early: how many of those that are paid for were released."""
    own = range(FIRST_TASK_ROUND, plan.closing_round)
    n_released = len({index for index, _ in attempts if index in own})
    so = {"may_end": plan.task.tolerance is not None}
    return _told_if(so, tolerance=plan.task.tolerance, n=n_released, n_rounds=len(own))
