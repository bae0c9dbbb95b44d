"""The server's side of adding up: one session for each way to add up."""

from __future__ import annotations

from flwr_dpkmeans.secagg.recover_session import RecoverSession
from flwr_dpkmeans.secagg.retry import RetrySession

__all__ = ["PlainSession", "RecoverSession", "RetrySession", "Session"]


class PlainSession(RetrySession):
    """The server's side of sums without masks.

    It adds up, and no key author hides anything from it, whatever the trust model says.
    """

    def authors(self) -> frozenset[int]:
        """Nobody seals a group key."""
        return frozenset()


Session = RetrySession | RecoverSession
