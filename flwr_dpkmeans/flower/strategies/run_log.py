"""What a run's log says before and during it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flwr_dpkmeans.flower.progress import Progress
from flwr_dpkmeans.log import event, placed_logger
from flwr_dpkmeans.results.rendering import CONSOLE, rendered
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, Plan, round_trips
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.statement import Step

logger = placed_logger("flwr_dpkmeans.server")


def say(
    template: str,
    details: Mapping[str, object] | None = None,
    **variables: object,
) -> None:
    """Write a template's lines into the log, all with the same details."""
    if not logger.isEnabledFor(logging.INFO):
        return
    for line in rendered(template, CONSOLE, **variables).splitlines():
        logger.info("%s", line, extra=details)


def announce(plan: Plan) -> None:
    """Say at the start how long a deployment's run will take."""
    trips, pace = round_trips(plan), SECONDS_PER_ROUND_TRIP
    details = event(
        "duration",
        round_trips=trips,
        seconds=trips * pace,
        is_final=plan.is_final,
    )
    say(
        "log_duration.j2",
        details,
        plan=plan,
        trips=trips,
        pace=pace,
    )


def log_step(step: Step) -> None:
    """Say what one aggregation released."""
    say("log_step.j2", step=step)


def round_trips_left(plan: Plan, index: int | None) -> int | None:
    """Round trips after round `index` (None: after the key phase), if nobody drops out.

    None if not yet planned.
    """
    if not plan.is_final:
        return None
    rounds = plan.last_round - (plan.first_round - 1 if index is None else index)
    return rounds * plan.aggregator.trips + 1


def log_progress(
    progress: Progress,
    server: Server,
    index: int | None,
    epsilon: float,
) -> None:
    """Log how far the run is, in time and in budget."""
    plan = server.plan
    left = round_trips_left(plan, index)
    if server.due is Stage.FINISH:
        left = 1
    progress.planned(server, epsilon, left)
    seconds = round(progress.seconds, 3)
    details = event(
        "progress",
        seconds=seconds,
        round_trips_left=left,
        n_rounds=plan.last_round,
    )
    say(
        "log_progress.j2",
        details,
        plan=plan,
        progress=progress,
        left=left,
        epsilon=epsilon,
        worst=worst_case(plan),
    )
