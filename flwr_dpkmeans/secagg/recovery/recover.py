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
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from flwr_dpkmeans.errors import IdentityError, ProtocolError
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
from flwr_dpkmeans.secagg.messages import (
    FinishRequest,
    Release,
    ShareReply,
    ShareRequest,
    SumReply,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.packing import pack_boxes, pack_nodes, pack_roster, unpack_nodes, unpack_roster
from flwr_dpkmeans.secagg.party import Party, Phase, changed, sorted_boxes
from flwr_dpkmeans.secagg.recovery.agreement import (
    cohort_view,
    combine,
    lock,
    survivors_digest,
    survivors_view,
    ticket,
)
from flwr_dpkmeans.secagg.recovery.graph import RecoveryGraph, recovery_graph
from flwr_dpkmeans.secagg.recovery.masks import cohort_of, pair_mask, self_mask
from flwr_dpkmeans.secagg.recovery.shamir import share
from flwr_dpkmeans.secagg.recovery.slots import Slots, piece
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, MaskedVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of
from flwr_dpkmeans.secagg.signing import verify_survivors

LEAST_AUTHORS = 2
"""Key authors that must survive, so that one with a bad random generator does not open the sum."""


@dataclass(frozen=True)
class Recover(Party):
    """A client of a run whose sums are recovered; see `Party`."""

    slots: Slots = field(kw_only=True)
    """The aggregations that keys are shared for."""
    masters: bytes = field(repr=False, default_factory=lambda: os.urandom(2 * KEY_BYTES))
    """Two 32-byte secrets, from which the own keys of all aggregations follow."""
    setup: Roster | None = None
    """Everybody that shared keys: graph and authors follow from it; `roster` is the cohort of the last request."""
    survivors: tuple[int, ...] = ()
    """Of the last aggregation that was unmasked."""
    transcript: bytes = b""
    """What the last answered vector was masked under."""
    held: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """The key of the run agreed with each neighbour, and from the first request on, behind each other, the shares that
    it gave this client, its public keys, and the key of its tickets.
    """

    @property
    def announced(self) -> Roster | None:
        """See `Party.announced`."""
        return self.setup

    @property
    def sharers(self) -> Roster:
        """Everybody that shared keys; asking before the exchange is a `ProtocolError`."""
        if self.setup is None:
            raise ProtocolError("no keys were shared in this run: restart it.")
        return self.setup

    @property
    def graph(self) -> RecoveryGraph:
        """Size of the neighbourhoods."""
        return recovery_graph(len(self.sharers.members), self.max_silent)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Nodes that hold this client's shares and mask with it."""
        return self.sharers.circle(self.node_id, self.graph.degree)

    @property
    def least(self) -> int:
        """Smallest cohort and number of survivors: no more than t may be gone."""
        return least_survivors(len(self.sharers.members), self.max_silent, self.min_cohort)

    def with_plan(self, plan_digest: bytes, last_round: int) -> Recover:
        """See `Party.with_plan`; a plan with rounds that no keys were shared for is a `ProtocolError`."""
        if last_round > self.slots.last_round:
            raise ProtocolError(
                f"the final plan has {last_round} rounds, but keys were shared for {self.slots.last_round}: give "
                "max_iter or n_examples."
            )
        return super().with_plan(plan_digest, last_round)

    def pack(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `Party.pack`."""
        progress, slots = self.pack_common(), self.slots
        progress["secrets"] |= {"masters": self.masters.hex(), "transcript": self.transcript.hex()}
        progress["slots"] = (slots.first_round, slots.last_round, slots.n_attempts)
        blobs = {"held": pack_boxes(dict(self.held)), "survivors": pack_nodes(self.survivors)}
        if self.setup is not None:
            blobs["roster"] = pack_roster(self.setup)
        if self.roster is not None:
            blobs["cohort"] = pack_nodes(self.roster.node_ids)
        return progress, blobs

    @classmethod
    def unpack(cls, run_id: int, node_id: int, progress: dict[str, Any], blobs: Mapping[str, Any]) -> Recover:
        """Undo `pack`."""
        roster, cohort = bytes(blobs.get("roster", b"")), unpack_nodes(bytes(blobs.get("cohort", b"")))
        setup = unpack_roster(0, roster) if roster else None
        return cls(
            **cls.unpack_common(run_id, node_id, progress),
            slots=Slots(*progress["slots"]),
            masters=bytes.fromhex(progress["secrets"]["masters"]),
            setup=setup,
            roster=cohort_of(setup, progress["attempt"], cohort) if setup is not None and cohort else None,
            survivors=unpack_nodes(bytes(blobs["survivors"])),
            transcript=bytes.fromhex(progress["secrets"]["transcript"]),
            held=sorted_boxes(bytes(blobs["held"])),
        )

    def require_confirmed(self, identities: Mapping[int, bytes], confirmations: Mapping[int, bytes]) -> None:
        """Refuse to go on unless as many neighbours as it takes were told of the same survivors.

        Shares that were given to a server that told others of different ones do not open anyway; the signatures are
        evidence of what it said, and stop the run at once.
        """
        if self.phase is not Phase.UNMASKED:
            return
        told, asked = survivors_digest(self.survivors), (self.round_index, self.attempt)
        for node, signature in confirmations.items():
            known = identities.get(node)
            if known is None or not verify_survivors(known, signature, self.run_id, node, *asked, told):
                raise IdentityError(
                    f"node {node} did not sign the survivors of round {self.round_index} that this client was told of: "
                    "the server shows clients different survivors, or relays signatures of another run; stop the run."
                )
        if len(confirmations) < self.graph.threshold:
            raise IdentityError(
                f"{len(confirmations)} neighbours signed the survivors of round {self.round_index}, but "
                f"{self.graph.threshold} are needed: give every node an 'identity', and check the server."
            )

    def share(self, request: ShareRequest) -> tuple[Recover, ShareReply]:
        """Make the keys of all aggregations and share them among the neighbours.

        Raises `ProtocolError` if it was asked for before, or the roster lacks this client or is too small.
        """
        roster = request.roster
        if self.phase is not Phase.KEYED:
            raise ProtocolError("key shares were asked for twice in one run: the request is replayed and refused.")
        if roster.attempt != 0 or roster.keys.get(self.node_id) != public_key_of(self.private_key):
            raise ProtocolError(f"the roster does not list node {self.node_id} under its own key: check the server.")
        if len(roster.members) < self.min_cohort:
            raise ProtocolError(
                f"the roster has {len(roster.members)} clients, but this client's minimum cohort is {self.min_cohort}: "
                "start more clients or lower min-clients."
            )
        is_author = self.authored and self.node_id in roster.authors(self.max_silent)
        state = changed(self, setup=roster, own_group_key=generate_group_key() if is_author else b"")
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
        return changed(state, phase=Phase.SHARED, held=held), ShareReply(public_keys, commitments, boxes, group_boxes)

    def admit(self, request: SumRequest, first_round: int) -> Recover:
        """Check a request against the transition table and take in its cohort and boxes; see `Retry.admit`."""
        _require_admissible(self, request, first_round)
        if request.roster is not None:
            raise ProtocolError("a roster came although keys are shared already: use the same version everywhere.")
        cohort = _cohort(self, request)
        entered = changed(self, roster=cohort)
        if self.phase is Phase.SHARED:
            entered = _take_boxes(entered, request)
        elif request.boxes or request.group_boxes:
            raise ProtocolError("sealed keys came although none are due: they are replayed or of another run.")
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index, attempt=request.attempt)

    def answer(
        self, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
    ) -> tuple[Recover, SumReply]:
        """Mask a vector twice, by a mask of one's own and by one with each neighbour; see `Retry.answer`."""
        asked = self.require_open(request, blinded=blinded)
        place, transcript = self.slots.place(*asked), _transcript(self)
        view, tickets = cohort_view(asked, transcript), {}
        own_self, own_private = _own_seed(self, place)
        length = len(vector.values)
        values = vector.values + self_mask(own_self, self.run_id, self.node_id, asked, transcript, length)
        held, private = dict(self.held), load_private_key(own_private)
        for peer in self.neighbours:
            if peer in self.cohort.keys:
                public = _public_key(self, held[peer], place)
                pair = agree_pair_key(private, public, self.run_id, self.node_id, peer)
                values += pair_mask(pair, self.node_id, peer, asked, transcript, length)
                tickets[peer] = ticket(_agreement_key(held[peer]), self.node_id, peer, view)
        if blinded and self.own_group_key:
            values += _blind_stream(self, self.node_id, self.own_group_key, asked, transcript, length)
        tag = self.tag(*asked, state_digest)
        reply = SumReply(*asked, MaskedVector(values), tag, tickets)
        return changed(self, phase=Phase.MASKED, transcript=transcript), reply

    def unmask(self, request: UnmaskRequest) -> tuple[Recover, UnmaskReply]:
        """Give one share for each neighbour, of what its fate asks for.

        Raises `ProtocolError` if it is not due, or the survivors are too few, not of the cohort, or without this
        client.
        """
        asked = (request.round_index, request.attempt)
        if self.phase is not Phase.MASKED or asked != (self.round_index, self.attempt):
            raise ProtocolError(
                f"shares were asked for round {asked[0]}, attempt {asked[1]}, but this client is {self.phase.value} "
                f"with round {self.round_index}, attempt {self.attempt} last: the request is replayed, late or out of "
                "order."
            )
        survivors = request.survivors
        _require_members(self, survivors, self.cohort.keys, "survivors")
        authors = set(self.sharers.authors(self.max_silent)) & set(survivors)
        if self.authored and len(authors) < LEAST_AUTHORS:
            raise ProtocolError(
                f"{len(authors)} key author(s) survived, but {LEAST_AUTHORS} are needed to hide the sum from the "
                "server: start a new run."
            )
        return changed(self, phase=Phase.UNMASKED, survivors=survivors), UnmaskReply(*asked, _give(self, survivors))

    def finish(self, request: FinishRequest) -> Recover:
        """Check the last message; see `admit`."""
        release = request.release
        unmasked = (self.round_index, self.attempt)
        if self.phase is not Phase.UNMASKED or (release.round_index, release.attempt) != unmasked:
            raise ProtocolError(
                f"the last release is of round {release.round_index}, attempt {release.attempt}, but this client "
                f"unmasked round {self.round_index}, attempt {self.attempt}: it is late, replayed or of another run."
            )
        if request.boxes:
            raise ProtocolError("sealed keys came although none are due: they are replayed or of another run.")
        return changed(self, phase=Phase.FINISHED)

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Subtract the surviving authors' streams from a release; see `Retry.unblind`."""
        values = release.values.copy()
        if blinded:
            if not self.group_keys or not self.transcript or release.attempt != self.attempt:
                raise ProtocolError(
                    f"the release of round {release.round_index}, attempt {release.attempt} is blinded, but its group "
                    "keys are not at hand: restart the run."
                )
            asked, alive = (release.round_index, release.attempt), set(self.survivors)
            for author, key in self.group_keys:
                if author in alive:
                    values -= _blind_stream(self, author, key, asked, self.transcript, len(values))
        return AggregateVector(values, blinded=False)

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag the clustering state and the survivors that it comes from, under the key that only clients share."""
        if not self.tag_key:
            return b""
        covered = digest("survivors and state", survivors_digest(self.survivors), state_digest)
        return keyed_tag(self.tag_key, self.run_id, round_index, attempt, covered)


def least_survivors(n_sharers: int, max_silent: int, min_cohort: int) -> int:
    """Smallest number of clients whose sum may be opened."""
    return max(2, min_cohort, n_sharers - max_silent)


def _require_admissible(state: Recover, request: SumRequest, first_round: int) -> None:
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


def _cohort(state: Recover, request: SumRequest) -> Roster:
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


def _require_members(state: Recover, nodes: tuple[int, ...], before: Collection[int], what: str) -> None:
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


def _take_boxes(state: Recover, request: SumRequest) -> Recover:
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
    return changed(state, held=tuple(sorted(held)), group_keys=ordered, tag_key=tag_key)


def _run_keys(state: Recover, peers: Iterable[int]) -> dict[int, bytes]:
    """Keys of the run, agreed with `peers`, under which boxes are sealed."""
    own, keys = load_private_key(state.private_key), state.sharers.keys
    return {
        peer: agree_pair_key(own, keys[peer], state.run_id, state.node_id, peer)
        for peer in peers
        if peer != state.node_id
    }


def _own_seeds(state: Recover) -> tuple[list[bytes], list[bytes]]:
    """Seeds of the own self masks and private keys, for every aggregation."""
    masters = state.masters[:KEY_BYTES], state.masters[KEY_BYTES:]
    selves = state.slots.seeds(masters[0], "self seed", state.run_id, state.node_id)
    return selves, state.slots.seeds(masters[1], "private key", state.run_id, state.node_id)


def _own_seed(state: Recover, place: int) -> tuple[bytes, bytes]:
    """The same for one aggregation."""
    selves, privates = state.masters[:KEY_BYTES], state.masters[KEY_BYTES:]
    own_self = state.slots.seed(selves, "self seed", state.run_id, state.node_id, place)
    return own_self, state.slots.seed(privates, "private key", state.run_id, state.node_id, place)


def _give(state: Recover, survivors: tuple[int, ...]) -> dict[int, bytes]:
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


def _public_key(state: Recover, held: bytes, place: int) -> bytes:
    """A neighbour's public key for one aggregation, from its box: the server cannot have changed it."""
    return piece(held, 2 * state.slots.number + place)


def _transcript(state: Recover) -> bytes:
    """See `transcript_of`."""
    return transcript_of(state.plan_digest, state.cohort)


def _blind_stream(
    state: Recover, author: int, group_key: bytes, asked: tuple[int, int], transcript: bytes, length: int
) -> Ring:
    """One author's blinding stream of one aggregation."""
    return np.asarray(stream(derive_key(group_key, "blind", state.run_id, author, *asked, transcript), length))


def _seal(state: Recover, pair_key: bytes, purpose: str, recipient: int, secret: bytes) -> bytes:
    """Seal something for one node."""
    context = digest(purpose, state.run_id, state.node_id, recipient, state.sharers.digest)
    return seal(derive_key(pair_key, purpose, context), secret, context)


def _open(state: Recover, pair_key: bytes, purpose: str, author: int, box: bytes, length: int) -> bytes:
    """Open what one node sealed."""
    context = digest(purpose, state.run_id, author, state.node_id, state.sharers.digest)
    secret = unseal(derive_key(pair_key, purpose, context), box, context)
    if len(secret) != length:
        raise ProtocolError(f"node {author} sealed {len(secret)} bytes instead of {length}: restart the run.")
    return secret
