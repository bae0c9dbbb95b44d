"""Key shares, once a run, where sums are recovered from dropouts."""

from __future__ import annotations

from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.messages.attempt import Boxes, Credentials
from flwr_dpkmeans.secagg.roster import Roster


@dataclass(frozen=True)
class ShareRequest:
    """The server announces the run's clients and asks for key shares, once a run."""

    roster: Roster
    """Node ids and public keys of the run."""
    credentials: Credentials = field(default_factory=dict)
    """What its members signed, if they have identities."""


@dataclass(frozen=True)
class ShareReply:
    """A client's keys for every aggregation of the run, shared among its neighbours."""

    public_keys: bytes
    """X25519, 32 bytes for each aggregation in the order of `Slots`."""
    commitments: bytes
    """SHA-256 of each self-mask seed, likewise."""
    boxes: Boxes
    """For each neighbour: its shares of every key, and the public keys again, which the
    server cannot change there.
    """
    group_boxes: Boxes = field(default_factory=dict)
    """From a key author: its group key, sealed for each other client."""
