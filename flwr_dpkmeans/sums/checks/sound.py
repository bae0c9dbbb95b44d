"""Plans that can be run, and that cost no more than was asked for."""

from __future__ import annotations

import math

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    PlanError,
    distinct_texts,
)
from flwr_dpkmeans.privacy import release
from flwr_dpkmeans.privacy.release import Block, NoiseShape, PrivacyUnit
from flwr_dpkmeans.secagg.ring import require_no_wrap
from flwr_dpkmeans.sums.plan import Plan, PlannedRound

MAX_ROWS_PER_CLIENT = 2**28
"""Rows that one client may hold, for the proof that sums cannot wrap."""
MAX_UNCOUNTED_DELTA = 1e-5
"""Largest delta of a record-level plan that does not know the number of rows."""
MAX_VECTOR_LENGTH = 2**24
_TOLERANCE = 1e-9


def check_plan(plan: Plan) -> None:
    """Refuse a plan whose numbers or rounds cannot be run as they stand.

    Such as a delta that is too large, or too few clients to recover sums from.
    """
    settings = plan.settings
    plan.trust_model.require_stated(plan.shares)
    if plan.trust_model.alone and settings.masking:
        raise PlanError(
            f"trust is {settings.trust!r}, where one party holds all rows, but the run"
            " masks several parties' sums: use DPKMeans for one table, or choose"
            " trust='central'."
        )
    plan.aggregator.check(plan)
    if plan.seed < 0:
        raise PlanError(
            f"the plan's seed is {plan.seed}, but it must be 0 or more: stop the run"
            " and check the server."
        )
    if settings.unit is PrivacyUnit.CLIENT and plan.delta >= 1.0 / plan.n_clients:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but at client level it must be below 1/M ="
            f" {1.0 / plan.n_clients:g}: give a smaller delta."
        )
    if _is_uncounted(plan) and plan.delta > MAX_UNCOUNTED_DELTA:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but without a declared number of rows it may be"
            f" at most {MAX_UNCOUNTED_DELTA:g}, as nobody can say whether it is below"
            " 1/N: declare n_examples or give a smaller delta."
        )
    # What holds for a round's arrays holds for all others that release the same.
    unlike: dict[object, PlannedRound] = {}
    for planned in plan.all_rounds:
        unlike.setdefault((planned.trust, planned.blocks), planned)
    for planned in unlike.values():
        check_round(plan, planned)


def _is_uncounted(plan: Plan) -> bool:
    """Whether nobody knows of how many rows one is protected."""
    by_record = plan.settings.unit.by_row
    if not plan.is_final or not by_record or plan.n_examples is not None:
        return False
    shapes = set()
    for planned in plan.rounds:
        shapes |= {block.noise for block in planned.blocks}
    shapes.discard(NoiseShape.NONE)
    return len(shapes) > 0


def check_round(plan: Plan, planned: PlannedRound) -> None:
    """Refuse a round that cannot be run or reported.

    It is too long, its sums could wrap, or its noise cannot be added.
    """
    if planned.length > MAX_VECTOR_LENGTH:
        raise PlanError(
            f"round {planned.name!r} has {planned.length} entries, but at most"
            f" {MAX_VECTOR_LENGTH} can be aggregated: use fewer clusters or features."
        )
    names = {block.name for block in planned.blocks}
    if len(names) < len(planned.blocks):
        raise PlanError(
            f"round {planned.name!r} releases two arrays of one name, but only the last"
            " of them could be read: give them names of their own."
        )
    planned.trust_model.check(planned.blocks)
    for block in planned.blocks:
        _check_block(plan, planned, block)


def _check_block(
    plan: Plan,
    planned: PlannedRound,
    block: Block,
) -> None:
    """Refuse an array without a reason, for another unit, or whose sum could wrap."""
    sensitivity = block.sensitivity
    # After the run the report must say why each release is private.
    _, reason = sensitivity.proof
    if not reason.strip():
        raise PlanError(
            f"the sensitivity of {block.name!r} is {block.sensitivity.bound:g}, but"
            " nothing says why it is no larger: give Sensitivity(because=...),"
            " half a sentence for the report."
        )
    if sensitivity.unit is not plan.settings.unit.bounded:
        raise PlanError(
            f"{block.name!r} is bounded for one {sensitivity.unit.value}, but the run"
            f" protects one {plan.settings.unit.value}: declare that."
        )
    # Modulo 2^64 a sum that wraps would be a wrong answer without a word.
    by_record = sensitivity.unit.by_row
    per_client = MAX_ROWS_PER_CLIENT if by_record else 1
    largest = block.entry_bound * per_client * plan.n_clients
    released_std = block.standard_deviation * planned.trust_model.released_factor(
        plan.shares
    )
    require_no_wrap(largest, released_std, block.name, plan.fraction_bits)
    # Discrete noise of less than a grid step is no longer close to a continuous one
    # [M3].
    scale = block.noise_scale * planned.trust_model.drawn_factor(plan.shares)
    is_noisy = block.noise is not NoiseShape.NONE
    if is_noisy and scale * 2.0**plan.fraction_bits < 1.0:
        raise PlanError(
            f"the noise on {block.name!r} would be {scale:.3g},"
            f" but the grid has steps of {2.0**-plan.fraction_bits:.3g}: lower"
            f" epsilon (it is {plan.settings.epsilon:g})."
        )


def check_budget(plan: Plan, charged: float, begun: Plan) -> None:
    """Refuse a plan that costs more than was asked for.

    Or whose worst case exceeds ``max_epsilon`` or what is charged.

    `charged` is what ledgers were charged before this plan was known; infinite if it is
    the first. `begun` is the plan at the delta that the run began with, at which that
    was charged: a count may have lowered it [C15].
    """
    settings = plan.settings
    kinds = {type(event) for event in plan.events()}
    is_private = release.ExactRelease not in kinds
    if is_private and plan.epsilon > settings.epsilon * (1.0 + _TOLERANCE):
        cost, budget = distinct_texts(plan.epsilon, settings.epsilon)
        raise BudgetError(
            f"the plan costs epsilon {cost}, but the budget is {budget}: raise it or"
            " use fewer rounds."
        )
    retries = f"when all {settings.max_retries} retries are used"
    if settings.max_epsilon is not None and _can_exceed(plan, settings.max_epsilon):
        cost, most = distinct_texts(plan.epsilon_worst_case, settings.max_epsilon)
        raise BudgetError(
            f"the plan can cost epsilon {cost} {retries}, but max_epsilon is {most}:"
            " lower epsilon or max_retries, or raise max_epsilon."
        )
    if not is_private or math.isinf(charged):
        return
    if _can_exceed(begun, charged):
        cost, paid = distinct_texts(begun.epsilon_worst_case, charged)
        raise BudgetError(
            f"the plan can cost epsilon {cost} {retries}, but {paid} was charged before"
            " the rows were counted: declare n_examples, or lower max_retries."
        )


def _can_exceed(plan: Plan, epsilon: float) -> bool:
    """Whether a run of a plan can cost more than this, by more than last digits."""
    return plan.epsilon_worst_case > epsilon * (1.0 + _TOLERANCE)
