"""The request for one round's vector, and the masked vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.messages.attempt import Boxes, Credentials, OfAttempt, Release
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import NodeIds, Roster


@dataclass(frozen=True)
class SumRequest(OfAttempt):
    """The server asks for one round's vector."""

    roster: Roster | None = None
    """Comes with the first request of each attempt."""
    release: Release | None = None
    """The noised sum of the round before.

    None in the first round and in a repeated one.
    """
    boxes: Boxes = field(default_factory=dict)
    """Group keys sealed for this client, once an attempt.

    Where sums are recovered, key shares, once a run.
    """
    state: bytes = field(default=b"", repr=False)
    """What the next statistic reads, where the server alone can compute it.

    The release is then empty.
    """
    credentials: Credentials = field(default_factory=dict)
    """With the first roster of a run: what its members signed, if they have identities.
    """
    cohort: NodeIds = ()
    """Where sums are recovered: who is asked, ascending, instead of a roster."""
    group_boxes: Boxes = field(default_factory=dict)
    """Where sums are recovered: sealed group keys, with the first request."""
    confirmations: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered and this client's neighbours have identities.

    Which survivors each was told, signed.
    """


@dataclass(frozen=True)
class MaskedVector:
    """A client's vector under its masks, uniform to who lacks one of its keys."""

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class SumReply(OfAttempt):
    """A client's masked vector."""

    masked: MaskedVector
    tag: bytes
    """Keyed tag of the client's state; empty in the first reply, before any shared key.
    """
    boxes: Boxes = field(default_factory=dict)
    """Sealed group keys from a key author, once an attempt.

    Where sums are recovered, a ticket for each neighbour.
    """
