"""What travels: frozen messages of the aggregation protocol, independent of any transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

NO_ROUND = -(2**31)
"""Index before any round; those of real rounds may be negative, as rounds that steer the plan are numbered up to 0."""


@dataclass(frozen=True)
class Release:
    """A noised sum on its way to the clients; under blinding only clients can read it.

    Parameters
    ----------
    round_index, attempt : int
        Which sum this is.
    values : ndarray of uint64
        Ring elements.
    """

    round_index: int
    attempt: int
    values: Ring = field(repr=False)


@dataclass(frozen=True)
class SumRequest:
    """The server asks for one round's vector.

    Parameters
    ----------
    round_index, attempt : int
        Each pair is answered at most once.
    roster : Roster or None
        Given with the first request of each attempt.
    release : Release or None
        The noised sum of the round before; None in the first round and in a repeated one.
    boxes : mapping of author id to bytes
        Group keys sealed for this client, with the message after the author's first reply of an attempt.
    state : bytes
        What the next statistic reads, where the server alone can compute it; the release is then empty.
    credentials : mapping of node id to Credential
        With the first roster of a run: what its members signed, if they have identities.
    cohort : tuple of int
        Where sums are recovered: who is asked, ascending, instead of a roster.
    group_boxes : mapping of author id to bytes
        Where sums are recovered: sealed group keys, with the first request; `boxes` then holds neighbours' key shares.
    confirmations : mapping of node id to bytes
        Where sums are recovered and this client's neighbours have identities: which survivors each was told, signed.
    """

    round_index: int
    attempt: int
    roster: Roster | None = None
    release: Release | None = None
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    state: bytes = field(default=b"", repr=False)
    credentials: Mapping[int, Credential] = field(default_factory=dict)
    cohort: tuple[int, ...] = ()
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    confirmations: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class SumReply:
    """A client's masked vector.

    Parameters
    ----------
    round_index, attempt : int
        Copied from the request.
    masked : MaskedVector
        Statistic plus masks.
    tag : bytes
        Keyed tag of the client's state (empty in the first reply, when no key is shared yet).
    boxes : mapping of node id to bytes
        From a key author, in its first reply of an attempt: its group key, sealed for each other client.
        Where sums are recovered: a ticket for each neighbour in the cohort; see `secagg.recovery.agreement`.
    """

    round_index: int
    attempt: int
    masked: MaskedVector
    tag: bytes = b""
    boxes: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishRequest:
    """The last noised sum; no vector is asked for any more."""

    release: Release
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    state: bytes = field(default=b"", repr=False)
    confirmations: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishReply:
    """The client has its result; the tag says that it is the same as everybody's."""

    tag: bytes
