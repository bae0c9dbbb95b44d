"""Sums that are repeated without whoever fell silent: both sides.

Each pair of clients adds and subtracts one mask, so that masks cancel in the sum of
all; if a vector is missing they do not, and a new attempt is asked for.

====================  ==========================  ==================================
state                 event                       next state
====================  ==========================  ==================================
`KEYED`               first `SumRequest`          `SUMMING` at (first round, attempt)
`SUMMING` at (r, a)   `SumRequest` (r + 1, a)     `SUMMING` at (r + 1, a); opens
                                                  release (r, a)
`SUMMING` at (r, a)   `SumRequest` (r, a' > a)    `SUMMING` at (r, a'); smaller
                                                  roster, no release
`SUMMING` at (r, a)   `FinishRequest` (r, a)      `FINISHED`; opens release (r, a)
anything              `StopRequest`               `FINISHED`
anything else                                     `ProtocolError`, and the state stays
====================  ==========================  ==================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.errors import CohortError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg import ciphers, keys, messages
from flwr_dpkmeans.secagg.blinding import Keys
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import KEY_BYTES, piece
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.session import (
    TAG_BYTES,
    Outcome,
    Session,
    Silence,
    require_equal_tags,
)


@dataclass(frozen=True)
class Retry(Party):
    """A client of a run that repeats sums; see `Party`."""

    pair_keys: Keys = field(default=(), repr=False)
    """Keys agreed with the neighbours of the current attempt."""
    mask_keys: bytes = field(default=b"", repr=False)
    """Keys of the masks under `transcript`, end to end, in the order of `pair_keys`."""

    def admit(
        self,
        request: messages.SumRequest,
        first_round: int,
        closing_round: int = 0,
    ) -> Retry:
        """See `Party.admit`."""
        self._require_admissible(request, first_round, closing_round)
        if request.attempt == self.attempt:
            if request.roster is not None:
                # Against a second cohort under the masks of the first.
                raise ProtocolError(
                    "a second roster was announced for an attempt that has one: stop"
                    " the run."
                )
            entered = self.with_boxes(request.boxes)
        else:
            entered = self._in_attempt(request)
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index)

    def _in_attempt(self, request: messages.SumRequest) -> Retry:
        """Enter a new attempt, if its roster is as it should be.

        Agree on keys with its neighbours, and become an author if named.
        """
        roster = request.roster
        if roster is None or roster.attempt != request.attempt:
            # Against an old roster under a new attempt's number, and so masks of both.
            raise ProtocolError(
                f"attempt {request.attempt} was opened without its own roster: restart"
                " the run."
            )
        self._require_own_place(roster, request.attempt)
        if request.boxes:
            # Against group keys that the new attempt's authors did not draw for it.
            raise ProtocolError(
                "sealed group keys came with a new roster: they are replayed or of"
                " another attempt."
            )
        if self.roster is not None:
            _require_smaller(roster, self.roster)
        neighbours = roster.neighbours(self.node_id, self.max_silent)
        pair_keys = self._agreed_keys(roster, neighbours, dict(self.pair_keys))
        entered = changed(
            self,
            attempt=request.attempt,
            roster=roster,
            pair_keys=tuple([(peer, pair_keys[peer]) for peer in neighbours]),
            own_group_key=self._fresh_group_key(roster),
            group_keys=(),
        )
        if self.authored:
            return entered
        return entered._with_group_keys({}, roster)

    def with_boxes(self, boxes: Mapping[int, bytes]) -> Retry:
        """Open the authors' boxes of the current attempt, if they are due."""
        if not self.authored or self.group_keys:
            return super().with_boxes(boxes)
        cohort = self.cohort
        authors = set(cohort.authors(self.max_silent))
        others = sorted(authors - {self.node_id})
        if sorted(boxes) != others:
            # Against a sum that fewer authors blind than the plan says.
            raise ProtocolError(
                f"sealed group keys came from nodes {sorted(boxes)}, but the authors of"
                f" attempt {self.attempt} are {others}: restart the run."
            )
        pair_keys = self._agreed_keys(cohort, others, dict(self.pair_keys))
        opened = {}
        for author, box in boxes.items():
            pair_key = pair_keys[author]
            opened[author] = self._open(pair_key, "box", author, box, KEY_BYTES)
        return self._with_group_keys(opened, cohort)

    def _add_masks(
        self,
        values: Ring,
        transcript: bytes,
    ) -> tuple[Retry, dict[int, bytes]]:
        """Add the masks of later neighbours and subtract those of earlier ones.

        An author seals its new key for everybody else.
        """
        masked = self
        if transcript != self.transcript:
            mask_keys = [
                self._mask_key(pair_key, transcript) for _, pair_key in self.pair_keys
            ]
            masked = changed(self, mask_keys=b"".join(mask_keys))
        for index, (peer, _) in enumerate(self.pair_keys):
            mask_key = piece(masked.mask_keys, index)
            words = self._mask(mask_key, len(values))
            if self.node_id < peer:
                values += words
            else:
                values -= words
        if self.own_group_key and not self.group_keys:
            return masked, self._sealed_group_key()
        return masked, {}

    def _mask_key(self, pair_key: bytes, transcript: bytes) -> bytes:
        """Derive the key of the masks with one neighbour, which derives the same."""
        return keys.derive_key(pair_key, "mask", transcript)

    def _mask(self, mask_key: bytes, length: int) -> Ring:
        """Expand the mask with one neighbour, which expands the same."""
        return ciphers.stream(mask_key, self.attempt_id, length)

    def _sealed_group_key(self) -> dict[int, bytes]:
        """Seal the new group key for each other client."""
        peers = self.cohort.others_than(self.node_id)
        pair_keys = self._agreed_keys(self.cohort, peers, dict(self.pair_keys))
        boxes = {}
        for peer in peers:
            boxes[peer] = self._seal(pair_keys[peer], "box", peer, self.own_group_key)
        return boxes

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """Group keys are of one attempt."""
        return (self.attempt,)


def _require_smaller(roster: Roster, before: Roster) -> None:
    """Raise unless a later roster has fewer clients, with the keys that they had."""
    is_smaller = len(roster.members) < len(before.members)
    are_unchanged = all(before.keys.get(node) == key for node, key in roster.members)
    if not (is_smaller and are_unchanged):
        # Against clients that join when identities are looked at no more.
        raise ProtocolError(
            "a later attempt's roster adds a node or changes a key: stop the run."
        )


class RetrySession(Session):
    """The server's side of sums that are repeated."""

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
        """See `Session`; `min_cohort` is the smallest roster whose sum is released."""
        super().__init__(
            roster,
            least=max(2, min_cohort),
            max_retries=max_retries,
            max_silent=max_silent,
            authored=authored,
            credentials=credentials,
        )
        self._boxes: dict[int, dict[int, bytes]] = {}
        """Group keys to relay, by recipient and author."""

    def authors(self) -> frozenset[int]:
        """Return those that seal a group key in the first reply of the attempt."""
        if not self._authored:
            return frozenset()
        return frozenset(self.roster.authors(self._max_silent))

    def request(
        self,
        node_id: int,
        release: messages.Release | None,
        state: bytes,
    ) -> messages.SumRequest:
        """Make the next request to one client."""
        roster = self.roster if self._is_first else None
        # Clients know the keys of later rosters, which can only be smaller.
        introduces = self._is_first and self.attempt == 0
        return messages.SumRequest(
            round_index=self.round_index,
            attempt=self.attempt,
            roster=roster,
            release=release,
            boxes=self.take_boxes(node_id),
            state=state,
            credentials=self._credentials if introduces else {},
        )

    def finish_request(
        self,
        node_id: int,
        release: messages.Release,
        state: bytes,
    ) -> messages.FinishRequest:
        """Make the last message to one client."""
        return messages.FinishRequest(release, self.take_boxes(node_id), state)

    def take_boxes(self, node_id: int) -> dict[int, bytes]:
        """Hand out the group keys sealed for one node, once an attempt."""
        return self._boxes.pop(node_id, {})

    def _require_parts(
        self,
        node_id: int,
        reply: messages.SumReply,
    ) -> None:
        """Raise unless the tag has its length, and key authors alone seal their keys.

        A tag is empty before any key is shared.
        """
        if len(reply.tag) not in (0, TAG_BYTES):
            raise ProtocolError(
                f"node {node_id} sent a tag of {len(reply.tag)} bytes, not {TAG_BYTES}:"
                " discarded."
            )
        is_author = self._is_first and node_id in self.authors()
        due = self.roster.others_than(node_id) if is_author else ()
        if sorted(reply.boxes) != list(due):
            # Against clients that get no key, or one of somebody who is no author.
            raise ProtocolError(
                f"node {node_id} sealed its key for {len(reply.boxes)} clients, but"
                f" {len(due)} were due: discarded."
            )

    def close(
        self,
        plan_digest: bytes,
        *,
        blinded: bool,
    ) -> Outcome:
        """Go on with what came: to the sum, or to a new attempt without the silent."""
        missing = self.missing()
        if missing:
            self.retry()
            return None, Silence(missing, None)
        return self.aggregate(blinded=blinded), None

    def retry(self) -> None:
        """Open a new attempt of the same round with those that answered.

        Too few of them, or of the plan's retries, are a `CohortError`.
        """
        missing = self.missing()
        if self._is_open and not missing:
            # Clients would refuse a roster that did not shrink.
            raise LocalMisuseError(
                f"every client answered round {self.round_index}: aggregate it instead"
                " of retrying."
            )
        n_left = len(self.roster.members) - len(missing)
        if n_left < self.least:
            lower = ", or lower min-clients" if n_left > 1 else ""
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index};"
                f" {n_left} clients are left, but at least {self.least} are needed:"
                f" look at their logs and start a new run{lower}."
            )
        if self.attempt >= self._max_retries:
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index} and the"
                f" plan's {self._max_retries} retries are used up: start a new run, or"
                " raise max-retries (each costs budget), or round-timeout if they are"
                " only slow."
            )
        self.roster = self.roster.without(self.attempt + 1, missing)
        self._boxes = {}
        self._is_first = True
        self._reset()

    def aggregate(self, *, blinded: bool) -> AggregateVector:
        """Return the sum of the open round, once everybody answered.

        Parameters
        ----------
        blinded : bool
            Whether the authors' streams are still in it.
        """
        self._require_blinding(blinded=blinded)
        missing = self.missing()
        if missing:
            raise CohortError(
                f"nodes {list(missing)} have not answered round {self.round_index}:"
                " retry without them."
            )
        require_equal_tags(self.tags, self.round_index)
        if self._is_first:
            self._sort_boxes()
        self._is_first = False
        self._is_open = False
        return AggregateVector(self.total, blinded)

    def _sort_boxes(self) -> None:
        """Sort the authors' boxes by recipient."""
        self._boxes = {node: {} for node in self.roster.node_ids}
        for author, boxes in self.sealed.items():
            for node, box in boxes.items():
                self._boxes[node][author] = box
