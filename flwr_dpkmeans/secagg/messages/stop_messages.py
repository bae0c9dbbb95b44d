"""The end of a run without a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StopRequest:
    """The run is over without a result: why, in the server's words."""

    sentence: str


@dataclass(frozen=True)
class StopReply:
    """The client has taken note that the run is over."""
