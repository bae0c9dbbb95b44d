"""What the server's operator sees: progress, waiting, who is missing, refusals, budget and a summary at the end.

All of it is public: node ids, the plan's numbers, released counts, time. Under ``oblivious`` the server has no sum and
no centroid that a line could hold.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from flwr.app import Message

from flwr_dpkmeans.flower.exchange import n_bytes
from flwr_dpkmeans.log import event, placed_logger
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, Plan, round_trips
from flwr_dpkmeans.sums.statement import Step
from flwr_dpkmeans.sums.task import Run

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


def announce(plan: Plan) -> None:
    """Say at the start how long a deployment's run will take."""
    trips, pace = round_trips(plan), SECONDS_PER_ROUND_TRIP
    if plan.is_final:
        expected = f"{trips * pace:.0f} s, {trips} round trips of {pace:.0f} s"
    else:
        expected = (
            f"{pace:.0f} s for each of {trips} round trips and of the rounds that follow from what is asked or counted "
            "first"
        )
    details = event("duration", round_trips=trips, seconds=trips * pace, is_final=plan.is_final)
    logger.info("expected duration: about %s; the clients' computing comes on top", expected, extra=details)


def summary(plan: Plan) -> None:
    """Say what is about to be run, before anything is sent."""
    config, is_final = plan.config, plan.is_final
    counted = "private count" if config.task.counts(config.unit) else "not needed"
    logger.info(
        "%s: %sN = %s, %d clients, trust %r, %s noise",
        config.algorithm,
        _k_words(config),
        counted if config.n_examples is None else config.n_examples,
        plan.n_clients,
        config.trust,
        config.noise.value,
    )
    logger.info(
        "plan: %sepsilon %.4g at delta %.3g per %s (with all %d retries: %s%.4g)%s",
        f"{plan.last_round} rounds, " if is_final else "",
        plan.epsilon if is_final else config.epsilon,
        plan.delta,
        config.unit.value,
        config.max_retries,
        "" if is_final else "at most ",
        worst_case(plan),
        "" if is_final else "; the rounds follow from what is asked or counted first",
    )


def _k_words(config: Run) -> str:
    """The number of clusters, where there are some."""
    if "n_clusters" not in config.task.own_fields():
        return ""
    return f"k = 'auto', at most {config.n_clusters}, " if config.choose_n_clusters else f"k = {config.n_clusters}, "


def step_done(step: Step) -> None:
    """Say what one aggregation released."""
    noise = ", ".join(f"{name} +-{scale:.3g}" for name, scale in step.noise_scales)
    parts = [
        f"round {step.round_index}/{step.n_rounds} ({step.name})",
        f"{step.n_clients} clients",
        f"epsilon so far {step.epsilon:.4g}",
        f"noise {noise}",
    ]
    if step.radius is not None:
        parts.append(f"radius {step.radius:.3g}")
    if step.attempt:
        parts.append(f"attempt {step.attempt}")
    if step.movement is not None:
        parts.append(f"largest movement {step.movement:.3g}")
    logger.info("%s", "; ".join(parts))


def warned(sentence: str) -> None:
    """Say what the report says against the run."""
    logger.warning("%s", sentence)


def round_trips_left(plan: Plan, index: int | None) -> int | None:
    """Round trips after round `index` (None: after the key phase), if nobody drops out; None if not yet planned."""
    if not plan.is_final:
        return None
    rounds = plan.last_round - (plan.first_round - 1 if index is None else index)
    return rounds * plan.aggregator.trips + 1


def progressed(progress: Progress, plan: Plan, index: int | None, epsilon: float) -> None:
    """Log how far the run is, in time and in budget."""
    left = round_trips_left(plan, index)
    logger.info(
        "progress: %s; epsilon %.4g of %.4g (at most %.4g with all retries)",
        progress.describe(left),
        epsilon,
        plan.epsilon if plan.is_final else plan.config.epsilon,
        worst_case(plan),
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
