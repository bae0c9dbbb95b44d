"""What a ledger's owner is told of it: all that its two files say, past their flaws."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from flwr_dpkmeans.errors import BudgetError
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import (
    GENESIS,
    Chain,
    complete_lines,
    damage,
    file_errors,
    head_path,
    mismatch,
    read_both,
)


@dataclass(frozen=True)
class LedgerReport:
    """What `inspect_ledger` found.

    A sentence per problem, sound entries, last checksum, size of a torn tail.

    With `is_acceptable` every line is sound, so that only the head file can be a
    problem.
    """

    problems: tuple[str, ...]
    entries: tuple[LedgerEntry, ...] = ()
    head: str = GENESIS
    torn_bytes: int = 0
    is_acceptable: bool = False

    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    """The sound entries, as they add up."""


def inspect_ledger(path: str | Path) -> LedgerReport:
    """Read a whole ledger and its head past their flaws, without changing them.

    An unfinished last line is none.
    """
    stated_path, place = Path(path), Path(os.path.realpath(path))
    if not (place.exists() or head_path(place).exists()):
        return LedgerReport((f"the ledger {path} does not exist: correct its path.",))
    try:
        with file_errors(stated_path):
            raw, head_file = read_both(place)
    except BudgetError as error:
        return LedgerReport((str(error),))
    complete, chain = complete_lines(raw), Chain()
    problems = [damage(stated_path, *flaw) for flaw in chain.read(complete)]
    is_acceptable = not problems
    unlike = (
        mismatch(stated_path, chain.checksums, head_file) if is_acceptable else None
    )
    if unlike is not None:
        problems.append(unlike)
    torn_bytes = max(0, len(raw) - len(complete))
    return LedgerReport(
        tuple(problems),
        chain.entries(),
        chain.checksums[-1],
        torn_bytes,
        is_acceptable,
        chain,
    )
