"""The client's side of masked aggregation, as pure transitions on a frozen state.

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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.keys import (
    KEY_BYTES,
    agree_pair_key,
    derive_key,
    digest,
    generate_group_key,
    keyed_tag,
    load_private_key,
    public_key_of,
    seal,
    stream,
    unseal,
)
from flwr_dpkmeans.secagg.messages import NO_ROUND, FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of


class Phase(Enum):
    """Where a client stands in a run."""

    KEYED = "keyed"
    ADMITTED = "admitted"
    SUMMING = "summing"
    FINISHED = "finished"


@dataclass(frozen=True)
class ClientState:
    """All that a client must remember between two messages of one run.

    Parameters
    ----------
    run_id, node_id : int
        Bound into every key.
    private_key : bytes
        X25519 private key of this run.
    min_cohort : int
        Smallest roster that this client answers.
    max_silent : int
        How many clients may collude or fall silent.
    authored : bool
        Whether key authors blind the sums (trust model ``oblivious``).
    plan_digest : bytes
        Digest of the plan in force, bound into every mask.
    phase, round_index, attempt
        The last (round, attempt) that was answered, or the one that was admitted; (-1, -1) before the first.
    roster : Roster or None
        Of the current attempt.
    own_group_key : bytes
        Empty unless this client is a key author of the current attempt.
    group_keys : tuple of (author id, key)
        All authors' keys of the current attempt, once their boxes arrived.
    tag_key : bytes
        Key of the state tags; empty until one is shared.
    pair_keys : tuple of (node id, key)
        Keys agreed with the neighbours of the current attempt.
    """

    run_id: int
    node_id: int
    private_key: bytes = field(repr=False)
    min_cohort: int
    max_silent: int
    authored: bool
    plan_digest: bytes
    phase: Phase = Phase.KEYED
    round_index: int = NO_ROUND
    attempt: int = -1
    roster: Roster | None = None
    own_group_key: bytes = field(default=b"", repr=False)
    group_keys: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    tag_key: bytes = field(default=b"", repr=False)
    pair_keys: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)

    @property
    def cohort(self) -> Roster:
        """The roster in force; asking before the first request is a `ProtocolError`."""
        if self.roster is None:
            raise ProtocolError("no roster was announced before the first round: restart the run.")
        return self.roster

    def with_plan(self, plan_digest: bytes) -> ClientState:
        """Return the state with another plan in force (the final plan after a preliminary one)."""
        return replace(self, plan_digest=plan_digest)


def admit(state: ClientState, request: SumRequest, first_round: int) -> ClientState:
    """Check a request against the transition table and take in its roster and boxes.

    Parameters
    ----------
    state : ClientState
        Before the request.
    request : SumRequest
        From the server.
    first_round : int
        Index of the run's first round by the plan.

    Returns
    -------
    ClientState
        Ready to `unblind` the release that came along and to `answer`; nothing is answered yet.

    Raises
    ------
    ProtocolError
        If the request is replayed, out of order, for an unknown cohort, or its boxes do not open.
    """
    _require_admissible(state, request, first_round)
    if state.attempt >= 0 and request.attempt == state.attempt:
        if request.roster is not None:
            raise ProtocolError("a second roster was announced for an attempt that has one: stop the run.")
        entered = take_boxes(state, request.boxes)
    else:
        entered = _enter_attempt(state, request)
    return replace(entered, phase=Phase.ADMITTED, round_index=request.round_index)


def admit_finish(state: ClientState, request: FinishRequest) -> ClientState:
    """Check the last message and take in its boxes; see `admit`."""
    release = request.release
    if state.phase is not Phase.SUMMING or (release.round_index, release.attempt) != (state.round_index, state.attempt):
        raise ProtocolError(
            f"the last release is of round {release.round_index}, attempt {release.attempt}, but this client answered "
            f"round {state.round_index}, attempt {state.attempt}: it is late, replayed or of another run."
        )
    return replace(take_boxes(state, request.boxes), phase=Phase.FINISHED)


def take_boxes(state: ClientState, boxes: Mapping[int, bytes]) -> ClientState:
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
    return replace(state, group_keys=ordered, tag_key=tag_key)


def unblind(state: ClientState, release: Release, *, blinded: bool) -> AggregateVector:
    """Subtract the key authors' streams from a release.

    Parameters
    ----------
    state : ClientState
        With the group keys of the release's attempt.
    release : Release
        As the server sent it.
    blinded : bool
        Whether the plan has that round blinded.

    Returns
    -------
    AggregateVector
        The noised sum, readable.

    Raises
    ------
    ProtocolError
        If the round is blinded and the group keys of the release's attempt are not at hand.
    """
    values = release.values.copy()
    if blinded:
        if not state.group_keys or release.attempt != state.attempt:
            raise ProtocolError(
                f"the release of round {release.round_index}, attempt {release.attempt} is blinded, but its group keys "
                "are not at hand: restart the run."
            )
        transcript = _transcript(state)
        for author, key in state.group_keys:
            values -= _blind_stream(state, author, key, release.round_index, transcript, len(values))
    return AggregateVector(values, blinded=False)


def answer(
    state: ClientState, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
) -> tuple[ClientState, SumReply]:
    """Mask a vector and move on.

    Parameters
    ----------
    state : ClientState
        As `admit` returned it.
    request : SumRequest
        The request being answered.
    vector : FixedPointVector
        The client's clipped statistic on the grid.
    blinded : bool
        Whether key authors add their streams in this round.
    state_digest : bytes
        Digest of the client's clustering state, for the tag.

    Returns
    -------
    ClientState
        With (round, attempt) marked as answered.
    SumReply
        To be sent.

    Raises
    ------
    ProtocolError
        If `state` has not admitted this very request, or the round is blinded in a run without key authors.
    """
    asked = (request.round_index, request.attempt)
    if state.phase is not Phase.ADMITTED or asked != (state.round_index, state.attempt):
        raise ProtocolError(f"round {asked[0]}, attempt {asked[1]} is not open for an answer: admit the request first.")
    if blinded and not state.authored:
        raise ProtocolError("the round is blinded, but the run has no key authors: check the plan's trust model.")
    values = vector.values.copy()
    length = len(values)
    transcript = _transcript(state)
    for peer, key in state.pair_keys:
        mask = stream(derive_key(key, "mask", *asked, transcript), length)
        if state.node_id < peer:
            values += mask
        else:
            values -= mask
    if blinded and state.own_group_key:
        values += _blind_stream(state, state.node_id, state.own_group_key, request.round_index, transcript, length)
    boxes = _seal_boxes(state) if request.roster is not None and state.own_group_key else {}
    tag = state_tag(state, request.round_index, request.attempt, state_digest)
    reply = SumReply(request.round_index, request.attempt, MaskedVector(values), tag, boxes)
    return replace(state, phase=Phase.SUMMING), reply


def state_tag(state: ClientState, round_index: int, attempt: int, state_digest: bytes) -> bytes:
    """Tag the clustering state under the key that only clients share; empty while there is none."""
    if not state.tag_key:
        return b""
    return keyed_tag(state.tag_key, state.run_id, round_index, attempt, state_digest)


def _require_admissible(state: ClientState, request: SumRequest, first_round: int) -> None:
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


def _enter_attempt(state: ClientState, request: SumRequest) -> ClientState:
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
    return replace(
        state,
        attempt=request.attempt,
        roster=roster,
        pair_keys=pairs,
        own_group_key=generate_group_key() if is_author else b"",
        group_keys=(),
        tag_key=tag_key,
    )


def _pair_keys(state: ClientState, roster: Roster, peers: Iterable[int]) -> dict[int, bytes]:
    """Pair keys with `peers`: those of the state, and newly agreed ones for the rest."""
    agreed = dict(state.pair_keys)
    own = load_private_key(state.private_key)
    return {
        peer: agreed.get(peer) or agree_pair_key(own, roster.keys[peer], state.run_id, state.node_id, peer)
        for peer in peers
    }


def _transcript(state: ClientState) -> bytes:
    """See `transcript_of`."""
    return transcript_of(state.plan_digest, state.cohort)


def _blind_stream(
    state: ClientState, author: int, group_key: bytes, round_index: int, transcript: bytes, length: int
) -> Ring:
    """One author's blinding stream of one round of the current attempt."""
    key = derive_key(group_key, "blind", state.run_id, author, round_index, state.attempt, transcript)
    return np.asarray(stream(key, length), dtype=np.uint64)


def _box_context(state: ClientState, author: int, recipient: int) -> bytes:
    """Associated data of a sealed group key."""
    return digest("box", state.run_id, state.attempt, author, recipient, state.cohort.digest)


def _seal_boxes(state: ClientState) -> dict[int, bytes]:
    """Seal the own group key for every other client of the attempt."""
    peers = [peer for peer in state.cohort.node_ids if peer != state.node_id]
    boxes = {}
    for peer, pair_key in _pair_keys(state, state.cohort, peers).items():
        context = _box_context(state, state.node_id, peer)
        boxes[peer] = seal(derive_key(pair_key, "box", context), state.own_group_key, context)
    return boxes


def _open_box(state: ClientState, author: int, pair_key: bytes, box: bytes) -> bytes:
    """Open one author's sealed group key."""
    context = _box_context(state, author, state.node_id)
    key = unseal(derive_key(pair_key, "box", context), box, context)
    if len(key) != KEY_BYTES:
        raise ProtocolError(
            f"node {author} sealed a group key of {len(key)} bytes instead of {KEY_BYTES}: restart the run."
        )
    return key
