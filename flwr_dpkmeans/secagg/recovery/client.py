"""The client's side of recoverable sums, as pure transitions on a frozen state.

======================  ==================================  =====================================================
state                   event                               next state
======================  ==================================  =====================================================
`KEYED`                 `ShareRequest`                      `SHARED`; keys of all aggregations shared
`SHARED`                first `SumRequest`, attempt 0       `ADMITTED`; neighbours' shares taken in
`UNMASKED` at (r, a)    `SumRequest` (r + 1, a)             `ADMITTED` at (r + 1, a); opens release (r, a)
`MASKED`, `UNMASKED`    `SumRequest` (r, a' > a)            `ADMITTED` at (r, a'); smaller cohort, no release
`ADMITTED` at (r, a)    own vector                          `MASKED` at (r, a)
`MASKED` at (r, a)      `UnmaskRequest` (r, a)              `UNMASKED` at (r, a), with the survivors
`UNMASKED` at (r, a)    `FinishRequest` (r, a)              `FINISHED`; opens release (r, a)
anything else                                               `ProtocolError`, and the state stays as it was
======================  ==================================  =====================================================

A client thus gives shares once for each (round, attempt), of the self mask *or* of the pairwise key of each neighbour,
and only if it is among the survivors itself. The cohort of a round is part of those that survived the one before.
What it gives is locked, and opens only where others were told the same; see `recovery.agreement`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise

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
from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.recovery.agreement import (
    cohort_view,
    combine,
    lock,
    survivors_digest,
    survivors_view,
    ticket,
)
from flwr_dpkmeans.secagg.recovery.masks import cohort_of, pair_mask, self_mask
from flwr_dpkmeans.secagg.recovery.messages import ShareReply, ShareRequest, UnmaskReply, UnmaskRequest
from flwr_dpkmeans.secagg.recovery.shamir import share
from flwr_dpkmeans.secagg.recovery.slots import piece
from flwr_dpkmeans.secagg.recovery.state import LEAST_AUTHORS, Phase, RecoveryState
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of


def share_keys(state: RecoveryState, request: ShareRequest) -> tuple[RecoveryState, ShareReply]:
    """Make the keys of all aggregations and share them among the neighbours.

    Parameters
    ----------
    state : RecoveryState
        `KEYED`.
    request : ShareRequest
        From the server.

    Returns
    -------
    RecoveryState
        `SHARED`.
    ShareReply
        To be sent.

    Raises
    ------
    ProtocolError
        If it was asked for before, or the roster lacks this client or is too small.
    """
    roster = request.roster
    if state.phase is not Phase.KEYED:
        raise ProtocolError("key shares were asked for twice in one run: the request is replayed and refused.")
    if roster.attempt != 0 or roster.keys.get(state.node_id) != public_key_of(state.private_key):
        raise ProtocolError(f"the roster does not list node {state.node_id} under its own key: check the server.")
    if len(roster.members) < state.min_cohort:
        raise ProtocolError(
            f"the roster has {len(roster.members)} clients, but this client's minimum cohort is {state.min_cohort}: "
            "start more clients or lower min-clients."
        )
    is_author = state.authored and state.node_id in roster.authors(state.max_silent)
    state = replace(state, setup=roster, own_group_key=generate_group_key() if is_author else b"")
    neighbours = state.neighbours
    pairs = _run_keys(state, roster.node_ids if is_author else neighbours)
    selves, privates = _own_seeds(state)
    public_keys = b"".join(public_key_of(key) for key in privates)
    parts = share(b"".join(selves) + b"".join(privates), len(neighbours), state.graph.threshold)
    boxes = {
        peer: _seal(state, pairs[peer], "shares", peer, part + public_keys)
        for peer, part in zip(neighbours, parts, strict=True)
    }
    others = [peer for peer in roster.node_ids if peer != state.node_id] if is_author else []
    group_boxes = {peer: _seal(state, pairs[peer], "box", peer, state.own_group_key) for peer in others}
    commitments = b"".join(digest("self mask", seed) for seed in selves)
    held = tuple((peer, pairs[peer]) for peer in neighbours)
    return replace(state, phase=Phase.SHARED, held=held), ShareReply(public_keys, commitments, boxes, group_boxes)


def admit(state: RecoveryState, request: SumRequest, first_round: int) -> RecoveryState:
    """Check a request against the transition table and take in its cohort and boxes; see `secagg.client.admit`."""
    _require_admissible(state, request, first_round)
    if request.roster is not None:
        raise ProtocolError("a roster came although keys are shared already: use the same version everywhere.")
    cohort = _cohort(state, request)
    if state.phase is Phase.SHARED:
        state = _take_boxes(replace(state, roster=cohort), request)
    elif request.boxes or request.group_boxes:
        raise ProtocolError("sealed keys came although none are due: they are replayed or of another run.")
    return replace(state, phase=Phase.ADMITTED, round_index=request.round_index, attempt=request.attempt, roster=cohort)


def answer(
    state: RecoveryState, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
) -> tuple[RecoveryState, SumReply]:
    """Mask a vector twice, by a mask of one's own and by one with each neighbour; see `secagg.client.answer`."""
    asked = (request.round_index, request.attempt)
    if state.phase is not Phase.ADMITTED or asked != (state.round_index, state.attempt):
        raise ProtocolError(f"round {asked[0]}, attempt {asked[1]} is not open for an answer: admit the request first.")
    if blinded and not state.authored:
        raise ProtocolError("the round is blinded, but the run has no key authors: check the plan's trust model.")
    place, transcript = state.slots.place(*asked), _transcript(state)
    view, tickets = cohort_view(asked, transcript), {}
    own_self, own_private = _own_seed(state, place)
    length = len(vector.values)
    values = vector.values + self_mask(own_self, state.run_id, state.node_id, asked, transcript, length)
    held, private = dict(state.held), load_private_key(own_private)
    for peer in state.neighbours:
        if peer in state.cohort.keys:
            public = _public_key(state, held[peer], place)
            pair = agree_pair_key(private, public, state.run_id, state.node_id, peer)
            values += pair_mask(pair, state.node_id, peer, asked, transcript, length)
            tickets[peer] = ticket(_agreement_key(held[peer]), state.node_id, peer, view)
    if blinded and state.own_group_key:
        values += _blind_stream(state, state.node_id, state.own_group_key, asked, transcript, length)
    tag = state_tag(state, *asked, state_digest)
    reply = SumReply(*asked, MaskedVector(values), tag, tickets)
    return replace(state, phase=Phase.MASKED, transcript=transcript), reply


def unmask(state: RecoveryState, request: UnmaskRequest) -> tuple[RecoveryState, UnmaskReply]:
    """Give one share for each neighbour, of what its fate asks for.

    Parameters
    ----------
    state : RecoveryState
        `MASKED` at the request's (round, attempt).
    request : UnmaskRequest
        From the server.

    Returns
    -------
    RecoveryState
        `UNMASKED`, with the survivors.
    UnmaskReply
        To be sent, once signed.

    Raises
    ------
    ProtocolError
        If it is not due, or the survivors are too few, not of the cohort, or without this client.
    """
    asked = (request.round_index, request.attempt)
    if state.phase is not Phase.MASKED or asked != (state.round_index, state.attempt):
        raise ProtocolError(
            f"shares were asked for round {asked[0]}, attempt {asked[1]}, but this client is {state.phase.value} with "
            f"round {state.round_index}, attempt {state.attempt} last: the request is replayed, late or out of order."
        )
    survivors = request.survivors
    _require_members(state, survivors, state.cohort.keys, "survivors")
    authors = set(state.sharers.authors(state.max_silent)) & set(survivors)
    if state.authored and len(authors) < LEAST_AUTHORS:
        raise ProtocolError(
            f"{len(authors)} key author(s) survived, but {LEAST_AUTHORS} are needed to hide the sum from the server: "
            "start a new run."
        )
    return replace(state, phase=Phase.UNMASKED, survivors=survivors), UnmaskReply(*asked, _give(state, survivors))


def admit_finish(state: RecoveryState, request: FinishRequest) -> RecoveryState:
    """Check the last message; see `admit`."""
    release = request.release
    if state.phase is not Phase.UNMASKED or (release.round_index, release.attempt) != (
        state.round_index,
        state.attempt,
    ):
        raise ProtocolError(
            f"the last release is of round {release.round_index}, attempt {release.attempt}, but this client unmasked "
            f"round {state.round_index}, attempt {state.attempt}: it is late, replayed or of another run."
        )
    if request.boxes:
        raise ProtocolError("sealed keys came although none are due: they are replayed or of another run.")
    return replace(state, phase=Phase.FINISHED)


def unblind(state: RecoveryState, release: Release, *, blinded: bool) -> AggregateVector:
    """Subtract the surviving authors' streams from a release; see `secagg.client.unblind`."""
    values = release.values.copy()
    if blinded:
        if not state.group_keys or not state.transcript or release.attempt != state.attempt:
            raise ProtocolError(
                f"the release of round {release.round_index}, attempt {release.attempt} is blinded, but its group keys "
                "are not at hand: restart the run."
            )
        asked, alive = (release.round_index, release.attempt), set(state.survivors)
        for author, key in state.group_keys:
            if author in alive:
                values -= _blind_stream(state, author, key, asked, state.transcript, len(values))
    return AggregateVector(values, blinded=False)


def state_tag(state: RecoveryState, round_index: int, attempt: int, state_digest: bytes) -> bytes:
    """Tag the clustering state and the survivors that it comes from, under the key that only clients share."""
    if not state.tag_key:
        return b""
    covered = digest("survivors and state", survivors_digest(state.survivors), state_digest)
    return keyed_tag(state.tag_key, state.run_id, round_index, attempt, covered)


def _require_admissible(state: RecoveryState, request: SumRequest, first_round: int) -> None:
    """Raise unless the transition table has a line for the request."""
    asked, release = (request.round_index, request.attempt), request.release
    answered = (state.round_index, state.attempt)
    if state.phase is Phase.SHARED:
        allowed = asked == (first_round, 0) and release is None
    elif state.phase in (Phase.MASKED, Phase.UNMASKED) and asked[0] == answered[0]:
        allowed = asked[1] > answered[1] and release is None
    elif state.phase is Phase.UNMASKED:
        allowed = release is not None and (release.round_index, release.attempt) == answered
        allowed = allowed and asked == (answered[0] + 1, answered[1])
    else:
        allowed = False
    if not allowed:
        raise ProtocolError(
            f"a vector was asked for round {asked[0]}, attempt {asked[1]}, but this client is {state.phase.value} with "
            f"round {state.round_index}, attempt {state.attempt} last: the request is replayed, late or out of order "
            "and stays unanswered."
        )
    state.slots.place(*asked)


def _cohort(state: RecoveryState, request: SumRequest) -> Roster:
    """Check whom a request names, and look their keys up."""
    nodes = request.cohort
    before: Collection[int]
    if state.phase is Phase.SHARED:
        before = state.sharers.keys
    elif request.round_index != state.round_index:
        before = set(state.survivors)
    else:
        before = state.cohort.keys
        if len(nodes) >= len(before):
            raise ProtocolError("a later attempt's cohort is not smaller than the one before: stop the run.")
    _require_members(state, nodes, before, "cohort")
    return cohort_of(state.sharers, request.attempt, nodes)


def _require_members(state: RecoveryState, nodes: tuple[int, ...], before: Collection[int], what: str) -> None:
    """Raise unless the nodes are in order, with this client, enough, and part of those before."""
    if any(a >= b for a, b in pairwise(nodes)) or any(node not in before for node in nodes):
        raise ProtocolError(f"the {what} has a node twice, out of order, or one that had left before: stop the run.")
    if state.node_id not in nodes:
        raise ProtocolError(f"node {state.node_id} is not in the {what}: it was given up and is not to answer.")
    if len(nodes) < state.least:
        raise ProtocolError(
            f"the {what} has {len(nodes)} clients, but at least {state.least} of {len(state.sharers.members)} are "
            "needed: start a new run, or raise max_silent."
        )


def _take_boxes(state: RecoveryState, request: SumRequest) -> RecoveryState:
    """Open the shares that neighbours gave this client, and the authors' group keys."""
    present = state.cohort.keys
    givers = [peer for peer in state.neighbours if peer in present]
    authors = [node for node in state.sharers.authors(state.max_silent) if state.authored and node in present]
    others = [author for author in authors if author != state.node_id]
    if sorted(request.boxes) != sorted(givers) or sorted(request.group_boxes) != sorted(others):
        raise ProtocolError(
            f"shares came from {len(request.boxes)} and group keys from {len(request.group_boxes)} nodes, but "
            f"{len(givers)} and {len(others)} were due: restart the run."
        )
    if state.authored and len(authors) < LEAST_AUTHORS:
        raise ProtocolError(
            f"{len(authors)} key author(s) shared keys, but {LEAST_AUTHORS} are needed: restart the run."
        )
    agreed = dict(state.held)
    pairs = agreed | _run_keys(state, [author for author in others if author not in agreed])
    length = 3 * KEY_BYTES * state.slots.number
    held = tuple(
        (peer, _open(state, pairs[peer], "shares", peer, box, length) + derive_key(pairs[peer], "agreement"))
        for peer, box in request.boxes.items()
    )
    keys = {
        author: _open(state, pairs[author], "box", author, box, KEY_BYTES)
        for author, box in request.group_boxes.items()
    }
    if state.own_group_key:
        keys[state.node_id] = state.own_group_key
    ordered = tuple(sorted(keys.items()))
    secret = b"".join(key for _, key in ordered) if state.authored else state.plan_digest
    tag_key = derive_key(secret, "tag", state.run_id, state.sharers.digest)
    return replace(state, held=tuple(sorted(held)), group_keys=ordered, tag_key=tag_key)


def _run_keys(state: RecoveryState, peers: Iterable[int]) -> dict[int, bytes]:
    """Keys of the run, agreed with `peers`, under which boxes are sealed."""
    own, keys = load_private_key(state.private_key), state.sharers.keys
    return {
        peer: agree_pair_key(own, keys[peer], state.run_id, state.node_id, peer)
        for peer in peers
        if peer != state.node_id
    }


def _own_seeds(state: RecoveryState) -> tuple[list[bytes], list[bytes]]:
    """Seeds of the own self masks and private keys, for every aggregation."""
    masters = state.masters[:KEY_BYTES], state.masters[KEY_BYTES:]
    selves = state.slots.seeds(masters[0], "self seed", state.run_id, state.node_id)
    return selves, state.slots.seeds(masters[1], "private key", state.run_id, state.node_id)


def _own_seed(state: RecoveryState, place: int) -> tuple[bytes, bytes]:
    """The same for one aggregation."""
    selves, privates = state.masters[:KEY_BYTES], state.masters[KEY_BYTES:]
    own_self = state.slots.seed(selves, "self seed", state.run_id, state.node_id, place)
    return own_self, state.slots.seed(privates, "private key", state.run_id, state.node_id, place)


def _give(state: RecoveryState, survivors: tuple[int, ...]) -> dict[int, bytes]:
    """What `unmask` sends for each neighbour in the cohort; see `flwr_dpkmeans.secagg.recovery.agreement`."""
    asked, node, alive = (state.round_index, state.attempt), state.node_id, set(survivors)
    place, held = state.slots.place(*asked), dict(state.held)
    cohort, told = cohort_view(asked, state.transcript), survivors_view(asked, state.transcript, survivors)
    opening = os.urandom(KEY_BYTES)
    parts = share(opening, len(state.neighbours), state.graph.threshold)
    given = {}
    for peer, part in zip(state.neighbours, parts, strict=True):
        if peer not in state.cohort.keys:
            continue
        key = _agreement_key(held[peer])
        # Shares of all self masks come first in a box, then those of all pairwise keys.
        if peer in alive:
            due = combine(piece(held[peer], place), ticket(key, peer, node, cohort))
        else:
            due = piece(held[peer], state.slots.number + place)
        locked = combine(due, lock(opening, peer))
        given[peer] = locked + ticket(key, node, peer, told) + combine(part, ticket(key, peer, node, told))
    return given


def _agreement_key(held: bytes) -> bytes:
    """Key of the tickets that are exchanged with a neighbour; it stands behind what came in its box."""
    return held[-KEY_BYTES:]


def _public_key(state: RecoveryState, held: bytes, place: int) -> bytes:
    """A neighbour's public key for one aggregation, from its box: the server cannot have changed it."""
    return piece(held, 2 * state.slots.number + place)


def _transcript(state: RecoveryState) -> bytes:
    """See `transcript_of`."""
    return transcript_of(state.plan_digest, state.cohort)


def _blind_stream(
    state: RecoveryState, author: int, group_key: bytes, asked: tuple[int, int], transcript: bytes, length: int
) -> Ring:
    """One author's blinding stream of one aggregation."""
    return np.asarray(stream(derive_key(group_key, "blind", state.run_id, author, *asked, transcript), length))


def _seal(state: RecoveryState, pair_key: bytes, purpose: str, recipient: int, secret: bytes) -> bytes:
    """Seal something for one node."""
    context = digest(purpose, state.run_id, state.node_id, recipient, state.sharers.digest)
    return seal(derive_key(pair_key, purpose, context), secret, context)


def _open(state: RecoveryState, pair_key: bytes, purpose: str, author: int, box: bytes, length: int) -> bytes:
    """Open what one node sealed."""
    context = digest(purpose, state.run_id, author, state.node_id, state.sharers.digest)
    secret = unseal(derive_key(pair_key, purpose, context), box, context)
    if len(secret) != length:
        raise ProtocolError(f"node {author} sealed {len(secret)} bytes instead of {length}: restart the run.")
    return secret
