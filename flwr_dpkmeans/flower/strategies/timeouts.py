"""Bounds on waiting."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.errors import invalid, require_positive

AGAIN = 3
"""Times the round's timeout, for which a paid run waits once more for what it lacks."""

LONGEST_AGAIN = 600.0
"""Seconds that this comes to at most."""


@dataclass(frozen=True)
class Timeouts:
    """Bounds on waiting, in seconds."""

    joining: float = 120.0
    """For the cohort to join."""
    round: float = 600.0
    """For the replies of one aggregation."""
    run: float = 86_400.0
    """For the whole run, once it is its turn."""
    concurrent: bool = False
    """Whether not to wait until other runs on this SuperLink have ended, which share
    the nodes then.
    """

    def __post_init__(self) -> None:
        for name in ("joining", "round", "run"):
            require_positive(f"the {name} timeout in seconds", getattr(self, name))
        if not isinstance(self.concurrent, bool):
            raise invalid(
                "concurrent",
                self.concurrent,
                "true or false",
                "correct it",
            )
