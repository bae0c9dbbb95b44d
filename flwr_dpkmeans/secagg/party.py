"""A client of a masked aggregation, as far as all ways to add up agree.

A client is a frozen state with pure transitions: what is refused leaves it as it was.
`secagg.retry` and `secagg.recover` have the tables of transitions.

Between `admit` and `answer` a state is `ADMITTED`: `answer` accepts no other one, and
no request is admitted in it. A (round, attempt) pair is therefore answered at most
once, whatever the server sends. A caller that puts an *old* state back could still
answer twice under the same masks: the ledger above this package guards against that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import ClassVar, NoReturn, Self, TypeVar

from flwr_dpkmeans.errors import LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg import blinding, ciphers, keys, messages
from flwr_dpkmeans.secagg.blinding import Keys
from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of

_State = TypeVar("_State")


def changed(state: _State, **values: object) -> _State:
    """Copy a state with some fields changed, for classes that have only their fields.

    `dataclasses.replace` in a tenth of its time.
    """
    fields_before = vars(state)
    changed_fields = {**fields_before, **values}
    if len(changed_fields) > len(fields_before):
        raise LocalMisuseError(
            f"{type(state).__name__} lacks a field of {sorted(values)}: name those that"
            " it has."
        )
    # Past a frozen class' `__init__`, which writes each of some twenty fields by a
    # call.
    copy = object.__new__(type(state))
    vars(copy).update(changed_fields)
    return copy


class Phase(Enum):
    """Where a client stands in a run."""

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
    """After a vector."""
    _COMPLETE: ClassVar[Phase] = Phase.SUMMING
    """When the sum of the vectors may be released."""

    @property
    def attempt_id(self) -> AttemptId:
        """The last (round, attempt) that was admitted, answered or unmasked."""
        return self.round_index, self.attempt

    @property
    def cohort(self) -> Roster:
        """The roster in force; a `ProtocolError` before the first request."""
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
    def threshold(self) -> int:
        """Key shares that give a key back; 0 in runs that share none."""
        return 0

    @property
    def announced(self) -> Roster | None:
        """The first roster of the run, or one that followed from it.

        None before it came.
        """
        return self.roster

    def with_plan(
        self,
        plan_digest: bytes,
        last_round: int,
    ) -> Self:
        """Put another plan in force: the final one after a preliminary one."""
        return changed(self, plan_digest=plan_digest)

    # -- key shares, which only `secagg.recover` has

    def share(
        self, request: messages.ShareRequest
    ) -> tuple[Party, messages.ShareReply]:
        """Share the keys of all aggregations."""
        self._refuse_shares()

    def unmask(
        self, request: messages.UnmaskRequest
    ) -> tuple[Self, messages.UnmaskReply]:
        """Give what takes masks away, where sums are recovered."""
        self._refuse_shares()

    def _refuse_shares(self) -> NoReturn:
        raise ProtocolError(
            "key shares were asked for in a run whose plan repeats lost sums instead:"
            " stop the run."
        )

    def require_confirmed(
        self,
        identities: Mapping[int, bytes],
        confirmations: Mapping[int, bytes],
    ) -> None:
        """Hold the survivors that neighbours signed against those named to this client.

        Only where sums are recovered.
        """
        del identities, confirmations

    # -- one vector

    @abstractmethod
    def admit(
        self,
        request: messages.SumRequest,
        first_round: int,
        closing_round: int = 0,
    ) -> Self:
        """Check a request and take in its roster or cohort, and boxes.

        Nothing is answered yet.

        Parameters
        ----------
        request : SumRequest
            What the server asks for.
        first_round : int
            First round of the plan.
        closing_round : int
            Rounds follow each other; before this one some may be left out, which the
            caller holds against the plan.
        """

    def _require_admissible(
        self,
        request: messages.SumRequest,
        first_round: int,
        closing_round: int,
    ) -> None:
        """Raise unless the transition table has a line for the request."""
        if self.phase is self._START:
            is_allowed = self._is_first(request, first_round)
        elif self.phase not in (self._ANSWERED, self._COMPLETE):
            is_allowed = False
        elif request.round_index == self.round_index:
            is_allowed = self._is_new_attempt(request)
        else:
            is_allowed = self._is_next_round(request, closing_round)
        if not is_allowed:
            # Against one round that is answered twice, or for other centroids: the
            # ledger would not know of it.
            raise ProtocolError(
                f"a vector was asked for round {request.round_index}, attempt"
                f" {request.attempt}, but this"
                f" client is {self.phase.value} with round {self.round_index}, attempt"
                f" {self.attempt} answered last: the request is replayed, late or out"
                " of order and stays unanswered."
            )

    def _is_first(
        self,
        request: messages.SumRequest,
        first_round: int,
    ) -> bool:
        if request.release is not None:
            return False
        is_early_enough = 0 <= request.attempt <= self._LAST_START
        return request.round_index == first_round and is_early_enough

    def _is_new_attempt(self, request: messages.SumRequest) -> bool:
        return request.attempt > self.attempt and request.release is None

    def _is_next_round(
        self,
        request: messages.SumRequest,
        closing_round: int,
    ) -> bool:
        release = request.release
        if self.phase is not self._COMPLETE or release is None:
            return False
        following = self.round_index + 1
        next_rounds = (following, max(following, closing_round))
        is_next = request.round_index in next_rounds
        is_same_attempt = request.attempt == self.attempt
        return is_next and is_same_attempt and release.attempt_id == self.attempt_id

    def answer(
        self,
        request: messages.SumRequest,
        vector: FixedPointVector,
        *,
        blinded: bool,
        state_digest: bytes,
    ) -> tuple[Self, messages.SumReply]:
        """Mask a vector and move on.

        Parameters
        ----------
        request : SumRequest
            As it was admitted.
        vector : FixedPointVector
            The statistic, with this client's share of the noise where it adds one.
        blinded : bool
            Whether key authors hide the sum from the server.
        state_digest : bytes
            Digest of what this client computed from releases.
        """
        attempt_id = request.attempt_id
        if self.phase is not Phase.ADMITTED or attempt_id != self.attempt_id:
            # Against a second vector under the same masks: the difference of both would
            # be readable.
            raise ProtocolError(
                f"round {request.round_index}, attempt {request.attempt} is not open"
                " for an answer: admit it first."
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
            values += blinding.blind_stream(
                self.run_id,
                attempt_id,
                self.node_id,
                self.own_group_key,
                transcript,
                len(values),
            )
        tag = self.tag(*attempt_id, state_digest)
        reply = messages.SumReply(
            round_index=request.round_index,
            attempt=request.attempt,
            masked=messages.MaskedVector(values),
            tag=tag,
            boxes=boxes,
        )
        answered = changed(masked, phase=self._ANSWERED, transcript=transcript)
        return answered, reply

    def _add_masks(
        self,
        values: Ring,
        transcript: bytes,
    ) -> tuple[Self, dict[int, bytes]]:
        """Add the masks of this client to a vector, in place.

        Return the state after it, and what its reply has for others.
        """
        return self, {}

    def tag(
        self,
        round_index: int,
        attempt: int,
        state_digest: bytes,
    ) -> bytes:
        """Tag what this client has computed under a key that only clients share.

        Empty while there is none. Without key authors the server can compute it, too;
        it then finds honest differences only.
        """
        if not self.tag_key:
            return b""
        return keys.keyed_tag(
            self.tag_key,
            self.run_id,
            round_index,
            attempt,
            state_digest,
        )

    # -- the release, and the end

    def unblind(
        self,
        release: messages.Release,
        *,
        blinded: bool,
    ) -> AggregateVector:
        """Subtract the streams of the key authors in the sum from a release."""
        values = release.values.copy()
        if blinded:
            group_keys = self._blinding_keys()
            are_at_hand = len(group_keys) > 0 and len(self.transcript) > 0
            if not are_at_hand or release.attempt != self.attempt:
                # Against noise that is taken for a result.
                raise ProtocolError(
                    f"the release of round {release.round_index}, attempt"
                    f" {release.attempt} is blinded, but its group keys are not at"
                    " hand: restart the run."
                )
            values -= blinding.sum_of_streams(
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

    def finish(self, request: messages.FinishRequest) -> Self:
        """Check the last message and take in its boxes, if they are still due."""
        release = request.release
        if self.phase is not self._COMPLETE or release.attempt_id != self.attempt_id:
            did = "unmasked" if self._COMPLETE is Phase.UNMASKED else "answered"
            # Against a release of another sum, which would end the run with another
            # result than the others'.
            raise ProtocolError(
                f"the last release is of round {release.round_index}, attempt"
                f" {release.attempt}, but this client {did} round {self.round_index},"
                f" attempt {self.attempt}: it is late, replayed or of another run."
            )
        return changed(self.with_boxes(request.boxes), phase=Phase.FINISHED)

    def stopped(self) -> Self:
        """Return the state of a run that is over.

        Whatever comes is refused, as after a result.
        """
        return changed(self, phase=Phase.FINISHED)

    def forgotten(self) -> Self:
        """Return the state without its secrets, all that ``repr`` leaves out.

        Against who reads it, or this process's memory, when the run is over.
        """
        if self.phase is not Phase.FINISHED:
            # Against masks and tags under empty keys, which everybody could compute.
            raise LocalMisuseError(
                "a client that is not finished still needs its keys: stop it first."
            )
        keys.forget()
        blinding.forget()
        emptied = {}
        for item in fields(self):
            if not item.repr:
                secret = getattr(self, item.name)
                emptied[item.name] = type(secret)()  # b"" or ()
        return changed(self, **emptied)

    # -- rosters and keys

    def _require_own_place(
        self,
        roster: Roster,
        attempt: int,
    ) -> None:
        """Raise unless a roster of this attempt lists this client and enough others."""
        listed_key = roster.keys.get(self.node_id)
        if roster.attempt != attempt or listed_key != self.public_key:
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

    def _agreed_keys(
        self,
        roster: Roster,
        peers: Iterable[int],
        pair_keys: Mapping[int, bytes],
    ) -> dict[int, bytes]:
        """Agree with those peers whose pair keys are not there yet; return all."""
        missing = {}
        for peer in peers:
            if peer not in pair_keys and peer != self.node_id:
                missing[peer] = roster.keys[peer]
        new_keys = keys.agree_pair_keys(
            self.private_key,
            missing,
            self.run_id,
            self.node_id,
        )
        return {**pair_keys, **new_keys}

    def _fresh_group_key(self, roster: Roster) -> bytes:
        """Draw a group key if the roster names this client a key author."""
        if self.authored and self.node_id in roster.authors(self.max_silent):
            return keys.generate_group_key()
        return b""

    def _with_group_keys(
        self,
        opened: Mapping[int, bytes],
        roster: Roster,
    ) -> Self:
        """Take in all authors' keys, and the key of the tags that follows from them.

        Without authors it follows from the plan.
        """
        by_author = dict(opened)
        if self.own_group_key:
            by_author[self.node_id] = self.own_group_key
        group_keys = tuple(sorted(by_author.items()))
        if self.authored:
            secret = b"".join([key for _, key in group_keys])
        else:
            secret = self.plan_digest
        tag_key = keys.derive_key(
            secret,
            "tag",
            self.run_id,
            roster.digest,
        )
        return changed(self, group_keys=group_keys, tag_key=tag_key)

    # -- boxes

    def with_boxes(self, boxes: Mapping[int, bytes]) -> Self:
        """Take in the boxes that came; there are none but where they are due."""
        if boxes:
            # Against keys of another attempt or run in the place of those that are in
            # use.
            raise ProtocolError(
                "sealed boxes came although none are due: they are replayed or of"
                " another run."
            )
        return self

    def _seal(
        self,
        pair_key: bytes,
        purpose: str,
        recipient: int,
        secret: bytes,
    ) -> bytes:
        """Seal a secret for one other client."""
        context = self._box_context(purpose, self.node_id, recipient)
        box_key = keys.derive_key(pair_key, purpose, context)
        return ciphers.seal(box_key, secret, context)

    def _open(
        self,
        pair_key: bytes,
        purpose: str,
        author: int,
        box: bytes,
        length: int,
    ) -> bytes:
        """Open another client's box; another length inside is a `ProtocolError`."""
        context = self._box_context(purpose, author, self.node_id)
        box_key = keys.derive_key(pair_key, purpose, context)
        secret = ciphers.unseal(box_key, box, context)
        if len(secret) != length:
            # Against an author whose keys or shares are cut short, so that others read
            # them at wrong places.
            raise ProtocolError(
                f"node {author} sealed {len(secret)} bytes instead of {length}: restart"
                " the run."
            )
        return secret

    def _box_context(
        self,
        purpose: str,
        author: int,
        recipient: int,
    ) -> bytes:
        """Hash what a box is bound to.

        It opens for nobody else, and in no other run, attempt or roster.
        """
        roster = self.cohort if self.announced is None else self.announced
        return keys.digest(
            purpose,
            self.run_id,
            *self._box_scope,
            author,
            recipient,
            roster.digest,
        )

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """What a box is bound to besides, where it is not of the whole run."""
        return ()
