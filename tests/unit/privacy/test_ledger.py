"""A client's ledger: nothing is forgotten, charged twice or overspent, and damage
shows.
"""

from __future__ import annotations

import errno
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.asked_plans import gaussian_cost, room_for
from support.ledger_entries import (
    charge,
    charged_epsilon,
    entry,
    head_of,
    old_entry,
    put_head_back,
    verify_ledger,
)
from support.machine import replace_call, replace_sync

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy.owner.ledger_report import inspect_ledger
from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    ProtocolError,
    RefusalError,
)
from flwr_dpkmeans.node import durable_files, ledger_file
from flwr_dpkmeans.node import ledger as ledger_module
from flwr_dpkmeans.node.ledger import MemoryLedger, Past
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.privacy.gaussian import gaussian_delta, gaussian_epsilon
from flwr_dpkmeans.privacy.gaussian_cost import GaussianCost, Total, pair_cost

ROOT = Path(ledger_module.__file__).parents[2]
AnyLedger = FileLedger | MemoryLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def filled(path: Path) -> Path:
    """A ledger of five lines."""
    ledger = FileLedger(path)
    for round_index in range(5):
        ledger.charge(entry(f"old-{round_index}", round_index, 0.25))
    return path


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, path: Path) -> AnyLedger:
    return FileLedger(path) if request.param == "file" else MemoryLedger()


# What both ledgers do.


def test_a_run_costs_what_its_first_release_says_and_runs_add_up(
    ledger: AnyLedger,
) -> None:
    assert ledger.past("ward-7", "record") == Past()
    ledger.charge(entry("run-1", 0, 0.75))
    ledger.charge(entry("run-1", 1, 0.75))
    ledger.charge(entry("run-1", 2, 0.25))
    ledger.charge(entry("run-2", 0, 2.0))
    ledger.charge(entry("run-3", 0, 16.0, data_id="ward-8"))
    assert charged_epsilon(ledger) == 2.75
    assert ledger.past("ward-7", "record").delta == pytest.approx(2e-6)
    assert charged_epsilon(ledger, "ward-8", "record") == 16.0
    assert charged_epsilon(ledger, "ward-7", "record", excluding_run="run-2") == 0.75
    assert [item.epsilon for item in ledger.entries()] == [0.75, 0.75, 0.25, 2.0, 16.0]


def test_nodes_of_one_host_have_parts_of_what_is_one_run(ledger: AnyLedger) -> None:
    """Each begins with its own first charge."""
    for run, time in (("7/1", "10"), ("7/2", "11"), ("8/1", "12")):
        ledger.charge(entry(run, 0, 0.5, time=f"2025-01-31T{time}:00:00+00:00"))
    begun = tuple(f"2025-01-31T{time}:00:00+00:00" for time in (10, 11, 12))
    mu = gaussian_cost(0.5).mu
    joint = GaussianCost(pytest.approx(math.hypot(2.0 * mu, mu)))
    past = Past(joint, delta=pytest.approx(3e-6), begun=begun)
    assert ledger.past("ward-7", "record") == past
    others = Past(
        GaussianCost(mu), GaussianCost(mu), pytest.approx(2e-6), (begun[0], begun[2])
    )
    assert ledger.past("ward-7", "record", excluding_run="7/2") == others


@pytest.mark.parametrize("n_nodes", [1, 2, 3, 5])
def test_one_table_at_several_nodes_of_a_run_costs_no_more_than_the_ledger_says(
    ledger: AnyLedger, n_nodes: int
) -> None:
    """Its rows count several times under one noise."""
    for node in range(n_nodes):
        ledger.charge(entry(f"7/{node}", 0, 2.0))
    epsilon, delta = ledger.past("ward-7", "record").total
    mu = gaussian_cost(2.0).mu
    assert delta == pytest.approx(n_nodes * 1e-6)
    assert gaussian_delta(epsilon, n_nodes * mu) <= delta * (1.0 + 1e-9)
    as_runs = gaussian_epsilon(math.sqrt(n_nodes) * mu, delta)
    assert n_nodes == 1 or as_runs < 0.75 * epsilon


def test_runs_in_different_units_are_never_added_up(ledger: AnyLedger) -> None:
    """Each unit has the whole of the policy's total."""
    charge(ledger, entry("run-1", 0, 0.75, time="2025-01-31T12:00:00+00:00"), 1.0, 1e-6)
    charge(
        ledger,
        entry(
            "run-2", 0, 1.0, unit="client", delta=1e-3, time="2025-02-01T12:00:00+00:00"
        ),
        1.0,
        1e-3,
    )
    begun = ("2025-01-31T12:00:00+00:00", "2025-02-01T12:00:00+00:00")
    record, client = gaussian_cost(0.75), gaussian_cost(1.0, 1e-3)
    assert ledger.past("ward-7", "record") == Past(record, delta=1e-6, begun=begun)
    assert ledger.past("ward-7", "client") == Past(client, delta=1e-3, begun=begun)
    for unit, delta in (("record", 1e-6), ("client", 1e-3)):
        with pytest.raises(BudgetError):
            charge(ledger, entry("run-3", 0, 0.75, unit=unit, delta=delta), 1.0, delta)
    with pytest.raises(ProtocolError, match="another unit"):
        ledger.charge(entry("run-2", 1, 1.0, delta=1e-3))


def test_replay_is_refused_and_costs_nothing(ledger: AnyLedger) -> None:
    ledger.charge(entry("run-1", 3, 0.5, attempt=1))
    assert (3, 1) in ledger.attempts("run-1")
    assert (3, 0) not in ledger.attempts("run-1")
    assert (3, 1) not in ledger.attempts("run-2")
    with pytest.raises(ProtocolError, match="run 'run-1' already has round 3, attempt"):
        ledger.charge(entry("run-1", 3, 0.5, attempt=1))
    assert charged_epsilon(ledger) == 0.5
    ledger.charge(entry("run-1", 3, 0.5, attempt=2))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilon": 0.8}, "was charged epsilon 0.75 at its first release and can now"),
        ({"unit": "client"}, "another unit"),
        ({"plan_digest": "cd34"}, "another plan_digest"),
        ({"data_id": "other"}, "another data_id"),
        ({"delta": 1e-5}, "another delta"),
    ],
)
def test_a_run_cannot_be_started_over_under_its_name(
    ledger: AnyLedger, change: dict[str, Any], sentence: str
) -> None:
    ledger.charge(entry("run-1", 0, 0.75))
    with pytest.raises(ProtocolError, match=sentence) as caught:
        ledger.charge(entry(**{"round_index": 1, "epsilon": 0.75, **change}))
    assert "ward" not in str(caught.value)
    assert len(ledger.entries()) == 1


def test_a_price_that_differs_in_its_last_digits_is_no_other_price(
    ledger: AnyLedger,
) -> None:
    ledger.charge(entry(round_index=0, epsilon=0.5))
    ledger.charge(entry(round_index=1, epsilon=0.5 * (1 + 1e-9)))
    assert charged_epsilon(ledger) == 0.5


@pytest.mark.parametrize(
    ("more", "fits"), [(0.9e-8, True), (1.1e-8, False), (-0.5, True)]
)
def test_a_later_release_costs_no_more_than_the_first_said_but_for_last_digits(
    ledger: AnyLedger, more: float, fits: bool
) -> None:
    ledger.charge(entry(round_index=0, epsilon=0.5))
    if fits:
        ledger.charge(entry(round_index=1, epsilon=0.5 * (1 + more)))
    else:
        with pytest.raises(ProtocolError, match=r"was charged epsilon 0\.5"):
            ledger.charge(entry(round_index=1, epsilon=0.5 * (1 + more)))


@pytest.mark.parametrize(
    ("runs", "mu", "own_delta"),
    [
        ((), 0.0, 0.0),
        ((("7/1", 3.0, 1e-6), ("8/1", 4.0, 1e-5)), 5.0, 1.1e-5),
        # Parts of a run add up as they are, and what is not Gaussian of a second one is
        # as likely as it is where the first one's Gaussian moves it to.
        ((("7/1", 3.0, 0.0), ("7/2", 1.0, 0.0), ("8/1", 3.0, 0.0)), 5.0, 0.0),
        ((("7/1", 1.0, 1e-6), ("7/2", 1.0, 1e-6)), 2.0, 1e-6 + 8.7218e-5),
        ((("7/1", 40.0, 0.0), ("7/2", 1.0, 1e-6)), 41.0, 1.0),
        ((("7/1", math.inf, 0.0), ("7/2", 1.0, 0.5)), math.inf, 1.0),
    ],
)
def test_parts_of_one_run_cost_more_than_runs(
    runs: Any, mu: float, own_delta: float
) -> None:
    entries = [entry(run, mu=part, own_delta=own) for run, part, own in runs]
    joint = ledger_module.joint_cost(entries)
    assert joint.mu == pytest.approx(mu)
    assert joint.own_delta == pytest.approx(own_delta, rel=1e-3, abs=0.0)


def test_what_is_only_noted_is_no_release() -> None:
    assert [entry(attempt=n).is_release for n in (0, 10**6 - 1, 10**6, 2 * 10**6)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_the_last_run_of_a_data_set_is_unfinished_until_its_result_has_come(
    ledger: AnyLedger,
) -> None:
    assert ledger_module.unfinished(ledger, "ward-7") is None
    ledger.charge(entry("run-1", 0))
    ledger.charge(entry("run-2", 0, data_id="ward-8"))
    assert ledger_module.unfinished(ledger, "ward-7").run_id == "run-1"  # type: ignore[union-attr]
    ledger.charge(entry("run-1", 0, attempt=10**6))  # key shares are no release
    assert ledger_module.unfinished(ledger, "ward-7").attempt == 0  # type: ignore[union-attr]
    ledger.charge(entry("run-3", 0))
    ledger.charge(entry("run-1", 0, attempt=2 * 10**6))
    assert ledger_module.unfinished(ledger, "ward-7").run_id == "run-3"  # type: ignore[union-attr]
    ledger.charge(entry("run-4", 0))  # which is told of run-3
    ledger.charge(entry("run-4", 0, attempt=2 * 10**6))
    assert ledger_module.unfinished(ledger, "ward-7") is None
    assert ledger_module.unfinished(ledger, "ward-8").run_id == "run-2"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"round_index": -9}, {"delta": 0.0}, {"delta": 1.0}, {"epsilon": 0},
        {"attempt": 0},
    ],
)  # fmt: skip
def test_an_entry_may_have_the_ends_of_its_ranges(change: dict[str, Any]) -> None:
    (name, value), kept = next(iter(change.items())), entry(**change)
    assert getattr(kept, name) == value
    assert type(kept.epsilon) is float


def test_total_is_kept_without_telling_what_was_spent(ledger: AnyLedger) -> None:
    charge(ledger, entry("run-1", 0, 0.834521), 1.0, 1e-6)
    with pytest.raises(BudgetError) as caught:
        charge(ledger, entry("run-2", 0, 0.75), 1.0, 1e-6)
    sentence = (
        "the plan's worst-case epsilon is 0.75, but it does not fit into what is left"
        " of this client's max_epsilon_total of 1: lower the plan's epsilon or leave"
        " this client out."
    )
    assert str(caught.value) == sentence
    assert (0, 0) not in ledger.attempts("run-2")
    charge(ledger, entry("run-2", 0, 0.5), 1.0, 1e-6)
    charge(ledger, entry("run-3", 0, 1.0, data_id="ward-8"), 1.0, 1e-6)


def test_a_run_counts_once_against_the_total(ledger: AnyLedger) -> None:
    for round_index in range(10):
        charge(ledger, entry(round_index=round_index, epsilon=1.0), 1.0, 1e-6)
    with pytest.raises(BudgetError):
        charge(ledger, entry("run-2", epsilon=0.1), 1.0, 1e-6)


def test_runs_may_fill_a_total_up_to_rounding(ledger: AnyLedger) -> None:
    mu = Total(0.3, 1e-6).cost.mu / math.sqrt(3.0)
    for run in range(3):
        charge(ledger, entry(f"run-{run}", 0, 0.2, mu=mu, own_delta=0.0), 0.3, 1e-6)
    with pytest.raises(BudgetError):
        charge(ledger, entry("run-3", 0, 1e-6), 0.3, 1e-6)


def test_non_private_run_spends_everything(ledger: AnyLedger) -> None:
    ledger.charge(entry("run-1", 0, math.inf))
    ledger.charge(entry("run-1", 1, math.inf))
    assert charged_epsilon(ledger) == math.inf
    with pytest.raises(BudgetError):
        charge(ledger, entry("run-2", 0, 0.1), 1e9)
    ledger.charge(entry("run-2", 0, 0.1))


def test_who_may_not_be_charged_leaves_nothing(ledger: AnyLedger) -> None:
    def admit(past: Past) -> None:
        raise RefusalError(f"{past.cost.mu:g} is too much.")

    with pytest.raises(RefusalError, match="0 is too much"):
        ledger.charge(entry(), admit)
    assert ledger.entries() == ()


def test_of_many_requests_checked_at_once_no_more_are_charged_than_fit(
    ledger: AnyLedger,
) -> None:
    """All have seen an empty ledger before the first is charged."""
    outcomes: list[str] = []
    start, total = threading.Barrier(41), room_for(4.5, 0.125)

    def race(number: int) -> None:
        assert charged_epsilon(ledger) == 0.0
        start.wait()
        try:
            charge(ledger, entry(f"run-{number}", epsilon=0.125), total, 1e-6)
            outcomes.append("charged")
        except BudgetError:
            outcomes.append("refused")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(41)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] * 4 + ["refused"] * 37
    assert charged_epsilon(ledger) == 0.5


def test_threads_racing_for_one_attempt(ledger: AnyLedger) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def race() -> None:
        start.wait()
        try:
            ledger.charge(entry())
            outcomes.append("charged")
        except ProtocolError:
            outcomes.append("refused")

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] + ["refused"] * 7
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": ""},
        {"run_id": 3},
        {"data_id": ""},
        {"release": None},
        {"unit": ""},
        {"plan_digest": "AB"},
        {"plan_digest": "ab\n"},
        {"round_index": -10},
        {"round_index": 0.5},
        {"attempt": -1},
        {"delta": -1e-9},
        {"attempt": True},
        {"epsilon": -0.1},
        {"epsilon": math.nan},
        {"epsilon": "1"},
        {"delta": 1.5},
        {"delta": math.nan},
        {"time": "2025-01-31T12:00:00"},
        {"time": "2025-01-31T12:00:00+01:00"},
        {"time": "noon"},
    ],
)
def test_invalid_entry_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{next(iter(change))} is .*, but it must be"
    ):
        entry(**change)


# The file.


def test_entries_survive_a_restart(path: Path) -> None:
    entries = [
        entry("run-1", np.int64(2), np.float64(0.1), release="Zähl\nwerte"),  # type: ignore[arg-type]
        entry("run-2", 0, math.inf, time="2025-01-31T12:00:00Z"),
        entry("\ud800\u2028", 0, 1e-300, delta=0.0),
    ]
    for item in entries:
        FileLedger(path).charge(item)
    assert FileLedger(path).entries() == tuple(entries)
    assert (2, 0) in FileLedger(path).attempts("run-1")
    assert verify_ledger(path) == []
    assert path.read_bytes().count(b"\n") == 3
    assert path.stat().st_mode & 0o077 == 0


def test_a_run_that_is_not_private_is_a_line_that_every_reader_of_json_takes(
    path: Path,
) -> None:
    """JSON has no infinity, and strict readers refuse Python's word for it."""
    FileLedger(path).charge(entry(epsilon=math.inf))

    def refused(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(path.read_bytes(), parse_constant=refused)["epsilon"] == "inf"


def test_two_ledgers_on_one_file_see_each_other(path: Path) -> None:
    first, second = FileLedger(path), FileLedger(path)
    first.charge(entry("run-1"))
    assert charged_epsilon(second) == 0.5
    second.charge(entry("run-2"))
    assert charged_epsilon(first) == 1.0
    with pytest.raises(ProtocolError):
        first.charge(entry("run-2"))
    with pytest.raises(BudgetError):
        charge(second, entry("run-3"), room_for(2.5, 0.5), 1e-6)


def test_ledger_can_be_pickled(filled: Path) -> None:
    assert charged_epsilon(pickle.loads(pickle.dumps(FileLedger(filled)))) == 1.25


def test_missing_folder_does_not_start_an_empty_ledger(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist: make or mount it"):
        FileLedger(tmp_path / "unmounted" / "ledger")
    with pytest.raises(ConfigurationError, match="is no file"):
        FileLedger(tmp_path)


def test_reading_makes_no_file(path: Path) -> None:
    assert charged_epsilon(FileLedger(path)) == 0.0
    assert not path.exists()


def test_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = FileLedger("ledger")
    ledger.charge(entry())
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (0, 0) in ledger.attempts("run-1")


# Damage.


def edit_value(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"run_id": "old-2"', b'"run_id": "old-7"') for line in lines]


def edit_spelling(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b'"run_id": "old-2"', b'"run_id":  "old-2"') for line in lines]


def add_key(lines: list[bytes]) -> list[bytes]:
    return [
        line.replace(b'"run_id": "old-2"', b'"run_id": "x", "run_id": "old-2"')
        for line in lines
    ]


def delete_line(lines: list[bytes]) -> list[bytes]:
    return lines[:2] + lines[3:]


def swap_lines(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


def repeat_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[1], *lines[2:]]


def garble_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], b"\0" * 40 + b"\n", *lines[3:]]


def blank_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], b"\n", *lines[2:]]


def nest_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], b"[" * 100_000 + b"\n", *lines[2:]]


def list_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], b"[1]\n", *lines[2:]]


def delete_first_line(lines: list[bytes]) -> list[bytes]:
    return lines[1:]


MIDDLE = (
    edit_value, edit_spelling, add_key, delete_line, swap_lines, repeat_line,
    garble_line, blank_line, nest_line, list_line,
)  # fmt: skip
TAMPERINGS = [(change, 3) for change in MIDDLE] + [(delete_first_line, 1)]


@pytest.mark.parametrize(
    ("tamper", "number"), TAMPERINGS, ids=[change.__name__ for change, _ in TAMPERINGS]
)
def test_damage_is_found_and_stops_every_use(
    filled: Path, tamper: Any, number: int
) -> None:
    lines = filled.read_bytes().splitlines(keepends=True)
    filled.write_bytes(b"".join(tamper(lines)))
    damaged = filled.read_bytes()
    ledger = FileLedger(filled)
    sentence = (
        rf"the ledger .*ledger\.jsonl is damaged at line {number} \(.*\): restore it"
        r" from a backup or have its"
    )
    for _ in range(2):
        with pytest.raises(BudgetError, match=sentence):
            ledger.past("ward-7", "record")
        with pytest.raises(BudgetError, match=sentence):
            ledger.attempts("run-1")
        with pytest.raises(BudgetError, match=sentence):
            ledger.charge(entry("run-9"))
    assert filled.read_bytes() == damaged
    assert f"line {number} " in verify_ledger(filled)[0]


def test_restored_backup_is_taken_up_again(filled: Path) -> None:
    backup = filled.read_bytes()
    filled.write_bytes(b"".join(edit_value(backup.splitlines(keepends=True))))
    ledger = FileLedger(filled)
    with pytest.raises(BudgetError):
        ledger.past("ward-7", "record")
    filled.write_bytes(backup)
    assert charged_epsilon(ledger) == 1.25
    assert len(ledger.entries()) == 5


def test_a_ledger_of_an_older_version_is_refused_and_not_misread(path: Path) -> None:
    """Its epsilons grew with releases, so they bound no run that was stopped."""
    for round_index in range(5):
        FileLedger(path.with_name("old")).charge(old_entry(f"old-{round_index}"))
    lines = path.with_name("old").read_bytes()
    path.write_bytes(lines.replace(b', "unit": "record"', b""))
    sentence = (
        r"ledger.jsonl cannot be used at line 1 \(it has the format of an older"
        r" version, .*\): move it and"
    )
    with pytest.raises(BudgetError, match=sentence):
        FileLedger(path).past("ward-7", "record")
    with pytest.raises(BudgetError, match=sentence):
        FileLedger(path).charge(entry("run-9"))
    assert len(verify_ledger(path)) == 1


BEFORE_MU = """\
{"run_id": "run-1", "data_id": "ward-7", "plan_digest": "ab12", "round_index": 1, \
"attempt": 0, "release": "sums", "epsilon": 0.75, "delta": 1e-06, "unit": "record", \
"time": "2026-11-28T12:00:00+00:00", "checksum": \
"556ef0a7d4ab37654271ca014351221644df72f80672bc92a6ea846bf1262f5f"}
{"run_id": "run-1", "data_id": "ward-7", "plan_digest": "ab12", "round_index": 2, \
"attempt": 0, "release": "sums", "epsilon": 0.75, "delta": 1e-06, "unit": "record", \
"time": "2026-11-28T12:00:00+00:00", "checksum": \
"59cd68385af2e7ccb902eef633040d82d57f14718b5e7ac56f1d721cdf110109"}
{"run_id": "run-2", "data_id": "ward-7", "plan_digest": "ab12", "round_index": 1, \
"attempt": 0, "release": "sums", "epsilon": 0.5, "delta": 1e-06, "unit": "record", \
"time": "2026-11-28T12:00:00+00:00", "checksum": \
"95a424d8c26324753be0df41056112a9b8273a2305a4e42b07cec0f30ffdda3a"}
"""
"""As revision f12412af wrote it, whose ledgers added epsilons up."""


def test_a_file_of_the_format_before_mu_is_read_and_becomes_no_cheaper(
    path: Path,
) -> None:
    """Of two runs, of which one had two releases; whoever wrote it had a head, too."""
    path.write_text(BEFORE_MU)
    head = [json.loads(line)["checksum"] for line in BEFORE_MU.splitlines()]
    counted = [
        json.dumps({"entries": number, "checksum": checksum})
        for number, checksum in enumerate(head, start=1)
    ]
    head_of(path).write_text("\n".join(counted) + "\n")
    ledger = FileLedger(path)
    first, second = pair_cost(0.75, 1e-6), pair_cost(0.5, 1e-6)
    assert ledger.past("ward-7", "record").cost == first.and_run(second)
    for run_id, cost, epsilon in (("run-2", first, 0.75), ("run-1", second, 0.5)):
        alone = ledger.past("ward-7", "record", excluding_run=run_id).others
        assert alone == cost
        # No less than what Gaussian noise of that price tells.
        assert alone.mu >= gaussian_cost(epsilon, 1e-6).mu
    ledger.charge(entry("run-3", 1, 0.25))
    after = FileLedger(path).past("ward-7", "record").cost
    assert after.mu > first.and_run(second).mu
    assert after.own_delta == 2e-6
    assert path.read_text().startswith(BEFORE_MU)
    assert len(verify_ledger(path)) == 0


def test_one_edit_is_one_problem(filled: Path) -> None:
    lines = filled.read_bytes().splitlines(keepends=True)
    filled.write_bytes(b"".join(edit_value(lines)))
    assert len(verify_ledger(filled)) == 1
    assert len(inspect_ledger(filled).entries) == 4
    filled.write_bytes(b"".join(lines))
    assert verify_ledger(filled) == []


@pytest.mark.parametrize(
    "change",
    [{"run_id": "old-0", "round_index": 0}, {"run_id": "old-0", "epsilon": 2.0}],
)
def test_sound_chain_with_a_forbidden_entry_is_damage(
    filled: Path, change: dict[str, Any]
) -> None:
    line = ledger_file.encode(
        entry(**{"epsilon": 0.25, "round_index": 9, **change}),
        inspect_ledger(filled).head,
    )
    with filled.open("ab") as file:
        file.write(line)
    assert "line 6" in verify_ledger(filled)[0]


def test_file_cut_or_removed_while_in_use(filled: Path) -> None:
    ledger = FileLedger(filled)
    assert charged_epsilon(ledger) == 1.25
    lines = filled.read_bytes().splitlines(keepends=True)
    filled.write_bytes(b"".join(lines[:3]))
    with pytest.raises(BudgetError, match="cut or altered while in use"):
        ledger.charge(entry("run-9"))
    filled.unlink()
    with pytest.raises(BudgetError, match="cut or altered while in use"):
        ledger.charge(entry("run-9"))
    with pytest.raises(BudgetError, match="cut or altered while in use"):
        ledger.past("ward-7", "record")


# Crashes.


def test_every_torn_tail_is_dropped_by_the_next_charge(
    filled: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody cuts the power, for which a disk is waited for a thousand times here.
    replace_sync(monkeypatch, lambda descriptor: None)
    whole = filled.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for end in range(start + 1, len(whole) - 1):
        filled.write_bytes(whole[:end])
        put_head_back(filled, 4)
        ledger = FileLedger(filled)
        assert charged_epsilon(ledger) == 1.0
        assert (4, 0) not in ledger.attempts("old-4")
        assert filled.read_bytes() == whole[:end]
        caplog.clear()
        ledger.charge(entry("old-4", 4, 0.25))
        assert "unfinished last line" in caplog.text
        assert verify_ledger(filled) == []
        assert len(FileLedger(filled).entries()) == 5
        assert charged_epsilon(ledger) == 1.25


def test_heads_are_written_while_nobody_else_reads(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        if os.path.sameopenfile(descriptor, head.fileno()):
            reader = os.open(filled, os.O_RDONLY)
            taken.append(durable_files.lock(reader, exclusive=False, wait=False))
            os.close(reader)
        sync(descriptor)

    replace_sync(monkeypatch, noted)
    ledger = FileLedger(filled)
    with ledger_file.head_path(filled).open() as head:
        ledger.accept()
        ledger.charge(entry("run-2"))
    assert taken == [False, False]


def test_only_a_line_that_is_dropped_is_spoken_of(
    filled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = FileLedger(filled)
    ledger.charge(entry("run-8"))
    assert "unfinished" not in caplog.text
    filled.write_bytes(filled.read_bytes() + b'{"run_id": "run-9')
    ledger.charge(entry("run-9"))
    assert caplog.text.count("dropped an unfinished last line, never released") == 1


def test_last_line_that_lacks_only_its_end_counts(filled: Path) -> None:
    filled.write_bytes(filled.read_bytes()[:-1])
    ledger = FileLedger(filled)
    assert charged_epsilon(ledger) == 1.25
    with pytest.raises(ProtocolError):
        ledger.charge(entry("old-4", 4, 0.25))
    assert charged_epsilon(ledger) == 1.25
    ledger.charge(entry("old-5", 5, 0.25))
    assert verify_ledger(filled) == []
    assert len(FileLedger(filled).entries()) == 6


def test_tail_of_zeros_is_torn(filled: Path) -> None:
    with filled.open("ab") as file:
        file.write(b"\0" * 300)
    FileLedger(filled).charge(entry("run-2"))
    assert verify_ledger(filled) == []


def test_charge_syncs_the_line_then_its_head_and_at_creation_the_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's lines are told apart by how many a synced file has."""
    synced: list[tuple[str, int, int]] = []
    real_fsync = os.fsync

    def spy(descriptor: int) -> None:
        lines = [
            place.read_bytes().count(b"\n") if place.exists() else 0
            for place in (path, head_of(path))
        ]
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), *lines))
        real_fsync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to name a descriptor")
    replace_sync(monkeypatch, spy)
    ledger = FileLedger(path)
    ledger.charge(entry("run-1"))
    ledger.charge(entry("run-2"))
    first, head, folder = str(path), str(head_of(path)), str(path.parent)
    beginning = [(first, 0, 0), (head, 0, 1), (folder, 0, 1)]
    assert synced == [
        *beginning, (first, 1, 1), (head, 1, 2), (first, 2, 2), (head, 2, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("written", [0, 10])
def test_full_disk_charges_nothing_and_leaves_the_file_sound(
    filled: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    real_write = os.write
    before = filled.read_bytes()
    calls = 0

    def full(descriptor: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 1 and written:
            return real_write(descriptor, data[:written])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ledger = FileLedger(filled)
    with monkeypatch.context() as patch:
        replace_call(patch, "write", full)
        with pytest.raises(BudgetError, match="No space left on device"):
            ledger.charge(entry("run-2"))
    assert filled.read_bytes() == before
    assert (0, 0) not in ledger.attempts("run-2")
    ledger.charge(entry("run-2"))
    assert verify_ledger(filled) == []


@pytest.mark.parametrize("failing", [1, 2], ids=["line", "head"])
def test_failed_sync_raises_and_counts(
    filled: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    calls = 0

    def broken(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    ledger = FileLedger(filled)
    with monkeypatch.context() as patch:
        replace_sync(patch, broken)
        with pytest.raises(BudgetError, match="nothing may be released"):
            ledger.charge(entry("run-2"))
    assert charged_epsilon(ledger) == 1.75
    ledger.charge(entry("run-3"))
    assert verify_ledger(filled) == []


def race_for_budget(paths: list[str], run_id: str, start: Any, outcomes: Any) -> None:
    for path in paths:
        ledger = FileLedger(path)
        ledger.past("ward-7", "record")
        start.wait()
        try:
            charge(ledger, entry(run_id, epsilon=1.0), room_for(1.5, 1.0), 1e-6)
            outcomes.put((path, "charged"))
        except BudgetError:
            outcomes.put((path, "refused"))


def test_two_processes_racing_for_the_last_budget(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    targets = [f"{path}{trial}" for trial in range(20)]
    start, outcomes = context.Barrier(2), context.Queue()
    racers = [
        context.Process(target=race_for_budget, args=(targets, run, start, outcomes))
        for run in ("run-1", "run-2")
    ]
    for racer in racers:
        racer.start()
    ended = sorted(outcomes.get(timeout=300) for _ in range(2 * len(targets)))
    assert ended == sorted(
        (target, end) for target in targets for end in ("charged", "refused")
    )
    for racer in racers:
        racer.join(timeout=300)
    for target in targets:
        assert charged_epsilon(FileLedger(target)) == 1.0


def test_charge_reads_and_writes_under_one_lock(path: Path) -> None:
    """What another process tries between reading and writing has to wait."""
    other_done, total = threading.Event(), room_for(1.5, 1.0)
    refused: list[Exception] = []

    def other() -> None:
        try:
            charge(FileLedger(path), entry("run-2", epsilon=1.0), total, 1e-6)
        except BudgetError as error:
            refused.append(error)
        other_done.set()

    thread = threading.Thread(target=other)

    def pause(_: Past) -> None:
        thread.start()
        assert not other_done.wait(0.2)

    FileLedger(path).charge(entry("run-1", epsilon=1.0), pause)
    thread.join()
    assert len(refused) == 1
    assert charged_epsilon(FileLedger(path)) == 1.0


def test_threads_sharing_a_ledger_do_not_take_a_charge_for_damage(filled: Path) -> None:
    """A charge waits for another thread that reads the file."""

    class Slow(FileLedger):
        def _catch_up(self, complete: bytes, head_file: bytes) -> Any:
            if not thread.ident:
                thread.start()
                thread.join(0.2)
            return super()._catch_up(complete, head_file)

    ledger = Slow(filled)
    thread = threading.Thread(target=ledger.charge, args=(entry("run-2"),))
    assert charged_epsilon(ledger) == 1.25
    thread.join()
    assert charged_epsilon(ledger) == 1.75


CHARGE_LOOP = """
import sys
from flwr_dpkmeans.node.ledger import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
ledger = FileLedger(sys.argv[1])
for index in range(10**6):
    run = f"{sys.argv[2]}-{index}"
    line = LedgerEntry(run, "ward-7", "ab12", 0, 0, "sums", 1.0, 1e-6, "record")
    ledger.charge(line)
    print("charged", index, flush=True)
"""


def test_killed_process_never_undercharges(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    least = 0
    for trial in range(4):
        command = [sys.executable, "-c", CHARGE_LOOP, str(path), f"run-{trial}"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        for _ in range(5 + 7 * trial):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        printed = (
            5
            + 7 * trial
            + len([line for line in process.stdout.read().splitlines() if line])
        )
        process.wait()
        process.stdout.close()
        ledger = FileLedger(path)
        least += printed
        assert (0, 0) in ledger.attempts(f"run-{trial}-{printed - 1}")
        assert least <= charged_epsilon(ledger) <= least + trial + 1
        assert verify_ledger(path) == []


# The command.

NODE = 1234567890123456789
"""Its own ledger's table does not repeat it."""


def test_show_prints_runs_and_totals(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ledger = FileLedger(path)
    ledger.charge(entry("run-1", 0, 0.75))
    ledger.charge(entry("run-1", 1, 0.75))
    ledger.charge(entry(f"77/{NODE}", 0, 4.0, unit="client"))
    ledger.charge(entry("[red]\x1b[31mrun-2", 0, 2.0))
    assert main(["ledger", "show", str(path)]) == 0
    output = capsys.readouterr().out
    rows = [
        [cell.strip() for cell in line.split("│")]
        for line in output.splitlines()
        if "│" in line
    ]
    assert [row[1:8] for row in rows] == [
        ["ward-7", "record", "run-1", "ab12", "2", "0.75", "1e-06"],
        ["ward-7", "record", "[red]?[31mrun-2", "ab12", "1", "2", "1e-06"],
        ["total", "record", "2 runs", "", "3", "2.09957", "2e-06"],
        ["ward-7", "client", "77", "ab12", "1", "4", "1e-06"],
        ["total", "client", "1 runs", "", "1", "4", "1e-06"],
    ]
    assert main(["ledger", "show", str(path), "--json"]) == 0
    output = capsys.readouterr().out
    runs = json.loads(output)
    assert [
        (run["run"], run["unit"], run["releases"], run["epsilon"]) for run in runs
    ] == [
        ("run-1", "record", 2, 0.75),
        ("[red]\x1b[31mrun-2", "record", 1, 2.0),
        (f"77/{NODE}", "client", 1, 4.0),
    ]
    assert runs[0]["plan"] == entry("run-1", 0, 0.75).plan_digest
    assert runs[0]["first"] <= runs[0]["last"]
    assert "\x1b" not in output


def test_verify_tells_sound_from_damaged(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = filled.read_bytes()
    head = json.loads(whole.splitlines()[-1])["checksum"]
    assert main(["ledger", "verify", str(filled)]) == 0
    assert f"is sound: 5 entries, last checksum {head}." in capsys.readouterr().out
    filled.write_bytes(whole[:-5])
    put_head_back(filled, 4)
    assert main(["ledger", "verify", str(filled)]) == 0
    assert "unfinished line, which was never released" in capsys.readouterr().out
    filled.write_bytes(b"".join(edit_value(whole.splitlines(keepends=True))))
    for command in ("verify", "show"):
        assert main(["ledger", command, str(filled)]) == 1
        captured = capsys.readouterr()
        assert "damaged at line 3" in captured.err
        assert captured.out == ""


def test_verify_as_a_command_exits_1_on_a_missing_ledger(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "flwr_dpkmeans", "ledger", "verify",
        str(tmp_path / "none"),
    ]  # fmt: skip
    outcome = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert outcome.returncode == 1
    assert (
        outcome.stderr
        == f"the ledger {tmp_path / 'none'} does not exist: correct its path.\n"
    )


def test_threads_that_note_plans_read_a_line_of_the_ledger_once(path: Path) -> None:
    other = FileLedger(path)
    for index in range(200):
        other.charge(entry(f"run-{index}", 0, 0.25))
    ledger = FileLedger(path)
    problems: list[Exception] = []

    def note(number: int) -> None:
        try:
            ledger.note_plan("ward-7", f"{number}/2", "ab", most=50)
        except Exception as error:
            problems.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=note, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not problems
    assert ledger.entries() == other.entries()


def test_where_a_system_changes_line_ends_the_files_are_opened_without() -> None:
    """Windows would count other bytes than are written."""
    program = (
        "import os; os.O_BINARY = 0x8000;"
        " from flwr_dpkmeans.node.durable_files import BINARY; print(BINARY)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert int(done.stdout) == 0x8000
