"""Both sides of a masked aggregation, and sums that are repeated without whoever fell
silent.

`Party` is a client and `Session` the server, as far as all kinds agree. A client is a
frozen state with pure transitions: what is refused leaves it as it was.

In `Retry`, each pair of clients adds and subtracts one mask, so that masks cancel in
the sum of all; if a vector is missing they do not, and a new attempt is asked for.

====================  ==========================
================================================== state                 event
next state
====================  ==========================
================================================== `KEYED`               first
`SumRequest`          `SUMMING` at (first round, attempt) `SUMMING` at (r, a)
`SumRequest` (r + 1, a)     `SUMMING` at (r + 1, a); opens release (r, a) `SUMMING` at
(r, a)   `SumRequest` (r, a' > a)    `SUMMING` at (r, a'); smaller roster, no release
`SUMMING` at (r, a)   `FinishRequest` (r, a)      `FINISHED`; opens release (r, a)
anything              `StopRequest`               `FINISHED` anything else
`ProtocolError`, and the state stays as it was
====================  ==========================
==================================================

Between `admit` and `answer` a state is `ADMITTED`: `answer` accepts no other one, and
no request is admitted in it. A (round, attempt) pair is therefore answered at most
once, whatever the server sends. A caller that puts an *old* state back could still
answer twice under the same masks: the ledger above this package guards against that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    LocalMisuseError,
    ProtocolError,
)
from flwr_dpkmeans.secagg import ciphers, keys, messages, ring
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of

TAG_BYTES = 32
"""Length of a state tag (HMAC-SHA256)."""
Keys = tuple[tuple[int, bytes], ...]
"""Secrets of 32 bytes by node id, ascending."""

_T = TypeVar("_T")


def changed(state: _T, **fields: Any) -> _T:
    """`dataclasses.replace` in a tenth of its time, for classes that have nothing but
    their fields.
    """
    if not fields.keys() <= vars(state).keys():
        raise LocalMisuseError(
            f"{type(state).__name__} lacks a field of {sorted(fields)}: name those that"
            " it has."
        )
    # Past a frozen class' `__init__`, which writes each of some twenty fields by a
    # call.
    found = object.__new__(type(state))
    vars(found).update(vars(state), **fields)
    return found


class Phase(Enum):
    """Where a client stands in a run.

    The tables above and of `secagg.recover` have the transitions.
    """

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
    min_cohort: int
    """Smallest roster that this client answers."""
    max_silent: int
    """How many clients may collude or fall silent."""
    authored: bool
    """Whether key authors blind the sums (trust model ``oblivious``)."""
    plan_digest: bytes
    """Digest of the plan in force, bound into every mask."""
    phase: Phase = Phase.KEYED
    round_index: int = messages.NO_ROUND
    attempt: int = -1
    """The last (round, attempt) that was admitted, answered or unmasked.

    `NO_ROUND` and -1 before the first.
    """
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
            raise ProtocolError(
                "no roster was announced before the first round: restart the run."
            )
        return self.roster

    @property
    def public_key(self) -> bytes:
        """What others know this client by."""
        return keys.public_key_of(self.private_key)

    @property
    def announced(self) -> Roster | None:
        """The first roster of the run, or one that followed from it.

        None before it came.
        """
        return self.roster

    def with_plan(self, plan_digest: bytes, last_round: int) -> Self:
        """Return the state with another plan in force (the final plan after a
        preliminary one).
        """
        return changed(self, plan_digest=plan_digest)

    def share(self, request: Any) -> tuple[Any, Any]:
        """Share the keys of all aggregations or (`unmask`) what takes masks away, where
        sums are recovered.
        """
        raise ProtocolError(
            "key shares were asked for in a run whose plan repeats lost sums instead:"
            " stop the run."
        )

    unmask = share

    @abstractmethod
    def admit(
        self, request: messages.SumRequest, first_round: int, closing_round: int = 0
    ) -> Self:
        """Check a request and take in its roster or cohort, and boxes.

        Nothing is answered yet.

        Rounds follow each other; before `closing_round` some may be left out, which the
        caller holds against the plan.
        """

    def answer(
        self,
        request: messages.SumRequest,
        vector: ring.FixedPointVector,
        *,
        blinded: bool,
        state_digest: bytes,
    ) -> tuple[Self, messages.SumReply]:
        """Mask a vector and move on."""
        asked = request.attempt_id
        if self.phase is not Phase.ADMITTED or asked != (
            self.round_index,
            self.attempt,
        ):
            # Against a second vector under the same masks: the difference of both would
            # be readable.
            raise ProtocolError(
                f"round {asked[0]}, attempt {asked[1]} is not open for an answer: admit"
                " it first."
            )
        if blinded and not self.authored:
            # Against a sum that the server reads although it knows the noise.
            raise ProtocolError(
                "the round is blinded, but the run has no key authors: check the plan's"
                " trust model."
            )
        transcript = transcript_of(self.plan_digest, self.cohort.digest)
        values = vector.values.copy()
        masked, boxes = self._add_masks(values, transcript)
        if blinded and self.own_group_key:
            values += _blind_stream(
                self.run_id,
                asked,
                self.node_id,
                self.own_group_key,
                transcript,
                len(values),
            )
        reply = messages.SumReply(
            *asked, ring.MaskedVector(values), self.tag(*asked, state_digest), boxes
        )
        return changed(masked, phase=self._ANSWERED, transcript=transcript), reply

    def _add_masks(
        self, values: Ring, transcript: bytes
    ) -> tuple[Self, dict[int, bytes]]:
        """Add the own masks to a vector, in place.

        Return the state after it, and what its reply holds for others.
        """
        return self, {}

    def require_confirmed(
        self, identities: Mapping[int, bytes], confirmations: Mapping[int, bytes]
    ) -> None:
        """Hold what neighbours signed of the survivors against what this client was
        told, where sums are recovered.
        """
        del identities, confirmations

    def finish(self, request: messages.FinishRequest) -> Self:
        """Check the last message and take in its boxes, if they are still due."""
        release = request.release
        if self.phase is not self._COMPLETE or release.attempt_id != (
            self.round_index,
            self.attempt,
        ):
            did = "unmasked" if self._COMPLETE is Phase.UNMASKED else "answered"
            # Against a release of another sum, which would end the run with another
            # result than the others'.
            raise ProtocolError(
                f"the last release is of round {release.round_index}, attempt"
                f" {release.attempt}, but this client {did} round {self.round_index},"
                f" attempt {self.attempt}: it is late, replayed or of another run."
            )
        return changed(self._with_boxes(request.boxes), phase=Phase.FINISHED)

    def stopped(self) -> Self:
        """The state of a run that is over: whatever comes is refused, as after a
        result.
        """
        return changed(self, phase=Phase.FINISHED)

    def forgotten(self) -> Self:
        """The state without its secrets, all that ``repr`` leaves out.

        Against who reads it when the run is over.
        """
        hidden = {
            one.name: getattr(self, one.name) for one in fields(self) if not one.repr
        }
        return changed(self, **{name: type(value)() for name, value in hidden.items()})

    def unblind(self, release: messages.Release, *, blinded: bool) -> AggregateVector:
        """Subtract the streams of the key authors in the sum from a release."""
        values = release.values.copy()
        if blinded:
            group_keys = self._blinding_keys()
            if not group_keys or not self.transcript or release.attempt != self.attempt:
                # Against noise that is taken for a result.
                raise ProtocolError(
                    f"the release of round {release.round_index}, attempt"
                    f" {release.attempt} is blinded, but its group keys are not at"
                    " hand: restart the run."
                )
            values -= _all_streams(
                group_keys,
                self.run_id,
                release.attempt_id,
                self.transcript,
                len(values),
            )
        return AggregateVector(values, blinded=False)

    def _blinding_keys(self) -> Keys:
        """Group keys of the authors whose vectors are in the last sum."""
        return self.group_keys

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag what this client has computed under a key that only clients share.

        Empty while there is none.
        """
        if not self.tag_key:
            return b""
        return keys.keyed_tag(
            self.tag_key, self.run_id, round_index, attempt, state_digest
        )

    def _require_admissible(
        self, request: messages.SumRequest, first_round: int, closing_round: int
    ) -> None:
        """Raise unless the transition table has a line for the request."""
        (index, attempt), release = request.attempt_id, request.release
        answered = (self.round_index, self.attempt)
        if self.phase is self._START:
            allowed = (
                index == first_round
                and 0 <= attempt <= self._LAST_START
                and release is None
            )
        elif self.phase not in (self._ANSWERED, self._COMPLETE):
            allowed = False
        elif index == self.round_index:
            allowed = attempt > self.attempt and release is None
        else:
            following = self.round_index + 1
            allowed = self.phase is self._COMPLETE and index in (
                following,
                max(following, closing_round),
            )
            allowed = allowed and attempt == self.attempt
            allowed = (
                allowed
                and release is not None
                and (release.round_index, release.attempt) == answered
            )
        if not allowed:
            # Against one round that is answered twice, or for other centroids: the
            # ledger would not know of it.
            raise ProtocolError(
                f"a vector was asked for round {index}, attempt {attempt}, but this"
                f" client is {self.phase.value} with round {self.round_index}, attempt"
                f" {self.attempt} answered last: the request is replayed, late or out"
                " of order and stays unanswered."
            )

    def _require_own_place(self, roster: Roster, attempt: int) -> None:
        """Raise unless a roster is of this attempt, and lists this client and enough
        others.
        """
        if (
            roster.attempt != attempt
            or roster.keys.get(self.node_id) != self.public_key
        ):
            # Against a server that takes part in this client's place.
            raise ProtocolError(
                f"the roster does not list node {self.node_id} under its own key: check"
                " the server."
            )
        if len(roster.members) < self.min_cohort:
            # Against a sum of so few that it tells about one of them.
            raise ProtocolError(
                f"the roster has {len(roster.members)} clients, but this client's"
                f" minimum cohort is {self.min_cohort}: start more clients or lower"
                " min-clients."
            )

    def _fresh_group_key(self, roster: Roster) -> bytes:
        is_author = self.authored and self.node_id in roster.authors(self.max_silent)
        return keys.generate_group_key() if is_author else b""

    def _agreed_keys(
        self, roster: Roster, peers: Iterable[int], known: Mapping[int, bytes]
    ) -> dict[int, bytes]:
        """Pair keys with `peers`: those that are known, and newly agreed ones for the
        rest.
        """
        missing = {
            peer: roster.keys[peer]
            for peer in peers
            if peer not in known and peer != self.node_id
        }
        return {
            **known,
            **keys.agree_pair_keys(
                self.private_key, missing, self.run_id, self.node_id
            ),
        }

    def _box_context(self, purpose: str, author: int, recipient: int) -> bytes:
        """What a box is bound to: it opens for nobody else, and in no other run,
        attempt or roster.
        """
        roster = self.announced or self.cohort
        return keys.digest(
            purpose, self.run_id, *self._box_scope, author, recipient, roster.digest
        )

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """What a box is bound to besides, where it is not of the whole run."""
        return ()

    def _seal(
        self, pair_key: bytes, purpose: str, recipient: int, secret: bytes
    ) -> bytes:
        context = self._box_context(purpose, self.node_id, recipient)
        return ciphers.seal(
            keys.derive_key(pair_key, purpose, context), secret, context
        )

    def _open(
        self, pair_key: bytes, purpose: str, author: int, box: bytes, length: int
    ) -> bytes:
        context = self._box_context(purpose, author, self.node_id)
        secret = ciphers.unseal(
            keys.derive_key(pair_key, purpose, context), box, context
        )
        if len(secret) != length:
            # Against an author whose keys or shares are cut short, so that others read
            # them at wrong places.
            raise ProtocolError(
                f"node {author} sealed {len(secret)} bytes instead of {length}: restart"
                " the run."
            )
        return secret

    def _with_boxes(self, boxes: Mapping[int, bytes]) -> Self:
        """Take in the boxes that came; there are none but where they are due."""
        if boxes:
            # Against keys of another attempt or run in the place of those that are in
            # use.
            raise ProtocolError(
                "sealed group keys came although none are due: they are replayed or of"
                " another run."
            )
        return self

    def _with_group_keys(self, opened: Mapping[int, bytes], roster: Roster) -> Self:
        """The state with all authors' keys, and the tag's key, which follows from them
        or (without any) the plan.
        """
        own = {self.node_id: self.own_group_key} if self.own_group_key else {}
        ordered = tuple(sorted({**opened, **own}.items()))
        secret = (
            b"".join(key for _, key in ordered) if self.authored else self.plan_digest
        )
        return changed(
            self,
            group_keys=ordered,
            tag_key=keys.derive_key(secret, "tag", self.run_id, roster.digest),
        )


def _blind_stream(
    run_id: int,
    asked: tuple[int, int],
    author: int,
    key: bytes,
    transcript: bytes,
    length: int,
) -> Ring:
    return ciphers.mask(key, asked, length, "blind", run_id, author, transcript)


@lru_cache(maxsize=1)
def _all_streams(
    group_keys: Keys,
    run_id: int,
    asked: tuple[int, int],
    transcript: bytes,
    length: int,
) -> Ring:
    """The sum of all authors' streams.

    Made once for all virtual clients of one process, which need the same.
    """
    total = np.zeros(length, dtype=np.uint64)
    for author, key in group_keys:
        total += _blind_stream(run_id, asked, author, key, transcript, length)
    return total


class Session(ABC):
    """One run of an aggregation protocol, as the server sees it.

    It adds up vectors that it cannot read.
    """

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
                f"{len(roster.members)} clients take part, but at least {least} are"
                " needed: start more clients or lower min-clients."
            )
        self.roster = roster
        self.round_index = messages.NO_ROUND
        self.due = Stage.SUM
        self._least, self._authored = least, authored
        self._max_retries, self._max_silent = max_retries, max_silent
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
        self._tags, self._sealed = {}, {}
        self._total = np.zeros(self._length, dtype=np.uint64)
        self._open, self.due = True, Stage.SUM

    def receive(self, node_id: int, reply: messages.SumReply) -> None:
        """Take one vector in.

        One that is late, replayed or malformed is a `ProtocolError` and changes
        nothing.
        """
        asked = (self.round_index, self.roster.attempt)
        if node_id not in self.roster.keys:
            # Against a sum with somebody in it whom nobody masks with.
            raise ProtocolError(
                f"node {node_id} answered, but is not in the roster of attempt"
                f" {asked[1]}: ignored."
            )
        is_open = self._open and self.due is Stage.SUM
        if not is_open or (reply.round_index, reply.attempt) != asked:
            # Against vectors of other masks, which would make the sum noise.
            raise ProtocolError(
                f"node {node_id} answered round {reply.round_index}, attempt"
                f" {reply.attempt}, but round {asked[0]}, attempt {asked[1]} is"
                f" {'open' if is_open else 'complete'}: the reply is late or replayed"
                " and is discarded."
            )
        if node_id in self._tags:
            # Against a vector that counts twice.
            raise ProtocolError(
                f"node {node_id} answered round {asked[0]} twice: the second reply is"
                " discarded."
            )
        values = reply.masked.values
        if values.shape != (self._length,) or values.dtype != np.uint64:
            # Against words that NumPy would spread over others, or round.
            raise ProtocolError(
                f"node {node_id} sent {values.size} entries of {values.dtype}, but the"
                f" plan has {self._length} of uint64: discarded."
            )
        self._require_parts(node_id, reply)
        self._tags[node_id], self._sealed[node_id] = reply.tag, reply.boxes
        # Added up at once, so that 10,000 clients need no 10,000 vectors.
        self._total += values

    take = receive

    @abstractmethod
    def _require_parts(self, node_id: int, reply: messages.SumReply) -> None:
        """Raise unless a reply's tag, and what it holds for other clients, are as they
        are due.
        """

    def missing(self) -> tuple[int, ...]:
        """Nodes of the roster that have not answered the open round."""
        return tuple([node for node in self.roster.node_ids if node not in self._tags])

    def _require_blinding(self, *, blinded: bool) -> None:
        """Raise if authors' streams are to be in a sum of a run that has none."""
        if blinded and not self._authored:
            raise LocalMisuseError(
                "a run without key authors has no blinded sums: check the plan's trust"
                " model."
            )


def require_equal_tags(tags: dict[int, bytes], round_index: int) -> None:
    """Stop the run with the minority's names if the clients' state tags differ."""
    counts = Counter(tags.values())
    if len(counts) <= 1:
        return
    common, votes = counts.most_common(1)[0]
    suspects = [
        node for node, tag in tags.items() if tag != common or votes * 2 <= len(tags)
    ]
    # Against clients that were told different releases, and go on from different
    # centroids.
    raise DisagreementError(
        f"the state of node(s) {sorted(suspects)} differs from the others' in round"
        f" {round_index}: check that all nodes run the same versions of flwr-dpkmeans"
        " and NumPy, and start a new run."
    )


@dataclass(frozen=True)
class Retry(Party):
    """A client of a run that repeats sums; see `Party`."""

    pair_keys: Keys = field(default=(), repr=False)
    """Keys agreed with the neighbours of the current attempt."""
    mask_keys: bytes = field(default=b"", repr=False)
    """Keys of the masks under `transcript`, end to end, in the order of `pair_keys`."""

    def admit(
        self, request: messages.SumRequest, first_round: int, closing_round: int = 0
    ) -> Retry:
        self._require_admissible(request, first_round, closing_round)
        if request.attempt == self.attempt:
            if request.roster is not None:
                # Against a second cohort under the masks of the first.
                raise ProtocolError(
                    "a second roster was announced for an attempt that has one: stop"
                    " the run."
                )
            entered = self._with_boxes(request.boxes)
        else:
            entered = self._in_attempt(request)
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index)

    def _in_attempt(self, request: messages.SumRequest) -> Retry:
        """Check a new attempt's roster, agree on keys with its neighbours and become an
        author if named.
        """
        roster = request.roster
        if roster is None or roster.attempt != request.attempt:
            # Against an old roster under a new attempt's number, and so masks of both.
            raise ProtocolError(
                f"attempt {request.attempt} was opened without its own roster: restart"
                " the run."
            )
        self._require_own_place(roster, request.attempt)
        if request.boxes:
            # Against group keys that the new attempt's authors did not draw for it.
            raise ProtocolError(
                "sealed group keys came with a new roster: they are replayed or of"
                " another attempt."
            )
        if self.roster is not None:
            known = self.roster.keys
            if len(roster.members) >= len(known) or any(
                known.get(node) != key for node, key in roster.members
            ):
                # Against clients that join when identities are looked at no more.
                raise ProtocolError(
                    "a later attempt's roster adds a node or changes a key: stop the"
                    " run."
                )
        neighbours = roster.neighbours(self.node_id, self.max_silent)
        pairs = self._agreed_keys(roster, neighbours, dict(self.pair_keys))
        entered = changed(
            self,
            attempt=request.attempt,
            roster=roster,
            pair_keys=tuple([(peer, pairs[peer]) for peer in neighbours]),
            own_group_key=self._fresh_group_key(roster),
            group_keys=(),
        )
        return entered if self.authored else entered._with_group_keys({}, roster)

    def _with_boxes(self, boxes: Mapping[int, bytes]) -> Retry:
        """Open the authors' boxes of the current attempt, if they are due."""
        if not self.authored or self.group_keys:
            return super()._with_boxes(boxes)
        cohort = self.cohort
        others = [
            author
            for author in cohort.authors(self.max_silent)
            if author != self.node_id
        ]
        if sorted(boxes) != sorted(others):
            # Against a sum that fewer authors blind than the plan says.
            raise ProtocolError(
                f"sealed group keys came from nodes {sorted(boxes)}, but the authors of"
                f" attempt {self.attempt} are {sorted(others)}: restart the run."
            )
        pairs = self._agreed_keys(cohort, others, dict(self.pair_keys))
        opened = {
            author: self._open(pairs[author], "box", author, box, KEY_BYTES)
            for author, box in boxes.items()
        }
        return self._with_group_keys(opened, cohort)

    def _add_masks(
        self, values: Ring, transcript: bytes
    ) -> tuple[Retry, dict[int, bytes]]:
        """Add the masks of later neighbours and subtract those of earlier ones.

        An author seals its new key.
        """
        length, asked, masked = len(values), (self.round_index, self.attempt), self
        if transcript != self.transcript:
            derived = b"".join(
                [
                    self._shared(keys.derive_key, key, "mask", transcript)
                    for _, key in self.pair_keys
                ]
            )
            masked = changed(self, mask_keys=derived)
        for place, (peer, _) in enumerate(self.pair_keys):
            key = masked.mask_keys[place * KEY_BYTES : (place + 1) * KEY_BYTES]
            shared = self._shared(ciphers.stream, key, asked, length)
            if self.node_id < peer:
                values += shared
            else:
                values -= shared
        if self.group_keys or not self.own_group_key:
            return masked, {}
        peers = [peer for peer in self.cohort.node_ids if peer != self.node_id]
        pairs = self._agreed_keys(self.cohort, peers, dict(self.pair_keys))
        return masked, {
            peer: self._seal(pairs[peer], "box", peer, self.own_group_key)
            for peer in peers
        }

    def _shared(self, compute: Callable[..., _T], *arguments: Any) -> _T:
        """What a neighbour computes of equal arguments."""
        return compute(*arguments)

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """Group keys are of one attempt."""
        return (self.attempt,)


class RetrySession(Session):
    """The server's side of sums that are repeated."""

    def __init__(self, roster: Roster, *, min_cohort: int, **limits: Any) -> None:
        super().__init__(roster, least=max(2, min_cohort), **limits)
        self._boxes: dict[int, dict[int, bytes]] = {}

    def authors(self) -> frozenset[int]:
        """Whoever seals a group key in the first reply of the attempt."""
        return frozenset(
            self.roster.authors(self._max_silent) if self._authored else ()
        )

    def retry(self) -> None:
        """Open a new attempt of the same round with those that answered, if they are
        enough (else `CohortError`).
        """
        missing = self.missing()
        if self._open and not missing:
            # Clients would refuse a roster that did not shrink.
            raise LocalMisuseError(
                f"every client answered round {self.round_index}: aggregate it instead"
                " of retrying."
            )
        left = len(self.roster.members) - len(missing)
        if left < self._least:
            lower = ", or lower min-clients" if left > 1 else ""
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index}; {left}"
                f" clients are left, but at least {self._least} are needed: look at"
                f" their logs and start a new run{lower}."
            )
        if self.attempt >= self._max_retries:
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index} and the"
                f" plan's {self._max_retries} retries are used up: start a new run, or"
                " raise max-retries (each costs budget), or round-timeout if they are"
                " only slow."
            )
        self.roster = self.roster.without(self.attempt + 1, missing)
        self._boxes = {}
        self._first = True
        self._reset()

    def aggregate(self, *, blinded: bool) -> AggregateVector:
        """The sum of the open round, once everybody answered.

        `blinded`: the authors' streams are still in it.
        """
        self._require_blinding(blinded=blinded)
        missing = self.missing()
        if missing:
            raise CohortError(
                f"nodes {list(missing)} have not answered round {self.round_index}:"
                " retry without them."
            )
        require_equal_tags(self._tags, self.round_index)
        if self._first:
            # Looked through once, so that 10,000 clients are not held against each
            # other.
            sealed = {author: boxes for author, boxes in self._sealed.items() if boxes}
            self._boxes = {
                node: {
                    author: boxes[node]
                    for author, boxes in sealed.items()
                    if node in boxes
                }
                for node in self.roster.node_ids
            }
        self._first = False
        self._open = False
        return AggregateVector(self._total, blinded)

    def request(
        self, node_id: int, release: messages.Release | None, state: bytes
    ) -> messages.SumRequest:
        """What one client is asked."""
        return messages.SumRequest(
            self.round_index,
            self.roster.attempt,
            roster=self.roster if self._first else None,
            release=release,
            boxes=self.take_boxes(node_id),
            state=state,
            # Clients know the keys of later rosters, which can only be smaller.
            credentials=(
                self._credentials if self._first and self.roster.attempt == 0 else {}
            ),
        )

    def finish_request(
        self, node_id: int, release: messages.Release, state: bytes
    ) -> messages.FinishRequest:
        """The last message to one client."""
        return messages.FinishRequest(release, self.take_boxes(node_id), state)

    def close(
        self, plan_digest: bytes, *, blinded: bool
    ) -> tuple[AggregateVector | None, messages.Silence | None]:
        """Go on with what has come: to the sum, or to a new attempt without the silent
        ones.
        """
        missing = self.missing()
        if missing:
            self.retry()
            return None, messages.Silence(missing, None)
        return self.aggregate(blinded=blinded), None

    def take_boxes(self, node_id: int) -> dict[int, bytes]:
        """Sealed group keys to relay to one node with its next message.

        Handed out once an attempt.
        """
        return self._boxes.pop(node_id, {})

    def _require_parts(self, node_id: int, reply: messages.SumReply) -> None:
        """A tag, once a key is shared.

        a key author, and nobody else, seals its key for everybody else.
        """
        if len(reply.tag) not in (0, TAG_BYTES):
            raise ProtocolError(
                f"node {node_id} sent a tag of {len(reply.tag)} bytes, not {TAG_BYTES}:"
                " discarded."
            )
        due: list[int] = []
        if self._first and node_id in self.authors():
            due = [other for other in self.roster.node_ids if other != node_id]
        if sorted(reply.boxes) != due:
            # Against clients that get no key, or one of somebody who is no author.
            raise ProtocolError(
                f"node {node_id} sealed its key for {len(reply.boxes)} clients, but"
                f" {len(due)} were due: discarded."
            )
