"""Entries and head files for the tests of ledgers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr_dpkmeans.deploy.owner.ledger_report import inspect_ledger
from flwr_dpkmeans.node.ledger import MemoryLedger, Past
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.policy import ClientPolicy
from support.asked_plans import PlanValues, asked, gaussian_cost


def entry(
    run_id: str = "run-1", round_index: int = 0, epsilon: float = 0.5, **others: Any
) -> LedgerEntry:
    """An entry with ordinary values for what a test does not care about.

    Its noise is Gaussian, unless ``mu`` says otherwise.
    """
    values: dict[str, Any] = {
        "data_id": "ward-7",
        "plan_digest": "ab12",
        "attempt": 0,
        "release": "sums",
    }
    values |= {"delta": 1e-6, "unit": "record"} | others
    delta = values["delta"]
    are_numbers = isinstance(epsilon, float) and isinstance(delta, float)
    if "mu" not in values and are_numbers and epsilon >= 0.0 and 0.0 < delta < 1.0:
        values |= {"mu": gaussian_cost(epsilon, delta).mu, "own_delta": 0.0}
    return LedgerEntry(
        run_id=run_id, round_index=round_index, epsilon=epsilon, **values
    )


def old_entry(
    run_id: str = "run-1", round_index: int = 0, epsilon: float = 0.5, **others: Any
) -> LedgerEntry:
    """An entry as older versions wrote them."""
    return entry(run_id, round_index, epsilon, **others, mu=None, own_delta=None)


def charged_epsilon(
    ledger: FileLedger | MemoryLedger,
    data_id: str = "ward-7",
    unit: str = "record",
    excluding_run: str = "",
) -> float:
    """The sum of what runs were charged: which of them a ledger has."""
    first: dict[str, float] = {}
    for item in ledger.entries():
        if (item.data_id, item.unit) == (data_id, unit):
            first.setdefault(item.run_id, item.epsilon)
    first.pop(excluding_run, None)
    return math.fsum(first.values())


def charge(
    ledger: FileLedger | MemoryLedger,
    item: LedgerEntry,
    total: float = math.inf,
    total_delta: float = math.inf,
) -> None:
    """Charge an entry of a run if a policy with these totals allows it."""
    policy = ClientPolicy(max_epsilon_total=total, max_delta_total=total_delta)
    values = PlanValues(
        unit=item.unit,
        epsilon=item.epsilon,
        epsilon_worst_case=item.epsilon,
        delta=item.delta,
    )

    def admit(past: Past) -> None:
        policy.check(replace(asked(values), past=past, cost=item.cost))

    ledger.charge(item, admit)


def verify_ledger(path: Path) -> list[str]:
    """What is wrong with a ledger file, one sentence per problem."""
    return list(inspect_ledger(path).problems)


def head_of(path: Path) -> Path:
    """The head file of a ledger."""
    return path.with_name(path.name + ".head")


def put_head_back(path: Path, n_entries: int) -> None:
    """Make the head the one that was in force when the ledger had so many entries."""
    place = head_of(path)
    lines = place.read_bytes().splitlines(keepends=True)
    place.write_bytes(
        b"".join(line for line in lines if json.loads(line)["entries"] <= n_entries)
    )
