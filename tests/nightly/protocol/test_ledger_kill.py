"""Processes die by SIGKILL while they charge a ledger.

Nothing that was sent is missing from it, whenever they die.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs processes that fork"
)


def crashes(folder: Path, task: str, *numbers: float) -> dict[str, Any]:
    """Run one task of `ledger_crashes`."""
    command = [
        sys.executable,
        # Modules beside the program have names of the standard library's.
        "-P",
        str(ROOT / "tests" / "support" / "ledger_crashes.py"),
        str(folder),
        task,
    ]
    done = subprocess.run(
        [*command, *map(str, numbers)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["alarms"] == []
    assert found["undercharged"] == 0
    return found


@pytest.mark.parametrize(
    ("task", "stride", "least"), [("calls", 40, 300), ("instructions", 71, 120)]
)
def test_death_at_any_point_of_a_charge(
    tmp_path: Path, task: str, stride: int, least: int
) -> None:
    """In calls to the system and bytecode, from all eight states."""
    found = crashes(tmp_path, task, stride)
    assert found["deaths"] >= least
    assert len(found["states"]) == 8
    # A death between the line and the return of `charge` costs the one release in
    # flight.
    assert 0 < found["overcharged"] < found["deaths"]


@pytest.mark.parametrize(("n_trials", "n_clients"), [(100, 1), (50, 2)])
def test_death_at_a_random_instant(
    tmp_path: Path, n_trials: int, n_clients: int
) -> None:
    """Real disk, real fsync; the restarted clients go on with the same ledger."""
    found = crashes(tmp_path, "kills", n_trials, n_clients, 20_250_131)
    assert found["kills"] == n_trials * n_clients
    assert found["sent"] > 0
    assert found["charged"] - found["sent"] == found["overcharged"] <= found["kills"]
    assert found["most per kill"] <= 1
    # Deaths did fall between the two files.
    assert found["head behind"] > 0


@pytest.mark.parametrize("n_clients", [2, 5])
def test_processes_that_race_never_exceed_the_total(
    tmp_path: Path, n_clients: int
) -> None:
    """Each run costs a mu of 0.005 with its first release, so that ten fit."""
    total = 0.005 * math.sqrt(10.5)
    found = crashes(tmp_path, "race", n_clients, total)
    assert found["ended"] == [3] * n_clients  # each was refused
    assert found["overcharged"] == 0
    assert found["spent"] <= total
    assert found["spent"] == pytest.approx(0.005 * math.sqrt(10.0))
