"""A refusal, or a failure on a client's side, as it travels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flwr_dpkmeans.errors import PeerError, ProtocolError, RefusalError
from flwr_dpkmeans.log import printable

STOPPING_CODES = frozenset(
    {
        "BudgetError",
        "RefusalError",
        "ConfigurationError",
        "DataError",
        "LocalMisuseError",
        "IdentityError",
    }
)
"""Refusals that leaving the node out does not mend."""


class Status(Enum):
    """Outcome of a request, as the client reports it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """A refusal, or a failure on a client's side.

    A fixed code and a sentence made of public values only.
    """

    status: Status
    code: str
    sentence: str

    def stop(
        self,
        node: int,
        *,
        always: bool,
    ) -> PeerError:
        """Make the error that it is to the server.

        One that stops the run, or one that only leaves the node out.
        """
        if always or self.code in STOPPING_CODES:
            error = RefusalError(f"node {node} refused ({self.code}): {self.sentence}")
            # The sentence may hold a limit of the node's policy, which its owner tells
            # the server alone.
            error.for_others = f"node {node} refused ({self.code})."
            return error
        return ProtocolError(
            f"node {node} did not answer ({self.code}): {self.sentence}"
        )


def shown_text(value: object, longest: int) -> str:
    """Another party's text for a log: bounded, and without control characters."""
    return printable(value, longest) if isinstance(value, str) else ""
