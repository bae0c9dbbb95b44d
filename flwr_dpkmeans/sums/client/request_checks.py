"""What a request must be by the plan that this client agreed to."""

from __future__ import annotations

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.plan import LAST_PRELIMINARY_ROUND, Plan


def require_no_plan_is_due(plan: Plan, released_index: int | None) -> None:
    """Refuse a request without a plan where the one in force waits for a later one.

    A plan follows the last preliminary sum, or comes with the first request, once the
    key phase has told the width that histograms need.
    """
    if released_index == LAST_PRELIMINARY_ROUND:
        raise ProtocolError(
            "the last preliminary sum was released, but no final plan came: stop the"
            " run."
        )
    if plan.settings.private_bounds and plan.n_features is None:
        raise ProtocolError(
            "the plan has no histograms yet, and none of the tables' width came: stop"
            " the run."
        )


def require_planned(plan: Plan, message: messages.SumRequest) -> None:
    """Refuse an attempt beyond the plan's retries, or a roster above its cohort."""
    if message.attempt > plan.settings.max_retries:
        raise ProtocolError(
            f"attempt {message.attempt} was asked for, but the plan that was agreed on"
            f" has {plan.settings.max_retries} retries: start a new run, or raise"
            " max-retries."
        )
    if message.roster is not None:
        require_size(plan, message.roster)


def require_following(
    memory: Memory,
    released_index: int,
    requested_index: int,
) -> None:
    """Refuse another round than the one that follows from what was released.

    One after the last round is the end.
    """
    next_index = memory.plan.round_after(released_index, memory.clusters)
    if requested_index != next_index:
        end = memory.plan.last_round + 1
        raise ProtocolError(
            f"round {requested_index} was asked for after round {released_index}, but"
            f" by what was released round {next_index} follows ({end}: the end): stop"
            " the run and check the server."
        )


def require_size(plan: Plan, roster: Roster) -> None:
    """Refuse a roster that is larger than the plan's cohort.

    Shares of the noise would be smaller than was priced.
    """
    if len(roster.members) > plan.n_clients:
        raise ProtocolError(
            f"the roster has {len(roster.members)} clients, but the plan that was"
            f" agreed on has {plan.n_clients}: stop the run and check the server."
        )
