"""The server of a masked aggregation, as far as all ways to add up agree.

It adds up vectors that it cannot read, and relays boxes that it cannot open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    LocalMisuseError,
    ProtocolError,
)
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.ciphers import AttemptId
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.ring import AggregateVector, Ring
from flwr_dpkmeans.secagg.roster import NodeIds, Roster

TAG_BYTES = 32
"""Length of a state tag (HMAC-SHA256)."""


@dataclass(frozen=True)
class Silence:
    """Who did not answer, and what follows for the server's log."""

    nodes: NodeIds
    left_out: str | None
    """What they did not send, where the sum goes on without them.

    None: a new attempt was opened.
    """
    why: str = ""
    """What was wrong with what came, if that is why."""


Outcome = tuple[AggregateVector | None, Silence | None]
"""The sum, once it is there, and who did not answer, if that changes anything."""


PartOfSum = messages.ShareReply | messages.SumReply | messages.UnmaskReply
"""What a client sends so that a sum comes about."""


class Session(ABC):
    """One run of an aggregation protocol, as the server sees it."""

    sharers: Roster | None = None
    """Everybody that shared keys, where sums are recovered."""

    def __init__(
        self,
        roster: Roster,
        *,
        least: int,
        max_retries: int,
        max_silent: int,
        authored: bool,
        credentials: Mapping[int, Credential] | None = None,
    ) -> None:
        """Start with the clients of the first attempt.

        Parameters
        ----------
        roster : Roster
            Who takes part, with the keys of this run.
        least : int
            Fewest clients whose sum may be released; less is a `CohortError`.
        max_retries : int
            Attempts beyond the first, in all of the run.
        max_silent : int
            How many clients may collude or fall silent.
        authored : bool
            Whether key authors hide the sums from the server.
        credentials : mapping of int to Credential, optional
            What clients that have identities signed, by node id.
        """
        if len(roster.members) < least:
            raise CohortError(
                f"{len(roster.members)} clients take part, but at least {least} are"
                " needed: start more clients or lower min-clients."
            )
        self.roster = roster
        self.round_index = messages.NO_ROUND
        self.due = Stage.SUM
        self.least = least
        self.tags: dict[int, bytes] = {}
        """State tags of those that answered the open round."""
        self.sealed: dict[int, Mapping[int, bytes]] = {}
        """What their replies have for other clients, by sender."""
        self.total: Ring = np.zeros(0, dtype=np.uint64)
        self._length = 0
        self._is_open = False
        self._is_first = True
        """Whether rosters or boxes that are sent once are still due."""
        self._authored = authored
        self._max_retries = max_retries
        self._max_silent = max_silent
        self._credentials = {} if credentials is None else credentials

    @property
    def attempt(self) -> int:
        """Number of the current attempt."""
        return self.roster.attempt

    @property
    def attempt_id(self) -> AttemptId:
        """Round and attempt of the aggregation that is open, or was last."""
        return self.round_index, self.attempt

    @property
    def recipients(self) -> NodeIds:
        """Who gets the next request."""
        return self.roster.node_ids

    @property
    def n_summed(self) -> int:
        """Clients in the sum."""
        return len(self.roster.members)

    def open_round(
        self,
        round_index: int,
        length: int,
    ) -> None:
        """Wait for one vector of so many entries from every client of the roster."""
        self.round_index = round_index
        self._length = length
        self._reset()

    def _reset(self) -> None:
        """Forget what came, and wait for the vectors of a new aggregation."""
        self.tags = {}
        self.sealed = {}
        self.due = Stage.SUM
        self.total = np.zeros(self._length, dtype=np.uint64)
        self._is_open = True

    def receive(
        self,
        node_id: int,
        reply: messages.SumReply,
    ) -> None:
        """Take one vector in.

        One that is late, replayed or malformed is a `ProtocolError` and changes
        nothing.
        """
        if node_id not in self.roster.keys:
            # Against a sum with somebody in it whom nobody masks with.
            raise ProtocolError(
                f"node {node_id} answered, but is not in the roster of attempt"
                f" {self.attempt}: ignored."
            )
        is_open = self._is_open and self.due is Stage.SUM
        if not is_open or reply.attempt_id != self.attempt_id:
            # Against vectors of other masks, which would make the sum noise.
            raise ProtocolError(
                f"node {node_id} answered round {reply.round_index}, attempt"
                f" {reply.attempt}, but round {self.round_index}, attempt"
                f" {self.attempt} is"
                f" {'open' if is_open else 'complete'}: the reply is late or replayed"
                " and is discarded."
            )
        if node_id in self.tags:
            # Against a vector that counts twice.
            raise ProtocolError(
                f"node {node_id} answered round {self.round_index} twice: the second"
                " reply is discarded."
            )
        values = reply.masked.values
        if values.shape != (self._length,) or values.dtype != np.uint64:
            # Against words that NumPy would spread over others, or round.
            raise ProtocolError(
                f"node {node_id} sent {values.size} entries of {values.dtype}, but the"
                f" plan has {self._length} of uint64: discarded."
            )
        self._require_parts(node_id, reply)
        self.tags[node_id] = reply.tag
        self.sealed[node_id] = reply.boxes
        # Added up at once, so that 10,000 clients need no 10,000 vectors.
        self.total += values

    @abstractmethod
    def _require_parts(
        self,
        node_id: int,
        reply: messages.SumReply,
    ) -> None:
        """Raise unless a reply's tag and boxes for others are as they are due."""

    def take(self, node_id: int, reply: PartOfSum) -> None:
        """Take in what one client replied to the request that is due."""
        assert isinstance(reply, messages.SumReply)
        self.receive(node_id, reply)

    def missing(self) -> NodeIds:
        """Return the nodes of the roster that have not answered the open round."""
        return tuple([node for node in self.roster.node_ids if node not in self.tags])

    @abstractmethod
    def close(
        self,
        plan_digest: bytes,
        *,
        blinded: bool,
    ) -> Outcome:
        """Go on with what came: to the sum, to its next stage, or to a new attempt.

        Parameters
        ----------
        plan_digest : bytes
            Digest of the plan in force.
        blinded : bool
            Whether key authors' streams are in the sum.
        """

    def _require_blinding(self, *, blinded: bool) -> None:
        """Raise if authors' streams are to be in a sum of a run that has none."""
        if blinded and not self._authored:
            raise LocalMisuseError(
                "a run without key authors has no blinded sums: check the plan's trust"
                " model."
            )


def require_equal_tags(tags: Mapping[int, bytes], round_index: int) -> None:
    """Stop the run with the minority's names if the clients' state tags differ."""
    counts = Counter(tags.values())
    if len(counts) <= 1:
        return
    common_tag, n_common = counts.most_common(1)[0]
    has_majority = n_common * 2 > len(tags)
    suspects = []
    for node, tag in sorted(tags.items()):
        if tag != common_tag or not has_majority:
            suspects.append(node)
    # Against clients that were told different releases, and go on from different
    # centroids.
    raise DisagreementError(
        f"the state of node(s) {suspects} differs from the others' in round"
        f" {round_index}: check that all nodes run the same versions of flwr-dpkmeans"
        " and NumPy, and start a new run."
    )
