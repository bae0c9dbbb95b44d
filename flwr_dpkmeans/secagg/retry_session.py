"""The server of sums that are repeated without whoever fell silent."""

from __future__ import annotations

from collections.abc import Mapping

from flwr_dpkmeans.errors import CohortError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.session import (
    TAG_BYTES,
    Outcome,
    Session,
    Silence,
    require_equal_tags,
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
