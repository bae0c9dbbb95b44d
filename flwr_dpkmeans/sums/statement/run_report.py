"""The privacy report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from flwr_dpkmeans.privacy.closeness import joint_closeness
from flwr_dpkmeans.privacy.release import Event
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import FIRST_TASK_ROUND, Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement.assumptions import (
    assumptions_of,
    guarantee_of,
    why_not_private,
)
from flwr_dpkmeans.sums.statement.cautions import (
    plan_cautions,
    released_cautions,
    unclear_cautions,
)
from flwr_dpkmeans.sums.statement.steps import Attempts, epsilon_after, run_epsilon


def build_report(
    plan: Plan,
    attempts: Attempts,
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
    names = names or settings.feature_names
    events = plan.events([index for index, _ in attempts])
    report = PrivacyReport(
        is_private=plan.is_private,
        epsilon=run_epsilon(plan, attempts),
        delta=plan.delta,
        epsilon_requested=settings.epsilon,
        epsilon_worst_case=worst_case(plan),
        unit=settings.unit.value,
        neighbours=report_sentence(settings.unit.value),
        trust=settings.trust,
        guarantee=guarantee_of(plan),
        algorithm=plan.task.name,
        noise=settings.noise.value,
        n_clients=plan.n_clients,
        n_attempts=len(attempts),
        n_examples=plan.n_examples,
        n_examples_source=_source_of_rows(plan),
        max_weight=settings.max_weight,
        slack=discreteness_cost(events),
        assumptions=(
            *assumptions_of(plan, identities or report_sentence("not_pinned")),
            *_ending(plan, attempts),
        ),
        warnings=(
            *_plan_warnings(plan),
            *unclear_cautions(unclear, names, standard=bool(settings.standard_columns)),
        ),
        releases=_lines(plan, tuple(attempts)),
    )
    if state is None:
        return report
    # What looks at a result is loaded with it, and not with a node's first message.
    from flwr_dpkmeans.sums.checks.declared import declared_cautions

    warnings = (
        *report.warnings,
        *_size_warnings(report, state),
        *declared_cautions(plan, report, state),
        *plan.task.doubts(plan, state, names),
    )
    return replace(report, warnings=warnings)


def discreteness_cost(events: Sequence[Event]) -> float:
    """Part of epsilon that pays for discrete instead of continuous noise."""
    return joint_closeness([event.closeness for event in events]).log_ratio


def _source_of_rows(plan: Plan) -> str:
    """Where the number of rows comes from."""
    if plan.settings.n_examples:
        return "declared public"
    if plan.count:
        return "private count"
    return "not needed"


def _plan_warnings(plan: Plan) -> tuple[str, ...]:
    """What the plan itself says against the result.

    An experiment that protects nobody has the same noise: only what is said of the
    guarantee does not hold for it.
    """
    reasons = why_not_private(plan)
    if not reasons:
        return plan_cautions(plan)
    return (*reasons, *plan.task.cautions(plan))


def _size_warnings(report: PrivacyReport, state: State) -> tuple[str, ...]:
    """What noisy counts in the last state say of groups that noise hides."""
    for name, groups in (("counts", "clusters"), ("rows", "groups")):
        if name in state.arrays:
            counts = state.arrays[name]
            # Another task's arrays of these names may be of another shape.
            if counts.ndim == 1:
                return released_cautions(report, counts, groups)
            return ()
    return ()


@lru_cache(maxsize=16)
def _lines(
    plan: Plan,
    attempts: tuple[tuple[int, int], ...],
) -> tuple[ReleaseLine, ...]:
    """One line per released array; the clients of one process report the same ones."""
    lines = []
    for position, (index, attempt) in enumerate(attempts, start=1):
        planned = plan.round_at(index)
        model = planned.trust_model
        so_far = epsilon_after(plan, attempts[:position])
        for block in planned.blocks:
            line = ReleaseLine(
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
                theorem=model.theorem(block, plan.rates[index]),
                epsilon_so_far=so_far,
                radius=planned.radius,
                surplus=model.released_factor(plan.shares),
            )
            lines.append(line)
    return tuple(lines)


def _ending(plan: Plan, attempts: Attempts) -> tuple[str, ...]:
    """Where rounds may end early: how many of those that are paid for were released."""
    tolerance = plan.task.tolerance
    if tolerance is None:
        return ()
    task_rounds = range(FIRST_TASK_ROUND, plan.closing_round)
    released = {index for index, _ in attempts if index in task_rounds}
    sentence = report_sentence(
        "may_end",
        tolerance=tolerance,
        n=len(released),
        n_rounds=len(task_rounds),
    )
    return (sentence,)
