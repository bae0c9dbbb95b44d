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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, agree_pair_keys, derive_key, digest, public_key_of
from flwr_dpkmeans.secagg.messages import (
    ShareReply,
    ShareRequest,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
    pack_boxes,
    pack_nodes,
    unpack_boxes,
    unpack_nodes,
    unpack_roster,
)
from flwr_dpkmeans.secagg.party import Keys, Party, Phase, changed
from flwr_dpkmeans.secagg.recovery.agreement import (
    LEAST_AUTHORS,
    Slots,
    cohort_of,
    cohort_view,
    combine,
    least_survivors,
    lock,
    pair_mask,
    piece,
    self_mask,
    survivors_digest,
    survivors_view,
    ticket,
)
from flwr_dpkmeans.secagg.recovery.graph import RecoveryGraph, recovery_graph
from flwr_dpkmeans.secagg.recovery.shamir import share
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.signing import verify_survivors


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
    held: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """The key of the run agreed with each neighbour, and from the first request on, behind each other, the shares that
    it gave this client, its public keys, and the key of its tickets.
    """

    _BYTES: ClassVar[tuple[str, ...]] = (*Party._BYTES, "masters")
    _START: ClassVar[Phase] = Phase.SHARED
    _LAST_START: ClassVar[float] = 0
    _ANSWERED: ClassVar[Phase] = Phase.MASKED
    _COMPLETE: ClassVar[Phase] = Phase.UNMASKED

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
        progress, blobs = super().pack()
        progress["slots"] = (self.slots.first_round, self.slots.last_round, self.slots.n_attempts)
        blobs |= {"held": pack_boxes(dict(self.held)), "survivors": pack_nodes(self.survivors)}
        blobs["cohort"] = b"" if self.roster is None else pack_nodes(self.roster.node_ids)
        return progress, blobs

    @classmethod
    def _unpacked(cls, progress: dict[str, Any], blobs: Mapping[str, Any]) -> dict[str, Any]:
        setup = unpack_roster(0, blobs["roster"]) if blobs["roster"] else None
        cohort = unpack_nodes(blobs["cohort"])
        return super()._unpacked(progress, {**blobs, "roster": b""}) | {
            "slots": Slots(*progress["slots"]),
            "setup": setup,
            "roster": cohort_of(setup, progress["attempt"], cohort) if setup is not None and cohort else None,
            "survivors": unpack_nodes(blobs["survivors"]),
            "held": tuple(unpack_boxes(blobs["held"]).items()),
        }

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
            # Against shares of one key among two neighbourhoods, which together have more than the threshold.
            raise ProtocolError("key shares were asked for twice in one run: the request is replayed and refused.")
        self._require_own_place(roster, attempt=0)
        group_key = self._fresh_group_key(roster)
        state = changed(self, setup=roster, own_group_key=group_key, phase=Phase.SHARED)
        neighbours = state.neighbours
        others = [peer for peer in roster.node_ids if peer != self.node_id] if group_key else []
        pairs = self._agreed_keys(roster, others or neighbours, {})
        selves, privates = _own_seeds(state)
        public_keys = b"".join([public_key_of(key) for key in privates])
        parts = share(b"".join(selves + privates), len(neighbours), state.graph.threshold)
        boxes = {
            peer: state._seal(pairs[peer], "shares", peer, part + public_keys)
            for peer, part in zip(neighbours, parts, strict=True)
        }
        group_boxes = {peer: state._seal(pairs[peer], "box", peer, group_key) for peer in others}
        commitments = b"".join([digest("self mask", seed) for seed in selves])
        held = tuple([(peer, pairs[peer]) for peer in neighbours])
        return changed(state, held=held), ShareReply(public_keys, commitments, boxes, group_boxes)

    def admit(self, request: SumRequest, first_round: int) -> Recover:
        """See `Party.admit`."""
        self._require_admissible(request, first_round)
        self.slots.place(*request.asked)
        if request.roster is not None:
            raise ProtocolError("a roster came although keys are shared already: use the same version everywhere.")
        entered = changed(self, roster=self._cohort(request))
        if self.phase is Phase.SHARED:
            entered = entered._with_first_boxes(request)
        else:
            entered._with_boxes({**request.boxes, **request.group_boxes})
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index, attempt=request.attempt)

    def _cohort(self, request: SumRequest) -> Roster:
        """Check whom a request names, and look their keys up."""
        nodes = request.cohort
        before: Collection[int]
        if self.phase is Phase.SHARED:
            before = self.sharers.keys
        elif request.round_index != self.round_index:
            before = set(self.survivors)
        else:
            before = self.cohort.keys
            if len(nodes) >= len(before):
                # Against two vectors of one round under the same cohort's masks.
                raise ProtocolError("a later attempt's cohort is not smaller than the one before: stop the run.")
        self._require_members(nodes, before, "cohort")
        return cohort_of(self.sharers, request.attempt, nodes)

    def _require_members(self, nodes: tuple[int, ...], before: Collection[int], what: str) -> None:
        """Raise unless the nodes are in order, with this client, enough, and part of those before."""
        if any(a >= b for a, b in pairwise(nodes)) or any(node not in before for node in nodes):
            # Against a client whose key was given away, and who now masks with it again.
            raise ProtocolError(
                f"the {what} has a node twice, out of order, or one that had left before: stop the run."
            )
        if self.node_id not in nodes:
            # Against a client that helps to open its own pairwise key.
            raise ProtocolError(f"node {self.node_id} is not in the {what}: it was given up and is not to answer.")
        if len(nodes) < self.least:
            # Against a sum of few, with less noise than was priced.
            raise ProtocolError(
                f"the {what} has {len(nodes)} clients, but at least {self.least} of {len(self.sharers.members)} are "
                "needed: start a new run, or raise max_silent."
            )

    def _with_first_boxes(self, request: SumRequest) -> Recover:
        """Open the shares that neighbours gave this client, and the authors' group keys."""
        present = self.cohort.keys
        givers = [peer for peer in self.neighbours if peer in present]
        authors = [node for node in self.sharers.authors(self.max_silent) if self.authored and node in present]
        others = sorted(author for author in authors if author != self.node_id)
        if sorted(request.boxes) != givers or sorted(request.group_boxes) != others:
            raise ProtocolError(
                f"shares came from {len(request.boxes)} and group keys from {len(request.group_boxes)} nodes, but "
                f"{len(givers)} and {len(others)} were due: restart the run."
            )
        if self.authored and len(authors) < LEAST_AUTHORS:
            # Against one author that knows, or lets the server know, the only stream that hides the sum.
            raise ProtocolError(
                f"{len(authors)} key author(s) shared keys, but {LEAST_AUTHORS} are needed: restart the run."
            )
        pairs = self._agreed_keys(self.sharers, others, dict(self.held))
        length = 3 * KEY_BYTES * self.slots.number
        held = []
        for peer in givers:
            opened = self._open(pairs[peer], "shares", peer, request.boxes[peer], length)
            held.append((peer, opened + derive_key(pairs[peer], "agreement")))
        keys = {
            author: self._open(pairs[author], "box", author, request.group_boxes[author], KEY_BYTES)
            for author in others
        }
        return changed(self, held=tuple(held))._with_group_keys(keys, self.sharers)

    def _add_masks(self, values: Ring, request: SumRequest, transcript: bytes) -> dict[int, bytes]:
        """Add a mask of one's own and one with each neighbour, and return a ticket for each."""
        asked, length = request.asked, len(values)
        place, view = self.slots.place(*asked), cohort_view(asked, transcript)
        own_self, own_private = _own_seed(self, place)
        values += self_mask(own_self, self.run_id, self.node_id, asked, transcript, length)
        held, present = dict(self.held), self.cohort.keys
        peers = [peer for peer in self.neighbours if peer in present]
        # Public keys come from the neighbours' boxes: the server cannot have changed them.
        publics = {peer: piece(held[peer], 2 * self.slots.number + place) for peer in peers}
        for peer, pair in agree_pair_keys(own_private, publics, self.run_id, self.node_id).items():
            values += pair_mask(pair, self.node_id, peer, asked, transcript, length)
        return {peer: ticket(_agreement_key(held[peer]), self.node_id, peer, view) for peer in peers}

    def unmask(self, request: UnmaskRequest) -> tuple[Recover, UnmaskReply]:
        """Give one share for each neighbour, of what its fate asks for.

        Raises `ProtocolError` if it is not due, or the survivors are too few, not of the cohort, or without this
        client.
        """
        asked = request.asked
        if self.phase is not Phase.MASKED or asked != (self.round_index, self.attempt):
            # Against shares of both keys of one neighbour, which was called a survivor once and gone the other time.
            raise ProtocolError(
                f"shares were asked for round {asked[0]}, attempt {asked[1]}, but this client is {self.phase.value} "
                f"with round {self.round_index}, attempt {self.attempt} last: the request is replayed, late or out of "
                "order."
            )
        survivors = request.survivors
        self._require_members(survivors, self.cohort.keys, "survivors")
        authors = set(self.sharers.authors(self.max_silent)) & set(survivors)
        if self.authored and len(authors) < LEAST_AUTHORS:
            raise ProtocolError(
                f"{len(authors)} key author(s) survived, but {LEAST_AUTHORS} are needed to hide the sum from the "
                "server: start a new run."
            )
        return changed(self, phase=Phase.UNMASKED, survivors=survivors), UnmaskReply(*asked, _give(self, survivors))

    def _blinding_keys(self) -> Keys:
        """Streams of authors that fell silent are not in the sum."""
        alive = set(self.survivors)
        return tuple([(author, key) for author, key in self.group_keys if author in alive])

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag the clustering state and the survivors that it comes from, under the key that only clients share."""
        covered = digest("survivors and state", survivors_digest(self.survivors), state_digest)
        return super().tag(round_index, attempt, covered)


def _own_seed(state: Recover, place: int) -> tuple[bytes, bytes]:
    """Seed of the own self mask, and private key, for one aggregation.

    Those that become known say nothing about the masters or each other.
    """
    selves, privates = state.masters[:KEY_BYTES], state.masters[KEY_BYTES:]
    bound = (state.run_id, state.node_id, place)
    return derive_key(selves, "self seed", *bound), derive_key(privates, "private key", *bound)


def _own_seeds(state: Recover) -> tuple[list[bytes], list[bytes]]:
    """The same for every aggregation."""
    seeds = [_own_seed(state, place) for place in range(state.slots.number)]
    return [own_self for own_self, _ in seeds], [private for _, private in seeds]


def _give(state: Recover, survivors: tuple[int, ...]) -> dict[int, bytes]:
    """What `unmask` sends for each neighbour in the cohort; see `secagg.recovery.agreement`."""
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
