"""A client's privacy ledger: what was charged, before anything was sent.

One (run, round, attempt) is charged once, and a run all that it can cost with its first
release. What other runs cost is added up in one unit of privacy: basic composition,
which holds as well where each run is chosen by what the ones before have released
(Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters", 2016).

`node.ledger_file` keeps a ledger on the client's own disk: `charge` returns only after
the entry is there, so whatever was sent has been charged, whichever way the process
ends.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from flwr_dpkmeans.errors import ProtocolError, distinct_texts
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry, PlanNote
from flwr_dpkmeans.privacy.gaussian import LARGEST_EXPONENT
from flwr_dpkmeans.privacy.provenance import utc_now

_RELATIVE_SLACK = 1e-8
"""A plan's numbers may come from another machine, whose last digits differ."""


@dataclass(frozen=True)
class Past:
    """What a data set's other runs can have cost in one unit of privacy, added up."""

    epsilon: float = 0.0
    delta: float = 0.0
    begun: tuple[str, ...] = ()
    """When each node of each of them, whatever its unit, made its first release.

    Times in UTC, ISO format.
    """


def run_of(run_id: str) -> str:
    """Return the run of a part of it.

    Nodes of one host have a part each, named run/node, of what is one run.
    """
    return run_id.partition("/")[0]


def total_delta(runs: Sequence[LedgerEntry], own_run: str = "") -> float:
    """Add up the deltas of runs, by the first entry of each part.

    A row that two nodes give to one run counts twice under the same noise, as a person
    with two rows (row C12): a later part of a run costs exp(epsilon of the parts before
    it) times its delta.

    Parameters
    ----------
    runs : sequence of LedgerEntry
        First entries of the parts of runs.
    own_run : str
        A run of which a part that is not among them comes first.
    """
    deltas: list[float] = []
    spent_before: dict[str, float] = {}
    for part in runs:
        run = run_of(part.run_id)
        if run not in spent_before:
            spent_before[run] = part.epsilon if run == own_run else 0.0
        factor = math.exp(min(spent_before[run], LARGEST_EXPONENT))
        deltas.append(min(1.0, part.delta * factor))
        spent_before[run] += part.epsilon
    return math.fsum(deltas)


Admit = Callable[[Past], None]
"""Raises unless a run may be charged besides what the others have cost.

Called under the ledger's lock.
"""


class MemoryLedger:
    """A client's ledger in memory, and the rules that its entries obey together.

    It lives as long as its process, for simulations; a `FileLedger` outlives it.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._entries: list[LedgerEntry] = []
        self._attempts: dict[str, set[tuple[int, int]]] = {}
        """Of each run, every (round, attempt)."""
        self._runs: dict[str, LedgerEntry] = {}
        """The first entry of each run, which charges all of it."""
        self._plans: list[PlanNote] = []

    def _look(self) -> MemoryLedger:
        """Return what has been charged until now; called under the guard."""
        return self

    def past(
        self,
        data_id: str,
        unit: str,
        *,
        excluding_run: str | None = None,
    ) -> Past:
        """Return what a data set's runs have cost in one unit.

        Of all, or of all but one that is being resumed.
        """
        beginnings: list[str] = []
        charged: list[LedgerEntry] = []
        own_run = "" if excluding_run is None else run_of(excluding_run)
        with self._guard:
            for run in self._look()._runs.values():
                if run.data_id != data_id or run.run_id == excluding_run:
                    continue
                # Each node of a run: who gives out the numbers of nodes could ask one
                # again under the next.
                beginnings.append(run.time)
                if run.unit == unit:
                    charged.append(run)
        return Past(
            epsilon=math.fsum([run.epsilon for run in charged]),
            delta=total_delta(charged, own_run),
            begun=tuple(beginnings),
        )

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        with self._guard:
            return frozenset(self._look()._attempts.get(run_id, ()))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._look()._entries)

    def require_usable(self) -> None:
        """Raise BudgetError if a charge would fail for the ledger's own sake.

        Called before a run begins.
        """

    def note_plan(
        self,
        data_id: str,
        run_id: str,
        plan: str,
        most: int,
    ) -> int:
        """Note that a plan is held against what a data set's runs have cost.

        Returns
        -------
        int
            Of how many others it was: plans of the last 24 hours whose runs released
            nothing. With `most` of them nothing is added any more.
        """
        with self._guard:
            note = PlanNote(
                utc_now(),
                data_id,
                run_of(run_id),
                plan,
            )
            self._plans, n_others = self._noted(self._plans, note, most)
            return n_others

    def _noted(
        self,
        notes: Sequence[PlanNote],
        note: PlanNote,
        most: int,
    ) -> tuple[list[PlanNote], int]:
        """Return today's notes with a new one, and the number of the others."""
        earliest = datetime.now(UTC) - timedelta(days=1)
        charged = set(map(run_of, self._look()._runs))
        today = []
        for other in notes:
            is_recent = datetime.fromisoformat(other.time) >= earliest
            if is_recent and other.run_id not in charged:
                today.append(other)
        others = {other.key for other in today if other.data_id == note.data_id}
        others.discard(note.key)
        if len(others) < most:
            today = [other for other in today if other.key != note.key]
            today.append(note)
        return today, len(others)

    def charge(
        self,
        entry: LedgerEntry,
        admit: Admit | None = None,
    ) -> None:
        """Record a release before it is sent.

        The first entry of a run charges all that the run can cost; later ones add lines
        only. ``admit(past)`` raises unless the run may be charged besides what the
        others on its data set have cost; it is called under the lock, so that nobody
        else charges between its decision and this entry. An attempt that is in the
        ledger already, or an entry that does not fit its run, is a ProtocolError; a
        file that is damaged or cannot be written, a BudgetError.
        """
        with self._guard:
            self._refuse(entry, admit)
            self._add(entry)

    def _refuse(
        self,
        entry: LedgerEntry,
        admit: Admit | None,
    ) -> None:
        conflict = self._conflict(entry)
        if conflict is not None:
            raise ProtocolError(
                f"{conflict}, but a release must fit its run: ask for a new attempt or"
                " a new run."
            )
        if admit is not None:
            admit(self.past(entry.data_id, entry.unit, excluding_run=entry.run_id))

    def _conflict(self, entry: LedgerEntry) -> str | None:
        """Say why an entry cannot follow the present ones, if it cannot.

        Data sets are not named.
        """
        run = self._runs.get(entry.run_id)
        if run is None:
            return None
        if (entry.round_index, entry.attempt) in self._attempts[entry.run_id]:
            return (
                f"run {entry.run_id!a} already has round {entry.round_index}, attempt"
                f" {entry.attempt}"
            )
        for name in ("data_id", "plan_digest", "delta", "unit"):
            if getattr(run, name) != getattr(entry, name):
                return f"run {entry.run_id!a} began with another {name}"
        # The first release paid for whatever may follow; what was known by then may not
        # decide the price any more.
        if entry.epsilon > run.epsilon * (1.0 + _RELATIVE_SLACK):
            cost, charged = distinct_texts(entry.epsilon, run.epsilon)
            return (
                f"run {entry.run_id!a} was charged epsilon {charged} at its first"
                f" release and can now cost {cost}"
            )
        return None

    def _add(self, entry: LedgerEntry) -> None:
        """Add an entry that is in no conflict with the others."""
        self._entries.append(entry)
        attempts = self._attempts.setdefault(entry.run_id, set())
        attempts.add((entry.round_index, entry.attempt))
        self._runs.setdefault(entry.run_id, entry)


def unfinished(ledger: MemoryLedger, data_id: str) -> LedgerEntry | None:
    """Return the last release of a data set's run that has had no result.

    None if one that began later has had its own.
    """
    entries = [entry for entry in ledger.entries() if entry.data_id == data_id]
    first_index: dict[str, int] = {}
    for index, entry in enumerate(entries):
        first_index.setdefault(entry.run_id, index)
    with_result: set[str] = set()
    for index, entry in reversed(list(enumerate(entries))):
        if any(first_index[run] > index for run in with_result):
            return None
        if entry.attempt == RESULT_TAKEN:
            with_result.add(entry.run_id)
        elif entry.is_release and entry.run_id not in with_result:
            return entry
    return None
