"""A client runs for months: whatever its ledger opens, it closes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.ledger_entries import entry, verify_ledger

from flwr_dpkmeans.errors import BudgetError
from flwr_dpkmeans.node.ledger_file import FileLedger

DESCRIPTORS = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="open files are counted in /proc"
)


def n_open() -> int:
    return len(os.listdir(DESCRIPTORS))


def test_no_file_stays_open(tmp_path: Path) -> None:
    before = n_open()
    for number in range(3):  # each first charge makes both files and syncs their folder
        path = tmp_path / f"ledger-{number}.jsonl"
        ledger = FileLedger(path)
        assert ledger.entries() == ()
        for round_index in range(3):
            ledger.charge(entry("run", round_index, 0.25))
        assert len(ledger.entries()) == 3
        verify_ledger(path)
    assert n_open() == before


def test_no_file_stays_open_where_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    FileLedger(path).charge(entry("run", 0, 0.25))
    path.write_bytes(path.read_bytes() + b"damage\n")
    before = n_open()
    for _ in range(3):
        with pytest.raises(BudgetError):
            FileLedger(path).charge(entry("run", 1, 0.25))
    assert n_open() == before
