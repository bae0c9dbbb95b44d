"""How far a run is, as its file says."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from flwr_dpkmeans.flower.round_trip import Notice, RoundTrip

PROGRESS_FILE, LOG_FILE = "progress.json", "log.jsonl"


class Outcome(StrEnum):
    """How a run stands; the last two nobody writes: its reader finds them."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    DIED = "died"
    UNREADABLE = "unreadable"


class RunProgress(BaseModel, frozen=True):
    """What is known of a run.

    The nodes that have joined, answered, are not heard yet, and were left out; its
    cost.

    Of each node that has answered in this run, it says when it did last.

    Nodes have their names, or else their ids, as text, since these have 64 bits. An
    epsilon of None is infinite; rounds and round trips are None while they are not
    planned yet. The plan's digest is as in ledgers, and so is the worst epsilon, with
    all retries.
    """

    run: str
    started: str
    updated: str
    outcome: Outcome = Outcome.RUNNING
    sentence: str = ""
    algorithm: str = ""
    trust: str = ""
    unit: str = ""
    plan: str = ""
    delta: float = 0.0
    epsilon: float | None = 0.0
    epsilon_planned: float | None = 0.0
    epsilon_worst: float | None = 0.0
    stage: str = "joining"
    round: int | None = None
    attempt: int | None = None
    n_rounds: int | None = None
    n_left: int | None = None
    nodes: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    answered_at: dict[str, str] = {}
    late: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    trips: tuple[RoundTrip, ...] = ()
    notices: tuple[Notice, ...] = ()
