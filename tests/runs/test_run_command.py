"""`flwr-dpkmeans run`: the ServerApp's own sentences before anything starts, and how
the run ended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.flower_command import write_flower
from support.machine import replace_start

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy import run_command
from flwr_dpkmeans.deploy.run_command import Patience, RunRequest, run_app
from flwr_dpkmeans.errors import PeerError
from flwr_dpkmeans.flower import run_config
from flwr_dpkmeans.flower.client import simulated_tables

PROJECT = Path(__file__).parents[2]
FLOWER = """
import json, sys
with open({log!r}, "a") as log: print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1] == "list":
    run = {{"status": {status!r}, "status-details": "said so"}}
    print(json.dumps({{"success": True, "runs": [run]}}))
else:
    print("Successfully started run 1234" if {code} == 0 else "Flower's own sentence")
    print("a streamed line")
    if {code} == 0: print("ward-7 says: Successfully started run 99")
    sys.exit({code})
"""


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Flower keeps its configuration there."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    return tmp_path


def put_flower(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> None:
    """Let a program of Python be Flower's command, for processes that are started."""
    write_flower(folder / "path", program)
    monkeypatch.setenv("PYTHONPATH", str(folder / "path"))


def play(
    monkeypatch: pytest.MonkeyPatch, folder: Path, status: str = "", code: int = 0
) -> Path:
    """Put a program in Flower's place that says how a run ended."""
    log = folder / "log"
    program = FLOWER.format(log=str(log), status=status, code=code)
    put_flower(monkeypatch, folder, program)
    return log


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).uniform(0, 100, (30, 2)).round(3)
    path = tmp_path / "table.csv"
    path.write_text(
        "age,height,ward\n" + "\n".join(f"{a},{h},north" for a, h in rows) + "\n"
    )
    return path


def stated(table: Path, **changed: Any) -> str:
    own = {
        "data": str(table),
        "bounds": "0,100",
        "n-clusters": 3,
        "n-examples": 30,
    } | changed
    return " ".join(f"{key}={value!r}" for key, value in own.items())


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n-clusterz": 3}, "there is no run-config key 'n-clusterz': did you mean"),
        (
            {"fastlloyd.alpa": 1},
            "there is no run-config key 'fastlloyd.alpa': did you mean",
        ),
        ({"epsilon": -1}, "epsilon is -1.0, but it must be a finite number greater"),
        ({"data": "/nowhere/at/all.csv"}, "the table '/nowhere/at/all.csv' does not"),
        ({"label-column": "wards"}, "label_column is 'wards'"),
        ({"columns": "age,hight"}, "columns is 'hight'"),
        (
            {"partition": "by_value", "partition-column": "town"},
            "partition_column is 'town'",
        ),
        (
            {"partition": "fixed_sizes", "partition-sizes": "10,10,30"},
            "the sizes add up to 50, but there are 30 rows",
        ),
        ({"bounds": "bounds.csv"}, "the plan names 2 columns, of which this client's"),
        ({"n-clusters": 31}, "n_examples is 30, but 31 clusters need at least as"),
        ({"evaluation": "private", "n-classes": 2}, "label"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
    table: Path,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    sentence: str,
) -> None:
    log = play(monkeypatch, table.parent)
    monkeypatch.chdir(table.parent)
    Path("bounds.csv").write_text("feature,lower,upper\nage,0,100\nweight,0,100\n")
    asked = [
        "--federation-config",
        "num-supernodes=3",
        "--run-config",
        stated(table, **changed),
    ]
    assert main(["run", str(PROJECT), *asked]) == 1
    assert sentence in capsys.readouterr().err
    assert not log.exists()


@pytest.mark.parametrize(
    ("federation", "more", "sentence"),
    [
        ("num-supernodes=1", "", "n_clients is 1, but it must be an integer of at"),
        ("num-supernodes=3", " epsilon = 0.1", "of which 'epsilon = 0.1' is no"),
        (
            "num-supernodes=3",
            " epsilon= 0.1 columns='age, height'",
            "'epsilon= 0.1' is no KEY=VALUE",
        ),
        ("num-supernodes 3", "", "--federation-config is 'num-supernodes 3', of which"),
        ("num-supernodes=3", " epsilon=1 epsilon=2", "--run-config says 'epsilon'"),
    ],
)
def test_what_flower_would_leave_out_without_a_word_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    table: Path,
    capsys: pytest.CaptureFixture[str],
    federation: str,
    more: str,
    sentence: str,
) -> None:
    log = play(monkeypatch, table.parent)
    words = ["--federation-config", federation, "-c", stated(table) + more]
    assert main(["run", str(PROJECT), *words]) == 1
    assert sentence in capsys.readouterr().err
    assert not log.exists()


def test_missing_cells_are_named(
    monkeypatch: pytest.MonkeyPatch, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = play(monkeypatch, table.parent)
    table.write_text("age,height\n1,2\n3,\n")
    assert main(["run", str(PROJECT), "-c", stated(table)]) == 1
    told = capsys.readouterr().err
    assert "'height'" in told
    assert "missing or infinite" in told
    assert not log.exists()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [("finished:completed", 0, 0), ("finished:failed", 0, 1), ("", 2, 2)],
)
def test_the_code_is_how_the_run_ended(
    monkeypatch: pytest.MonkeyPatch,
    table: Path,
    capsys: pytest.CaptureFixture[str],
    status: str,
    code: int,
    expected: int,
) -> None:
    log = play(monkeypatch, table.parent, status, code)
    asked = [
        str(PROJECT),
        "--stream",
        "--run-config",
        stated(table),
        "--federation-config",
        "num-supernodes=3",
    ]
    assert main(["run", *asked]) == expected
    told = capsys.readouterr()
    assert "a streamed line" in told.out
    assert ("run 1234 is finished:failed: said so" in told.err) is (
        status == "finished:failed"
    )
    assert log.read_text().count("--stream") == 1
    assert ("1234" in log.read_text()) is (code == 0)
    assert "99" not in re.findall(r'"--run-id", "(\d+)"', log.read_text())


def test_other_apps_and_deployments_are_left_to_flower(
    monkeypatch: pytest.MonkeyPatch, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, home, "finished:completed")
    assert main(["run", str(home), "--run-config", "anything=1"]) == 0
    assert main(["run", "@somebody/app"]) == 0
    (home / "flwr").mkdir(exist_ok=True)
    (home / "flwr" / "config.toml").write_text(
        '[superlink]\ndefault = "far"\n[superlink.far]\naddress = "far:9093"\n'
    )
    config = "data='/on/the/nodes.csv' bounds='0,1' n-clusters=3"
    assert main(["run", str(PROJECT), "--run-config", config]) == 0
    assert main(["run", str(PROJECT), "--run-config", config + " num-client=3"]) == 1
    assert "did you mean 'num-clients'?" in capsys.readouterr().err


def test_the_checks_are_those_of_the_run(
    monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    """One function reads the table for a node, for the ServerApp and here."""
    assert run_config.simulated_part is simulated_tables.simulated_part
    log = play(monkeypatch, table.parent, "finished:completed")
    sizes = stated(table, **{"partition": "fixed_sizes", "partition-sizes": "9,9,9,3"})
    for n_nodes, code in ((4, 0), (3, 1)):
        nodes = f"num-supernodes={n_nodes}"
        words = ["run", str(PROJECT), "--federation-config", nodes, "-c", sizes]
        assert main(words) == code
        assert log.exists() == (code == 0)
        log.unlink(missing_ok=True)


_BROKEN_OFF = """
import json, sys, pathlib
asked = pathlib.Path({asked!r})
asked.write_text(asked.read_text() + "." if asked.exists() else "")
if sys.argv[1] == "run":
    print("Successfully started run 1234")
    sys.exit(1)
answers = [None, "", "running", "finished:failed"]
answer = answers[min(len(asked.read_text()) - 1, 3)]
if answer is None:
    sys.exit(1)
silent = "No heartbeat received from the task"
ended = {{"status": answer, "status-details": silent if "f" in answer else "N/A"}}
listed = {{"runs": [ended]}} if answer else {{}}
print(json.dumps({{"success": bool(answer), **listed}}))
"""


@pytest.mark.parametrize(
    "said", ["", '{"success": false, "error-message": "unavailable"}', "[]"]
)
def test_a_superlink_that_has_just_been_killed_lists_nothing_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, home: Path, said: str
) -> None:
    put_flower(monkeypatch, home, f"print({said!r})")
    with pytest.raises(PeerError, match="lists no runs now: see whether it is being"):
        run_command.listed_runs(os.environ)


def test_a_run_that_was_stopped_says_what_that_leaves(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """Flower has no words of its own for it."""
    statuses = ("finished:stopped", "running", "finished:completed", "finished:failed")
    details = ("N/A", "N/A", "N/A", "why")
    runs = [
        {"status": status, "status-details": detail}
        for status, detail in zip(statuses, details, strict=True)
    ]
    put_flower(monkeypatch, home, f"print({json.dumps({'runs': runs})!r})")
    said = [run["status-details"] for run in run_command.listed_runs(os.environ)]
    assert said[0].startswith("its ServerApp was ended from outside, such as with")
    assert said[1:] == ["N/A", "N/A", "why"]


def test_a_run_whose_stream_breaks_off_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The SuperLink is killed."""
    put_flower(monkeypatch, home, _BROKEN_OFF.format(asked=str(home / "asked")))
    request = RunRequest(app="@somebody/app", words=["@somebody/app"])
    assert run_app(request, Patience(poll_seconds=0.0)) == 1
    assert capsys.readouterr().err.splitlines() == [
        "the stream broke off; waiting for the end of run 1234",
        (
            "run 1234 is finished:failed: No heartbeat received from the task: its"
            " ServerApp was ended from outside, such as with the SuperLink or by 'flwr"
            " stop', or its machine stood still for a minute; what nodes have charged"
            " stays charged, and parties may have the result: ask them before a new"
            " run."
        ),
    ]
    assert (home / "asked").read_text() == "...."
    assert run_app(request, Patience(seconds=0.0)) == 1
    assert (
        "unknown status: no answer for 0 s: see flwr list." in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("first", "told"),
    [("Successfully started run 1234", "'flwr stop 1234'"), ("", "'flwr list'")],
)
def test_ctrl_c_says_that_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first: str,
    told: str,
) -> None:
    def lines() -> Iterator[str]:
        yield first
        raise KeyboardInterrupt

    flower = nullcontext(SimpleNamespace(stdout=lines(), terminate=list))
    replace_start(monkeypatch, lambda *_, **__: flower)
    assert main(["run", "@somebody/app"]) == 130
    assert told in capsys.readouterr().err


def test_a_termination_says_that_the_run_goes_on_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = tmp_path / "process"
    flower = f"""
import os, pathlib, time
pathlib.Path({str(process)!r}).write_text(str(os.getpid()))
print("Successfully started run 1234", flush=True)
time.sleep(60)
"""
    put_flower(monkeypatch, tmp_path, flower)
    monkeypatch.delenv("PYTHONPATH")
    program = f"""
import os
from flwr_dpkmeans.__main__ import main
# For the process that is started: in this one, Flower is Flower.
os.environ["PYTHONPATH"] = {str(tmp_path / "path")!r}
raise SystemExit(main(["run", "@somebody/app"]))
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert "started run 1234" in run.stdout.readline()
        run.terminate()
        _, errors = run.communicate(timeout=30)
    assert "the run goes on and spends its budget, until 'flwr stop 1234'" in errors
    assert "Traceback" not in errors
    assert run.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(process.read_text()), 0)
