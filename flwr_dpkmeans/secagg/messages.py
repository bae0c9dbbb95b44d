"""What travels: frozen messages of the aggregation protocol, independent of any transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.ring import MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

NO_ROUND = -(2**31)
"""Index before any round; those of real rounds may be negative, as rounds that steer the plan are numbered up to 0."""


class Stage(Enum):
    """Phase of the protocol that a message belongs to."""

    KEYS = "keys"
    SHARE = "share"
    SUM = "sum"
    UNMASK = "unmask"
    FINISH = "finish"


@dataclass(frozen=True)
class Silence:
    """Who did not answer, and what follows for the server's log."""

    nodes: tuple[int, ...]
    """Ascending."""
    left_out: str | None
    """What they did not send, where the sum goes on without them; None: a new attempt was opened."""
    why: str = ""
    """What was wrong with what came, if that is why."""


@dataclass(frozen=True)
class Release:
    """A noised sum on its way to the clients; under blinding only clients can read it."""

    round_index: int
    attempt: int
    """Which sum this is."""
    values: Ring = field(repr=False)
    """Ring elements."""


@dataclass(frozen=True)
class SumRequest:
    """The server asks for one round's vector."""

    round_index: int
    attempt: int
    """Each pair is answered at most once."""
    roster: Roster | None = None
    """Given with the first request of each attempt."""
    release: Release | None = None
    """The noised sum of the round before; None in the first round and in a repeated one."""
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Group keys sealed for this client, with the message after the author's first reply of an attempt."""
    state: bytes = field(default=b"", repr=False)
    """What the next statistic reads, where the server alone can compute it; the release is then empty."""
    credentials: Mapping[int, Credential] = field(default_factory=dict)
    """With the first roster of a run: what its members signed, if they have identities."""
    cohort: tuple[int, ...] = ()
    """Where sums are recovered: who is asked, ascending, instead of a roster."""
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered: sealed group keys, with the first request; `boxes` then holds neighbours' key shares.
    """
    confirmations: Mapping[int, bytes] = field(default_factory=dict)
    """Where sums are recovered and this client's neighbours have identities: which survivors each was told, signed."""


@dataclass(frozen=True)
class SumReply:
    """A client's masked vector."""

    round_index: int
    attempt: int
    """Copied from the request."""
    masked: MaskedVector
    """Statistic plus masks."""
    tag: bytes = b""
    """Keyed tag of the client's state (empty in the first reply, when no key is shared yet)."""
    boxes: Mapping[int, bytes] = field(default_factory=dict)
    """From a key author, in its first reply of an attempt: its group key, sealed for each other client. Where sums are
    recovered: a ticket for each neighbour in the cohort; see `secagg.recovery.agreement`.
    """


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


@dataclass(frozen=True)
class ShareRequest:
    """The server announces who agreed to the plan and asks for key shares; once a run."""

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
    """For each neighbour: its shares of every key, and the public keys again, which the server cannot change there."""
    group_boxes: Mapping[int, bytes] = field(default_factory=dict)
    """From a key author: its group key, sealed for each other client."""


@dataclass(frozen=True)
class UnmaskRequest:
    """The server names those whose vectors it has, and asks for the shares that take their masks away."""

    round_index: int
    attempt: int
    """Each pair is answered at most once."""
    survivors: tuple[int, ...]
    """Ascending. Everybody else of the attempt's cohort is dropped: nobody can be both."""


@dataclass(frozen=True)
class UnmaskReply:
    """One share for each neighbour: of its self mask if it survived, of its pairwise key if it was dropped."""

    round_index: int
    attempt: int
    """Copied from the request."""
    shares: Mapping[int, bytes] = field(repr=False)
    """96 bytes for each neighbour in the attempt's cohort: the locked share, a ticket for the neighbour, and a padded
    share of the key that opens the lock; see `flwr_dpkmeans.secagg.recovery.agreement`.
    """
    signature: bytes = b""
    """Of the survivors, by this client's identity, if it has one."""


Request = ShareRequest | SumRequest | UnmaskRequest | FinishRequest
"""Whatever a server asks after the keys."""
