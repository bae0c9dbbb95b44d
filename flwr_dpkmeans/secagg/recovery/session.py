"""The server's side of recoverable sums: it adds vectors up and takes away the masks of those that left or stayed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from flwr_dpkmeans.errors import CohortError, ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES, agree_pair_keys, digest, public_key_of
from flwr_dpkmeans.secagg.messages import (
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
from flwr_dpkmeans.secagg.party import TAG_BYTES, Session, require_equal_tags
from flwr_dpkmeans.secagg.recovery.agreement import (
    GIVEN_BYTES,
    LEAST_AUTHORS,
    Slots,
    cohort_of,
    combine,
    least_survivors,
    pair_mask,
    piece,
    self_mask,
    unlock,
)
from flwr_dpkmeans.secagg.recovery.graph import recovery_graph
from flwr_dpkmeans.secagg.recovery.shamir import reconstruct
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.secagg.roster import Roster, transcript_of

_BOX_OVERHEAD = 28
"""Nonce and authentication tag of a box."""


class RecoverSession(Session):
    """The server's side of sums that are recovered; `due` is `SHARE` once, then `SUM` and `UNMASK` in turn.

    Raises `CohortError` if too few agreed, `PlanError` if no neighbourhoods keep sums secret and recoverable.
    """

    sharers: Roster

    def __init__(self, run_id: int, roster: Roster, slots: Slots, *, min_cohort: int, **limits: Any) -> None:
        n_sharers, max_silent = len(roster.members), limits["max_silent"]
        self._graph = recovery_graph(n_sharers, max_silent)
        super().__init__(roster, least=least_survivors(n_sharers, max_silent, min_cohort), **limits)
        self.sharers = roster
        self.due = Stage.SHARE
        self.survivors: tuple[int, ...] = ()
        """Those whose vectors are in the sum; empty while vectors are still awaited."""
        self._run_id = run_id
        self._slots = slots
        self._authors = frozenset(roster.authors(max_silent) if self._authored else ())
        self._shared: dict[int, ShareReply] = {}
        self._unmasked: dict[int, UnmaskReply] = {}
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

    # What is asked.

    def request(self, node_id: int, release: Release | None, state: bytes) -> Request:
        """What one client is asked."""
        if self.due is Stage.SHARE:
            return ShareRequest(self.sharers, self._credentials)
        if self.due is Stage.UNMASK:
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

    def take_boxes(self, node_id: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Shares and group keys sealed for one node, from those that are still there; due with its first request."""
        if not self._first:
            return {}, {}
        there = self.roster.keys
        boxes = {peer: self._shared[peer].boxes[node_id] for peer in self.neighbours(node_id) if peer in there}
        authors = sorted(author for author in self._authors if author in there and author != node_id)
        return boxes, {author: self._shared[author].group_boxes[node_id] for author in authors}

    def finish_request(self, node_id: int, release: Release, state: bytes) -> FinishRequest:
        """The last message to one client."""
        return FinishRequest(release, {}, state, self._confirmations(node_id))

    def _confirmations(self, node_id: int) -> dict[int, bytes]:
        """What a node's neighbours signed of the last survivors."""
        neighbours = self.neighbours(node_id)
        return {peer: self._signatures[peer] for peer in neighbours if peer in self._signatures}

    # What comes in.

    def take(self, node_id: int, reply: Any) -> None:
        """Take in what was asked for."""
        if self.due is Stage.SHARE:
            self.receive_shares(node_id, reply)
        elif self.due is Stage.UNMASK:
            self.receive_unmask(node_id, reply)
        else:
            self.receive(node_id, reply)

    def receive_shares(self, node_id: int, reply: ShareReply) -> None:
        """Take one client's shared keys in; a malformed or second reply is a `ProtocolError`."""
        if node_id not in self.sharers.keys or node_id in self._shared or self.due is not Stage.SHARE:
            raise ProtocolError(f"node {node_id} shared keys unasked or twice: discarded.")
        keys = KEY_BYTES * self._slots.number
        neighbours = self.neighbours(node_id)
        others = [peer for peer in self.sharers.node_ids if peer != node_id] if node_id in self._authors else []
        fits = len(reply.public_keys) == len(reply.commitments) == keys
        fits = fits and sorted(reply.boxes) == list(neighbours) and sorted(reply.group_boxes) == others
        fits = fits and all(len(box) == 3 * keys + _BOX_OVERHEAD for box in reply.boxes.values())
        fits = fits and all(len(box) == KEY_BYTES + _BOX_OVERHEAD for box in reply.group_boxes.values())
        if not fits:
            # Against a client whose keys cannot be given back once it is gone.
            raise ProtocolError(
                f"node {node_id} shared {len(reply.boxes)} boxes for {len(neighbours)} neighbours, or keys of the "
                "wrong length: discarded."
            )
        self._shared[node_id] = reply

    def _require_parts(self, node_id: int, reply: SumReply) -> None:
        if len(reply.tag) != TAG_BYTES or not self._fits(node_id, reply.boxes, KEY_BYTES):
            raise ProtocolError(f"node {node_id} sent a malformed tag, or other tickets than are due: discarded.")

    def receive_unmask(self, node_id: int, reply: UnmaskReply) -> None:
        """Take one survivor's shares in; unasked, second or malformed ones are a `ProtocolError`."""
        is_due = self._open and node_id in self.survivors
        if not is_due or reply.asked != (self.round_index, self.attempt):
            raise ProtocolError(f"node {node_id} sent shares that are not awaited: late or replayed, and discarded.")
        if node_id in self._unmasked:
            raise ProtocolError(f"node {node_id} sent its shares twice: the second reply is discarded.")
        if not self._fits(node_id, reply.shares, GIVEN_BYTES):
            raise ProtocolError(
                f"node {node_id} sent {len(reply.shares)} shares, of which some are malformed or not due: discarded."
            )
        self._unmasked[node_id] = reply

    def _fits(self, node_id: int, parts: Mapping[int, bytes], length: int) -> bool:
        """Whether a client sent so many bytes for each of its neighbours in the cohort, and for nobody else."""
        due = [peer for peer in self.neighbours(node_id) if peer in self.roster.keys]
        return sorted(parts) == due and all(len(part) == length for part in parts.values())

    # What follows.

    def open_round(self, round_index: int, length: int) -> None:
        """See `Session.open_round`; too few that gave shares are a `CohortError`."""
        self.require_cohort()
        super().open_round(round_index, length)

    def _reset(self) -> None:
        super()._reset()
        self._unmasked, self.survivors = {}, ()

    def missing(self) -> tuple[int, ...]:
        """Nodes that have not answered what is being asked for."""
        answered: dict[Stage, Container[int]] = {
            Stage.SHARE: self._shared,
            Stage.SUM: self._tags,
            Stage.UNMASK: self._unmasked,
        }
        return tuple([node for node in self.asked if node not in answered[self.due]])

    def close(self, plan_digest: bytes, *, blinded: bool) -> tuple[AggregateVector | None, Silence | None]:
        """Go on with what came: to vectors, to the shares that unmask their sum, to the sum, or to a new attempt."""
        missing = self.missing()
        if self.due is Stage.SHARE:
            self.close_shares()
            return None, Silence(missing, "shared no keys")
        if self.due is Stage.SUM:
            self.close_vectors()
            return None, Silence(missing, "sent no vector")
        try:
            aggregate = self.recover(plan_digest, blinded=blinded)
        except ProtocolError as error:
            self.retry()
            return None, Silence(missing, None, str(error))
        self._signatures = {node: reply.signature for node, reply in self._unmasked.items() if reply.signature}
        return aggregate, Silence(missing, "gave no shares")

    def close_shares(self) -> None:
        """Go on with those that shared keys; too few of them are a `CohortError`."""
        self._require_enough(self._shared, "shared their keys")
        self.due = Stage.SUM
        self.roster = cohort_of(self.sharers, 0, tuple(sorted(self._shared)))

    def close_vectors(self) -> None:
        """Name those whose vectors arrived the survivors; too few of them are a `CohortError`."""
        self._require_enough(self._tags, f"answered round {self.round_index}")
        survivors = tuple(sorted(self._tags))
        if self._authored and len(self._authors & set(survivors)) < LEAST_AUTHORS:
            raise CohortError(
                f"fewer than {LEAST_AUTHORS} key authors answered round {self.round_index}, so that the server could "
                "read the sum: start a new run."
            )
        require_equal_tags(self._tags, self.round_index)
        self.survivors, self.due = survivors, Stage.UNMASK
        self._first = False

    def recover(self, plan_digest: bytes, *, blinded: bool) -> AggregateVector:
        """Take the survivors' self masks and the others' pairwise masks away: what is left is their exact sum.

        The cohort of the next round is those that gave shares. If too few shares of some key came, or they do not give
        the key that was committed to, `ProtocolError` says so, and `retry` follows; `LocalMisuseError` if `blinded` is
        asked for in a run without key authors.
        """
        self._require_blinding(blinded=blinded)
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
            peers = [peer for peer in self.neighbours(owner) if peer in alive]
            publics = {peer: piece(self._shared[peer].public_keys, place) for peer in peers}
            for peer, pair in agree_pair_keys(key, publics, self._run_id, owner).items():
                total -= pair_mask(pair, peer, owner, asked, transcript, self._length)
        self._open = False
        self.roster = cohort_of(self.sharers, self.attempt, tuple(sorted(self._unmasked)))
        return AggregateVector(total, blinded)

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
        tickets = self._sealed[owner] if owner in self.survivors else {}
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
            # Against one wrong share, which would turn the sum into noise that nobody notices.
            raise ProtocolError(
                f"the shares of a key of node {owner} do not give the key that it committed to: somebody sent a wrong "
                "share, and another attempt is due."
            )

    def retry(self) -> None:
        """Open a new attempt of the same round with those that are still there; if that cannot be, `CohortError`."""
        answered = self._unmasked if self.due is Stage.UNMASK else self._tags
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

    def require_cohort(self) -> None:
        """Raise `CohortError` if too few gave shares for another round."""
        self._require_enough(self.roster.node_ids, f"unmasked round {self.round_index}")

    def _require_enough(self, nodes: Iterable[int], what: str) -> None:
        """Raise `CohortError` if too few are left."""
        left = len(set(nodes))
        if left < self._least:
            gone = sorted(set(self.sharers.node_ids) - set(nodes))
            raise CohortError(
                f"{left} of {len(self.sharers.members)} clients {what}, but at least {self._least} are needed "
                f"(missing: nodes {gone[:20]}): look at their logs and start a new run, or raise max_silent."
            )
