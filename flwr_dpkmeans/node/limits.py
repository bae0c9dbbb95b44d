"""Kinds of limits of a policy: what each refuses, and in which words.

The sentences of a refusal are sent to the server, so they hold public plan values and
policy values only: in particular never what the client has spent before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flwr_dpkmeans.errors import BudgetError, RefusalError, distinct_texts
from flwr_dpkmeans.node.limit_values import (
    Read,
    quote,
    read_amount,
    read_names,
    read_switch,
    whole_number,
)
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, Total
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box

_RELATIVE_SLACK = 1e-9
"""A plan calibrated to exactly its limit must not fail by a rounding error."""

_STEPS = 60
"""Equal steps of a total, in which what other runs have spent of it is counted.

About so many runs of one price fit into a total as would without steps, for 2, 3, 4,
5, 6, 10, 12, 15, 20, 30 and 60 runs.
"""

T = TypeVar("T")

Refuse = Callable[[Any, Proposal], str | None]
"""``refuse(limit, proposal)`` is the sentence of a refusal; None allows the plan."""


@dataclass(frozen=True)
class Limit:
    """How a limit is read, and what it refuses in which words."""

    read: Read
    refuse: Refuse
    is_required: bool = False
    """Whether a deployed node must state it."""
    error: type[RefusalError | BudgetError] = RefusalError
    of_past: bool = False
    """Whether it looks at what other runs have cost, so that it must be asked anew."""


def refuse_nothing(limit: object, proposal: Proposal) -> None:
    """Allow every plan: the limit is held against something else."""


def limit_field(
    default: T,
    read: Read,
    refuse: Callable[[T, Proposal], str | None] = refuse_nothing,
    *,
    is_required: bool = False,
    error: type[RefusalError | BudgetError] = RefusalError,
    of_past: bool = False,
) -> T:
    """Declare a field of the policy; see `Limit`."""
    limit = Limit(
        read,
        refuse,
        is_required,
        error,
        of_past,
    )
    return field(default=default, metadata={"limit": limit})


@dataclass(frozen=True)
class Budget:
    """A quantity that plans cost."""

    name: str
    title: str
    mend: str
    """What lowers it."""
    cost_of: Callable[[Proposal], float]

    def refusal(self, proposal: Proposal, limit: float, words: str) -> str:
        """Say that a plan costs too much.

        `words` take the limit, and are cut at a colon where no number would do.
        """
        cost = self.cost_of(proposal)
        planned, most = distinct_texts(cost, limit)
        reason = words.format(most)
        if math.isinf(cost):
            reason = reason.partition(": ")[0]
            reason += f": plan with a finite {self.name}, or have that limit be inf."
        return f"the plan's {self.title} is {planned}, but {reason}"


EPSILON = Budget(
    name="epsilon",
    title="worst-case epsilon",
    mend="the plan's epsilon or its number of retries",
    cost_of=lambda proposal: proposal.epsilon,
)

DELTA = Budget(
    name="delta",
    title="delta",
    mend="the plan's delta",
    cost_of=lambda proposal: proposal.plan.delta,
)


def at_most(
    name: str,
    budget: Budget,
    *,
    default: float = math.inf,
    read: Read = read_amount,
    required: bool = False,
) -> float:
    """Declare a limit on what a plan costs.

    Parameters
    ----------
    name : str
        Name of the limit.
    budget : Budget
        What is limited.
    default : float
        The limit where none is stated.
    read : callable
        How it is read.
    required : bool
        Whether a deployed node must state it.
    """
    words = f"this client's {name} is {{}}: lower {budget.mend}."

    def refuse(limit: float, proposal: Proposal) -> str | None:
        if _fits(budget.cost_of(proposal), limit):
            return None
        return budget.refusal(proposal, limit, words)

    return limit_field(
        default,
        read,
        refuse,
        is_required=required,
        error=BudgetError,
    )


def _fits(cost: float, limit: float) -> bool:
    # NaN is within no limit.
    return cost <= limit * (1.0 + _RELATIVE_SLACK)


def beyond_total(proposal: Proposal, total: Total) -> str | None:
    """Say that a plan does not fit into what is left of a total, or None.

    The sentence does not repeat what others have spent.

    Parameters
    ----------
    proposal : Proposal
        The plan, and what others have spent.
    total : Total
        What all runs together may cost.
    """
    budget, limit = EPSILON, total.epsilon
    if math.isinf(total.epsilon):
        # Then deltas alone are limited.
        budget, limit = DELTA, total.delta
        fits = _fits(proposal.past.delta + proposal.plan.delta, total.delta)
    else:
        fits = _fits_total(proposal, total)
    if fits:
        return None
    words = (
        f"it does not fit into what is left of this client's max_{budget.name}_total"
        f" of {{}}: lower the plan's {budget.name} or leave this client out."
    )
    return budget.refusal(proposal, limit, words)


def _fits_total(proposal: Proposal, total: Total) -> bool:
    """Whether squared GDP parameters, and what is not Gaussian, are within a total."""
    past = proposal.past
    cost = proposal.cost
    fits_alone = _fits(proposal.epsilon, total.epsilon)
    fits_alone &= _fits(proposal.plan.delta, total.delta)
    if fits_alone and past.cost == GaussianCost():
        # Whatever its mu: it may use up all of the total, and then no other run fits.
        return True
    whole = total.cost
    run = past.beside.and_part(cost)
    spent = past.others.mu**2 + run.mu**2 - cost.mu**2
    square = _in_steps(spent, whole.mu**2) + cost.mu**2
    spent_delta = past.others.own_delta + run.own_delta - cost.own_delta
    own_delta = _in_steps(spent_delta, whole.own_delta) + cost.own_delta
    return _fits(square, whole.mu**2) and _fits(own_delta, whole.own_delta)


def _in_steps(spent: float, total: float) -> float:
    """Round what other runs have spent of a total up to the next of `_STEPS` steps.

    Of squared GDP parameters, and of deltas.

    Whether a plan fits tells what is left. Without steps a server would find that to
    any digit, plan after plan and at no cost, and with it what each run elsewhere has
    cost.
    """
    if not 0.0 < total < math.inf or not math.isfinite(spent):
        return spent
    step = total / _STEPS
    # Less than rounding errors of the total are no step.
    n_steps = math.ceil(spent / step - _STEPS * _RELATIVE_SLACK)
    return step * n_steps


def one_of(
    kind: str,
    planned: Callable[[Plan], str],
    *,
    required: bool = False,
) -> tuple[str, ...]:
    """Declare a list of names that a plan's must be among; an empty one allows all."""

    def refuse(allowed: Sequence[str], proposal: Proposal) -> str | None:
        name = planned(proposal.plan)
        if not allowed or name in allowed:
            return None
        names = ", ".join(map(repr, allowed))
        return (
            f"the plan's {kind} is {quote(name)}, but this client allows only {names}:"
            " plan with one of them."
        )

    return limit_field(
        (),
        read_names,
        refuse,
        is_required=required,
    )


def at_least(
    default: int,
    least: int,
    planned: Callable[[Plan], int],
    words: str,
    *,
    required: bool = False,
) -> int:
    """Declare a whole number that a plan's must not be below.

    `least` is the smallest that a policy may state; `words` take the plan's and this.
    """

    def refuse(limit: int, proposal: Proposal) -> str | None:
        number = planned(proposal.plan)
        if number >= limit:
            return None
        return words.format(number, limit)

    return limit_field(
        default,
        whole_number(least),
        refuse,
        is_required=required,
    )


def at_most_a_day(counted: Callable[[Proposal], int], words: str) -> int | None:
    """Declare a number of other runs within 24 hours that a plan may not come after."""

    def refuse(most: int | None, proposal: Proposal) -> str | None:
        if most is None or counted(proposal) < most:
            return None
        return words.format(most)

    read = whole_number(1, optional=True)
    return limit_field(
        None,
        read,
        refuse,
        of_past=True,
    )


def switch(
    default: bool,
    is_refused: Callable[[Proposal], bool],
    words: str,
) -> bool:
    """Declare a boolean that refuses plans where it is not the default."""

    def refuse(value: bool, proposal: Proposal) -> str | None:
        if value is default or not is_refused(proposal):
            return None
        settings = proposal.plan.settings
        noise = quote(settings.noise.value)
        algorithm = quote(proposal.plan.config.algorithm)
        return words.format(noise=noise, algorithm=algorithm)

    return limit_field(default, read_switch, refuse)


def has_bounds_by_name(plan: Plan) -> bool:
    """Tell whether a plan names the columns that its bounds belong to.

    Then only their owner knows their order.
    """
    has_names = len(plan.settings.feature_names) > 0
    return has_names and len(plan.settings.bounds[0]) > 1


def beyond_bounds(
    allowed: Sequence[tuple[float, float]] | None,
    box: Box,
    n_features: int | None,
) -> str | None:
    """Say where a box reaches beyond the allowed one, or None.

    Parameters
    ----------
    allowed : sequence of pairs, optional
        Lowest and highest value of each column of the own table, in its order; a single
        pair holds for every column, None allows every box.
    box : pair of sequences
        Lower and upper bounds, in the same order; single ones hold for every column.
    n_features : int, optional
        Width of the table, if it is public.
    """
    if allowed is None:
        return None
    lower, upper = box
    is_shared = len(lower) == 1
    width = len(allowed) if is_shared else len(lower)
    if n_features:
        width = n_features
    pairs = list(allowed)
    if len(pairs) == 1:
        pairs = pairs * width
    if len(pairs) != width:
        return (
            f"the plan's box has {width} features, but this client's"
            f" allowed_bounds has {len(pairs)}: plan for the features that were"
            " agreed on."
        )
    lows = list(lower) * width if is_shared else lower
    highs = list(upper) * width if is_shared else upper
    columns = zip(
        lows,
        highs,
        pairs,
        strict=True,
    )
    for feature, (low, high, (lowest, highest)) in enumerate(columns):
        # Written so that NaN is within no bounds.
        if not (lowest <= low and high <= highest):
            return (
                f"the plan's bounds of feature {feature} are [{low:g}, {high:g}], but"
                f" this client allows only [{lowest:g}, {highest:g}]: plan with bounds"
                " inside these."
            )
    return None
