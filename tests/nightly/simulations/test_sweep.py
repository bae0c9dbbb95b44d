"""Sweeps: resumable after any end, one row per run, in spite of failing runs and dying
processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pytest

pytest.importorskip("hydra")

from simulations.experiments.code_version import code_version
from simulations.experiments.configuration import (
    NOT_PRIVATE,
    _fingerprint,
    flat,
    job_key,
)
from simulations.experiments.expansion import Sweep, expand
from simulations.experiments.job import run_job
from simulations.experiments.sweep import run_sweep
from simulations.experiments.table import JOURNAL_FILE, TABLE_FILE, Journal, read_table
from simulations.run import main

PROJECT = Path(__file__).resolve().parents[3]
Settings = Mapping[str, Any]


@pytest.fixture(scope="module")
def four() -> Sweep:
    """Four runs that take next to no time."""
    return expand(["data=iris", "engine=direct", "algorithm=glloyd,lloyd", "seed=1,2"])


def quick(settings: Settings) -> dict[str, Any]:
    """Stands in for a run."""
    return flat(settings) | {
        "job": job_key(settings),
        "status": "done",
        "reason": None,
        "nicv": settings["seed"] / 4,
    }


def dies_at_seed_1(settings: Settings) -> dict[str, Any]:
    """Ends its process as a segmentation fault or the kernel's out-of-memory killer
    does.
    """
    if settings["seed"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return quick(settings)


def fails_at_seed_1(settings: Settings) -> dict[str, Any]:
    """As `simulations.experiments.job.run_job` tells of a failure."""
    row = quick(settings)
    return (
        row | {"status": "failed", "reason": "DataError: no rows"}
        if settings["seed"] == 1
        else row
    )


def counted(calls: list[str], settings: Settings) -> dict[str, Any]:
    calls.append(job_key(settings))
    return quick(settings)


def changed(settings: Settings, name: str, value: Any) -> dict[str, Any]:
    """A copy with another leaf."""
    group, _, leaf = name.rpartition(".")
    return {
        **settings,
        **({group: {**settings[group], leaf: value}} if group else {leaf: value}),
    }


def without_times(folder: Path) -> pd.DataFrame:
    frame, _, _ = read_table(folder)
    return frame.drop(columns="seconds").sort_values("job", ignore_index=True)


def test_a_finished_run_is_not_run_again(four: Sweep, tmp_path: Path) -> None:
    calls: list[str] = []
    first = run_sweep(
        replace(four, settings=four.settings[:3]),
        tmp_path,
        workers=0,
        run=partial(counted, calls),
    )
    assert (first.n_run, first.n_reused, first.n_failed, len(calls)) == (3, 0, 0, 3)
    whole = run_sweep(four, tmp_path, workers=0, run=partial(counted, calls))
    assert (whole.n_run, whole.n_reused, len(calls)) == (1, 3, 4)
    again = run_sweep(four, tmp_path, workers=0, run=partial(counted, calls))
    assert (again.n_run, again.n_reused, len(calls)) == (0, 4, 4)
    frame, _, _ = read_table(tmp_path)
    # In the order of the sweep, once each.
    assert frame["job"].tolist() == [job_key(one) for one in four.settings]
    # A smaller sweep in the same folder has its own rows only, and the journal still
    # has all.
    run_sweep(
        replace(four, settings=four.settings[1:2]),
        tmp_path,
        workers=0,
        run=partial(counted, calls),
    )
    assert len(read_table(tmp_path)[0]) == 1
    assert len(Journal(tmp_path).finished()) == len(calls) == 4


def test_a_failing_run_is_a_row_with_its_reason_and_is_run_again(
    four: Sweep, tmp_path: Path
) -> None:
    result = run_sweep(four, tmp_path, workers=0, run=fails_at_seed_1)
    assert (result.n_run, result.n_failed) == (4, 2)
    frame, _, _ = read_table(tmp_path)
    failed = frame[frame["status"] == "failed"]
    assert set(failed["reason"]) == {"DataError: no rows"}
    assert failed["seed"].tolist() == [1, 1]
    result = run_sweep(four, tmp_path, workers=0, run=quick)
    assert (result.n_run, result.n_reused, result.n_failed) == (2, 2, 0)
    assert set(read_table(tmp_path)[0]["status"]) == {"done"}


def test_what_only_the_run_finds_wrong_is_a_row(four: Sweep) -> None:
    many = run_job(changed(four.settings[0], "data.n_clusters", 200))
    assert many["status"] == "failed"
    assert many["reason"].startswith(
        "ConfigurationError: n_examples is 150, but 200 clusters"
    )
    assert (many["data.n_clusters"], many["job"]) == (
        200,
        job_key(changed(four.settings[0], "data.n_clusters", 200)),
    )

    def broken(_: Settings) -> NoReturn:
        raise ZeroDivisionError("of all things")

    assert (
        run_job(four.settings[0], broken)["reason"]
        == "unexpected ZeroDivisionError: of all things"
    )


def test_failures_end_the_command_with_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    command = [
        "-m",
        "data=iris",
        "engine=direct",
        "data.n_clusters=3,200",
        "workers=0",
        f"output={tmp_path}",
    ]
    assert main(command) == 1
    told = capsys.readouterr().err
    assert "2 runs (0 were finished before, 1 failed)" in told
    assert "1 failed: ConfigurationError: n_examples is 150, but 200 clusters" in told
    assert main(command) == 1
    assert "1 runs (1 were finished before, 1 failed)" in capsys.readouterr().err


def test_the_keyboard_ends_a_sweep_with_the_table_of_what_there_is(
    four: Sweep, tmp_path: Path
) -> None:
    def stopped(settings: Settings) -> dict[str, Any]:
        if settings is four.settings[2]:
            raise KeyboardInterrupt
        return quick(settings)

    with pytest.raises(KeyboardInterrupt):
        run_sweep(four, tmp_path, workers=0, run=stopped)
    assert len(read_table(tmp_path)[0]) == 2
    # Nothing holds the folder any more.
    result = run_sweep(four, tmp_path, workers=0, run=quick)
    assert (result.n_run, result.n_reused) == (2, 2)


def test_the_keyboard_ends_the_command_with_a_word_on_how_to_go_on(
    tmp_path: Path,
) -> None:
    overrides = ["-m", "data=iris", "engine=direct", "seed=range(0,300)", "workers=0"]
    command = [sys.executable, "-m", "simulations.run", *overrides]
    process = subprocess.Popen(
        [*command, f"output={tmp_path}"],
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 600.0
    while rows_in(tmp_path / JOURNAL_FILE) < 1 and time.monotonic() < limit:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "the same command continues" in error


def rows_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def children_of(process: int) -> list[int]:
    """Processes whose parent this one is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == process and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_killed_sweep_continues_and_leaves_no_process(tmp_path: Path) -> None:
    overrides = ["-m", "data=iris", "engine=direct", "seed=range(0,30)"]
    command = [
        sys.executable,
        "-m",
        "simulations.run",
        *overrides,
        "workers=1",
        f"output={tmp_path}",
    ]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=PROJECT, stdout=silent, stderr=silent)
    journal = tmp_path / JOURNAL_FILE
    limit = time.monotonic() + 600.0
    while rows_in(journal) < 3 and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.01)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = rows_in(journal)
    assert 3 <= before < 30
    assert not (tmp_path / TABLE_FILE).exists()
    while (
        any(Path(f"/proc/{one}").exists() for one in workers)
        and time.monotonic() < limit
    ):
        time.sleep(0.05)
    assert workers
    assert not [one for one in workers if Path(f"/proc/{one}").exists()]
    # As a kill in the middle of a write would leave it.
    with journal.open("ab") as file:
        file.write(b'{"job": "torn", "status": "do')
    assert main([*overrides, "workers=0", f"output={tmp_path}"]) == 0
    frame, _, _ = read_table(tmp_path)
    assert sorted(frame["seed"]) == list(range(30))
    assert set(frame["status"]) == {"done"}
    # What was finished was not run again: one line for each run, and the torn one.
    assert rows_in(journal) == 30 + 1
    assert len(Journal(tmp_path).finished()) == 30


def test_a_process_that_dies_costs_its_own_run_only(
    four: Sweep, tmp_path: Path
) -> None:
    two = replace(four, settings=(four.settings[1], four.settings[0]))
    assert [one["seed"] for one in two.settings] == [2, 1]
    result = run_sweep(two, tmp_path, workers=1, run=dies_at_seed_1)
    assert (result.n_run, result.n_failed) == (2, 1)
    frame, _, _ = read_table(tmp_path)
    assert frame["status"].tolist() == ["done", "failed"]
    assert "ended abruptly" in frame["reason"][1]
    assert set(frame["code"]) == {code_version()}


def test_equal_seeds_give_equal_rows_by_any_number_of_workers_in_any_order(
    tmp_path: Path,
) -> None:
    metrics = "metrics=[silhouette,davies_bouldin,accuracy,centroid_error,nicv_optimum]"
    sweep = expand(
        [
            "data=iris,wine",
            "algorithm=proxy_lloyd,lloyd,max_cover",
            "seed=1",
            "engine=direct",
            metrics,
        ]
    )
    backwards = replace(sweep, settings=sweep.settings[::-1])
    run_sweep(sweep, tmp_path / "none", workers=0)
    run_sweep(backwards, tmp_path / "two", workers=2)
    first, second = without_times(tmp_path / "none"), without_times(tmp_path / "two")
    assert len(first) == 6
    assert set(first["status"]) == {"done"}
    pd.testing.assert_frame_equal(first, second[first.columns], check_exact=True)
    private = ~first["algorithm.name"].isin(NOT_PRIVATE)
    assert first.loc[private, "epsilon"].between(0.9, 1.0).all()
    assert first.loc[~private, "epsilon"].isna().all()


def test_the_key_of_a_run_changes_with_what_changes_its_result(four: Sweep) -> None:
    base = next(one for one in four.settings if one["algorithm"]["name"] == "glloyd")
    before = job_key(base)
    assert job_key(json.loads(json.dumps(base))) == before
    for name, value in {
        "seed": 9,
        "n_clients": 3,
        "evaluation": "private",
        "metrics": ["nicv", "dunn"],
        "sample_size": 7,
        "algorithm.name": "sulloyd",
        "algorithm.max_iter": 3,
        "trust.name": "central",
        "privacy.epsilon": 0.3,
        "privacy.delta": 1e-6,
        "privacy.unit": "client",
        "privacy.noise": "secure",
        "data.name": "x",
        "data.n_clusters": 4,
        "data.bounds": "range",
        "data.server": "held_out",
        "partition.kind": "contiguous",
        "partition.seed": 99,
        "partition.alpha": 0.7,
        "engine.name": "inprocess",
        "engine.masking": False,
    }.items():
        assert job_key(changed(base, name, value)) != before, name
    for name in ("output", "workers", "variant", "sweep", "other_code"):
        assert job_key({**base, name: "other"}) == before, name
    # One number in two spellings.
    assert (
        job_key(changed(base, "privacy.epsilon", 1))
        == job_key(changed(base, "privacy.epsilon", 1.0))
        == before
    )
    for algorithm in NOT_PRIVATE:
        run = changed(base, "algorithm.name", algorithm)
        assert job_key(changed(run, "privacy.epsilon", 0.3)) == job_key(run)
        assert job_key(changed(run, "seed", 9)) != job_key(run)


@pytest.mark.parametrize("name", ["data.path", "data.bounds", "data.server"])
def test_the_key_of_a_run_changes_with_its_files(
    name: str, four: Sweep, tmp_path: Path
) -> None:
    for given in (tmp_path / "file.npy", tmp_path / "folder"):
        path = given if given.suffix else given / "rows.csv"
        path.parent.mkdir(exist_ok=True)
        settings = changed(four.settings[0], name, str(given))
        keys = []
        for content in (b"first", b"other", b"first"):
            path.write_bytes(content)
            # What a later command would find, in a process of its own.
            _fingerprint.cache_clear()
            keys.append(job_key(settings))
        assert keys[0] == keys[2] != keys[1]
