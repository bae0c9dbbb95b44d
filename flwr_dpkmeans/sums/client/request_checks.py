"""What a request must be by the plan that this client agreed to."""

from __future__ import annotations

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.plan import LAST_PRELIMINARY_ROUND, Plan


def require_no_plan_is_due(plan: Plan, released: int | None) -> None:
    """Refuse a request without a plan where the one in force waits for a later one."""
    if released == LAST_PRELIMINARY_ROUND:
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
    """Hold a request against what the plan priced.

    So many attempts, and a cohort that is not larger.
    """
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
    released: int,
    requested: int,
) -> None:
    """Refuse another round than the one that follows from what was released.

    T + 1 is the end.
    """
    following = memory.plan.round_after(released, memory.clusters)
    if requested != following:
        end = memory.plan.last_round + 1
        raise ProtocolError(
            f"round {requested} was asked for after round {released}, but by what was"
            f" released round {following} follows ({end}: the end): stop the run and"
            " check the server."
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
