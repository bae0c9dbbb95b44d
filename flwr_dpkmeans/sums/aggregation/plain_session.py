"""The server of sums without masks, on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_dpkmeans.secagg.retry_session import RetrySession

if TYPE_CHECKING:
    pass


class PlainSession(RetrySession):
    """The server's side of sums without masks.

    It adds up, and no key author hides anything from it, whatever the trust model says.
    """

    def authors(self) -> frozenset[int]:
        """Nobody seals a group key."""
        return frozenset()
