"""What a client remembers of a run whose sums are recovered."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from enum import Enum

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.keys import KEY_BYTES
from flwr_dpkmeans.secagg.messages import NO_ROUND
from flwr_dpkmeans.secagg.recovery.graph import RecoveryGraph, recovery_graph
from flwr_dpkmeans.secagg.recovery.slots import Slots
from flwr_dpkmeans.secagg.roster import Roster


class Phase(Enum):
    """Where a client stands in a run."""

    KEYED = "keyed"
    SHARED = "shared"
    ADMITTED = "admitted"
    MASKED = "masked"
    UNMASKED = "unmasked"
    FINISHED = "finished"


LEAST_AUTHORS = 2
"""Key authors that must survive, so that one with a bad random generator does not open the sum."""


@dataclass(frozen=True)
class RecoveryState:
    """All that a client must remember between two messages of one run with recoverable sums.

    Parameters
    ----------
    run_id, node_id, private_key, min_cohort, max_silent, authored, plan_digest
        As in `flwr_dpkmeans.secagg.client.ClientState`.
    slots : Slots
        The aggregations that keys are shared for.
    masters : bytes
        Two 32-byte secrets, from which the own keys of all aggregations follow.
    phase, round_index, attempt
        The last (round, attempt) that was admitted, answered or unmasked.
    setup : Roster or None
        Everybody that shared keys: graph and authors follow from it.
    roster : Roster or None
        The cohort of the last request.
    survivors : tuple of int
        Of the last aggregation that was unmasked.
    transcript : bytes
        What the last answered vector was masked under.
    held : tuple of (node id, bytes)
        The key of the run agreed with each neighbour, and from the first request on, behind each other, the shares that
        it gave this client, its public keys, and the key of its tickets.
    own_group_key, group_keys, tag_key
        As in `ClientState`.
    """

    run_id: int
    node_id: int
    private_key: bytes = field(repr=False)
    min_cohort: int
    max_silent: int
    authored: bool
    plan_digest: bytes
    slots: Slots
    masters: bytes = field(repr=False, default_factory=lambda: os.urandom(2 * KEY_BYTES))
    phase: Phase = Phase.KEYED
    round_index: int = NO_ROUND
    attempt: int = -1
    setup: Roster | None = None
    roster: Roster | None = None
    survivors: tuple[int, ...] = ()
    transcript: bytes = b""
    held: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    own_group_key: bytes = field(default=b"", repr=False)
    group_keys: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    tag_key: bytes = field(default=b"", repr=False)

    @property
    def cohort(self) -> Roster:
        """The cohort of the last request; asking before the first is a `ProtocolError`."""
        if self.roster is None:
            raise ProtocolError("no cohort was announced before the first round: restart the run.")
        return self.roster

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

    def with_plan(self, plan_digest: bytes) -> RecoveryState:
        """Return the state with another plan in force (the final plan after a preliminary one)."""
        return replace(self, plan_digest=plan_digest)


def least_survivors(n_sharers: int, max_silent: int, min_cohort: int) -> int:
    """Smallest number of clients whose sum may be opened."""
    return max(2, min_cohort, n_sharers - max_silent)
