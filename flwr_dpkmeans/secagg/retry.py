"""Masked sums that are repeated without whoever fell silent: a client as pure transitions on a frozen state, a session.

Each pair of clients adds and subtracts one mask, so that masks cancel in the sum of all. The server collects, checks
and adds up vectors that it cannot read; if one is missing, masks do not cancel, and a new attempt is asked for.

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

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from flwr_dpkmeans.errors import CohortError, DisagreementError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import (
    KEY_BYTES,
    agree_pair_key,
    derive_key,
    derived,
    digest,
    generate_group_key,
    key_info,
    keyed_tag,
    load_private_key,
    public_key_of,
    seal,
    stream,
    unseal,
)
from flwr_dpkmeans.secagg.messages import NO_ROUND, FinishRequest, Release, Silence, Stage, SumReply, SumRequest
from flwr_dpkmeans.secagg.packing import pack_boxes, pack_roster, unpack_roster
from flwr_dpkmeans.secagg.party import Party, Phase, changed, sorted_boxes
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of

TAG_BYTES = 32
"""Length of a state tag (HMAC-SHA256)."""


@dataclass(frozen=True)
class Retry(Party):
    """A client of a run that repeats sums; see `Party`."""

    pair_keys: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """Keys agreed with the neighbours of the current attempt."""

    @property
    def announced(self) -> Roster | None:
        """See `Party.announced`."""
        return self.roster

    def pack(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `Party.pack`."""
        progress = self.pack_common()
        progress["secrets"]["pair_keys"] = pack_boxes(dict(self.pair_keys)).hex()
        return progress, {} if self.roster is None else {"roster": pack_roster(self.roster)}

    @classmethod
    def unpack(cls, run_id: int, node_id: int, progress: dict[str, Any], blobs: Mapping[str, Any]) -> Retry:
        """Undo `pack`."""
        roster = bytes(blobs.get("roster", b""))
        return cls(
            **cls.unpack_common(run_id, node_id, progress),
            roster=unpack_roster(progress["attempt"], roster) if roster else None,
            pair_keys=sorted_boxes(bytes.fromhex(progress["secrets"]["pair_keys"])),
        )

    def admit(self, request: SumRequest, first_round: int) -> Retry:
        """Check a request against the transition table and take in its roster and boxes; nothing is answered yet.

        Raises `ProtocolError` if the request is replayed, out of order, for an unknown cohort, or its boxes do not
        open.
        """
        _require_admissible(self, request, first_round)
        if self.attempt >= 0 and request.attempt == self.attempt:
            if request.roster is not None:
                raise ProtocolError("a second roster was announced for an attempt that has one: stop the run.")
            entered = _take_boxes(self, request.boxes)
        else:
            entered = _enter_attempt(self, request)
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index)

    def finish(self, request: FinishRequest) -> Retry:
        """Check the last message and take in its boxes; see `admit`."""
        release = request.release
        answered = (self.round_index, self.attempt)
        if self.phase is not Phase.SUMMING or (release.round_index, release.attempt) != answered:
            raise ProtocolError(
                f"the last release is of round {release.round_index}, attempt {release.attempt}, but this client "
                f"answered round {self.round_index}, attempt {self.attempt}: it is late, replayed or of another run."
            )
        return changed(_take_boxes(self, request.boxes), phase=Phase.FINISHED)

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Subtract the key authors' streams from a release.

        Raises `ProtocolError` if the round is blinded and the group keys of the release's attempt are not at hand.
        """
        values = release.values.copy()
        if blinded:
            if not self.group_keys or release.attempt != self.attempt:
                raise ProtocolError(
                    f"the release of round {release.round_index}, attempt {release.attempt} is blinded, but its group "
                    "keys are not at hand: restart the run."
                )
            asked = (release.round_index, release.attempt)
            values -= _all_streams(self.group_keys, self.run_id, asked, _transcript(self), len(values))
        return AggregateVector(values, blinded=False)

    def answer(
        self, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
    ) -> tuple[Retry, SumReply]:
        """Mask a vector and move on.

        Raises `ProtocolError` if the client has not admitted this very request, or the round is blinded in a run
        without key authors.
        """
        asked = self.require_open(request, blinded=blinded)
        values = vector.values.copy()
        length = len(values)
        transcript = _transcript(self)
        info = key_info("mask", *asked, transcript)
        for peer, key in self.pair_keys:
            mask = stream(derived(key, info), length)
            if self.node_id < peer:
                values += mask
            else:
                values -= mask
        if blinded and self.own_group_key:
            values += _blind_stream(self.run_id, asked, self.node_id, self.own_group_key, transcript, length)
        boxes = _seal_boxes(self) if request.roster is not None and self.own_group_key else {}
        tag = self.tag(request.round_index, request.attempt, state_digest)
        reply = SumReply(request.round_index, request.attempt, MaskedVector(values), tag, boxes)
        return changed(self, phase=Phase.SUMMING), reply

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag the clustering state under the key that only clients share; empty while there is none."""
        if not self.tag_key:
            return b""
        return keyed_tag(self.tag_key, self.run_id, round_index, attempt, state_digest)


def _take_boxes(state: Retry, boxes: Mapping[int, bytes]) -> Retry:
    """Open the authors' boxes of the current attempt, if they are due."""
    if not state.authored or state.group_keys:
        if boxes:
            raise ProtocolError("sealed group keys came although none are due: they are replayed or of another run.")
        return state
    authors = state.cohort.authors(state.max_silent)
    others = [author for author in authors if author != state.node_id]
    if sorted(boxes) != sorted(others):
        raise ProtocolError(
            f"sealed group keys came from nodes {sorted(boxes)}, but the authors of attempt {state.attempt} are "
            f"{sorted(others)}: restart the run."
        )
    pairs = _pair_keys(state, state.cohort, others)
    keys = {author: _open_box(state, author, pairs[author], box) for author, box in boxes.items()}
    if state.own_group_key:
        keys[state.node_id] = state.own_group_key
    ordered = tuple(sorted(keys.items()))
    tag_key = derive_key(b"".join(key for _, key in ordered), "tag", state.run_id, state.cohort.digest)
    return changed(state, group_keys=ordered, tag_key=tag_key)


def _require_admissible(state: Retry, request: SumRequest, first_round: int) -> None:
    """Raise unless the transition table has a line for the request."""
    asked = (request.round_index, request.attempt)
    if state.phase is Phase.KEYED:
        allowed = request.round_index == first_round and request.attempt >= 0 and request.release is None
    elif state.phase is Phase.SUMMING and request.round_index == state.round_index:
        allowed = request.attempt > state.attempt and request.release is None
    elif state.phase is Phase.SUMMING:
        answered = (state.round_index, state.attempt)
        release = request.release
        allowed = (
            asked == (state.round_index + 1, state.attempt)
            and release is not None
            and (release.round_index, release.attempt) == answered
        )
    else:
        allowed = False
    if not allowed:
        raise ProtocolError(
            f"a vector was asked for round {asked[0]}, attempt {asked[1]}, but this client is {state.phase.value} with "
            f"round {state.round_index}, attempt {state.attempt} answered last: the request is replayed, late or out "
            "of order and stays unanswered."
        )


def _enter_attempt(state: Retry, request: SumRequest) -> Retry:
    """Check a new attempt's roster, agree on keys with its neighbours and become an author if named."""
    roster = request.roster
    if roster is None or roster.attempt != request.attempt:
        raise ProtocolError(f"attempt {request.attempt} was opened without its own roster: restart the run.")
    if roster.keys.get(state.node_id) != public_key_of(state.private_key):
        raise ProtocolError(f"the roster does not list node {state.node_id} under its own key: check the server.")
    if len(roster.members) < state.min_cohort:
        raise ProtocolError(
            f"the roster has {len(roster.members)} clients, but this client's minimum cohort is {state.min_cohort}: "
            "start more clients or lower min-clients."
        )
    if request.boxes:
        raise ProtocolError("sealed group keys came with a new roster: they are replayed or of another attempt.")
    if state.roster is not None:
        known = state.roster.keys
        if len(roster.members) >= len(known) or any(known.get(node) != key for node, key in roster.members):
            raise ProtocolError("a later attempt's roster adds a node or changes a key: stop the run.")
    neighbours = roster.neighbours(state.node_id, state.max_silent)
    pairs = tuple(sorted(_pair_keys(state, roster, neighbours).items()))
    is_author = state.authored and state.node_id in roster.authors(state.max_silent)
    tag_key = state.tag_key
    if not state.authored:
        tag_key = derive_key(state.plan_digest, "tag", state.run_id, roster.digest)
    return changed(
        state,
        attempt=request.attempt,
        roster=roster,
        pair_keys=pairs,
        own_group_key=generate_group_key() if is_author else b"",
        group_keys=(),
        tag_key=tag_key,
    )


def _pair_keys(state: Retry, roster: Roster, peers: Iterable[int]) -> dict[int, bytes]:
    """Pair keys with `peers`: those of the state, and newly agreed ones for the rest."""
    agreed = dict(state.pair_keys)
    own = load_private_key(state.private_key)
    return {
        peer: agreed.get(peer) or agree_pair_key(own, roster.keys[peer], state.run_id, state.node_id, peer)
        for peer in peers
    }


def _transcript(state: Retry) -> bytes:
    """See `transcript_of`."""
    return transcript_of(state.plan_digest, state.cohort)


def _blind_stream(
    run_id: int, asked: tuple[int, int], author: int, group_key: bytes, transcript: bytes, length: int
) -> Ring:
    """One author's blinding stream of one (round, attempt)."""
    key = derive_key(group_key, "blind", run_id, author, *asked, transcript)
    return np.asarray(stream(key, length), dtype=np.uint64)


@lru_cache(maxsize=1)
def _all_streams(
    group_keys: tuple[tuple[int, bytes], ...], run_id: int, asked: tuple[int, int], transcript: bytes, length: int
) -> Ring:
    """The sum of all authors' streams; made once for all virtual clients of one process, which need the same."""
    total = np.zeros(length, dtype=np.uint64)
    for author, key in group_keys:
        total += _blind_stream(run_id, asked, author, key, transcript, length)
    return total


def _box_context(state: Retry, author: int, recipient: int) -> bytes:
    """Associated data of a sealed group key."""
    return digest("box", state.run_id, state.attempt, author, recipient, state.cohort.digest)


def _seal_boxes(state: Retry) -> dict[int, bytes]:
    """Seal the own group key for every other client of the attempt."""
    peers = [peer for peer in state.cohort.node_ids if peer != state.node_id]
    boxes = {}
    for peer, pair_key in _pair_keys(state, state.cohort, peers).items():
        context = _box_context(state, state.node_id, peer)
        boxes[peer] = seal(derive_key(pair_key, "box", context), state.own_group_key, context)
    return boxes


def _open_box(state: Retry, author: int, pair_key: bytes, box: bytes) -> bytes:
    """Open one author's sealed group key."""
    context = _box_context(state, author, state.node_id)
    key = unseal(derive_key(pair_key, "box", context), box, context)
    if len(key) != KEY_BYTES:
        raise ProtocolError(
            f"node {author} sealed a group key of {len(key)} bytes instead of {KEY_BYTES}: restart the run."
        )
    return key


class RetrySession:
    """One run of the aggregation protocol, as the server sees it."""

    def __init__(
        self,
        roster: Roster,
        *,
        min_cohort: int,
        max_retries: int,
        max_silent: int,
        authored: bool,
        credentials: Mapping[int, Credential] | None = None,
    ) -> None:
        if len(roster.members) < max(2, min_cohort):
            raise CohortError(
                f"{len(roster.members)} clients take part, but at least {max(2, min_cohort)} are needed: "
                "start more clients or lower min-clients."
            )
        self.roster = roster
        self.round_index = NO_ROUND
        self._length = 0
        self._min_cohort = min_cohort
        self._max_retries = max_retries
        self._max_silent = max_silent
        self._authored = authored
        self._credentials = credentials or {}
        self._tags: dict[int, bytes] = {}
        self._sealed: dict[int, Mapping[int, bytes]] = {}
        self._total: Ring = np.zeros(0, dtype=np.uint64)
        self._boxes: dict[int, dict[int, bytes]] = {}
        self._first_of_attempt = True
        self._open = False

    @property
    def attempt(self) -> int:
        """Number of the current attempt."""
        return self.roster.attempt

    def open_round(self, round_index: int, length: int) -> None:
        """Wait for one vector of `length` entries from every client of the roster."""
        self.round_index = round_index
        self._length = length
        self._reset()

    def authors(self) -> frozenset[int]:
        """Whoever seals a group key in the first reply of the attempt."""
        return frozenset(self.roster.authors(self._max_silent) if self._authored else ())

    def expects_roster(self) -> bool:
        """Whether the next request must announce the roster (first request of an attempt)."""
        return self._first_of_attempt

    def receive(self, node_id: int, reply: SumReply) -> None:
        """Take one reply in.

        Raises `ProtocolError` if the node is not in the roster, answered already, answers another round or attempt than
        the open one, or its vector, tag or boxes have the wrong form. The session stays as it was.
        """
        asked = (self.round_index, self.attempt)
        if node_id not in self.roster.keys:
            raise ProtocolError(
                f"node {node_id} answered, but is not in the roster of attempt {self.attempt}: ignored."
            )
        if not self._open or (reply.round_index, reply.attempt) != asked:
            raise ProtocolError(
                f"node {node_id} answered round {reply.round_index}, attempt {reply.attempt}, but round {asked[0]}, "
                f"attempt {asked[1]} is {'open' if self._open else 'complete'}: the reply is late or replayed and is "
                "discarded."
            )
        if node_id in self._tags:
            raise ProtocolError(f"node {node_id} answered round {asked[0]} twice: the second reply is discarded.")
        require_words(node_id, reply.masked.values, self._length)
        if len(reply.tag) not in (0, TAG_BYTES):
            raise ProtocolError(
                f"node {node_id} sent a tag of {len(reply.tag)} bytes instead of {TAG_BYTES}: discarded."
            )
        self._require_boxes(node_id, reply)
        self._tags[node_id], self._sealed[node_id] = reply.tag, reply.boxes
        # Added up at once, so that 10,000 clients need no 10,000 vectors.
        self._total += reply.masked.values

    def missing(self) -> tuple[int, ...]:
        """Nodes of the roster that have not answered the open round."""
        return tuple(node for node in self.roster.node_ids if node not in self._tags)

    def retry(self) -> None:
        """Open a new attempt of the same round with those that answered.

        Raises `CohortError` if too few answered or the plan's retries are used up, `LocalMisuseError` if nobody is
        missing: clients refuse a roster that did not shrink.
        """
        missing = self.missing()
        if self._open and not missing:
            raise LocalMisuseError(f"every client answered round {self.round_index}: aggregate it instead of retrying.")
        left = len(self.roster.members) - len(missing)
        if left < max(2, self._min_cohort):
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index}; {left} clients are left, but at least "
                f"{max(2, self._min_cohort)} are needed: look at their logs and start a new run, or lower min-clients."
            )
        if self.attempt >= self._max_retries:
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index} and the plan's {self._max_retries} "
                "retries are used up: start a new run, or raise max-retries (each costs budget), or round-timeout if "
                "they are only slow."
            )
        self.roster = self.roster.without(self.attempt + 1, missing)
        self._boxes = {}
        self._first_of_attempt = True
        self._reset()

    def aggregate(self, *, blinded: bool) -> AggregateVector:
        """Add up the vectors of the open round, once everybody answered.

        The pairwise masks cancel in the sum; `blinded` says whether the key authors' streams are still in it. Raises
        `CohortError` if a reply is missing, `DisagreementError` if the clients' tags differ, `LocalMisuseError` if
        `blinded` is asked for in a run without key authors.
        """
        if blinded and not self._authored:
            raise LocalMisuseError("a run without key authors has no blinded sums: check the plan's trust model.")
        missing = self.missing()
        if missing:
            raise CohortError(f"nodes {list(missing)} have not answered round {self.round_index}: retry without them.")
        require_equal_tags(self._tags, self.round_index)
        if self._first_of_attempt:
            self._collect_boxes()
        self._first_of_attempt = False
        self._open = False
        return AggregateVector(self._total, blinded)

    @property
    def sharers(self) -> None:
        """Nobody: no keys are shared for recovery."""
        return None

    @property
    def asked(self) -> tuple[int, ...]:
        """Who is asked next."""
        return self.roster.node_ids

    @property
    def due(self) -> Stage:
        """What is asked for next: always vectors."""
        return Stage.SUM

    def request(self, node_id: int, release: Release | None, state: bytes) -> SumRequest:
        """What one client is asked."""
        first = self._first_of_attempt
        return SumRequest(
            self.round_index,
            self.attempt,
            roster=self.roster if first else None,
            release=release,
            boxes=self.take_boxes(node_id),
            state=state,
            # Clients know the keys of later rosters, which can only be smaller.
            credentials=self._credentials if first and self.attempt == 0 else {},
        )

    def finish_request(self, node_id: int, release: Release, state: bytes) -> FinishRequest:
        """The last message to one client."""
        return FinishRequest(release, self.take_boxes(node_id), state)

    def take(self, node_id: int, reply: SumReply) -> None:
        """Take in what was asked for."""
        self.receive(node_id, reply)

    def close(self, plan_digest: bytes, *, blinded: bool) -> tuple[AggregateVector | None, Silence | None]:
        """Go on with what has come: to the sum, or to a new attempt without the silent ones."""
        del plan_digest
        missing = self.missing()
        if missing:
            self.retry()
            return None, Silence(missing, None)
        return self.aggregate(blinded=blinded), None

    @property
    def n_summed(self) -> int:
        """Clients in the sum."""
        return len(self.roster.members)

    def take_boxes(self, node_id: int) -> dict[int, bytes]:
        """Sealed group keys to relay to one node with its next message; handed out once an attempt."""
        return self._boxes.pop(node_id, {})

    def _require_boxes(self, node_id: int, reply: SumReply) -> None:
        """Check that a key author, and nobody else, sealed its key for everybody else."""
        is_author = self._first_of_attempt and node_id in self.authors()
        due = [other for other in self.roster.node_ids if other != node_id] if is_author else []
        if sorted(reply.boxes) != due:
            raise ProtocolError(
                f"node {node_id} sealed its group key for {len(reply.boxes)} clients, but {len(due)} were due: "
                "discarded."
            )

    def _collect_boxes(self) -> None:
        """Sort the sealed keys by recipient."""
        boxes: dict[int, dict[int, bytes]] = {node: {} for node in self.roster.node_ids}
        for author, sealed in self._sealed.items():
            for recipient, box in sealed.items():
                boxes[recipient][author] = box
        self._boxes = boxes if self._authored else {}

    def _reset(self) -> None:
        """Wait for vectors."""
        self._tags, self._sealed = {}, {}
        self._total = np.zeros(self._length, dtype=np.uint64)
        self._open = True


def require_words(node_id: int, values: Ring, length: int) -> None:
    """Refuse a vector that is not of so many ring elements."""
    if values.shape != (length,) or values.dtype != np.uint64:
        raise ProtocolError(
            f"node {node_id} sent {values.size} entries of {values.dtype}, but the plan has {length} of uint64: "
            "discarded."
        )


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
    raise DisagreementError(
        f"the state of node(s) {sorted(suspects)} differs from the others' in round {round_index}: check that all "
        "nodes run the same versions of flwr-dpkmeans and NumPy, and start a new run."
    )
