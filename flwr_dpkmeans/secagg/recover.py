"""Sums that are recovered from dropouts.

a client as pure transitions on a frozen state, a session.

======================  ==================================
===================================================== state                   event
next state
======================  ==================================
===================================================== `KEYED`
`ShareRequest`                      `SHARED`; keys of all aggregations shared `SHARED`
first `SumRequest`, attempt 0       `ADMITTED`; neighbours' shares taken in `UNMASKED`
at (r, a)    `SumRequest` (r + 1, a)             `ADMITTED` at (r + 1, a); opens release
(r, a) `MASKED`, `UNMASKED`    `SumRequest` (r, a' > a)            `ADMITTED` at (r,
a'); smaller cohort, no release `ADMITTED` at (r, a)    own vector
`MASKED` at (r, a) `MASKED` at (r, a)      `UnmaskRequest` (r, a)
`UNMASKED` at (r, a), with the survivors `UNMASKED` at (r, a)    `FinishRequest` (r, a)
`FINISHED`; opens release (r, a) anything                `StopRequest`
`FINISHED` anything else                                               `ProtocolError`,
and the state stays as it was
======================  ==================================
=====================================================

A client thus gives shares once for each (round, attempt), of the self mask *or* of the
pairwise key of each neighbour, and only if it is among the survivors itself. The cohort
of a round is part of those that survived the one before. What it gives is locked, and
opens only where others were told the same; see `secagg.agreement`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from flwr_dpkmeans.errors import CohortError, IdentityError, ProtocolError
from flwr_dpkmeans.secagg import agreement, keys, messages
from flwr_dpkmeans.secagg.credentials import verify
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.party import (
    TAG_BYTES,
    Keys,
    Party,
    Phase,
    Session,
    changed,
    require_equal_tags,
)
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of

_BOX_OVERHEAD = 28
"""Nonce and authentication tag of a box."""


@dataclass(frozen=True)
class Recover(Party):
    """A client of a run whose sums are recovered; see `Party`."""

    slots: agreement.Slots = field(kw_only=True)
    masters: bytes = field(repr=False, default=b"")
    """Two 32-byte secrets, from which the own keys of all aggregations follow.

    Drawn when these are shared.
    """
    setup: Roster | None = None
    """Everybody that shared keys: graph and authors follow from it.

    `roster` is the cohort of the last request.
    """
    survivors: tuple[int, ...] = ()
    """Of the last aggregation that was unmasked."""
    held: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """The key of the run agreed with each neighbour, and from the first request on,
    behind each other, the shares that it gave this client, its public keys, and the key
    of its tickets.
    """

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
    def graph(self) -> agreement.RecoveryGraph:
        """Size of the neighbourhoods."""
        return agreement.recovery_graph(len(self.sharers.members), self.max_silent)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Nodes that hold this client's shares and mask with it."""
        return self.sharers.circle(self.node_id, self.graph.degree)

    @property
    def least(self) -> int:
        """Smallest cohort and number of survivors: no more than t may be gone."""
        return agreement.least_survivors(
            len(self.sharers.members), self.max_silent, self.min_cohort
        )

    def with_plan(self, plan_digest: bytes, last_round: int) -> Recover:
        if last_round > self.slots.last_round:
            raise ProtocolError(
                f"the final plan has {last_round} rounds, but keys were shared for"
                f" {self.slots.last_round}: give max_iter or n_examples."
            )
        return super().with_plan(plan_digest, last_round)

    def require_confirmed(
        self, identities: Mapping[int, bytes], confirmations: Mapping[int, bytes]
    ) -> None:
        """Refuse to go on unless as many neighbours as it takes were told of the same
        survivors.

        Shares given to a server that told others of different ones do not open anyway;
        signatures stop it at once.
        """
        if self.phase is not Phase.UNMASKED:
            return
        told, asked = (
            agreement.survivors_digest(self.survivors),
            (self.round_index, self.attempt),
        )
        for node, signature in confirmations.items():
            known = identities.get(node)
            if known is None or not verify(
                known, signature, "survivors", self.run_id, node, *asked, told
            ):
                # Against a server that says two things, or repeats what was signed
                # elsewhere.
                raise IdentityError(
                    f"node {node} did not sign the survivors of round"
                    f" {self.round_index} that this client was told of: the server"
                    " shows clients different survivors, or relays signatures of"
                    " another run; stop the run."
                )
        if len(confirmations) < self.graph.threshold:
            # Against one that keeps the signatures back which would show it.
            raise IdentityError(
                f"{len(confirmations)} neighbours signed the survivors of round"
                f" {self.round_index}, but {self.graph.threshold} are needed: give"
                " every node an 'identity', and check the server."
            )

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
        group_key = self._fresh_group_key(roster)
        # Other ones each time: an older state, asked again, would share the same keys
        # among two neighbourhoods.
        masters = self.masters or os.urandom(2 * KEY_BYTES)
        state = changed(
            self,
            masters=masters,
            setup=roster,
            own_group_key=group_key,
            phase=Phase.SHARED,
        )
        neighbours = state.neighbours
        others = (
            [peer for peer in roster.node_ids if peer != self.node_id]
            if group_key
            else []
        )
        pairs = self._agreed_keys(roster, others or neighbours, {})
        selves, privates = _own_seeds(state)
        public_keys = b"".join([keys.public_key_of(key) for key in privates])
        parts = agreement.share(
            b"".join(selves + privates), len(neighbours), state.graph.threshold
        )
        boxes = {
            peer: state._seal(pairs[peer], "shares", peer, part + public_keys)
            for peer, part in zip(neighbours, parts, strict=True)
        }
        group_boxes = {
            peer: state._seal(pairs[peer], "box", peer, group_key) for peer in others
        }
        commitments = b"".join([keys.digest("self mask", seed) for seed in selves])
        held = tuple([(peer, pairs[peer]) for peer in neighbours])
        return changed(state, held=held), messages.ShareReply(
            public_keys, commitments, boxes, group_boxes
        )

    def admit(
        self, request: messages.SumRequest, first_round: int, closing_round: int = 0
    ) -> Recover:
        self._require_admissible(request, first_round, closing_round)
        self.slots.place(*request.attempt_id)
        if request.roster is not None:
            # Against other neighbours than those that hold the shares.
            raise ProtocolError(
                "a roster came although keys are shared already: use the same version"
                " everywhere."
            )
        entered = changed(self, roster=self._cohort(request))
        if self.phase is Phase.SHARED:
            entered = entered._with_first_boxes(request)
        else:
            entered._with_boxes({**request.boxes, **request.group_boxes})
        return changed(
            entered,
            phase=Phase.ADMITTED,
            round_index=request.round_index,
            attempt=request.attempt,
        )

    def _cohort(self, request: messages.SumRequest) -> Roster:
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
                raise ProtocolError(
                    "a later attempt's cohort is not smaller than the one before: stop"
                    " the run."
                )
        self._require_members(nodes, before, "cohort")
        return agreement.cohort_of(self.sharers, request.attempt, nodes)

    def _require_members(
        self, nodes: tuple[int, ...], before: Collection[int], what: str
    ) -> None:
        """Raise unless the nodes are in order, with this client, enough, and part of
        those before.
        """
        if any(a >= b for a, b in pairwise(nodes)) or any(
            node not in before for node in nodes
        ):
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

    def _required_authors(self, nodes: Container[int], what: str) -> list[int]:
        """Those of the nodes that author the streams, if the run has any."""
        authors = [
            node
            for node in self.sharers.authors(self.max_silent)
            if self.authored and node in nodes
        ]
        if self.authored and len(authors) < agreement.LEAST_AUTHORS:
            # Against a sum that one author's stream alone hides.
            raise ProtocolError(
                f"{len(authors)} key author(s) {what}, but {agreement.LEAST_AUTHORS}"
                " are needed to hide the sum from the server: start a new run."
            )
        return authors

    def _with_first_boxes(self, request: messages.SumRequest) -> Recover:
        """Open the shares that neighbours gave this client, and the authors' group
        keys.
        """
        present = self.cohort.keys
        givers = [peer for peer in self.neighbours if peer in present]
        authors = self._required_authors(present, "shared keys")
        others = sorted(author for author in authors if author != self.node_id)
        if sorted(request.boxes) != givers or sorted(request.group_boxes) != others:
            # Against shares that are missing once they are needed, and keys of somebody
            # who is no author.
            raise ProtocolError(
                f"shares came from {len(request.boxes)} and group keys from"
                f" {len(request.group_boxes)} nodes, but {len(givers)} and"
                f" {len(others)} were due: restart the run."
            )
        pairs = self._agreed_keys(self.sharers, others, dict(self.held))
        length = 3 * KEY_BYTES * self.slots.number
        held = []
        for peer in givers:
            opened = self._open(
                pairs[peer], "shares", peer, request.boxes[peer], length
            )
            held.append((peer, opened + keys.derive_key(pairs[peer], "agreement")))
        by_node = {
            node: self._open(
                pairs[node], "box", node, request.group_boxes[node], KEY_BYTES
            )
            for node in others
        }
        return changed(self, held=tuple(held))._with_group_keys(by_node, self.sharers)

    def _add_masks(
        self, values: Ring, transcript: bytes
    ) -> tuple[Recover, dict[int, bytes]]:
        """Add a mask of one's own and one with each neighbour, and return a ticket for
        each.
        """
        asked, length = (self.round_index, self.attempt), len(values)
        place, view = self.slots.place(*asked), agreement.cohort_view(asked, transcript)
        own_self, own_private = _own_seed(self, place)
        values += agreement.self_mask(
            own_self, self.run_id, self.node_id, asked, transcript, length
        )
        held, present = dict(self.held), self.cohort.keys
        peers = [peer for peer in self.neighbours if peer in present]
        # Public keys come from the neighbours' boxes: the server cannot have changed
        # them.
        publics = {
            peer: agreement.piece(held[peer], 2 * self.slots.number + place)
            for peer in peers
        }
        for peer, pair in keys.agree_pair_keys(
            own_private, publics, self.run_id, self.node_id
        ).items():
            values += agreement.pair_mask(
                pair, self.node_id, peer, asked, transcript, length
            )
        return self, {
            peer: agreement.ticket(held[peer][-KEY_BYTES:], self.node_id, peer, view)
            for peer in peers
        }

    def unmask(
        self, request: messages.UnmaskRequest
    ) -> tuple[Recover, messages.UnmaskReply]:
        """Give one share for each neighbour, of what its fate asks for."""
        asked = request.attempt_id
        if self.phase is not Phase.MASKED or asked != (self.round_index, self.attempt):
            # Against shares of both keys of one neighbour, which was called a survivor
            # once and gone the other time.
            raise ProtocolError(
                f"shares were asked for round {asked[0]}, attempt {asked[1]}, but this"
                f" client is {self.phase.value} with round {self.round_index}, attempt"
                f" {self.attempt} last: the request is replayed, late or out of order."
            )
        survivors = request.survivors
        self._require_members(survivors, self.cohort.keys, "survivors")
        self._required_authors(survivors, "survived")
        reply = messages.UnmaskReply(*asked, _give(self, survivors))
        return changed(self, phase=Phase.UNMASKED, survivors=survivors), reply

    def _blinding_keys(self) -> Keys:
        """Streams of authors that fell silent are not in the sum."""
        alive = set(self.survivors)
        return tuple(
            [(author, key) for author, key in self.group_keys if author in alive]
        )

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """Tag the clustering state and the survivors that it comes from, under the key
        that only clients share.
        """
        covered = keys.digest(
            "survivors and state",
            agreement.survivors_digest(self.survivors),
            state_digest,
        )
        return super().tag(round_index, attempt, covered)


def _own_seed(state: Recover, place: int) -> tuple[bytes, bytes]:
    """Own self mask's seed, and private key, of one aggregation.

    They say nothing about the masters or each other.
    """
    selves, privates = state.masters[:KEY_BYTES], state.masters[KEY_BYTES:]
    bound = (state.run_id, state.node_id, place)
    return keys.derive_key(selves, "self seed", *bound), keys.derive_key(
        privates, "private key", *bound
    )


def _own_seeds(state: Recover) -> tuple[list[bytes], list[bytes]]:
    seeds = [_own_seed(state, place) for place in range(state.slots.number)]
    return [own_self for own_self, _ in seeds], [private for _, private in seeds]


def _give(state: Recover, survivors: tuple[int, ...]) -> dict[int, bytes]:
    """What `unmask` sends for each neighbour in the cohort; see `secagg.agreement`."""
    asked, node, alive = (
        (state.round_index, state.attempt),
        state.node_id,
        set(survivors),
    )
    place, held = state.slots.place(*asked), dict(state.held)
    cohort = agreement.cohort_view(asked, state.transcript)
    told = agreement.survivors_view(asked, state.transcript, survivors)
    opening = os.urandom(KEY_BYTES)
    parts = agreement.share(opening, len(state.neighbours), state.graph.threshold)
    given = {}
    for peer, part in zip(state.neighbours, parts, strict=True):
        if peer not in state.cohort.keys:
            continue
        key = held[peer][-KEY_BYTES:]  # of the tickets: behind what came in the box
        # Shares of all self masks come first in a box, then those of all pairwise keys.
        if peer in alive:
            due = agreement.combine(
                agreement.piece(held[peer], place),
                agreement.ticket(key, peer, node, cohort),
            )
        else:
            due = agreement.piece(held[peer], state.slots.number + place)
        locked = agreement.combine(due, agreement.lock(opening, peer))
        padded = agreement.combine(part, agreement.ticket(key, peer, node, told))
        given[peer] = locked + agreement.ticket(key, node, peer, told) + padded
    return given


class RecoverSession(Session):
    """The server's side of sums that are recovered.

    `due` is `SHARE` once, then `SUM` and `UNMASK` in turn.
    """

    sharers: Roster

    def __init__(
        self,
        run_id: int,
        roster: Roster,
        slots: agreement.Slots,
        *,
        min_cohort: int,
        **limits: Any,
    ) -> None:
        n_sharers, max_silent = len(roster.members), limits["max_silent"]
        self._graph = agreement.recovery_graph(n_sharers, max_silent)
        super().__init__(
            roster,
            least=agreement.least_survivors(n_sharers, max_silent, min_cohort),
            **limits,
        )
        self.sharers = roster
        self.due = Stage.SHARE
        self.survivors: tuple[int, ...] = ()
        """Those whose vectors are in the sum; empty while vectors are still awaited."""
        self._run_id, self._slots = run_id, slots
        self._authors = frozenset(roster.authors(max_silent) if self._authored else ())
        self._shared: dict[int, messages.ShareReply] = {}
        self._unmasked: dict[int, messages.UnmaskReply] = {}
        self._signatures: dict[int, bytes] = {}

    @property
    def asked(self) -> tuple[int, ...]:
        """Who is asked next."""
        return self.survivors if self.due is Stage.UNMASK else self.roster.node_ids

    @property
    def n_summed(self) -> int:
        """Clients in the sum."""
        return len(self.survivors)

    def neighbours(self, node_id: int) -> tuple[int, ...]:
        """Nodes that hold one client's shares and mask with it."""
        return self.sharers.circle(node_id, self._graph.degree)

    def request(
        self, node_id: int, release: messages.Release | None, state: bytes
    ) -> messages.ShareRequest | messages.SumRequest | messages.UnmaskRequest:
        """What one client is asked."""
        if self.due is Stage.SHARE:
            return messages.ShareRequest(self.sharers, self._credentials)
        if self.due is Stage.UNMASK:
            return messages.UnmaskRequest(
                self.round_index, self.attempt, self.survivors
            )
        boxes, group_boxes = self.take_boxes(node_id)
        return messages.SumRequest(
            self.round_index,
            self.attempt,
            release=release,
            boxes=boxes,
            state=state,
            cohort=self.roster.node_ids,
            group_boxes=group_boxes,
            confirmations={} if release is None else self._confirmations(node_id),
        )

    def take_boxes(self, node_id: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Shares and group keys sealed for one node, from those that are still there.

        Due with its first request.
        """
        if not self._first:
            return {}, {}
        there = self.roster.keys
        boxes = {
            peer: self._shared[peer].boxes[node_id]
            for peer in self.neighbours(node_id)
            if peer in there
        }
        authors = sorted(
            author for author in self._authors if author in there and author != node_id
        )
        return boxes, {
            author: self._shared[author].group_boxes[node_id] for author in authors
        }

    def finish_request(
        self, node_id: int, release: messages.Release, state: bytes
    ) -> messages.FinishRequest:
        """The last message to one client."""
        return messages.FinishRequest(release, {}, state, self._confirmations(node_id))

    def _confirmations(self, node_id: int) -> dict[int, bytes]:
        neighbours = self.neighbours(node_id)
        return {
            peer: self._signatures[peer]
            for peer in neighbours
            if peer in self._signatures
        }

    def take(self, node_id: int, reply: Any) -> None:
        steps: dict[Stage, Any] = {
            Stage.SHARE: self.receive_shares,
            Stage.UNMASK: self.receive_unmask,
        }
        steps.get(self.due, self.receive)(node_id, reply)

    def receive_shares(self, node_id: int, reply: messages.ShareReply) -> None:
        """Take one client's shared keys in.

        a malformed or second reply is a `ProtocolError`.
        """
        if (
            node_id not in self.sharers.keys
            or node_id in self._shared
            or self.due is not Stage.SHARE
        ):
            # Against keys that are exchanged once others were sealed for them.
            raise ProtocolError(
                f"node {node_id} shared keys unasked or twice: discarded."
            )
        length = KEY_BYTES * self._slots.number
        neighbours = self.neighbours(node_id)
        others = (
            [peer for peer in self.sharers.node_ids if peer != node_id]
            if node_id in self._authors
            else []
        )
        fits = len(reply.public_keys) == len(reply.commitments) == length
        fits = (
            fits
            and sorted(reply.boxes) == list(neighbours)
            and sorted(reply.group_boxes) == others
        )
        fits = fits and all(
            len(box) == 3 * length + _BOX_OVERHEAD for box in reply.boxes.values()
        )
        fits = fits and all(
            len(box) == KEY_BYTES + _BOX_OVERHEAD for box in reply.group_boxes.values()
        )
        if not fits:
            # Against a client whose keys cannot be given back once it is gone.
            raise ProtocolError(
                f"node {node_id} shared {len(reply.boxes)} boxes for {len(neighbours)}"
                " neighbours, or keys of the wrong length: discarded."
            )
        self._shared[node_id] = reply

    def _require_parts(self, node_id: int, reply: messages.SumReply) -> None:
        if len(reply.tag) != TAG_BYTES or not self._fits(
            node_id, reply.boxes, KEY_BYTES
        ):
            raise ProtocolError(
                f"node {node_id} sent a malformed tag, or other tickets than are due:"
                " discarded."
            )

    def receive_unmask(self, node_id: int, reply: messages.UnmaskReply) -> None:
        """Take one survivor's shares in.

        Unasked, second or malformed ones are a `ProtocolError`.
        """
        is_due = self._open and node_id in self.survivors
        if not is_due or reply.attempt_id != (self.round_index, self.attempt):
            # Against shares of another aggregation, which open nothing in this one.
            raise ProtocolError(
                f"node {node_id} sent shares that are not awaited: late or replayed,"
                " and discarded."
            )
        if node_id in self._unmasked:
            raise ProtocolError(
                f"node {node_id} sent its shares twice: the second reply is discarded."
            )
        if not self._fits(node_id, reply.shares, agreement.GIVEN_BYTES):
            raise ProtocolError(
                f"node {node_id} sent {len(reply.shares)} shares, of which some are"
                " malformed or not due: discarded."
            )
        self._unmasked[node_id] = reply

    def _fits(self, node_id: int, parts: Mapping[int, bytes], length: int) -> bool:
        """Whether a client sent so many bytes for each of its neighbours in the cohort,
        and for nobody else.
        """
        due = [peer for peer in self.neighbours(node_id) if peer in self.roster.keys]
        return sorted(parts) == due and all(
            len(part) == length for part in parts.values()
        )

    def open_round(self, round_index: int, length: int) -> None:
        """See `Session.open_round`; too few that gave shares are a `CohortError`."""
        self.require_cohort()
        super().open_round(round_index, length)

    def _reset(self) -> None:
        super()._reset()
        self._unmasked, self.survivors = {}, ()

    def missing(self) -> tuple[int, ...]:
        answered: dict[Stage, Container[int]] = {
            Stage.SHARE: self._shared,
            Stage.SUM: self._tags,
            Stage.UNMASK: self._unmasked,
        }
        return tuple([node for node in self.asked if node not in answered[self.due]])

    def close(
        self, plan_digest: bytes, *, blinded: bool
    ) -> tuple[AggregateVector | None, messages.Silence | None]:
        """Go on with what came: to vectors, to the shares that unmask their sum, to the
        sum, or to a new attempt.
        """
        missing = self.missing()
        if self.due is Stage.SHARE:
            self.close_shares()
            return None, messages.Silence(missing, "shared no keys")
        if self.due is Stage.SUM:
            self.close_vectors()
            return None, messages.Silence(missing, "sent no vector")
        try:
            aggregate = self.recover(plan_digest, blinded=blinded)
        except ProtocolError as error:
            self.retry()
            return None, messages.Silence(missing, None, str(error))
        self._signatures = {
            node: reply.signature
            for node, reply in self._unmasked.items()
            if reply.signature
        }
        return aggregate, messages.Silence(missing, "gave no shares")

    def close_shares(self) -> None:
        """Go on with those that shared keys; too few of them are a `CohortError`."""
        self._require_enough(self._shared, "shared their keys")
        self.due = Stage.SUM
        self.roster = agreement.cohort_of(self.sharers, 0, tuple(sorted(self._shared)))

    def close_vectors(self) -> None:
        """Name those whose vectors arrived the survivors.

        Too few of them are a `CohortError`.
        """
        self._require_enough(self._tags, f"answered round {self.round_index}")
        survivors = tuple(sorted(self._tags))
        if (
            self._authored
            and len(self._authors & set(survivors)) < agreement.LEAST_AUTHORS
        ):
            # Clients would refuse to open a sum that one author's stream alone hides.
            raise CohortError(
                f"fewer than {agreement.LEAST_AUTHORS} key authors answered round"
                f" {self.round_index}, so that the server could read the sum: start a"
                " new run."
            )
        require_equal_tags(self._tags, self.round_index)
        self.survivors, self.due = survivors, Stage.UNMASK
        self._first = False

    def recover(self, plan_digest: bytes, *, blinded: bool) -> AggregateVector:
        """Take the survivors' self masks and the others' pairwise masks away.

        What is left is their exact sum.

        The cohort of the next round is those that gave shares. If they do not give some
        key, `ProtocolError` says so.
        """
        self._require_blinding(blinded=blinded)
        asked, alive = (self.round_index, self.attempt), set(self.survivors)
        place, transcript = (
            self._slots.place(*asked),
            transcript_of(plan_digest, self.roster.digest),
        )
        total = self._total.copy()
        shares = self._unlock()
        for owner in self.roster.node_ids:
            key, shared = self._reconstruct(owner, shares), self._shared[owner]
            if owner in alive:
                proof, committed = keys.digest("self mask", key), shared.commitments
            else:
                proof, committed = keys.public_key_of(key), shared.public_keys
            if proof != agreement.piece(committed, place):
                # Against one wrong share, which would turn the sum into noise that
                # nobody notices.
                raise ProtocolError(
                    f"the shares of a key of node {owner} do not give the key that it"
                    " committed to: somebody sent a wrong share, and another attempt"
                    " is due."
                )
            if owner in alive:
                total -= agreement.self_mask(
                    key, self._run_id, owner, asked, transcript, self._length
                )
                continue
            peers = [peer for peer in self.neighbours(owner) if peer in alive]
            publics = {
                peer: agreement.piece(self._shared[peer].public_keys, place)
                for peer in peers
            }
            for peer, pair in keys.agree_pair_keys(
                key, publics, self._run_id, owner
            ).items():
                total -= agreement.pair_mask(
                    pair, peer, owner, asked, transcript, self._length
                )
        self._open = False
        self.roster = agreement.cohort_of(
            self.sharers, self.attempt, tuple(sorted(self._unmasked))
        )
        return AggregateVector(total, blinded)

    def _unlock(self) -> dict[int, dict[int, bytes]]:
        given = {holder: reply.shares for holder, reply in self._unmasked.items()}
        shares = {}
        for holder in given:
            coordinates = {
                peer: place
                for place, peer in enumerate(self.neighbours(holder), start=1)
                if peer in given
            }
            self._require_threshold(len(coordinates), holder)
            shares[holder] = agreement.unlock(
                holder, given, coordinates, self._graph.threshold
            )
        return shares

    def _reconstruct(
        self, owner: int, shares: Mapping[int, Mapping[int, bytes]]
    ) -> bytes:
        """One client's key from its neighbours' shares.

        Of the self mask or of the pairwise key.
        """
        tickets = self._sealed[owner] if owner in self.survivors else {}
        given = {
            coordinate: agreement.combine(
                shares[holder][owner], tickets.get(holder, b"")
            )
            for coordinate, holder in enumerate(self.neighbours(owner), start=1)
            if holder in shares
        }
        self._require_threshold(len(given), owner)
        return agreement.reconstruct(dict(list(given.items())[: self._graph.threshold]))

    def _require_threshold(self, n_shares: int, owner: int) -> None:
        if n_shares < self._graph.threshold:
            raise ProtocolError(
                f"{n_shares} neighbours of node {owner} gave a share of its key, but"
                f" {self._graph.threshold} are needed: another attempt is due."
            )

    def retry(self) -> None:
        """Open a new attempt of the same round with those that are still there.

        If that cannot be, `CohortError`.
        """
        answered = self._unmasked if self.due is Stage.UNMASK else self._tags
        self._require_enough(answered, f"answered round {self.round_index}")
        if (
            len(answered) >= len(self.roster.members)
            or self.attempt >= self._max_retries
        ):
            raise CohortError(
                f"the sum of round {self.round_index}, attempt {self.attempt} cannot be"
                " recovered from the shares that came, and another attempt needs a"
                f" smaller cohort and one of the plan's {self._max_retries} retries:"
                " start a new run, or raise max_retries."
            )
        self.roster = agreement.cohort_of(
            self.sharers, self.attempt + 1, tuple(sorted(answered))
        )
        self._first = False
        self._reset()

    def require_cohort(self) -> None:
        """Raise `CohortError` if too few gave shares for another round."""
        self._require_enough(self.roster.node_ids, f"unmasked round {self.round_index}")

    def _require_enough(self, nodes: Iterable[int], what: str) -> None:
        left = len(set(nodes))
        if left < self._least:
            gone = sorted(set(self.sharers.node_ids) - set(nodes))
            raise CohortError(
                f"{left} of {len(self.sharers.members)} clients {what}, but at least"
                f" {self._least} are needed (missing: nodes {gone[:20]}): look at their"
                " logs and start a new run, or raise max_silent."
            )
