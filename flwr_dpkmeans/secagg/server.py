"""The server's side of masked aggregation: it collects, checks and adds up vectors that it cannot read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from flwr_dpkmeans.errors import CohortError, DisagreementError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.secagg.messages import NO_ROUND, SumReply
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import Roster

TAG_BYTES = 32
"""Length of a state tag (HMAC-SHA256)."""


class ServerSession:
    """One run of the aggregation protocol, as the server sees it.

    Parameters
    ----------
    roster : Roster
        The cohort of the first attempt.
    min_cohort : int
        Smallest number of clients whose sum is asked for.
    max_retries : int
        How many attempts may follow a dropout before the run stops.
    max_silent : int
        Determines the number of key authors.
    authored : bool
        Whether key authors blind the sums.
    """

    def __init__(self, roster: Roster, *, min_cohort: int, max_retries: int, max_silent: int, authored: bool) -> None:
        if len(roster.members) < max(2, min_cohort):
            raise CohortError(
                f"{len(roster.members)} clients take part, but at least {max(2, min_cohort)} are needed: "
                "start more clients or lower min-clients."
            )
        self.roster = roster
        self.round_index = NO_ROUND
        self._length = 0
        self._min_cohort = min_cohort
        self._max_retries = max_retries
        self._max_silent = max_silent
        self._authored = authored
        self._replies: dict[int, SumReply] = {}
        self._boxes: dict[int, dict[int, bytes]] = {}
        self._first_of_attempt = True
        self._open = False

    @property
    def attempt(self) -> int:
        """Number of the current attempt."""
        return self.roster.attempt

    def open_round(self, round_index: int, length: int) -> None:
        """Wait for one vector of `length` entries from every client of the roster."""
        self.round_index = round_index
        self._length = length
        self._replies = {}
        self._open = True

    def expects_roster(self) -> bool:
        """Whether the next request must announce the roster (first request of an attempt)."""
        return self._first_of_attempt

    def receive(self, node_id: int, reply: SumReply) -> None:
        """Take one reply in.

        Raises
        ------
        ProtocolError
            If the node is not in the roster, answered already, answers another round or attempt than the open one,
            or its vector, tag or boxes have the wrong form. The session stays as it was.
        """
        asked = (self.round_index, self.attempt)
        if node_id not in self.roster.keys:
            raise ProtocolError(
                f"node {node_id} answered, but is not in the roster of attempt {self.attempt}: ignored."
            )
        if not self._open or (reply.round_index, reply.attempt) != asked:
            raise ProtocolError(
                f"node {node_id} answered round {reply.round_index}, attempt {reply.attempt}, but round {asked[0]}, "
                f"attempt {asked[1]} is {'open' if self._open else 'complete'}: the reply is late or replayed and is "
                "discarded."
            )
        if node_id in self._replies:
            raise ProtocolError(f"node {node_id} answered round {asked[0]} twice: the second reply is discarded.")
        require_words(node_id, reply.masked.values, self._length)
        if len(reply.tag) not in (0, TAG_BYTES):
            raise ProtocolError(
                f"node {node_id} sent a tag of {len(reply.tag)} bytes instead of {TAG_BYTES}: discarded."
            )
        self._require_boxes(node_id, reply)
        self._replies[node_id] = reply

    def missing(self) -> tuple[int, ...]:
        """Nodes of the roster that have not answered the open round."""
        return tuple(node for node in self.roster.node_ids if node not in self._replies)

    def retry(self) -> None:
        """Open a new attempt of the same round with those that answered.

        Raises
        ------
        CohortError
            If too few answered, or the plan's retries are used up.
        LocalMisuseError
            If nobody is missing: clients refuse a roster that did not shrink.
        """
        missing = self.missing()
        if self._open and not missing:
            raise LocalMisuseError(f"every client answered round {self.round_index}: aggregate it instead of retrying.")
        left = len(self.roster.members) - len(missing)
        if left < max(2, self._min_cohort):
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index}; {left} clients are left, but at least "
                f"{max(2, self._min_cohort)} are needed: look at their logs and start a new run, or lower min-clients."
            )
        if self.attempt >= self._max_retries:
            raise CohortError(
                f"nodes {list(missing)} did not answer round {self.round_index} and the plan's {self._max_retries} "
                "retries are used up: start a new run, or raise max-retries (each costs budget), or round-timeout if "
                "they are only slow."
            )
        self.roster = self.roster.without(self.attempt + 1, missing)
        self._replies = {}
        self._boxes = {}
        self._first_of_attempt = True

    def aggregate(self, *, blinded: bool) -> AggregateVector:
        """Add up the vectors of the open round, once everybody answered.

        Parameters
        ----------
        blinded : bool
            Whether the key authors' streams are still in the sum.

        Returns
        -------
        AggregateVector
            The pairwise masks cancel in it.

        Raises
        ------
        CohortError
            If a reply is missing.
        DisagreementError
            If the clients' tags differ.
        LocalMisuseError
            If `blinded` is asked for in a run without key authors.
        """
        if blinded and not self._authored:
            raise LocalMisuseError("a run without key authors has no blinded sums: check the plan's trust model.")
        missing = self.missing()
        if missing:
            raise CohortError(f"nodes {list(missing)} have not answered round {self.round_index}: retry without them.")
        require_equal_tags({node: reply.tag for node, reply in self._replies.items()}, self.round_index)
        total = np.zeros(self._length, dtype=np.uint64)
        for reply in self._replies.values():
            total += reply.masked.values
        if self._first_of_attempt:
            self._collect_boxes()
        self._first_of_attempt = False
        self._replies = {}
        self._open = False
        return AggregateVector(total, blinded)

    def take_boxes(self, node_id: int) -> dict[int, bytes]:
        """Sealed group keys to relay to one node with its next message; handed out once an attempt."""
        return self._boxes.pop(node_id, {})

    def _require_boxes(self, node_id: int, reply: SumReply) -> None:
        """Check that a key author, and nobody else, sealed its key for everybody else."""
        is_author = self._authored and self._first_of_attempt and node_id in self.roster.authors(self._max_silent)
        due = [other for other in self.roster.node_ids if other != node_id] if is_author else []
        if sorted(reply.boxes) != due:
            raise ProtocolError(
                f"node {node_id} sealed its group key for {len(reply.boxes)} clients, but {len(due)} were due: "
                "discarded."
            )

    def _collect_boxes(self) -> None:
        """Sort the sealed keys by recipient."""
        boxes: dict[int, dict[int, bytes]] = {node: {} for node in self.roster.node_ids}
        for author, reply in self._replies.items():
            for recipient, box in reply.boxes.items():
                boxes[recipient][author] = box
        self._boxes = boxes if self._authored else {}


def require_words(node_id: int, values: Ring, length: int) -> None:
    """Refuse a vector that is not of so many ring elements."""
    if values.shape != (length,) or values.dtype != np.uint64:
        raise ProtocolError(
            f"node {node_id} sent {values.size} entries of {values.dtype}, but the plan has {length} of uint64: "
            "discarded."
        )


def require_equal_tags(tags: dict[int, bytes], round_index: int) -> None:
    """Stop the run with the minority's names if the clients' state tags differ."""
    counts = Counter(tags.values())
    if len(counts) <= 1:
        return
    common, votes = counts.most_common(1)[0]
    if votes * 2 <= len(tags):
        suspects: Iterable[int] = tags
    else:
        suspects = [node for node, tag in tags.items() if tag != common]
    raise DisagreementError(
        f"the state of node(s) {sorted(suspects)} differs from the others' in round {round_index}: check that all "
        "nodes run the same versions of flwr-dpkmeans and NumPy, and start a new run."
    )
