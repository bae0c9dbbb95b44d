"""What a client is handed: its node's own rules, and the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import Signer
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array

RowsSeen = tuple[int, tuple[str, ...], tuple[int, ...]]
"""How many rows, of which columns, and a sum of what each holds: the node's alone."""


class Guard:
    """What the node decides, writes down and logs.

    What it refuses, it refuses by an error.

    This one lets everything pass, for parties that are all the caller's own.
    """

    run_id: int
    node_id: int
    stream: int
    """Numbers this client's seeded noise."""
    data_id = ""
    """The data set's name in the ledger."""
    min_cohort = 0
    """Fewest clients whose sum the policy allows."""
    identity: Signer | None = None
    """Signs this node's keys; None: nobody can tell that they are its own."""
    pinned: Mapping[bytes, str] | None = None
    """Identities that the policy pins, with their names; None if it pins nobody."""

    def marks(self) -> frozenset[bytes]:
        """Make `secagg.pins.pin_mark` of each pinned identity, for the server."""
        return frozenset()

    def started(self) -> str:
        """Now, for the result's provenance."""
        return ""

    def identities(self, n_recognised: int) -> str:
        """What the report says of the others' identities."""
        return report_sentence("simulated")

    def require_in_time(self, wait: float | None) -> None:
        """Refuse a request whose sender has given up by now.

        It would be paid for nothing.
        """

    def require_approved(
        self,
        plan: Plan,
        digest: bytes,
    ) -> None:
        """Recompute a plan, and hold it against the policy and what the data cost.

        A server may lie about prices.
        """

    def require_new_run(self) -> None:
        """Refuse a run that was charged before, or whose releases could not be charged.

        It is replayed, or its memory was lost.
        """

    def require_same_data(self, rows: RowsSeen | None) -> None:
        """Refuse other rows than those that the ledger was charged for."""

    def require_names(
        self,
        plan: Plan,
        names: tuple[str, ...],
    ) -> None:
        """Hold the columns and their bounds against the policy."""

    def require_same_history(self, memory: Memory) -> None:
        """Refuse to go on where ledger and memory differ: one is an older copy."""

    def require_open(
        self,
        memory: Memory,
        request: messages.SumRequest,
    ) -> None:
        """Refuse a request that was charged before, and what the policy forbids by now.

        What stands in the ledger is replayed.
        """

    def charge(
        self,
        memory: Memory,
        index: int,
        attempt: int,
        n_clients: int,
    ) -> None:
        """Write a release into the ledger before it is sent."""

    def give_shares(
        self,
        memory: Memory,
        request: messages.UnmaskRequest,
    ) -> None:
        """Write into the ledger that key shares are given.

        Refuse a second time: both shares would open a vector.
        """

    def shared(
        self,
        memory: Memory,
        n_neighbours: int,
        threshold: int,
    ) -> None:
        """Log that keys were shared."""

    def finished(
        self,
        memory: Memory,
        report: PrivacyReport,
    ) -> None:
        """Log the end of the run."""

    def ended(self, memory: Memory) -> None:
        """Write into the ledger that the result has been handed on."""

    def stopped(
        self,
        memory: Memory | None,
        sentence: str,
    ) -> None:
        """Log that the server has ended the run, and why."""


class TableFacts(NamedTuple):
    """What a client says of its own table before any sum."""

    n_features: int
    names: tuple[str, ...]
    """Of its columns; empty if it knows none."""
    has_labels: bool
    schema: str
    """What its schema agrees to; empty without one."""
    has_persons: bool = False
    """Whether it is known which rows are one person's."""
    has_weights: bool = False
    """Whether it is known what each row weighs."""
    rows: RowsSeen | None = None
    """By which the node knows its table again; None where nobody looks."""


class Statistic(Protocol):
    """What knows the rows."""

    def describe(self) -> TableFacts:
        """What the client says of its table."""

    def compute(
        self,
        memory: Memory,
        index: int,
    ) -> Sequence[Array]:
        """The exact statistic of one round, clipped to what the plan says."""

    def deliver(self, memory: Memory, report: Callable[[], PrivacyReport]) -> bool:
        """Take the result; True if it was stored, which the ledger alone is told."""
