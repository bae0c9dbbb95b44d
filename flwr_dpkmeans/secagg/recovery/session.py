"""The server's side of recoverable sums: it adds vectors up and takes away the masks of those that left or stayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from flwr_dpkmeans.errors import CohortError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES, agree_pair_key, digest, public_key_of
from flwr_dpkmeans.secagg.messages import (
    NO_ROUND,
    FinishRequest,
    Release,
    Request,
    ShareReply,
    ShareRequest,
    Silence,
    Stage,
    SumReply,
    SumRequest,
    UnmaskReply,
    UnmaskRequest,
)
from flwr_dpkmeans.secagg.recovery.agreement import GIVEN_BYTES, combine, unlock
from flwr_dpkmeans.secagg.recovery.graph import recovery_graph
from flwr_dpkmeans.secagg.recovery.masks import cohort_of, pair_mask, self_mask
from flwr_dpkmeans.secagg.recovery.recover import LEAST_AUTHORS, least_survivors
from flwr_dpkmeans.secagg.recovery.shamir import reconstruct
from flwr_dpkmeans.secagg.recovery.slots import Slots, piece
from flwr_dpkmeans.secagg.retry import TAG_BYTES, require_equal_tags, require_words
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import Roster, transcript_of

_BOX_OVERHEAD = 28
"""Nonce and authentication tag of a box."""


class RecoverSession:
    """One run of the aggregation protocol with recoverable sums, as the server sees it.

    Raises `CohortError` if too few agreed, `PlanError` if no neighbourhoods keep sums secret and recoverable.
    """

    def __init__(
        self,
        run_id: int,
        roster: Roster,
        slots: Slots,
        *,
        min_cohort: int,
        max_retries: int,
        max_silent: int,
        authored: bool,
        credentials: Mapping[int, Credential] | None = None,
    ) -> None:
        self._credentials = credentials or {}
        self._signatures: dict[int, bytes] = {}
        self.sharers = roster
        self.roster = roster
        self.round_index = NO_ROUND
        self._run_id = run_id
        self._slots = slots
        self._graph = recovery_graph(len(roster.members), max_silent)
        self._least = least_survivors(len(roster.members), max_silent, min_cohort)
        self._max_retries = max_retries
        self._authors = set(roster.authors(max_silent)) if authored else set()
        self._shared: dict[int, ShareReply] = {}
        self._sharing = self._first = True
        self._length = 0
        self._total: Ring = np.zeros(0, dtype=np.uint64)
        self._tags: dict[int, bytes] = {}
        self._tickets: dict[int, Mapping[int, bytes]] = {}
        self._unmasked: dict[int, UnmaskReply] = {}
        self._survivors: tuple[int, ...] | None = None
        self._open = False
        if len(roster.members) < self._least:
            raise CohortError(f"{len(roster.members)} clients take part, but at least {self._least} are needed.")

    @property
    def attempt(self) -> int:
        """Number of the current attempt."""
        return self.roster.attempt

    @property
    def survivors(self) -> tuple[int, ...]:
        """Those whose vectors are in the sum; empty while vectors are still awaited."""
        return self._survivors or ()

    @property
    def is_unmasking(self) -> bool:
        """Whether shares are awaited rather than vectors."""
        return self._survivors is not None

    def neighbours(self, node_id: int) -> tuple[int, ...]:
        """Nodes that hold one client's shares and mask with it."""
        return self.sharers.circle(node_id, self._graph.degree)

    def receive_shares(self, node_id: int, reply: ShareReply) -> None:
        """Take one client's shared keys in; a malformed or second reply is a `ProtocolError`."""
        if node_id not in self.sharers.keys or node_id in self._shared or not self._sharing:
            raise ProtocolError(f"node {node_id} shared keys unasked or twice: discarded.")
        keys = KEY_BYTES * self._slots.number
        neighbours = self.neighbours(node_id)
        others = [peer for peer in self.sharers.node_ids if peer != node_id] if node_id in self._authors else []
        fits = len(reply.public_keys) == len(reply.commitments) == keys
        fits = fits and sorted(reply.boxes) == list(neighbours) and sorted(reply.group_boxes) == others
        fits = fits and all(len(box) == 3 * keys + _BOX_OVERHEAD for box in reply.boxes.values())
        fits = fits and all(len(box) == KEY_BYTES + _BOX_OVERHEAD for box in reply.group_boxes.values())
        if not fits:
            raise ProtocolError(
                f"node {node_id} shared {len(reply.boxes)} boxes for {len(neighbours)} neighbours, or keys of the "
                "wrong length: discarded."
            )
        self._shared[node_id] = reply

    def close_shares(self) -> None:
        """Go on with those that shared keys; too few of them are a `CohortError`."""
        self._require_enough(self._shared, "shared their keys")
        self._sharing = False
        self.roster = cohort_of(self.sharers, 0, tuple(sorted(self._shared)))

    def take_boxes(self, node_id: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Shares and group keys sealed for one node, from those that are still there; due with its first request."""
        if not self._first:
            return {}, {}
        there = self.roster.keys
        boxes = {peer: self._shared[peer].boxes[node_id] for peer in self.neighbours(node_id) if peer in there}
        authors = sorted(author for author in self._authors if author in there and author != node_id)
        return boxes, {author: self._shared[author].group_boxes[node_id] for author in authors}

    def open_round(self, round_index: int, length: int) -> None:
        """Wait for one vector of `length` entries from every client of the cohort; too few are a `CohortError`."""
        self.require_cohort()
        self.round_index = round_index
        self._length = length
        self._reset()

    def receive(self, node_id: int, reply: SumReply) -> None:
        """Take one vector in; one that is late, replayed or malformed is a `ProtocolError` and changes nothing."""
        asked = (self.round_index, self.attempt)
        if node_id not in self.roster.keys:
            raise ProtocolError(f"node {node_id} answered, but is not in the cohort of round {asked[0]}: ignored.")
        if not self._open or self.is_unmasking or (reply.round_index, reply.attempt) != asked:
            raise ProtocolError(
                f"node {node_id} answered round {reply.round_index}, attempt {reply.attempt}, but no vector of it is "
                "awaited: the reply is late or replayed and is discarded."
            )
        if node_id in self._tags:
            raise ProtocolError(f"node {node_id} answered round {asked[0]} twice: the second reply is discarded.")
        require_words(node_id, reply.masked.values, self._length)
        if len(reply.tag) != TAG_BYTES or not self._fits(node_id, reply.boxes, KEY_BYTES):
            raise ProtocolError(f"node {node_id} sent a malformed tag, or other tickets than are due: discarded.")
        self._tags[node_id], self._tickets[node_id] = reply.tag, reply.boxes
        self._total = self._total + reply.masked.values

    def missing(self) -> tuple[int, ...]:
        """Nodes that have not answered what is being asked for."""
        if self._survivors is None:
            return tuple(node for node in self.roster.node_ids if node not in self._tags)
        return tuple(node for node in self._survivors if node not in self._unmasked)

    def close_vectors(self) -> None:
        """Name those whose vectors arrived the survivors; too few of them are a `CohortError`."""
        self._require_enough(self._tags, f"answered round {self.round_index}")
        survivors = tuple(sorted(self._tags))
        if self._authors and len(self._authors & set(survivors)) < LEAST_AUTHORS:
            raise CohortError(
                f"fewer than {LEAST_AUTHORS} key authors answered round {self.round_index}, so that the server could "
                "read the sum: start a new run."
            )
        require_equal_tags(self._tags, self.round_index)
        self._survivors = survivors
        self._first = False

    def receive_unmask(self, node_id: int, reply: UnmaskReply) -> None:
        """Take one survivor's shares in; unasked, second or malformed ones are a `ProtocolError`."""
        asked = (self.round_index, self.attempt)
        if not self._open or node_id not in self.survivors or (reply.round_index, reply.attempt) != asked:
            raise ProtocolError(f"node {node_id} sent shares that are not awaited: late or replayed, and discarded.")
        if node_id in self._unmasked:
            raise ProtocolError(f"node {node_id} sent its shares twice: the second reply is discarded.")
        if not self._fits(node_id, reply.shares, GIVEN_BYTES):
            raise ProtocolError(
                f"node {node_id} sent {len(reply.shares)} shares, of which some are malformed or not due: discarded."
            )
        self._unmasked[node_id] = reply

    def recover(self, plan_digest: bytes, *, blinded: bool) -> AggregateVector:
        """Take the survivors' self masks and the others' pairwise masks away: what is left is their exact sum.

        The cohort of the next round is those that gave shares. If too few shares of some key came, or they do not give
        the key that was committed to, `ProtocolError` says so, and `retry` follows; `LocalMisuseError` if `blinded` is
        asked for in a run without key authors.
        """
        if blinded and not self._authors:
            raise LocalMisuseError("a run without key authors has no blinded sums: check the plan's trust model.")
        asked, alive = (self.round_index, self.attempt), set(self.survivors)
        place, transcript = self._slots.place(*asked), transcript_of(plan_digest, self.roster)
        total = self._total.copy()
        shares = self._unlock()
        for owner in self.roster.node_ids:
            key = self._reconstruct(owner, shares)
            committed = self._shared[owner]
            if owner in alive:
                self._require_key(owner, digest("self mask", key) == piece(committed.commitments, place))
                total -= self_mask(key, self._run_id, owner, asked, transcript, self._length)
                continue
            self._require_key(owner, public_key_of(key) == piece(committed.public_keys, place))
            for peer in self.neighbours(owner):
                if peer in alive:
                    public = piece(self._shared[peer].public_keys, place)
                    pair = agree_pair_key(key, public, self._run_id, owner, peer)
                    total -= pair_mask(pair, peer, owner, asked, transcript, self._length)
        self._open = False
        self.roster = cohort_of(self.sharers, self.attempt, tuple(sorted(self._unmasked)))
        return AggregateVector(total, blinded)

    @property
    def asked(self) -> tuple[int, ...]:
        """Who is asked next."""
        return self.survivors if self.is_unmasking else self.roster.node_ids

    @property
    def due(self) -> Stage:
        """What is asked for next: key shares once, then vectors and what takes their masks away in turn."""
        if self._sharing:
            return Stage.SHARE
        return Stage.UNMASK if self.is_unmasking else Stage.SUM

    def request(self, node_id: int, release: Release | None, state: bytes) -> Request:
        """What one client is asked."""
        if self._sharing:
            return ShareRequest(self.sharers, self._credentials)
        if self.is_unmasking:
            return UnmaskRequest(self.round_index, self.attempt, self.survivors)
        boxes, group_boxes = self.take_boxes(node_id)
        return SumRequest(
            self.round_index,
            self.attempt,
            release=release,
            boxes=boxes,
            state=state,
            cohort=self.roster.node_ids,
            group_boxes=group_boxes,
            confirmations={} if release is None else self._confirmations(node_id),
        )

    def finish_request(self, node_id: int, release: Release, state: bytes) -> FinishRequest:
        """The last message to one client."""
        return FinishRequest(release, {}, state, self._confirmations(node_id))

    def take(self, node_id: int, reply: Any) -> None:
        """Take in what was asked for."""
        takers: dict[Stage, Callable[[int, Any], None]] = {
            Stage.SHARE: self.receive_shares,
            Stage.SUM: self.receive,
            Stage.UNMASK: self.receive_unmask,
        }
        takers[self.due](node_id, reply)

    def close(self, plan_digest: bytes, *, blinded: bool) -> tuple[AggregateVector | None, Silence | None]:
        """Go on with what came: to vectors, to the shares that unmask their sum, to the sum, or to a new attempt."""
        asked, missing = self.asked, self.missing()
        if self._sharing:
            self.close_shares()
            missing = tuple(node for node in asked if node not in self.roster.keys)
            return None, Silence(missing, "shared no keys")
        if not self.is_unmasking:
            self.close_vectors()
            return None, Silence(missing, "sent no vector")
        try:
            aggregate = self.recover(plan_digest, blinded=blinded)
        except ProtocolError as error:
            self.retry()
            return None, Silence(missing, None, str(error))
        self._signatures = {node: reply.signature for node, reply in self._unmasked.items() if reply.signature}
        return aggregate, Silence(missing, "gave no shares")

    @property
    def n_summed(self) -> int:
        """Clients in the sum."""
        return len(self.survivors)

    def _confirmations(self, node_id: int) -> dict[int, bytes]:
        """What a node's neighbours signed of the last survivors."""
        neighbours = self.neighbours(node_id)
        return {peer: self._signatures[peer] for peer in neighbours if peer in self._signatures}

    def require_cohort(self) -> None:
        """Raise `CohortError` if too few gave shares for another round."""
        self._require_enough(self.roster.node_ids, f"unmasked round {self.round_index}")

    def retry(self) -> None:
        """Open a new attempt of the same round with those that are still there; if that cannot be, `CohortError`."""
        answered = self._unmasked if self.is_unmasking else self._tags
        self._require_enough(answered, f"answered round {self.round_index}")
        if len(answered) >= len(self.roster.members) or self.attempt >= self._max_retries:
            raise CohortError(
                f"the sum of round {self.round_index}, attempt {self.attempt} cannot be recovered from the shares that "
                f"came, and another attempt needs a smaller cohort and one of the plan's {self._max_retries} retries: "
                "start a new run, or raise max_retries."
            )
        self.roster = cohort_of(self.sharers, self.attempt + 1, tuple(sorted(answered)))
        self._first = False
        self._reset()

    def _reset(self) -> None:
        """Wait for vectors."""
        self._total = np.zeros(self._length, dtype=np.uint64)
        self._tags, self._tickets, self._unmasked, self._survivors = {}, {}, {}, None
        self._open = True

    def _fits(self, node_id: int, parts: Mapping[int, bytes], length: int) -> bool:
        """Whether a client sent so many bytes for each of its neighbours in the cohort, and for nobody else."""
        due = [peer for peer in self.neighbours(node_id) if peer in self.roster.keys]
        return sorted(parts) == due and all(len(part) == length for part in parts.values())

    def _unlock(self) -> dict[int, dict[int, bytes]]:
        """Shares by holder and owner."""
        given = {holder: reply.shares for holder, reply in self._unmasked.items()}
        shares = {}
        for holder in given:
            coordinates = {peer: place for place, peer in enumerate(self.neighbours(holder), start=1) if peer in given}
            self._require_threshold(len(coordinates), holder)
            shares[holder] = unlock(holder, given, coordinates, self._graph.threshold)
        return shares

    def _reconstruct(self, owner: int, shares: Mapping[int, Mapping[int, bytes]]) -> bytes:
        """One client's key from its neighbours' shares: of the self mask or of the pairwise key."""
        tickets = self._tickets[owner] if owner in self.survivors else {}
        given = {
            coordinate: combine(shares[holder][owner], tickets.get(holder, b""))
            for coordinate, holder in enumerate(self.neighbours(owner), start=1)
            if holder in shares
        }
        self._require_threshold(len(given), owner)
        return reconstruct(dict(list(given.items())[: self._graph.threshold]))

    def _require_threshold(self, n_shares: int, owner: int) -> None:
        """Raise if too few neighbours of a client gave shares."""
        if n_shares < self._graph.threshold:
            raise ProtocolError(
                f"{n_shares} neighbours of node {owner} gave a share of its key, but {self._graph.threshold} are "
                "needed: another attempt is due."
            )

    @staticmethod
    def _require_key(owner: int, is_right: bool) -> None:
        """Raise if a key is not the one that its owner committed to."""
        if not is_right:
            raise ProtocolError(
                f"the shares of a key of node {owner} do not give the key that it committed to: somebody sent a wrong "
                "share, and another attempt is due."
            )

    def _require_enough(self, nodes: Iterable[int], what: str) -> None:
        """Raise `CohortError` if too few are left."""
        left = len(set(nodes))
        if left < self._least:
            gone = sorted(set(self.sharers.node_ids) - set(nodes))
            raise CohortError(
                f"{left} of {len(self.sharers.members)} clients {what}, but at least {self._least} are needed "
                f"(missing: nodes {gone[:20]}): look at their logs and start a new run, or raise max_silent."
            )
