"""What travels besides the messages of `flwr_dpkmeans.secagg.messages` where sums are recovered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.roster import Roster


@dataclass(frozen=True)
class ShareRequest:
    """The server announces who agreed to the plan and asks for key shares; once a run.

    Parameters
    ----------
    roster : Roster
        Node ids and public keys of the run.
    credentials : mapping of node id to Credential
        What its members signed, if they have identities.
    """

    roster: Roster
    credentials: Mapping[int, Credential] = field(default_factory=dict)


@dataclass(frozen=True)
class ShareReply:
    """A client's keys for every aggregation of the run, shared among its neighbours.

    Parameters
    ----------
    public_keys : bytes
        X25519, 32 bytes for each aggregation in the order of `Slots`.
    commitments : bytes
        SHA-256 of each self-mask seed, likewise.
    boxes : mapping of node id to bytes
        For each neighbour: its shares of every key, and the public keys again, which the server cannot change there.
    group_boxes : mapping of node id to bytes
        From a key author: its group key, sealed for each other client.
    """

    public_keys: bytes
    commitments: bytes
    boxes: Mapping[int, bytes]
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class UnmaskRequest:
    """The server names those whose vectors it has, and asks for the shares that take their masks away.

    Parameters
    ----------
    round_index, attempt : int
        Each pair is answered at most once.
    survivors : tuple of int
        Ascending. Everybody else of the attempt's cohort is dropped: nobody can be both.
    """

    round_index: int
    attempt: int
    survivors: tuple[int, ...]


@dataclass(frozen=True)
class UnmaskReply:
    """One share for each neighbour: of its self mask if it survived, of its pairwise key if it was dropped.

    Parameters
    ----------
    round_index, attempt : int
        Copied from the request.
    shares : mapping of node id to bytes
        96 bytes for each neighbour in the attempt's cohort: the locked share, a ticket for the neighbour, and a padded
        share of the key that opens the lock; see `flwr_dpkmeans.secagg.recovery.agreement`.
    signature : bytes
        Of the survivors, by this client's identity, if it has one.
    """

    round_index: int
    attempt: int
    shares: Mapping[int, bytes] = field(repr=False)
    signature: bytes = b""
