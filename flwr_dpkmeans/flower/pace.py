"""How long a deployment takes: each round trip costs seconds, whatever is in the messages."""

from __future__ import annotations

from flwr.serverapp import Grid

from flwr_dpkmeans.flower.node import is_simulated_server
from flwr_dpkmeans.log import event, placed_logger
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Dropout

SECONDS_PER_ROUND_TRIP = 6.0
"""Measured on a SuperLink with SuperNodes on one machine: 3 s between a SuperNode's questions, and its app's start."""

logger = placed_logger("flwr_dpkmeans.server")


def is_deployed(grid: Grid) -> bool:
    """Whether messages go over a SuperLink, where every reply is polled for: not in process, nor in a simulation."""
    return not getattr(grid, "is_complete", False) and not is_simulated_server()


def round_trips(plan: Plan) -> int:
    """Round trips of a run without dropouts: one for each aggregation, one for the keys, one for the last release.

    Recovered sums take two for each aggregation, and one more for the key shares. Of a plan that is not final: those
    until it is, and one for the last release.
    """
    shares = int(plan.dropout is Dropout.RECOVER)
    return trips_per_aggregation(plan) * (plan.last_round - plan.first_round + 1) + 2 + shares


def trips_per_aggregation(plan: Plan) -> int:
    """One for the vectors and, where sums are recovered, one for the shares that take their masks away."""
    return 2 if plan.dropout is Dropout.RECOVER else 1


def announce(plan: Plan) -> None:
    """Say at the start how long a deployment's run will take."""
    trips, pace = round_trips(plan), SECONDS_PER_ROUND_TRIP
    details = event("duration", round_trips=trips, seconds=trips * pace, is_final=plan.is_final)
    if plan.is_final:
        logger.info(
            "expected duration: about %.0f s, %d round trips of %.0f s; the clients' computing comes on top",
            trips * pace,
            trips,
            pace,
            extra=details,
        )
    else:
        logger.info(
            "expected duration: about %.0f s for each of %d round trips and of the rounds that follow from what is "
            "asked or counted first; the clients' computing comes on top",
            pace,
            trips,
            extra=details,
        )
