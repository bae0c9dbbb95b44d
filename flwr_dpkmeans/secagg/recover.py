"""A client of sums that are recovered from dropouts.

======================  ============================  ==============================
state                   event                         next state
======================  ============================  ==============================
`KEYED`                 `ShareRequest`                `SHARED`; keys of all
                                                      aggregations shared
`SHARED`                first `SumRequest`,           `ADMITTED`; neighbours' shares
                        attempt 0                     taken in
`UNMASKED` at (r, a)    `SumRequest` (r + 1, a)       `ADMITTED` at (r + 1, a);
                                                      opens release (r, a)
`MASKED`, `UNMASKED`    `SumRequest` (r, a' > a)      `ADMITTED` at (r, a'); smaller
                                                      cohort, no release
`ADMITTED` at (r, a)    own vector                    `MASKED` at (r, a)
`MASKED` at (r, a)      `UnmaskRequest` (r, a)        `UNMASKED` at (r, a), with the
                                                      survivors
`UNMASKED` at (r, a)    `FinishRequest` (r, a)        `FINISHED`; opens release
                                                      (r, a)
anything                `StopRequest`                 `FINISHED`
anything else                                         `ProtocolError`, and the state
                                                      stays as it was
======================  ============================  ==============================

A client thus gives shares once for each (round, attempt), of the self mask *or* of the
pairwise key of each neighbour, and only if it is among the survivors itself. The cohort
of a round is part of those that survived the one before. What it gives is locked, and
opens only where others were told the same; see `secagg.agreement`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from flwr_dpkmeans.errors import IdentityError, ProtocolError
from flwr_dpkmeans.secagg import agreement, graph, keys, messages, shamir
from flwr_dpkmeans.secagg.blinding import Keys
from flwr_dpkmeans.secagg.credentials import verify
from flwr_dpkmeans.secagg.keys import KEY_BYTES, piece
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import FEWEST_AUTHORS, NodeIds, Roster
from flwr_dpkmeans.secagg.slots import SlotKeys, Slots


@dataclass(frozen=True)
class Recover(Party):
    """A client of a run whose sums are recovered; see `Party`."""

    slots: Slots = field(kw_only=True)
    """Aggregations that it has keys for."""
    masters: bytes = field(repr=False, default=b"")
    """Two 32-byte secrets, from which the own keys of all aggregations follow.

    Drawn when these are shared.
    """
    setup: Roster | None = None
    """Everybody that shared keys: graph and authors follow from it.

    `roster` is the cohort of the last request.
    """
    survivors: NodeIds = ()
    """Of the last aggregation that was unmasked."""
    pair_keys: Keys = field(default=(), repr=False)
    """Keys of the run agreed with each neighbour, until their boxes are opened."""
    held_shares: Keys = field(default=(), repr=False)
    """By neighbour, what it gave this client of its keys, end to end.

    Shares of all self-mask seeds, then of all private keys, in the order of `slots`.
    """
    peer_keys: Keys = ()
    """By neighbour, its public keys, end to end, in the order of `slots`."""
    ticket_keys: Keys = field(default=(), repr=False)
    """By neighbour, the key of the tickets that both exchange."""

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
        """Everybody that shared keys; a `ProtocolError` before the exchange."""
        if self.setup is None:
            raise ProtocolError("no keys were shared in this run: restart it.")
        return self.setup

    @property
    def graph(self) -> graph.RecoveryGraph:
        """Size of the neighbourhoods."""
        n_sharers = len(self.sharers.members)
        return graph.recovery_graph(n_sharers, self.max_silent)

    @property
    def threshold(self) -> int:
        """See `Party.threshold`."""
        return self.graph.threshold

    @property
    def neighbours(self) -> NodeIds:
        """Nodes that hold this client's shares and mask with it."""
        return self.sharers.circle(self.node_id, self.graph.degree)

    @property
    def present_neighbours(self) -> list[int]:
        """Neighbours that are in the cohort in force."""
        present = self.cohort.keys
        return [peer for peer in self.neighbours if peer in present]

    @property
    def least(self) -> int:
        """Smallest cohort and number of survivors: no more than t may be gone."""
        n_sharers = len(self.sharers.members)
        return graph.least_survivors(n_sharers, self.max_silent, self.min_cohort)

    def slot_keys(self, index: int) -> SlotKeys:
        """Derive the keys of one aggregation, which say nothing about the masters."""
        self_master = self.masters[:KEY_BYTES]
        private_master = self.masters[KEY_BYTES:]
        scope = (self.run_id, self.node_id, index)
        return SlotKeys(
            self_seed=keys.derive_key(self_master, "self seed", *scope),
            private_key=keys.derive_key(private_master, "private key", *scope),
        )

    def with_plan(
        self,
        plan_digest: bytes,
        last_round: int,
    ) -> Recover:
        """See `Party.with_plan`; more rounds than have keys are a `ProtocolError`."""
        if last_round > self.slots.last_round:
            raise ProtocolError(
                f"the final plan has {last_round} rounds, but keys were shared for"
                f" {self.slots.last_round}: give max_iter or n_examples."
            )
        return super().with_plan(plan_digest, last_round)

    # -- key shares, once a run

    def share(
        self, request: messages.ShareRequest
    ) -> tuple[Recover, messages.ShareReply]:
        """Make the keys of all aggregations and share them among the neighbours."""
        roster = request.roster
        if self.phase is not Phase.KEYED:
            # Against shares of one key among two neighbourhoods, which together have
            # more than the threshold.
            raise ProtocolError(
                "key shares were asked for twice in one run: the request is replayed"
                " and refused."
            )
        self._require_own_place(roster, attempt=0)
        # Other ones each time: an older state, asked again, would share the same keys
        # among two neighbourhoods.
        masters = os.urandom(2 * KEY_BYTES)
        entered = changed(
            self,
            masters=masters,
            setup=roster,
            own_group_key=self._fresh_group_key(roster),
            phase=Phase.SHARED,
        )
        return entered._shared_out()

    def _shared_out(self) -> tuple[Recover, messages.ShareReply]:
        """Seal shares of all keys for the neighbours, and a group key for everybody."""
        neighbours = self.neighbours
        peers = neighbours
        if self.own_group_key:
            # Everybody else, the neighbours among them.
            peers = self.sharers.others_than(self.node_id)
        pair_keys = self._agreed_keys(self.sharers, peers, {})

        slot_keys = [self.slot_keys(index) for index in range(self.slots.number)]
        seeds = [slot.self_seed for slot in slot_keys]
        private_keys = [slot.private_key for slot in slot_keys]
        public_keys = [keys.public_key_of(key) for key in private_keys]
        commitments = [keys.digest("self mask", seed) for seed in seeds]

        secrets = b"".join(seeds + private_keys)
        shares = shamir.share(secrets, len(neighbours), self.threshold)
        boxes = {}
        for peer, peer_share in zip(neighbours, shares, strict=True):
            content = peer_share + b"".join(public_keys)
            boxes[peer] = self._seal(pair_keys[peer], "shares", peer, content)
        group_boxes = {}
        if self.own_group_key:
            for peer in peers:
                pair_key = pair_keys[peer]
                group_boxes[peer] = self._seal(
                    pair_key, "box", peer, self.own_group_key
                )

        reply = messages.ShareReply(
            public_keys=b"".join(public_keys),
            commitments=b"".join(commitments),
            boxes=boxes,
            group_boxes=group_boxes,
        )
        of_neighbours = [(peer, pair_keys[peer]) for peer in neighbours]
        return changed(self, pair_keys=tuple(of_neighbours)), reply

    # -- one vector

    def admit(
        self,
        request: messages.SumRequest,
        first_round: int,
        closing_round: int = 0,
    ) -> Recover:
        """See `Party.admit`."""
        self._require_admissible(request, first_round, closing_round)
        self.slots.index(*request.attempt_id)
        if request.roster is not None:
            # Against other neighbours than those that hold the shares.
            raise ProtocolError(
                "a roster came although keys are shared already: use the same version"
                " everywhere."
            )
        entered = changed(self, roster=self._cohort_of(request))
        if self.phase is Phase.SHARED:
            entered = entered._with_first_boxes(request)
        else:
            entered.with_boxes({**request.boxes, **request.group_boxes})
        return changed(
            entered,
            phase=Phase.ADMITTED,
            round_index=request.round_index,
            attempt=request.attempt,
        )

    def _cohort_of(self, request: messages.SumRequest) -> Roster:
        """Check whom a request names, and look their keys up."""
        nodes = request.cohort
        before: Collection[int]
        if self.phase is Phase.SHARED:
            before = self.sharers.keys
        elif request.round_index != self.round_index:
            before = self.survivors
        else:
            before = self.cohort.keys
            if len(nodes) >= len(before):
                # Against two vectors of one round under the same cohort's masks.
                raise ProtocolError(
                    "a later attempt's cohort is not smaller than the one before: stop"
                    " the run."
                )
        self._require_members(nodes, before, "cohort")
        return agreement.cohort_of(self.sharers, request.attempt, nodes)

    def _require_members(
        self,
        nodes: NodeIds,
        before: Collection[int],
        what: str,
    ) -> None:
        """Raise unless nodes are in order, were there before, and are enough.

        This client must be one of them.
        """
        is_ascending = all(first < second for first, second in pairwise(nodes))
        if not is_ascending or not set(nodes) <= set(before):
            # Against a client whose key was given away, and who now masks with it
            # again.
            raise ProtocolError(
                f"the {what} has a node twice, out of order, or one that had left: stop"
                " the run."
            )
        if self.node_id not in nodes:
            # Against a client that helps to open its own pairwise key.
            raise ProtocolError(
                f"node {self.node_id} is not in the {what}: it was given up and is not"
                " to answer."
            )
        if len(nodes) < self.least:
            # Against a sum of few, with less noise than was priced.
            raise ProtocolError(
                f"the {what} has {len(nodes)} clients, but at least {self.least} of"
                f" {len(self.sharers.members)} are needed: start a new run, or raise"
                " max_silent."
            )

    def _authors_among(
        self,
        nodes: Container[int],
        what: str,
    ) -> list[int]:
        """Return the nodes that author streams, if the run has any.

        Too few of them are a `ProtocolError`.
        """
        if not self.authored:
            return []
        all_authors = self.sharers.authors(self.max_silent)
        authors = [author for author in all_authors if author in nodes]
        if len(authors) < FEWEST_AUTHORS:
            # Against a sum that one author's stream alone hides.
            raise ProtocolError(
                f"{len(authors)} key author(s) {what}, but {FEWEST_AUTHORS}"
                " are needed to hide the sum from the server: start a new run."
            )
        return authors

    def _with_first_boxes(self, request: messages.SumRequest) -> Recover:
        """Open the neighbours' shares and the authors' group keys."""
        givers = self.present_neighbours
        authors = set(self._authors_among(self.cohort.keys, "shared keys"))
        other_authors = sorted(authors - {self.node_id})
        are_shares_due = sorted(request.boxes) == givers
        are_group_keys_due = sorted(request.group_boxes) == other_authors
        if not (are_shares_due and are_group_keys_due):
            # Against shares that are missing once they are needed, and keys of somebody
            # who is no author.
            raise ProtocolError(
                f"shares came from {len(request.boxes)} and group keys from"
                f" {len(request.group_boxes)} nodes, but {len(givers)} and"
                f" {len(other_authors)} were due: restart the run."
            )
        pair_keys = self._agreed_keys(self.sharers, other_authors, dict(self.pair_keys))
        opened = self._with_shares(request.boxes, pair_keys)
        group_keys = {}
        for author in other_authors:
            box = request.group_boxes[author]
            pair_key = pair_keys[author]
            group_keys[author] = self._open(pair_key, "box", author, box, KEY_BYTES)
        return opened._with_group_keys(group_keys, self.sharers)

    def _with_shares(
        self,
        boxes: Mapping[int, bytes],
        pair_keys: Mapping[int, bytes],
    ) -> Recover:
        """Open the neighbours' boxes: shares of their keys, and their public keys."""
        n_public_bytes = KEY_BYTES * self.slots.number
        # Of a self-mask seed and of a private key for each aggregation.
        n_share_bytes = 2 * n_public_bytes
        n_bytes = n_share_bytes + n_public_bytes
        held_shares = []
        peer_keys = []
        ticket_keys = []
        for peer in self.present_neighbours:
            pair_key = pair_keys[peer]
            content = self._open(pair_key, "shares", peer, boxes[peer], n_bytes)
            held_shares.append((peer, content[:n_share_bytes]))
            peer_keys.append((peer, content[n_share_bytes:]))
            ticket_keys.append((peer, keys.derive_key(pair_key, "agreement")))
        return changed(
            self,
            pair_keys=(),
            held_shares=tuple(held_shares),
            peer_keys=tuple(peer_keys),
            ticket_keys=tuple(ticket_keys),
        )

    def _add_masks(
        self,
        values: Ring,
        transcript: bytes,
    ) -> tuple[Recover, dict[int, bytes]]:
        """Add a mask of one's own and one with each neighbour.

        Return a ticket for each neighbour as well.
        """
        length = len(values)
        index = self.slots.index(*self.attempt_id)
        slot = self.slot_keys(index)
        values += agreement.self_mask(
            slot.self_seed,
            self.run_id,
            self.node_id,
            self.attempt_id,
            transcript,
            length,
        )
        peers = self.present_neighbours
        # Public keys come from the neighbours' boxes: the server cannot have changed
        # them.
        peer_keys = dict(self.peer_keys)
        public_keys = {peer: piece(peer_keys[peer], index) for peer in peers}
        pair_keys = keys.agree_pair_keys(
            slot.private_key, public_keys, self.run_id, self.node_id
        )
        for peer, pair_key in pair_keys.items():
            values += agreement.pair_mask(
                pair_key,
                self.node_id,
                peer,
                self.attempt_id,
                transcript,
                length,
            )
        view = agreement.cohort_view(self.attempt_id, transcript)
        ticket_keys = dict(self.ticket_keys)
        tickets = {}
        for peer in peers:
            tickets[peer] = self._ticket_to(peer, ticket_keys[peer], view)
        return self, tickets

    def _ticket_to(self, peer: int, key: bytes, view: bytes) -> bytes:
        """Make the ticket of a view that a neighbour counts on."""
        return agreement.ticket(key, self.node_id, peer, view)

    def _ticket_from(self, peer: int, key: bytes, view: bytes) -> bytes:
        """Make the ticket that a neighbour gives if it was told the same."""
        return agreement.ticket(key, peer, self.node_id, view)

    # -- shares that take masks away

    def unmask(
        self, request: messages.UnmaskRequest
    ) -> tuple[Recover, messages.UnmaskReply]:
        """Give one share for each neighbour, of what its fate asks for."""
        if self.phase is not Phase.MASKED or request.attempt_id != self.attempt_id:
            # Against shares of both keys of one neighbour, which was called a survivor
            # once and gone the other time.
            raise ProtocolError(
                f"shares were asked for round {request.round_index}, attempt"
                f" {request.attempt}, but this"
                f" client is {self.phase.value} with round {self.round_index}, attempt"
                f" {self.attempt} last: the request is replayed, late or out of order."
            )
        survivors = request.survivors
        self._require_members(survivors, self.cohort.keys, "survivors")
        self._authors_among(survivors, "survived")
        shares = self._locked_shares(survivors)
        reply = messages.UnmaskReply(*request.attempt_id, shares)
        return changed(self, phase=Phase.UNMASKED, survivors=survivors), reply

    def _locked_shares(self, survivors: NodeIds) -> dict[int, bytes]:
        """Lock one share for each neighbour in the cohort; see `secagg.agreement`."""
        view = agreement.survivors_view(self.attempt_id, self.transcript, survivors)
        held_shares = dict(self.held_shares)
        ticket_keys = dict(self.ticket_keys)
        neighbours = self.neighbours
        opening = os.urandom(KEY_BYTES)
        opening_shares = shamir.share(opening, len(neighbours), self.threshold)
        locked_shares = {}
        for peer, opening_share in zip(neighbours, opening_shares, strict=True):
            if peer not in self.cohort.keys:
                continue
            key = ticket_keys[peer]
            if peer in survivors:
                due = self._padded_seed_share(peer, held_shares[peer], key)
            else:
                due = self._private_key_share(held_shares[peer])
            locked = agreement.combine(due, agreement.lock(opening, peer))
            ticket = self._ticket_to(peer, key, view)
            peer_ticket = self._ticket_from(peer, key, view)
            padded = agreement.combine(opening_share, peer_ticket)
            locked_shares[peer] = locked + ticket + padded
        return locked_shares

    def _padded_seed_share(self, peer: int, shares: bytes, ticket_key: bytes) -> bytes:
        """Look up the share of a survivor's self-mask seed.

        The ticket that the survivor gave for its cohort takes the pad away.
        """
        index = self.slots.index(*self.attempt_id)
        view = agreement.cohort_view(self.attempt_id, self.transcript)
        pad = self._ticket_from(peer, ticket_key, view)
        return agreement.combine(piece(shares, index), pad)

    def _private_key_share(self, shares: bytes) -> bytes:
        """Look up the share of a private key, behind those of all self-mask seeds."""
        index = self.slots.index(*self.attempt_id)
        return piece(shares, self.slots.number + index)

    def require_confirmed(
        self,
        identities: Mapping[int, bytes],
        confirmations: Mapping[int, bytes],
    ) -> None:
        """Refuse to go on unless enough neighbours signed the same survivors.

        Shares given to a server that told others of different ones do not open anyway;
        signatures stop it at once.

        Parameters
        ----------
        identities : mapping of int to bytes
            Ed25519 public keys of the neighbours that have identities.
        confirmations : mapping of int to bytes
            Their signatures, as the server relays them.
        """
        if self.phase is not Phase.UNMASKED:
            return
        named = agreement.survivors_digest(self.survivors)
        for node, signature in confirmations.items():
            signed = (self.run_id, node, self.round_index, self.attempt, named)
            identity = identities.get(node, b"")
            if not verify(identity, signature, "survivors", *signed):
                # Against a server that says two things, or repeats what was signed
                # elsewhere.
                raise IdentityError(
                    f"node {node} did not sign the survivors of round"
                    f" {self.round_index} that this client was told of: the server"
                    " shows clients different survivors, or relays signatures of"
                    " another run; stop the run."
                )
        if len(confirmations) < self.threshold:
            # Against one that keeps the signatures back which would show it.
            raise IdentityError(
                f"{len(confirmations)} neighbours signed the survivors of round"
                f" {self.round_index}, but {self.threshold} are needed: give"
                " every node an 'identity', and check the server."
            )

    # -- the release

    def _blinding_keys(self) -> Keys:
        """Leave out authors that fell silent: their streams are not in the sum."""
        survivors = frozenset(self.survivors)
        return tuple(
            [(node, key) for node, key in self.group_keys if node in survivors]
        )

    def tag(
        self,
        round_index: int,
        attempt: int,
        state_digest: bytes,
    ) -> bytes:
        """Tag the clustering state and the survivors that it comes from."""
        covered = keys.digest(
            "survivors and state",
            agreement.survivors_digest(self.survivors),
            state_digest,
        )
        return super().tag(round_index, attempt, covered)
