"""Masked sums that are repeated without whoever fell silent.

Each pair of clients adds and subtracts one mask, so that masks cancel in the sum of all; if a vector is missing they do
not, and a new attempt is asked for.

====================  ==========================  ==================================================
state                 event                       next state
====================  ==========================  ==================================================
`KEYED`               first `SumRequest`          `SUMMING` at (first round, attempt)
`SUMMING` at (r, a)   `SumRequest` (r + 1, a)     `SUMMING` at (r + 1, a); opens release (r, a)
`SUMMING` at (r, a)   `SumRequest` (r, a' > a)    `SUMMING` at (r, a'); smaller roster, no release
`SUMMING` at (r, a)   `FinishRequest` (r, a)      `FINISHED`; opens release (r, a)
anything else                                     `ProtocolError`, and the state stays as it was
====================  ==========================  ==================================================

Between `admit` and `answer` a state is `ADMITTED`: `answer` accepts no other one, and no request is admitted in it.
A (round, attempt) pair is therefore answered at most once, whatever the server sends. A caller that puts an *old*
state back could still answer twice under the same masks: the ledger above this package guards against that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flwr_dpkmeans.errors import CohortError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, AggregateVector, Ring, mask
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, Silence, SumReply, SumRequest
from flwr_dpkmeans.secagg.party import TAG_BYTES, Keys, Party, Phase, Session, changed, require_equal_tags
from flwr_dpkmeans.secagg.roster import Roster


@dataclass(frozen=True)
class Retry(Party):
    """A client of a run that repeats sums; see `Party`."""

    pair_keys: Keys = field(default=(), repr=False)
    """Keys agreed with the neighbours of the current attempt."""

    _KEYS: ClassVar[tuple[str, ...]] = (*Party._KEYS, "pair_keys")

    def admit(self, request: SumRequest, first_round: int) -> Retry:
        """See `Party.admit`."""
        self._require_admissible(request, first_round)
        if request.attempt == self.attempt:
            if request.roster is not None:
                # Against a second cohort under the masks of the first.
                raise ProtocolError("a second roster was announced for an attempt that has one: stop the run.")
            entered = self._with_boxes(request.boxes)
        else:
            entered = self._in_attempt(request)
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index)

    def _in_attempt(self, request: SumRequest) -> Retry:
        """Check a new attempt's roster, agree on keys with its neighbours and become an author if named."""
        roster = request.roster
        if roster is None or roster.attempt != request.attempt:
            # Against an old roster under a new attempt's number, and so masks of both.
            raise ProtocolError(f"attempt {request.attempt} was opened without its own roster: restart the run.")
        self._require_own_place(roster, request.attempt)
        if request.boxes:
            # Against group keys that the new attempt's authors did not draw for it.
            raise ProtocolError("sealed group keys came with a new roster: they are replayed or of another attempt.")
        if self.roster is not None:
            known = self.roster.keys
            if len(roster.members) >= len(known) or any(known.get(node) != key for node, key in roster.members):
                # Against clients that join when identities are looked at no more.
                raise ProtocolError("a later attempt's roster adds a node or changes a key: stop the run.")
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
        others = [author for author in cohort.authors(self.max_silent) if author != self.node_id]
        if sorted(boxes) != sorted(others):
            # Against a sum that fewer authors blind than the plan says.
            raise ProtocolError(
                f"sealed group keys came from nodes {sorted(boxes)}, but the authors of attempt {self.attempt} are "
                f"{sorted(others)}: restart the run."
            )
        pairs = self._agreed_keys(cohort, others, dict(self.pair_keys))
        opened = {author: self._open(pairs[author], "box", author, box, KEY_BYTES) for author, box in boxes.items()}
        return self._with_group_keys(opened, cohort)

    def _add_masks(self, values: Ring, transcript: bytes) -> dict[int, bytes]:
        """Add the masks of later neighbours and subtract those of earlier ones; an author seals its new key."""
        length, asked = len(values), (self.round_index, self.attempt)
        for peer, key in self.pair_keys:
            shared = mask(key, length, "mask", *asked, transcript)
            if self.node_id < peer:
                values += shared
            else:
                values -= shared
        if self.group_keys or not self.own_group_key:
            return {}
        peers = [peer for peer in self.cohort.node_ids if peer != self.node_id]
        pairs = self._agreed_keys(self.cohort, peers, dict(self.pair_keys))
        return {peer: self._seal(pairs[peer], "box", peer, self.own_group_key) for peer in peers}

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """Group keys are of one attempt."""
        return (self.attempt,)


@dataclass(frozen=True)
class Plain(Party):
    """A client without masks, for experiments with many virtual ones: whoever runs this sees every vector."""

    def admit(self, request: SumRequest, first_round: int) -> Plain:
        """Take any request in: there are no masks that a second answer could give away."""
        del first_round
        roster = request.roster or self.roster
        index, attempt = request.asked
        return changed(self, phase=Phase.ADMITTED, roster=roster, round_index=index, attempt=attempt)

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Nothing is blinded."""
        del blinded
        return AggregateVector(release.values, blinded=False)


class RetrySession(Session):
    """The server's side of sums that are repeated."""

    def __init__(self, roster: Roster, *, min_cohort: int, **limits: Any) -> None:
        super().__init__(roster, least=max(2, min_cohort), **limits)
        self._boxes: dict[int, dict[int, bytes]] = {}

    def authors(self) -> frozenset[int]:
        """Whoever seals a group key in the first reply of the attempt."""
        return frozenset(self.roster.authors(self._max_silent) if self._authored else ())

    def retry(self) -> None:
        """Open a new attempt of the same round with those that answered, if they are enough (else `CohortError`)."""
        missing = self.missing()
        if self._open and not missing:
            # Clients would refuse a roster that did not shrink.
            raise LocalMisuseError(f"every client answered round {self.round_index}: aggregate it instead of retrying.")
        left = len(self.roster.members) - len(missing)
        if left < self._least:
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index}; {left} clients are left, but at least "
                f"{self._least} are needed: look at their logs and start a new run, or lower min-clients."
            )
        if self.attempt >= self._max_retries:
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index} and the plan's {self._max_retries} "
                "retries are used up: start a new run, or raise max-retries (each costs budget), or round-timeout if "
                "they are only slow."
            )
        self.roster = self.roster.without(self.attempt + 1, missing)
        self._boxes = {}
        self._first = True
        self._reset()

    def aggregate(self, *, blinded: bool) -> AggregateVector:
        """The sum of the open round, once everybody answered; `blinded`: the authors' streams are still in it."""
        self._require_blinding(blinded=blinded)
        missing = self.missing()
        if missing:
            raise CohortError(f"nodes {list(missing)} have not answered round {self.round_index}: retry without them.")
        require_equal_tags(self._tags, self.round_index)
        if self._first and self._authored:
            self._boxes = {
                node: {author: boxes[node] for author, boxes in self._sealed.items() if node in boxes}
                for node in self.roster.node_ids
            }
        self._first = False
        self._open = False
        return AggregateVector(self._total, blinded)

    def request(self, node_id: int, release: Release | None, state: bytes) -> SumRequest:
        """What one client is asked."""
        return SumRequest(
            self.round_index,
            self.roster.attempt,
            roster=self.roster if self._first else None,
            release=release,
            boxes=self.take_boxes(node_id),
            state=state,
            # Clients know the keys of later rosters, which can only be smaller.
            credentials=self._credentials if self._first and self.roster.attempt == 0 else {},
        )

    def finish_request(self, node_id: int, release: Release, state: bytes) -> FinishRequest:
        """The last message to one client."""
        return FinishRequest(release, self.take_boxes(node_id), state)

    def close(self, plan_digest: bytes, *, blinded: bool) -> tuple[AggregateVector | None, Silence | None]:
        """Go on with what has come: to the sum, or to a new attempt without the silent ones."""
        del plan_digest
        missing = self.missing()
        if missing:
            self.retry()
            return None, Silence(missing, None)
        return self.aggregate(blinded=blinded), None

    def take_boxes(self, node_id: int) -> dict[int, bytes]:
        """Sealed group keys to relay to one node with its next message; handed out once an attempt."""
        return self._boxes.pop(node_id, {})

    def _require_parts(self, node_id: int, reply: SumReply) -> None:
        """A tag, once a key is shared; a key author, and nobody else, seals its key for everybody else."""
        if len(reply.tag) not in (0, TAG_BYTES):
            raise ProtocolError(
                f"node {node_id} sent a tag of {len(reply.tag)} bytes instead of {TAG_BYTES}: discarded."
            )
        due: list[int] = []
        if self._first and node_id in self.authors():
            due = [other for other in self.roster.node_ids if other != node_id]
        if sorted(reply.boxes) != due:
            # Against clients that get no key, or one of somebody who is no author.
            raise ProtocolError(
                f"node {node_id} sealed its group key for {len(reply.boxes)} clients, but {len(due)} were due: "
                "discarded."
            )


class PlainSession(RetrySession):
    """The server's side: it adds up, and no key author hides anything from it, whatever the trust model says."""

    def authors(self) -> frozenset[int]:
        """Nobody seals a group key."""
        return frozenset()
