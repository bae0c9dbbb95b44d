"""Both sides of a masked aggregation, as far as all kinds agree: `Party` is a client, `Session` the server.

A client is a frozen state with pure transitions: what is refused leaves it as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from flwr_dpkmeans.errors import CohortError, DisagreementError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg.keys import (
    AggregateVector,
    FixedPointVector,
    MaskedVector,
    Ring,
    agree_pair_keys,
    derive_key,
    digest,
    generate_group_key,
    keyed_tag,
    mask,
    public_key_of,
    seal,
    unseal,
)
from flwr_dpkmeans.secagg.messages import (
    NO_ROUND,
    FinishRequest,
    Release,
    Stage,
    SumReply,
    SumRequest,
    pack_keys,
    unpack_keys,
    unpack_roster,
)
from flwr_dpkmeans.secagg.roster import Credential, Roster, transcript_of

TAG_BYTES = 32
"""Length of a state tag (HMAC-SHA256)."""
Keys = tuple[tuple[int, bytes], ...]
"""Secrets of 32 bytes by node id, ascending."""

_T = TypeVar("_T")


def changed(state: _T, **fields: Any) -> _T:
    """`dataclasses.replace` in a third of its time, for classes that have nothing but their fields."""
    return type(state)(**(vars(state) | fields))


class Phase(Enum):
    """Where a client stands in a run; `secagg.retry` and `secagg.recover` have the transition tables."""

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
    group_keys: Keys = field(default=(), repr=False)
    """All authors' keys, once their boxes arrived."""
    tag_key: bytes = field(default=b"", repr=False)
    """Key of the state tags; empty until one is shared."""
    transcript: bytes = b""
    """What the last answered vector was masked under."""

    _PROGRESS: ClassVar[tuple[str, ...]] = ("min_cohort", "max_silent", "authored", "round_index", "attempt")
    _BYTES: ClassVar[tuple[str, ...]] = ("private_key", "plan_digest", "own_group_key", "tag_key", "transcript")
    _KEYS: ClassVar[tuple[str, ...]] = ("group_keys",)
    _START: ClassVar[Phase] = Phase.KEYED
    """In which the first vector is asked for."""
    _LAST_START: ClassVar[float] = float("inf")
    """Last attempt in which it may be."""
    _ANSWERED: ClassVar[Phase] = Phase.SUMMING
    _COMPLETE: ClassVar[Phase] = Phase.SUMMING
    """After a vector, and when its sum may be released."""

    @property
    def cohort(self) -> Roster:
        """The roster in force; asking before the first request is a `ProtocolError`."""
        if self.roster is None:
            raise ProtocolError("no roster was announced before the first round: restart the run.")
        return self.roster

    @property
    def announced(self) -> Roster | None:
        """The first roster of the run, or one that followed from it; None before it came."""
        return self.roster

    def with_plan(self, plan_digest: bytes, last_round: int) -> Self:
        """Return the state with another plan in force (the final plan after a preliminary one)."""
        del last_round
        return changed(self, plan_digest=plan_digest)

    def share(self, request: Any) -> tuple[Any, Any]:
        """Share the keys of all aggregations or (`unmask`) what takes masks away, where sums are recovered."""
        del request
        raise ProtocolError("key shares were asked for in a run whose plan repeats lost sums instead: stop the run.")

    unmask = share

    @abstractmethod
    def admit(self, request: SumRequest, first_round: int) -> Self:
        """Check a request and take in its roster or cohort, and boxes; nothing is answered yet."""

    def answer(
        self, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
    ) -> tuple[Self, SumReply]:
        """Mask a vector and move on."""
        asked = request.asked
        if self.phase is not Phase.ADMITTED or asked != (self.round_index, self.attempt):
            # Against a second vector under the same masks: the difference of both would be readable.
            raise ProtocolError(
                f"round {asked[0]}, attempt {asked[1]} is not open for an answer: admit the request first."
            )
        if blinded and not self.authored:
            # Against a sum that the server reads although it knows the noise.
            raise ProtocolError("the round is blinded, but the run has no key authors: check the plan's trust model.")
        transcript = transcript_of(self.plan_digest, self.cohort.digest)
        values = vector.values.copy()
        boxes = self._add_masks(values, transcript)
        if blinded and self.own_group_key:
            values += _blind_stream(self.run_id, asked, self.node_id, self.own_group_key, transcript, len(values))
        reply = SumReply(*asked, MaskedVector(values), self.tag(*asked, state_digest), boxes)
        return changed(self, phase=self._ANSWERED, transcript=transcript), reply

    def _add_masks(self, values: Ring, transcript: bytes) -> dict[int, bytes]:
        """Add the own masks to a vector, in place, and return what its reply holds for other clients."""
        del values, transcript
        return {}

    def require_confirmed(self, identities: Mapping[int, bytes], confirmations: Mapping[int, bytes]) -> None:
        """Hold what neighbours signed of the survivors against what this client was told, where sums are recovered."""
        del identities, confirmations

    def finish(self, request: FinishRequest) -> Self:
        """Check the last message and take in its boxes, if they are still due."""
        release = request.release
        if self.phase is not self._COMPLETE or release.asked != (self.round_index, self.attempt):
            did = "unmasked" if self._COMPLETE is Phase.UNMASKED else "answered"
            # Against a release of another sum, which would end the run with another result than the others'.
            raise ProtocolError(
                f"the last release is of round {release.round_index}, attempt {release.attempt}, but this client "
                f"{did} round {self.round_index}, attempt {self.attempt}: it is late, replayed or of another run."
            )
        return changed(self._with_boxes(request.boxes), phase=Phase.FINISHED)

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Subtract the streams of the key authors in the sum from a release."""
        values = release.values.copy()
        if blinded:
            keys = self._blinding_keys()
            if not keys or not self.transcript or release.attempt != self.attempt:
                # Against noise that is taken for a result.
                raise ProtocolError(
                    f"the release of round {release.round_index}, attempt {release.attempt} is blinded, but its group "
                    "keys are not at hand: restart the run."
                )
            values -= _all_streams(keys, self.run_id, release.asked, self.transcript, len(values))
        return AggregateVector(values, blinded=False)

    def _blinding_keys(self) -> Keys:
        """Group keys of the authors whose vectors are in the last sum."""
        return self.group_keys

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag what this client has computed under a key that only clients share; empty while there is none."""
        if not self.tag_key:
            return b""
        return keyed_tag(self.tag_key, self.run_id, round_index, attempt, state_digest)

    def pack(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Split the state into progress, as JSON has it, and blobs, among them all secrets."""
        fields, roster = vars(self), self.announced
        progress = {"party": type(self).__name__, "phase": self.phase.value}
        progress |= zip(self._PROGRESS, map(fields.__getitem__, self._PROGRESS), strict=True)
        blobs = {"roster": b"" if roster is None else roster.packed}
        blobs |= zip(self._BYTES, map(fields.__getitem__, self._BYTES), strict=True)
        for name in self._KEYS:
            blobs[name] = pack_keys(fields[name])
        return progress, blobs

    @classmethod
    def unpack(cls, run_id: int, node_id: int, progress: dict[str, Any], blobs: Mapping[str, Any], **more: Any) -> Self:
        """Undo `pack`; `more` are fields that it does not know."""
        fields = dict(zip(cls._PROGRESS, map(progress.__getitem__, cls._PROGRESS), strict=True))
        fields |= zip(cls._BYTES, map(blobs.__getitem__, cls._BYTES), strict=True)
        for name in cls._KEYS:
            fields[name] = unpack_keys(blobs[name])
        if blobs["roster"] and "roster" not in more:
            fields["roster"] = unpack_roster(progress["attempt"], blobs["roster"])
        return cls(run_id=run_id, node_id=node_id, phase=Phase(progress["phase"]), **fields, **more)

    def _require_admissible(self, request: SumRequest, first_round: int) -> None:
        """Raise unless the transition table has a line for the request."""
        (index, attempt), release = request.asked, request.release
        answered = (self.round_index, self.attempt)
        if self.phase is self._START:
            allowed = index == first_round and 0 <= attempt <= self._LAST_START and release is None
        elif self.phase not in (self._ANSWERED, self._COMPLETE):
            allowed = False
        elif index == self.round_index:
            allowed = attempt > self.attempt and release is None
        else:
            allowed = self.phase is self._COMPLETE and (index, attempt) == (self.round_index + 1, self.attempt)
            allowed = allowed and release is not None and (release.round_index, release.attempt) == answered
        if not allowed:
            # Against one round that is answered twice, or for other centroids: the ledger would not know of it.
            raise ProtocolError(
                f"a vector was asked for round {index}, attempt {attempt}, but this client is {self.phase.value} with "
                f"round {self.round_index}, attempt {self.attempt} answered last: the request is replayed, late or out "
                "of order and stays unanswered."
            )

    def _require_own_place(self, roster: Roster, attempt: int) -> None:
        """Raise unless a roster is of this attempt, and lists this client and enough others."""
        if roster.attempt != attempt or roster.keys.get(self.node_id) != public_key_of(self.private_key):
            # Against a server that takes part in this client's place.
            raise ProtocolError(f"the roster does not list node {self.node_id} under its own key: check the server.")
        if len(roster.members) < self.min_cohort:
            # Against a sum of so few that it tells about one of them.
            raise ProtocolError(
                f"the roster has {len(roster.members)} clients, but this client's minimum cohort is {self.min_cohort}: "
                "start more clients or lower min-clients."
            )

    def _fresh_group_key(self, roster: Roster) -> bytes:
        """A new group key if this client is an author of the roster."""
        is_author = self.authored and self.node_id in roster.authors(self.max_silent)
        return generate_group_key() if is_author else b""

    def _agreed_keys(self, roster: Roster, peers: Iterable[int], known: Mapping[int, bytes]) -> dict[int, bytes]:
        """Pair keys with `peers`: those that are known, and newly agreed ones for the rest."""
        missing = {peer: roster.keys[peer] for peer in peers if peer not in known and peer != self.node_id}
        if not missing:
            return dict(known)
        return {**known, **agree_pair_keys(self.private_key, missing, self.run_id, self.node_id)}

    def _box_context(self, purpose: str, author: int, recipient: int) -> bytes:
        """What a box is bound to: it opens for nobody else, and in no other run, attempt or roster."""
        roster = self.announced or self.cohort
        return digest(purpose, self.run_id, *self._box_scope, author, recipient, roster.digest)

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """What a box is bound to besides, where it is not of the whole run."""
        return ()

    def _seal(self, pair_key: bytes, purpose: str, recipient: int, secret: bytes) -> bytes:
        """Seal something for one node."""
        context = self._box_context(purpose, self.node_id, recipient)
        return seal(derive_key(pair_key, purpose, context), secret, context)

    def _open(self, pair_key: bytes, purpose: str, author: int, box: bytes, length: int) -> bytes:
        """Open what one node sealed."""
        context = self._box_context(purpose, author, self.node_id)
        secret = unseal(derive_key(pair_key, purpose, context), box, context)
        if len(secret) != length:
            # Against an author whose keys or shares are cut short, so that others read them at wrong places.
            raise ProtocolError(f"node {author} sealed {len(secret)} bytes instead of {length}: restart the run.")
        return secret

    def _with_boxes(self, boxes: Mapping[int, bytes]) -> Self:
        """Take in the boxes that came; there are none but where they are due."""
        if boxes:
            # Against keys of another attempt or run in the place of those that are in use.
            raise ProtocolError("sealed group keys came although none are due: they are replayed or of another run.")
        return self

    def _with_group_keys(self, opened: Mapping[int, bytes], roster: Roster) -> Self:
        """The state with all authors' keys, and the tag's key, which follows from them or (without any) the plan."""
        own = {self.node_id: self.own_group_key} if self.own_group_key else {}
        ordered = tuple(sorted({**opened, **own}.items()))
        secret = b"".join(key for _, key in ordered) if self.authored else self.plan_digest
        return changed(self, group_keys=ordered, tag_key=derive_key(secret, "tag", self.run_id, roster.digest))


def _blind_stream(
    run_id: int, asked: tuple[int, int], author: int, group_key: bytes, transcript: bytes, length: int
) -> Ring:
    """One author's blinding stream of one aggregation."""
    return mask(group_key, length, "blind", run_id, author, *asked, transcript)


@lru_cache(maxsize=1)
def _all_streams(group_keys: Keys, run_id: int, asked: tuple[int, int], transcript: bytes, length: int) -> Ring:
    """The sum of all authors' streams; made once for all virtual clients of one process, which need the same."""
    total = np.zeros(length, dtype=np.uint64)
    for author, key in group_keys:
        total += _blind_stream(run_id, asked, author, key, transcript, length)
    return total


class Session(ABC):
    """One run of an aggregation protocol, as the server sees it: it adds up vectors that it cannot read."""

    sharers: Roster | None = None
    """Everybody that shared keys, where sums are recovered."""

    def __init__(
        self,
        roster: Roster,
        *,
        least: int,
        max_retries: int,
        max_silent: int,
        authored: bool,
        credentials: Mapping[int, Credential] | None = None,
    ) -> None:
        if len(roster.members) < least:
            raise CohortError(
                f"{len(roster.members)} clients take part, but at least {least} are needed: start more clients or "
                "lower min-clients."
            )
        self.roster = roster
        self.round_index = NO_ROUND
        self.due = Stage.SUM
        """What is asked for next."""
        self._least = least
        self._max_retries = max_retries
        self._max_silent = max_silent
        self._authored = authored
        self._credentials = credentials or {}
        self._first = True
        """Whether rosters or boxes that are sent once are still due."""
        self._open = False
        self._length = 0
        self._total: Ring = np.zeros(0, dtype=np.uint64)
        self._tags: dict[int, bytes] = {}
        self._sealed: dict[int, Mapping[int, bytes]] = {}
        """What replies held for other clients, by sender."""

    @property
    def attempt(self) -> int:
        """Number of the current attempt."""
        return self.roster.attempt

    @property
    def asked(self) -> tuple[int, ...]:
        """Who is asked next."""
        return self.roster.node_ids

    @property
    def n_summed(self) -> int:
        """Clients in the sum."""
        return len(self.roster.members)

    def open_round(self, round_index: int, length: int) -> None:
        """Wait for one vector of `length` entries from every client of the roster."""
        self.round_index, self._length = round_index, length
        self._reset()

    def _reset(self) -> None:
        """Wait for vectors."""
        self._tags, self._sealed = {}, {}
        self._total = np.zeros(self._length, dtype=np.uint64)
        self._open, self.due = True, Stage.SUM

    def receive(self, node_id: int, reply: SumReply) -> None:
        """Take one vector in; one that is late, replayed or malformed is a `ProtocolError` and changes nothing."""
        asked = (self.round_index, self.roster.attempt)
        if node_id not in self.roster.keys:
            # Against a sum with somebody in it whom nobody masks with.
            raise ProtocolError(f"node {node_id} answered, but is not in the roster of attempt {asked[1]}: ignored.")
        is_open = self._open and self.due is Stage.SUM
        if not is_open or (reply.round_index, reply.attempt) != asked:
            # Against vectors of other masks, which would make the sum noise.
            raise ProtocolError(
                f"node {node_id} answered round {reply.round_index}, attempt {reply.attempt}, but round {asked[0]}, "
                f"attempt {asked[1]} is {'open' if is_open else 'complete'}: the reply is late or replayed and is "
                "discarded."
            )
        if node_id in self._tags:
            # Against a vector that counts twice.
            raise ProtocolError(f"node {node_id} answered round {asked[0]} twice: the second reply is discarded.")
        values = reply.masked.values
        if values.shape != (self._length,) or values.dtype != np.uint64:
            # Against words that NumPy would spread over others, or round.
            raise ProtocolError(
                f"node {node_id} sent {values.size} entries of {values.dtype}, but the plan has {self._length} of "
                "uint64: discarded."
            )
        self._require_parts(node_id, reply)
        self._tags[node_id], self._sealed[node_id] = reply.tag, reply.boxes
        # Added up at once, so that 10,000 clients need no 10,000 vectors.
        self._total += values

    take = receive
    """Take in what was asked for."""

    @abstractmethod
    def _require_parts(self, node_id: int, reply: SumReply) -> None:
        """Raise unless a reply's tag, and what it holds for other clients, are as they are due."""

    def missing(self) -> tuple[int, ...]:
        """Nodes of the roster that have not answered the open round."""
        return tuple([node for node in self.roster.node_ids if node not in self._tags])

    def _require_blinding(self, *, blinded: bool) -> None:
        """Raise if authors' streams are to be in a sum of a run that has none."""
        if blinded and not self._authored:
            raise LocalMisuseError("a run without key authors has no blinded sums: check the plan's trust model.")


def require_equal_tags(tags: dict[int, bytes], round_index: int) -> None:
    """Stop the run with the minority's names if the clients' state tags differ."""
    counts = Counter(tags.values())
    if len(counts) <= 1:
        return
    common, votes = counts.most_common(1)[0]
    if votes * 2 <= len(tags):
        suspects: Iterable[int] = tags
    else:
        suspects = [node for node, tag in tags.items() if tag != common]
    # Against clients that were told different releases, and go on from different centroids.
    raise DisagreementError(
        f"the state of node(s) {sorted(suspects)} differs from the others' in round {round_index}: check that all "
        "nodes run the same versions of flwr-dpkmeans and NumPy, and start a new run."
    )
