"""When a node was asked and answered last.

a node that is dead inside looks "online" from outside.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flwr_dpkmeans.deploy.guard.app_program import ANSWERED, RECEIVED
from flwr_dpkmeans.flower.run_progress import Outcome, RunProgress

LONGEST_ANSWER = 600.0
"""Seconds, as long as a server waits unless it says otherwise.

After them a message without an answer is alerted on.
"""


@dataclass(frozen=True)
class LastMessage:
    """Of one node, by the files that its guard renews.

    Times are in seconds since 1970, None where there was none.
    """

    received: float | None
    answered: float | None

    @classmethod
    def of(cls, home: Path) -> LastMessage:
        """Look at a node's private folder."""
        return cls(_time_of(home / RECEIVED), _time_of(home / ANSWERED))

    @property
    def problem(self) -> str:
        """One sentence if a message has waited too long, or nothing."""
        if self.received is None or (self.answered or 0.0) >= self.received:
            return ""
        seconds = time.time() - self.received
        if seconds <= LONGEST_ANSWER:
            return ""
        return (
            f"the message of {utc(self.received)} has had no answer for {seconds:.0f}"
            f" s, but a server waits {LONGEST_ANSWER:.0f} s: look at this node's log,"
            " and start it again if no app of it runs."
        )


def forget(home: Path) -> None:
    """Begin anew, as with a node's start.

    What was asked before will never be answered.
    """
    (home / RECEIVED).unlink(missing_ok=True)


def utc(seconds: float | None) -> str:
    """A time as people read it, in UTC; nothing for None."""
    return (
        ""
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    )


def _time_of(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


@dataclass(frozen=True)
class Answers:
    """What a server's runs say of one node."""

    last: str = ""
    """When it answered last, in UTC; empty where no run says."""
    n_silent: int = 0
    """Of its newest runs that are over, in how many it was asked and has not answered
    once.
    """


def answers_of(runs: Iterable[RunProgress], names: Iterable[str]) -> Answers:
    """Look for a node, which runs call by one of some names.

    In runs of which the newest comes first.
    """
    called, n_silent = set(names), 0
    for run in runs:
        times = [run.answered_at[name] for name in called if name in run.answered_at]
        if times:
            return Answers(max(times), n_silent)
        is_over = run.outcome is not Outcome.RUNNING
        was_asked = bool(run.trips) or bool(called & set(run.late))
        if is_over and was_asked and called & {*run.nodes, *run.late, *run.missing}:
            n_silent += 1
    return Answers("", n_silent)
