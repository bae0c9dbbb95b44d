"""The server of sums that are recovered from dropouts.

=========  ==========================  =========================================
due        what comes                  then
=========  ==========================  =========================================
`SHARE`    key shares, once a run      `SUM`, of those that shared keys
`SUM`      masked vectors              `UNMASK`; whose vectors came are survivors
`UNMASK`   one share of each           `SUM` of the next round, of those that gave
           neighbour's key             shares; or of a new attempt, if some key
                                       cannot be recovered
=========  ==========================  =========================================

Where fewer than `least` are left, the run ends with a `CohortError`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from itertools import islice

import numpy as np

from flwr_dpkmeans.errors import CohortError, ProtocolError
from flwr_dpkmeans.secagg import agreement, graph, keys, messages, shamir
from flwr_dpkmeans.secagg.agreement import Shares
from flwr_dpkmeans.secagg.ciphers import BOX_OVERHEAD
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES, piece
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import FEWEST_AUTHORS, NodeIds, Roster, transcript_of
from flwr_dpkmeans.secagg.session import (
    TAG_BYTES,
    Outcome,
    PartOfSum,
    Session,
    Silence,
    require_equal_tags,
)
from flwr_dpkmeans.secagg.slots import Slots

_MOST_NAMED = 20


class RecoverSession(Session):
    """The server's side of sums that are recovered."""

    sharers: Roster

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
        """See `Session`; `slots` are the aggregations that keys are shared for."""
        n_sharers = len(roster.members)
        self.graph = graph.recovery_graph(n_sharers, max_silent)
        super().__init__(
            roster,
            least=graph.least_survivors(n_sharers, max_silent, min_cohort),
            max_retries=max_retries,
            max_silent=max_silent,
            authored=authored,
            credentials=credentials,
        )
        self.sharers = roster
        self.due = Stage.SHARE
        self.survivors: NodeIds = ()
        """Those whose vectors are in the sum; empty while vectors are still awaited."""
        self.shared: dict[int, messages.ShareReply] = {}
        """What each client shared of its keys."""
        self.unmasked: dict[int, messages.UnmaskReply] = {}
        """What each survivor gave in the open aggregation."""
        self.signatures: dict[int, bytes] = {}
        """Of the survivors of the last sum, by those that have identities."""
        self._run_id = run_id
        self._slots = slots
        authors = roster.authors(max_silent) if authored else ()
        self._authors = frozenset(authors)

    @property
    def recipients(self) -> NodeIds:
        """Who gets the next request."""
        if self.due is Stage.UNMASK:
            return self.survivors
        return self.roster.node_ids

    @property
    def n_summed(self) -> int:
        """Clients in the sum."""
        return len(self.survivors)

    def neighbours(self, node_id: int) -> NodeIds:
        """Return the nodes that hold one client's shares and mask with it."""
        return self.sharers.circle(node_id, self.graph.degree)

    # -- requests

    def request(
        self,
        node_id: int,
        release: messages.Release | None,
        state: bytes,
    ) -> messages.ShareRequest | messages.SumRequest | messages.UnmaskRequest:
        """Make the next request to one client."""
        if self.due is Stage.SHARE:
            return messages.ShareRequest(self.sharers, self._credentials)
        if self.due is Stage.UNMASK:
            return messages.UnmaskRequest(*self.attempt_id, self.survivors)
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
        """Hand out what was sealed for one node, which is due with its first request.

        Returns
        -------
        tuple of dict
            Boxes of its neighbours with shares, and of key authors with group keys, of
            those that are still there.
        """
        if not self._is_first:
            return {}, {}
        present = self.roster.keys
        boxes = {}
        for peer in self.neighbours(node_id):
            if peer in present:
                boxes[peer] = self.shared[peer].boxes[node_id]
        group_boxes = {}
        for author in sorted(self._authors):
            if author in present and author != node_id:
                group_boxes[author] = self.shared[author].group_boxes[node_id]
        return boxes, group_boxes

    def finish_request(
        self,
        node_id: int,
        release: messages.Release,
        state: bytes,
    ) -> messages.FinishRequest:
        """Make the last message to one client."""
        return messages.FinishRequest(
            release,
            {},
            state,
            self._confirmations(node_id),
        )

    def _confirmations(self, node_id: int) -> dict[int, bytes]:
        """Signatures of the survivors by one client's neighbours."""
        confirmations = {}
        for peer in self.neighbours(node_id):
            if peer in self.signatures:
                confirmations[peer] = self.signatures[peer]
        return confirmations

    # -- replies

    def take(self, node_id: int, reply: PartOfSum) -> None:
        """Take in what one client replied to the request that is due."""
        if isinstance(reply, messages.ShareReply):
            self.receive_shares(node_id, reply)
        elif isinstance(reply, messages.UnmaskReply):
            self.receive_unmask(node_id, reply)
        else:
            self.receive(node_id, reply)

    def receive_shares(
        self,
        node_id: int,
        reply: messages.ShareReply,
    ) -> None:
        """Take one client's shared keys in.

        A malformed or second reply is a `ProtocolError`.
        """
        is_awaited = node_id in self.sharers.keys and node_id not in self.shared
        if not is_awaited or self.due is not Stage.SHARE:
            # Against keys that are exchanged once others were sealed for them.
            raise ProtocolError(
                f"node {node_id} shared keys unasked or twice: discarded."
            )
        neighbours = self.neighbours(node_id)
        others: NodeIds = ()
        if node_id in self._authors:
            others = self.sharers.others_than(node_id)
        length = KEY_BYTES * self._slots.number
        # Shares of a self-mask seed and of a private key for each aggregation, and the
        # public keys again.
        box_length = 3 * length + BOX_OVERHEAD
        group_box_length = KEY_BYTES + BOX_OVERHEAD
        has_all_keys = len(reply.public_keys) == len(reply.commitments) == length
        has_boxes = _is_for(reply.boxes, neighbours, box_length)
        has_group_boxes = _is_for(reply.group_boxes, others, group_box_length)
        if not (has_all_keys and has_boxes and has_group_boxes):
            # Against a client whose keys cannot be given back once it is gone.
            raise ProtocolError(
                f"node {node_id} shared {len(reply.boxes)} boxes for {len(neighbours)}"
                " neighbours, or keys of the wrong length: discarded."
            )
        self.shared[node_id] = reply

    def _require_parts(
        self,
        node_id: int,
        reply: messages.SumReply,
    ) -> None:
        """Raise unless the reply has a tag, and a ticket for each neighbour."""
        peers = self._present_neighbours(node_id)
        has_tag = len(reply.tag) == TAG_BYTES
        if not has_tag or not _is_for(reply.boxes, peers, KEY_BYTES):
            raise ProtocolError(
                f"node {node_id} sent a malformed tag, or other tickets than are due:"
                " discarded."
            )

    def receive_unmask(
        self,
        node_id: int,
        reply: messages.UnmaskReply,
    ) -> None:
        """Take one survivor's shares in.

        Unasked, second or malformed ones are a `ProtocolError`.
        """
        is_due = self._is_open and node_id in self.survivors
        if not is_due or reply.attempt_id != self.attempt_id:
            # Against shares of another aggregation, which open nothing in this one.
            raise ProtocolError(
                f"node {node_id} sent shares that are not awaited: late or replayed,"
                " and discarded."
            )
        if node_id in self.unmasked:
            raise ProtocolError(
                f"node {node_id} sent its shares twice: the second reply is discarded."
            )
        peers = self._present_neighbours(node_id)
        if not _is_for(reply.shares, peers, agreement.UNMASK_BYTES):
            raise ProtocolError(
                f"node {node_id} sent {len(reply.shares)} shares, of which some are"
                " malformed or not due: discarded."
            )
        self.unmasked[node_id] = reply

    def _present_neighbours(self, node_id: int) -> NodeIds:
        """Return the neighbours of one client that are in the cohort, ascending."""
        present = self.roster.keys
        return tuple([peer for peer in self.neighbours(node_id) if peer in present])

    def missing(self) -> NodeIds:
        """Return the nodes that have not answered the request that is due."""
        answered: dict[Stage, Container[int]] = {
            Stage.SHARE: self.shared,
            Stage.SUM: self.tags,
            Stage.UNMASK: self.unmasked,
        }
        replies = answered[self.due]
        return tuple([node for node in self.recipients if node not in replies])

    # -- transitions

    def open_round(
        self,
        round_index: int,
        length: int,
    ) -> None:
        """See `Session.open_round`; too few that gave shares are a `CohortError`."""
        self.require_cohort()
        super().open_round(round_index, length)

    def _reset(self) -> None:
        """See `Session._reset`; shares and survivors are forgotten as well."""
        super()._reset()
        self.unmasked = {}
        self.survivors = ()

    def close(
        self,
        plan_digest: bytes,
        *,
        blinded: bool,
    ) -> Outcome:
        """See `Session.close`."""
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
        self.signatures = {}
        for node, reply in self.unmasked.items():
            if reply.signature:
                self.signatures[node] = reply.signature
        return aggregate, Silence(missing, "gave no shares")

    def close_shares(self) -> None:
        """Go on with those that shared keys; too few of them are a `CohortError`."""
        self._require_enough(self.shared, "shared their keys")
        self.due = Stage.SUM
        self._narrow_cohort(0, self.shared)

    def close_vectors(self) -> None:
        """Call those whose vectors arrived the survivors.

        Too few of them are a `CohortError`.
        """
        self._require_enough(self.tags, f"answered round {self.round_index}")
        n_authors = len(self._authors & self.tags.keys())
        if self._authored and n_authors < FEWEST_AUTHORS:
            # Clients would refuse to open a sum that one author's stream alone hides.
            raise CohortError(
                f"fewer than {FEWEST_AUTHORS} key authors answered round"
                f" {self.round_index}, so that the server could read the sum: start a"
                " new run."
            )
        require_equal_tags(self.tags, self.round_index)
        self.survivors = tuple(sorted(self.tags))
        self.due = Stage.UNMASK
        self._is_first = False

    def retry(self) -> None:
        """Open a new attempt of the same round with those that are still there.

        If that cannot be, `CohortError`.
        """
        answered: Collection[int] = self.tags
        if self.due is Stage.UNMASK:
            answered = self.unmasked
        self._require_enough(answered, f"answered round {self.round_index}")
        is_smaller = len(answered) < len(self.roster.members)
        if not is_smaller or self.attempt >= self._max_retries:
            raise CohortError(
                f"the sum of round {self.round_index}, attempt {self.attempt} cannot be"
                " recovered from the shares that came, and another attempt needs a"
                f" smaller cohort and one of the plan's {self._max_retries} retries:"
                " start a new run, or raise max_retries."
            )
        self._narrow_cohort(self.attempt + 1, answered)
        self._is_first = False
        self._reset()

    def _narrow_cohort(self, attempt: int, nodes: Iterable[int]) -> None:
        """Go on with these nodes alone."""
        node_ids = tuple(sorted(nodes))
        self.roster = agreement.cohort_of(self.sharers, attempt, node_ids)

    def require_cohort(self) -> None:
        """Raise `CohortError` if too few gave shares for another round."""
        self._require_enough(self.roster.node_ids, f"unmasked round {self.round_index}")

    def _require_enough(self, nodes: Collection[int], what: str) -> None:
        """Raise `CohortError` if fewer are left than may be in a sum."""
        if len(nodes) < self.least:
            gone = sorted(set(self.sharers.node_ids) - set(nodes))
            raise CohortError(
                f"{len(nodes)} of {len(self.sharers.members)} clients {what}, but at"
                f" least {self.least} are needed (missing: nodes"
                f" {gone[:_MOST_NAMED]}): look at their"
                " logs and start a new run, or raise max_silent."
            )

    # -- the sum

    def recover(
        self,
        plan_digest: bytes,
        *,
        blinded: bool,
    ) -> AggregateVector:
        """Take the survivors' self masks and the others' pairwise masks away.

        What is left is the survivors' exact sum; the cohort of the next round is those
        that gave shares. If they do not give some key, `ProtocolError` says so.

        Parameters
        ----------
        plan_digest : bytes
            Digest of the plan in force.
        blinded : bool
            Whether key authors' streams are in the sum.
        """
        self._require_blinding(blinded=blinded)
        transcript = transcript_of(plan_digest, self.roster.digest)
        shares = self._unlock()
        total = self.total.copy()
        for owner in self.roster.node_ids:
            key = self._reconstruct(owner, shares)
            self._require_committed(owner, key)
            if owner in self.survivors:
                total -= agreement.self_mask(
                    key,
                    self._run_id,
                    owner,
                    self.attempt_id,
                    transcript,
                    self._length,
                )
            else:
                total -= self._masks_with(owner, key, transcript)
        self._is_open = False
        self._narrow_cohort(self.attempt, self.unmasked)
        return AggregateVector(total, blinded)

    def _unlock(self) -> Shares:
        """Open the shares that came, with the tickets of those that gave some too."""
        replies = {holder: reply.shares for holder, reply in self.unmasked.items()}
        shares = {}
        for holder in replies:
            coordinates = {}
            for coordinate, peer in enumerate(self.neighbours(holder), start=1):
                if peer in replies:
                    coordinates[peer] = coordinate
            self._require_threshold(len(coordinates), holder)
            shares[holder] = agreement.unlock(
                holder, replies, coordinates, self.graph.threshold
            )
        return shares

    def _reconstruct(self, owner: int, shares: Shares) -> bytes:
        """Put one client's key together from its neighbours' shares.

        That of its self mask if it survived, or else its private key.
        """
        survived = owner in self.survivors
        by_coordinate = {}
        for coordinate, holder in enumerate(self.neighbours(owner), start=1):
            if holder not in shares:
                continue
            share = shares[holder][owner]
            if survived:
                # Padded with the owner's ticket for its cohort, which came beside its
                # vector.
                share = agreement.combine(share, self.sealed[owner][holder])
            by_coordinate[coordinate] = share
        self._require_threshold(len(by_coordinate), owner)
        enough = islice(by_coordinate.items(), self.graph.threshold)
        return shamir.reconstruct(dict(enough))

    def _require_committed(self, owner: int, key: bytes) -> None:
        """Raise unless a key is the one that its owner committed to."""
        index = self._slots.index(*self.attempt_id)
        if owner in self.survivors:
            proof = keys.digest("self mask", key)
            committed = piece(self.shared[owner].commitments, index)
        else:
            proof = keys.public_key_of(key)
            committed = piece(self.shared[owner].public_keys, index)
        if proof != committed:
            # Against one wrong share, which would turn the sum into noise that
            # nobody notices.
            raise ProtocolError(
                f"the shares of a key of node {owner} do not give the key that it"
                " committed to: somebody sent a wrong share, and another attempt"
                " is due."
            )

    def _masks_with(
        self,
        owner: int,
        private_key: bytes,
        transcript: bytes,
    ) -> Ring:
        """Sum what the survivors added to their vectors for a client that is gone."""
        index = self._slots.index(*self.attempt_id)
        public_keys = {}
        for peer in self.neighbours(owner):
            if peer in self.survivors:
                all_keys = self.shared[peer].public_keys
                public_keys[peer] = piece(all_keys, index)
        pair_keys = keys.agree_pair_keys(private_key, public_keys, self._run_id, owner)
        total = np.zeros(self._length, dtype=np.uint64)
        for peer, pair_key in pair_keys.items():
            total += agreement.pair_mask(
                pair_key,
                peer,
                owner,
                self.attempt_id,
                transcript,
                self._length,
            )
        return total

    def _require_threshold(self, n_shares: int, owner: int) -> None:
        """Raise unless enough neighbours gave a share of one client's key."""
        if n_shares < self.graph.threshold:
            raise ProtocolError(
                f"{n_shares} neighbours of node {owner} gave a share of its key, but"
                f" {self.graph.threshold} are needed: another attempt is due."
            )


def _is_for(
    parts: Mapping[int, bytes],
    nodes: NodeIds,
    length: int,
) -> bool:
    """Tell whether there are so many bytes for each of the nodes, and nobody else.

    `nodes` are ascending.
    """
    if sorted(parts) != list(nodes):
        return False
    return all(len(content) == length for content in parts.values())
