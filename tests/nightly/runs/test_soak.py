"""The soak: what happens in which order, and that it sees what it looks for.

The federation itself is run by hand.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry
from flwr_dpkmeans.results.writer import CENTROIDS_FILE

pytest.importorskip("resource", reason="not on Windows")
from simulations.flower import soak
from simulations.flower.soak import Federation, Run, schedule


def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path, tmp_path, 3, 0, None)


def entry(attempt: int = 0, epsilon: float = 0.5) -> LedgerEntry:
    return LedgerEntry(
        "1/2", "rows", "00", 1, attempt, "lloyd-1", epsilon, 1e-6, "record"
    )


def test_everything_happens_about_equally_often_and_calm_runs_lie_in_between() -> None:
    order = schedule(100, soak._KINDS, random.Random(0))
    assert len(order) == 100
    assert (
        order
        == schedule(100, soak._KINDS, random.Random(0))
        != schedule(100, soak._KINDS, random.Random(1))
    )
    assert (order[0], order[-1]) == ("calm", "calm")
    assert all("calm" in order[place : place + 3] for place in range(98))
    assert {order.count(kind) for kind in soak._KINDS} <= {4, 5, 6}
    assert all(hasattr(Federation, kind) for kind in soak._KINDS)


@pytest.mark.parametrize(
    ("entries", "status", "faults"),
    [
        ([entry(), entry(RESULT_TAKEN)], "completed", []),
        ([entry()], "failed (1)", []),
        ([], "failed (1)", []),
        ([entry()], "completed", ["no result"]),
        ([entry(), entry()], "failed (1)", ["charged twice"]),
        ([entry(epsilon=0.7)], "failed (1)", ["epsilon 0.7 was charged, not 0.5"]),
    ],
)
def test_what_a_ledger_may_not_hold_is_seen(
    tmp_path: Path, entries: list[LedgerEntry], status: str, faults: list[str]
) -> None:
    one = federation(tmp_path)
    one.epsilon = 0.5
    seen = list(one._look_at_entries(entries, status, Run(0, "calm")))
    assert len(seen) == len(faults)
    assert all(fault in said for fault, said in zip(faults, seen, strict=True))


def test_a_process_that_grows_is_seen(tmp_path: Path) -> None:
    one = federation(tmp_path)
    for run in range(6):
        one.seen.append(
            {"run": run, "what": "superlink", "id": 7, "open": 9, "bytes": 10 * 2**20}
        )
        # What the first run loads is no leak.
        one.seen.append(
            {
                "run": run,
                "what": "ward-0",
                "id": 8,
                "open": 5 + 2 * run,
                "bytes": bool(run) * 2**20 + 2048 * run,
            }
        )
    grown = {
        slope["what"]: (slope["files a run"], slope["KiB a run"])
        for slope in one.slopes()
    }
    assert grown["superlink"] == pytest.approx((0.0, 0.0), abs=1e-9)
    assert grown["ward-0"] == pytest.approx((2.0, 2.0))


def test_results_that_differ_or_lack_are_seen(tmp_path: Path) -> None:
    one, run = (
        federation(tmp_path),
        Run(0, "lose_node", run_ids=["7"], statuses=["completed"]),
    )
    for party, value in (("ward-0", 1.0), ("ward-1", 1.0), ("ward-2", 2.0)):
        one._look_at_results(run)
        place = tmp_path / party / "results" / "run-7" / "client-3" / CENTROIDS_FILE
        place.parent.mkdir(parents=True)
        np.savez(place, centroids=[[value]])
    one._look_at_results(run)
    assert [fault.partition(" ")[0] for fault in run.faults] == ["0", "3"]
