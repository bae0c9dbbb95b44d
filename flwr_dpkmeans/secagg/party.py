"""What a client of either masked aggregation remembers, and what both answer alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Self, TypeVar

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.messages import (
    NO_ROUND,
    FinishRequest,
    Release,
    ShareReply,
    ShareRequest,
    SumReply,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.packing import pack_boxes, unpack_boxes
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster

_T = TypeVar("_T")


def changed(state: _T, **fields: Any) -> _T:
    """`dataclasses.replace`, in a third of its time, for what is replaced several times with every message.

    Only for classes that have nothing but their fields.
    """
    return type(state)(**(vars(state) | fields))


class Phase(Enum):
    """Where a client stands in a run; `secagg.retry` and `secagg.recovery.recover` have the transition tables."""

    KEYED = "keyed"
    SHARED = "shared"
    ADMITTED = "admitted"
    SUMMING = "summing"
    MASKED = "masked"
    UNMASKED = "unmasked"
    FINISHED = "finished"


@dataclass(frozen=True)
class Party(ABC):
    """All that a client must remember between two messages of one run."""

    run_id: int
    node_id: int
    """Bound into every key."""
    private_key: bytes = field(repr=False)
    """X25519 private key of this run."""
    min_cohort: int
    """Smallest roster that this client answers."""
    max_silent: int
    """How many clients may collude or fall silent."""
    authored: bool
    """Whether key authors blind the sums (trust model ``oblivious``)."""
    plan_digest: bytes
    """Digest of the plan in force, bound into every mask."""
    phase: Phase = Phase.KEYED
    round_index: int = NO_ROUND
    attempt: int = -1
    """The last (round, attempt) that was admitted, answered or unmasked; `NO_ROUND` and -1 before the first."""
    roster: Roster | None = None
    """Of the current attempt."""
    own_group_key: bytes = field(default=b"", repr=False)
    """Empty unless this client is a key author."""
    group_keys: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """All authors' keys, once their boxes arrived."""
    tag_key: bytes = field(default=b"", repr=False)
    """Key of the state tags; empty until one is shared."""

    _SECRETS: ClassVar[tuple[str, ...]] = ("private_key", "plan_digest", "own_group_key", "tag_key")

    @property
    def cohort(self) -> Roster:
        """The roster in force; asking before the first request is a `ProtocolError`."""
        if self.roster is None:
            raise ProtocolError("no roster was announced before the first round: restart the run.")
        return self.roster

    def with_plan(self, plan_digest: bytes, last_round: int) -> Self:
        """Return the state with another plan in force (the final plan after a preliminary one)."""
        del last_round
        return changed(self, plan_digest=plan_digest)

    @property
    @abstractmethod
    def announced(self) -> Roster | None:
        """The first roster of the run, or one that followed from it; None before it came."""

    def share(self, request: ShareRequest) -> tuple[Any, ShareReply]:
        """Share the keys of all aggregations, where sums are recovered."""
        del request
        raise _no_shares()

    @abstractmethod
    def admit(self, request: SumRequest, first_round: int) -> Self:
        """Check a request against the transition table and take in what came along."""

    @abstractmethod
    def answer(
        self, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
    ) -> tuple[Self, SumReply]:
        """Mask a vector and move on."""

    def unmask(self, request: UnmaskRequest) -> tuple[Any, UnmaskReply]:
        """Give the shares that take masks away, where sums are recovered."""
        del request
        raise _no_shares()

    def require_confirmed(self, identities: Mapping[int, bytes], confirmations: Mapping[int, bytes]) -> None:
        """Hold what neighbours signed of the survivors against what this client was told, where sums are recovered."""
        del identities, confirmations

    @abstractmethod
    def finish(self, request: FinishRequest) -> Self:
        """Check the last message and take in what came along."""

    @abstractmethod
    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Subtract the key authors' streams from a release."""

    @abstractmethod
    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag what this client has computed under a key that only clients share; empty while there is none."""

    @abstractmethod
    def pack(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Split the state into progress with small secrets, as JSON has them, and larger blobs."""

    @classmethod
    @abstractmethod
    def unpack(cls, run_id: int, node_id: int, progress: dict[str, Any], blobs: Mapping[str, Any]) -> Party:
        """Undo `pack`."""

    def require_open(self, request: SumRequest, *, blinded: bool) -> tuple[int, int]:
        """Return the (round, attempt) of an admitted request: nothing is answered twice, nor under other masks."""
        asked = (request.round_index, request.attempt)
        if self.phase is not Phase.ADMITTED or asked != (self.round_index, self.attempt):
            raise ProtocolError(
                f"round {asked[0]}, attempt {asked[1]} is not open for an answer: admit the request first."
            )
        if blinded and not self.authored:
            raise ProtocolError("the round is blinded, but the run has no key authors: check the plan's trust model.")
        return asked

    def pack_common(self) -> dict[str, Any]:
        """The fields that every party has, but the rosters, as JSON has them."""
        secrets = {name: getattr(self, name).hex() for name in self._SECRETS}
        secrets["group_keys"] = pack_boxes(dict(self.group_keys)).hex()
        return {
            "party": type(self).__name__,
            "min_cohort": self.min_cohort,
            "max_silent": self.max_silent,
            "authored": self.authored,
            "phase": self.phase.value,
            "round_index": self.round_index,
            "attempt": self.attempt,
            "secrets": secrets,
        }

    @classmethod
    def unpack_common(cls, run_id: int, node_id: int, progress: dict[str, Any]) -> dict[str, Any]:
        """Undo `pack_common`, as arguments of the class."""
        secrets = progress["secrets"]
        names = ("min_cohort", "max_silent", "authored", "round_index", "attempt")
        return {
            **{name: bytes.fromhex(secrets[name]) for name in cls._SECRETS},
            **{name: progress[name] for name in names},
            "run_id": run_id,
            "node_id": node_id,
            "phase": Phase(progress["phase"]),
            "group_keys": sorted_boxes(bytes.fromhex(secrets["group_keys"])),
        }


def _no_shares() -> ProtocolError:
    return ProtocolError("key shares were asked for in a run whose plan repeats lost sums instead: stop the run.")


def sorted_boxes(blob: bytes) -> tuple[tuple[int, bytes], ...]:
    """Secrets by node id."""
    return tuple(sorted(unpack_boxes(blob).items()))
