"""Parts of a run's progress."""

from __future__ import annotations

from pydantic import BaseModel


class RoundTrip(BaseModel, frozen=True):
    """One question to all that take part.

    Sizes are bytes of the values in all messages.
    """

    stage: str
    round: int | None
    attempt: int | None
    seconds: float
    n_asked: int
    n_answered: int
    sent: int
    received: int


class Notice(BaseModel, frozen=True):
    """A warning in the server's log: its event, and a code.

    Of a refusal it is the error's name, of silence Flower's error code.
    """

    time: str
    event: str
    reason: str
    sentence: str
