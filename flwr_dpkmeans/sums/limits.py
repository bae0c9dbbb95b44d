"""What no plan may contain: sums that wrap, vectors that are too long, noise below the grid, costs over the budget."""

from __future__ import annotations

import math

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, PlanError, told_apart
from flwr_dpkmeans.privacy.accounting import ExactRelease
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit, vector_length
from flwr_dpkmeans.secagg.recovery.graph import recovery_graph
from flwr_dpkmeans.secagg.ring import require_no_wrap
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.trust import trust_model

MAX_ROWS_PER_CLIENT = 2**28
"""Rows that one client may hold, for the proof that sums cannot wrap."""
MAX_UNCOUNTED_DELTA = 1e-5
"""Largest delta of a record-level plan that does not know the number of rows."""
MAX_VECTOR_LENGTH = 2**24
"""Entries of one round's vector."""
_TOLERANCE = 1e-9


def check_plan(plan: Plan) -> None:
    """Refuse vectors that are too long, sums that could wrap, and noise that cannot be added."""
    settings = plan.settings
    if plan.dropout is Dropout.RECOVER:
        # Both refuse numbers that sums cannot be recovered with.
        recovery_graph(plan.n_clients, plan.max_silent)
        _ = plan.slots
    if plan.seed < 0:
        raise PlanError(
            f"the plan's seed is {plan.seed}, but it must be at least 0: stop the run and check the server."
        )
    if settings.unit is PrivacyUnit.CLIENT and plan.delta >= 1.0 / plan.n_clients:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but at client level it must be below 1/M = {1.0 / plan.n_clients:g}: give a "
            "smaller delta."
        )
    declared = settings.n_examples if settings.unit is PrivacyUnit.RECORD else None
    if declared is not None and plan.delta >= 1.0 / declared:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but it must be below 1/N = {1.0 / declared:g}: give a smaller delta."
        )
    uncounted = plan.is_final and plan.n_examples is None and settings.unit is PrivacyUnit.RECORD
    noisy = any(block.noise is not NoiseShape.NONE for planned in plan.rounds for block in planned.blocks)
    if uncounted and noisy and plan.delta > MAX_UNCOUNTED_DELTA:
        raise ConfigurationError(
            f"delta is {plan.delta:g}, but without a declared number of rows it may be at most {MAX_UNCOUNTED_DELTA:g},"
            " as nobody can say whether it is below 1/N: declare n_examples or give a smaller delta."
        )
    check_stated(plan)
    for planned in (*plan.preliminary, *plan.rounds):
        trust_model(planned.trust).check(planned.blocks)
        if vector_length(planned.blocks) > MAX_VECTOR_LENGTH:
            raise PlanError(
                f"round {planned.name!r} has {vector_length(planned.blocks)} entries, but at most {MAX_VECTOR_LENGTH} "
                "can be aggregated: use fewer clusters or features."
            )
        for block in planned.blocks:
            per_client = MAX_ROWS_PER_CLIENT if block.sensitivity.unit is PrivacyUnit.RECORD else 1
            largest = block.entry_bound * per_client * plan.n_clients
            require_no_wrap(largest, plan.released_std(planned, block), block.name, plan.fraction_bits)
            share = trust_model(planned.trust).drawn_factor(plan.shares)
            if block.noise is not NoiseShape.NONE and block.noise_scale * share * 2.0**plan.fraction_bits < 1.0:
                raise PlanError(
                    f"the noise on {block.name!r} would be {block.noise_scale * share:.3g}, but the grid has steps of "
                    f"{2.0**-plan.fraction_bits:.3g}: lower epsilon (it is {settings.epsilon:g})."
                )


def check_stated(plan: Plan) -> None:
    """Refuse a plan that could not be reported: after the run the report must say why each release is private."""
    trust_model(plan.settings.trust).require_stated(plan.shares)
    for planned in (*plan.preliminary, *plan.rounds):
        if len({block.name for block in planned.blocks}) < len(planned.blocks):
            raise PlanError(
                f"round {planned.name!r} releases two arrays of one name, but only the last of them could be read: "
                "give them names of their own."
            )
        for block in planned.blocks:
            block.sensitivity.require_reason(block.name)


def check_budget(plan: Plan, charged: float) -> None:
    """Refuse a plan that costs more than was asked for, or whose worst case exceeds ``max_epsilon`` or what is charged.

    Parameters
    ----------
    plan : Plan
        With all its rounds.
    charged : float
        What ledgers were charged before this plan was known; infinite if it is the first.
    """
    settings = plan.settings
    is_private = not any(isinstance(event, ExactRelease) for event in plan.events())
    if is_private and plan.epsilon > settings.epsilon * (1.0 + _TOLERANCE):
        cost, budget = told_apart(plan.epsilon, settings.epsilon)
        raise BudgetError(
            f"the plan costs epsilon {cost}, but the budget is {budget}: raise epsilon or use fewer rounds."
        )
    retries = f"when all {settings.max_retries} retries are used"
    if settings.max_epsilon is not None and plan.epsilon_worst_case > settings.max_epsilon * (1.0 + _TOLERANCE):
        cost, most = told_apart(plan.epsilon_worst_case, settings.max_epsilon)
        raise BudgetError(
            f"the plan can cost epsilon {cost} {retries}, but max_epsilon is {most}: lower epsilon or max_retries, or "
            "raise max_epsilon."
        )
    if charged < math.inf and is_private and plan.epsilon_worst_case > charged * (1.0 + _TOLERANCE):
        cost, paid = told_apart(plan.epsilon_worst_case, charged)
        raise BudgetError(
            f"the plan can cost epsilon {cost} {retries}, but {paid} was charged before the rows were counted: declare "
            "n_examples, or lower max_retries."
        )
