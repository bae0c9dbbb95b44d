"""A client's privacy ledger: what was charged, before anything was sent.

One (run, round, attempt) is charged once, and a run all that it can cost with its first
release; a later one lowers that where the run's count has left less to pay for. What
other runs cost is added up in one unit of privacy, as squared GDP parameters:
`flwr_dpkmeans.privacy.gaussian_cost`. That holds as well where each run is chosen by
what the ones before have released, under a total that is fixed before.

`node.ledger_file` keeps a ledger on the client's own disk: `charge` returns only after
the entry is there, so whatever was sent has been charged, whichever way the process
ends.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from flwr_dpkmeans.errors import ProtocolError, distinct_texts
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry, PlanNote
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, Total
from flwr_dpkmeans.privacy.provenance import utc_now

_RELATIVE_SLACK = 1e-8
"""A plan's numbers may come from another machine, whose last digits differ."""


_NOTHING = GaussianCost()


@dataclass(frozen=True)
class Past:
    """What a data set's other runs can have cost in one unit of privacy, added up."""

    others: GaussianCost = _NOTHING
    beside: GaussianCost = _NOTHING
    """Of other parts of the run that is looked at: nodes of one host."""
    delta: float = 0.0
    """Sum of the deltas that all of them stated."""
    begun: tuple[str, ...] = ()
    """When each node of each of them, whatever its unit, made its first release.

    Times in UTC, ISO format.
    """

    @property
    def cost(self) -> GaussianCost:
        """What all of them cost together."""
        return self.others.and_run(self.beside)

    @property
    def total(self) -> tuple[float, float]:
        """Epsilon and delta of all of them, at the sum of the stated deltas.

        And of what is not Gaussian.
        """
        delta = self.delta + self.cost.own_delta
        return self.cost.epsilon(delta), delta

    def spent(self, total: Total) -> tuple[float, float]:
        """Return what they have cost of a total, at its delta if it has an epsilon."""
        if math.isinf(total.epsilon):
            return self.total
        return self.cost.epsilon(total.delta), total.delta


def run_of(run_id: str) -> str:
    """Return the run of a part of it.

    Nodes of one host have a part each, named run/node, of what is one run.
    """
    return run_id.partition("/")[0]


def joint_cost(runs: Iterable[LedgerEntry]) -> GaussianCost:
    """Add up what runs cost, by the first entry of each part."""
    by_run: dict[str, GaussianCost] = {}
    for part in runs:
        run = run_of(part.run_id)
        by_run[run] = by_run.get(run, _NOTHING).and_part(part.cost)
    total = _NOTHING
    for cost in by_run.values():
        total = total.and_run(cost)
    return total


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
        """The first entry of each run, with what the run is charged by now."""
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
        beside: list[LedgerEntry] = []
        own_run = "" if excluding_run is None else run_of(excluding_run)
        with self._guard:
            for run in self._look()._runs.values():
                if run.data_id != data_id or run.run_id == excluding_run:
                    continue
                if not run.is_of_run:
                    continue
                # Each node of a run: who gives out the numbers of nodes could ask one
                # again under the next.
                beginnings.append(run.time)
                if run.unit != unit:
                    continue
                is_part = run_of(run.run_id) == own_run
                (beside if is_part else charged).append(run)
        return Past(
            joint_cost(charged),
            joint_cost(beside),
            math.fsum([run.delta for run in charged + beside]),
            tuple(beginnings),
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

        The first entry of a run charges all that the run can cost; later ones add
        lines, and may lower that. ``admit(past)`` raises unless the run may be charged
        besides what the others on its data set have cost; it is called under the lock,
        so that nobody else charges between its decision and this entry. An attempt that
        is in the ledger already, or an entry that does not fit its run, is a
        ProtocolError; a file that is damaged or cannot be written, a BudgetError.
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
        # What was paid for covers whatever may follow; what was known by then may not
        # raise the price any more.
        charges = (
            ("epsilon", entry.epsilon, run.epsilon),
            ("mu", entry.cost.mu, run.cost.mu),
            ("own_delta", entry.cost.own_delta, run.cost.own_delta),
        )
        for name, now, at_first in charges:
            if now > at_first * (1.0 + _RELATIVE_SLACK):
                cost, charged = distinct_texts(now, at_first)
                return (
                    f"run {entry.run_id!a} was charged {name} {charged} at its first"
                    f" release and can now cost {cost}"
                )
        return None

    def _add(self, entry: LedgerEntry) -> None:
        """Add an entry that is in no conflict with the others."""
        self._entries.append(entry)
        attempts = self._attempts.setdefault(entry.run_id, set())
        attempts.add((entry.round_index, entry.attempt))
        run = self._runs.setdefault(entry.run_id, entry)
        if entry.mu is not None and entry.cost.is_within(run.cost):
            cheaper = replace(run, mu=entry.mu, own_delta=entry.own_delta)
            self._runs[entry.run_id] = cheaper


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
