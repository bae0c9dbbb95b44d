"""What the server's operator sees: progress, waiting, who is missing, refusals, budget and a summary at the end.

All of it is public: node ids, the plan's numbers, released counts, time. Under ``oblivious`` the server has no sum and
no centroid that a line could hold.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from flwr.app import Message

from flwr_dpkmeans.flower.records import n_bytes
from flwr_dpkmeans.log import event, placed_logger
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import Plan

logger = placed_logger("flwr_dpkmeans.server")

_NODES_SHOWN = 20


class Progress:
    """Round trips of one run: how many are done, and how long the rest will take; a test gives its own `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._done = 0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def count(self) -> None:
        """One more round trip is done."""
        self._done += 1

    def describe(self, n_left: int | None) -> str:
        """Say how far the run is; `n_left` is None while the rounds are not planned yet."""
        so_far = self.seconds
        if n_left is None:
            return f"{self._done} round trips done, {so_far:.0f} s so far"
        left = so_far / max(1, self._done) * n_left
        return f"round trip {self._done} of {self._done + n_left}, {so_far:.0f} s so far, about {left:.0f} s to go"


def round_trips_left(plan: Plan, index: int | None) -> int | None:
    """Round trips after round `index` (None: after the key phase), if nobody drops out; None if not yet planned."""
    if not plan.is_final:
        return None
    rounds = plan.last_round - (plan.first_round - 1 if index is None else index)
    return rounds * plan.aggregator.trips + 1


def progressed(progress: Progress, plan: Plan, index: int | None, epsilon: float) -> None:
    """Log how far the run is, in time and in budget."""
    left = round_trips_left(plan, index)
    planned = plan.epsilon if plan.is_final else plan.config.epsilon
    worst = worst_case(plan)
    logger.info(
        "progress: %s; epsilon %.4g of %.4g (at most %.4g with all retries)",
        progress.describe(left),
        epsilon,
        planned,
        worst,
        extra=event("progress", seconds=round(progress.seconds, 3), round_trips_left=left, n_rounds=plan.last_round),
    )


def sending(messages: Sequence[Message], timeout: float) -> None:
    """Say what is sent and how long it is waited for, to whoever asks for details."""
    if logger.isEnabledFor(logging.DEBUG):
        size = sum(n_bytes(message.content) for message in messages)
        logger.debug("sending %d messages with %d bytes, waiting up to %.0f s", len(messages), size, timeout)


def received(replies: Sequence[Message], seconds: float) -> None:
    """Say what came back, to whoever asks for details."""
    if logger.isEnabledFor(logging.DEBUG):
        size = sum(n_bytes(reply.content) for reply in replies if reply.has_content())
        logger.debug("%d replies with %d bytes came after %.2f s", len(replies), size, seconds)


def starting(plan: Plan, nodes: Sequence[int]) -> None:
    """Say which nodes take part."""
    more = ", ..." if len(nodes) > _NODES_SHOWN else ""
    logger.info(
        "run %d starts with %d clients: nodes %s%s",
        plan.run_id,
        len(nodes),
        ", ".join(str(node) for node in nodes[:_NODES_SHOWN]),
        more,
        extra=event("start", nodes=[str(node) for node in nodes]),
    )


def finished(report: PrivacyReport, plan: Plan, n_confirmed: int, n_asked: int, progress: Progress) -> None:
    """Sum the run up in one line."""
    n_planned = plan.last_round - plan.first_round + 1
    logger.info(
        "finished: %d aggregations (%d repeated) in %.0f s; %d of %d clients have the result; epsilon %.4g at delta "
        "%.3g per %s; %s",
        report.n_attempts,
        report.n_attempts - n_planned,
        progress.seconds,
        n_confirmed,
        n_asked,
        report.epsilon,
        report.delta,
        report.unit,
        report.provenance,
        extra=event("finished", n_attempts=report.n_attempts, n_confirmed=n_confirmed, n_asked=n_asked),
    )
