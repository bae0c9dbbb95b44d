"""What travels: frozen messages of the aggregation protocol, independent of transport.

One request and one reply for each `Stage`; `secagg.packing` has their parts as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import NodeIds, Roster

NO_ROUND = -(2**31)
"""Index before any round.

Those of real rounds may be negative, as rounds that steer the plan are numbered up to
0.
"""


class Stage(Enum):
    """Phase of the protocol that a message belongs to."""

    KEYS = "keys"
    SHARE = "share"
    SUM = "sum"
    UNMASK = "unmask"
    FINISH = "finish"
    STOP = "stop"


@dataclass(frozen=True)
class Silence:
    """Who did not answer, and what follows for the server's log."""

    nodes: NodeIds
    left_out: str | None
    """What they did not send, where the sum goes on without them.

    None: a new attempt was opened.
    """
    why: str = ""
    """What was wrong with what came, if that is why."""


@dataclass(frozen=True)
class OfAttempt:
    """What belongs to one aggregation: a client answers each at most once."""

    round_index: int
    attempt: int

    @cached_property
    def attempt_id(self) -> AttemptId:
        """Round and attempt."""
        return self.round_index, self.attempt


@dataclass(frozen=True)
class Release(OfAttempt):
    """A noised sum on its way to the clients, which alone read it if it is blinded."""

    values: Ring = field(repr=False)


@dataclass(frozen=True)
class SumRequest(OfAttempt):
    """The server asks for one round's vector."""

    roster: Roster | None = None
    """Comes with the first request of each attempt."""
    release: Release | None = None
    """The noised sum of the round before.

    None in the first round and in a repeated one.
    """
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Group keys sealed for this client, once an attempt.

    Where sums are recovered, key shares, once a run.
    """
    state: bytes = field(default=b"", repr=False)
    """What the next statistic reads, where the server alone can compute it.

    The release is then empty.
    """
    credentials: Mapping[int, Credential] = field(default_factory=dict)
    """With the first roster of a run: what its members signed, if they have identities.
    """
    cohort: NodeIds = ()
    """Where sums are recovered: who is asked, ascending, instead of a roster."""
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered: sealed group keys, with the first request."""
    confirmations: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered and this client's neighbours have identities.

    Which survivors each was told, signed.
    """


@dataclass(frozen=True)
class SumReply(OfAttempt):
    """A client's masked vector."""

    masked: MaskedVector
    tag: bytes
    """Keyed tag of the client's state; empty in the first reply, before any shared key.
    """
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Sealed group keys from a key author, once an attempt.

    Where sums are recovered, a ticket for each neighbour.
    """


@dataclass(frozen=True)
class FinishRequest:
    """The last noised sum; no vector is asked for any more.

    The rest is as in `SumRequest`.
    """

    release: Release
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    state: bytes = field(default=b"", repr=False)
    confirmations: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishReply:
    """The client has its result; the tag says that it is the same as everybody's."""

    tag: bytes


@dataclass(frozen=True)
class StopRequest:
    """The run is over without a result: why, in the server's words."""

    sentence: str


@dataclass(frozen=True)
class StopReply:
    """The client has taken note that the run is over."""


@dataclass(frozen=True)
class ShareRequest:
    """The server announces the run's clients and asks for key shares, once a run."""

    roster: Roster
    """Node ids and public keys of the run."""
    credentials: Mapping[int, Credential] = field(default_factory=dict)
    """What its members signed, if they have identities."""


@dataclass(frozen=True)
class ShareReply:
    """A client's keys for every aggregation of the run, shared among its neighbours."""

    public_keys: bytes
    """X25519, 32 bytes for each aggregation in the order of `Slots`."""
    commitments: bytes
    """SHA-256 of each self-mask seed, likewise."""
    boxes: Mapping[int, bytes]
    """For each neighbour: its shares of every key, and the public keys again, which the
    server cannot change there.
    """
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    """From a key author: its group key, sealed for each other client."""


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
