"""Shares that take masks away, where sums are recovered from dropouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.messages.attempt import OfAttempt
from flwr_dpkmeans.secagg.roster import NodeIds


@dataclass(frozen=True)
class UnmaskRequest(OfAttempt):
    """The server names those whose vectors came, and asks for what opens their sum."""

    survivors: NodeIds
    """Ascending. Everybody else of the attempt's cohort is dropped: nobody can be both.
    """


@dataclass(frozen=True)
class UnmaskReply(OfAttempt):
    """One share for each neighbour, of the key that opens what its fate asks for.

    Of its self mask if it survived, of its pairwise key if it was dropped.
    """

    shares: Mapping[int, bytes] = field(repr=False)
    """For each neighbour in the cohort: a locked share, a ticket, and a padded share of
    the key that opens the lock.
    """
    signature: bytes = b""
    """Of the survivors, by this client's identity, if it has one."""
