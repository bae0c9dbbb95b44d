"""`python -m flwr_dpkmeans node`: what a node looks at before it starts, and what it
starts.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import shlex
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.apps import app_files, packed
from support.asked_plans import gaussian_cost
from support.gates import GATE_TEXT, require_confinement
from support.machine import replace_call, replace_rights, replace_time, replace_user
from support.node_files import SOME_APP, write_node
from support.superlink_stand_in import replace_answer

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.cli.app import COMMANDS
from flwr_dpkmeans.data.loading.declared_tables import load_stated
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.deploy import findings, node_command
from flwr_dpkmeans.deploy.finding import NoteError, Verdict
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.node_check import NodeCheck, check
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.superlink_answer import Answer
from flwr_dpkmeans.errors import ConfigurationError, RefusalError
from flwr_dpkmeans.flower.client.node_table import layout_of
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from simulations.flower.credentials import make_credentials

ROOT = Path(__file__).resolve().parents[2]
ITEMS = [
    "file", "app", "flower", "port", "connection", "superlink", "clock", "online",
    "home",    "answers", "policy", "identity",
]  # fmt: skip
ITEMS += [
    "ledger",
    "run",
    "data",
    "belonging",
    "units",
    "output",
    "disk",
    "limits",
    "pace",
    "user",
]


@pytest.fixture(autouse=True)
def superlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that answers; what a node says of others is in test_node_faults.py."""
    replace_answer(monkeypatch, lambda options: Answer(True, 0.5, ()))


class Started(Exception):
    """In place of Flower's program."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the process would have become."""
    seen: dict[str, object] = {}

    def execve(program: str, command: list[str], environment: dict[str, str]) -> None:
        seen.update(program=program, command=command, environment=environment)
        raise Started

    replace_call(monkeypatch, "execve", execve)
    if sys.platform != "win32":
        import resource

        def limit(which: int, limits: object) -> None:
            seen.update(limit=(which, limits))

        replace_call(monkeypatch, "setrlimit", limit, of=resource)
    return seen


def said(capsys: pytest.CaptureFixture[str], item: str) -> str:
    captured = capsys.readouterr()
    return next(
        line
        for line in (captured.out + captured.err).splitlines()
        if f" {item}:" in line
    )


def test_check_prints_one_line_for_each_item_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_node(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main(["node", "check", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines] == ITEMS
    assert {line.split()[0] for line in lines} <= {"ok", "note"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"polcy": "/x"}, "the key 'polcy' is not known: did you mean 'policy'?"),
        ({"allowed_apps": []}, r"allowed-apps is \[\]"),
        ({"allowed_apps": ["ab12cd34"]}, "allowed-apps.0 is 'ab12cd34'"),
        ({"port": "9094"}, "port is '9094'"),
        ({"port": 0}, "port is 0"),
        ({"verbose": 1}, "verbose is 1"),
        ({"isolation": "proces"}, "isolation is 'proces'"),
        ({"isolation": "process"}, "belong together"),
        ({"runtime_secret": "/x"}, "belong together"),
        ({"key": "/x"}, "insecure is true beside key"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key_and_the_mend(
    tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        NodeOptions.from_toml(write_node(tmp_path, **changes))


@pytest.mark.parametrize(
    ("apps", "text", "sentence"),
    [
        ([SOME_APP], "[gate]\nclip = 1.0", r"'gate.arrays' is not there|gate.app"),
        ([SOME_APP], GATE_TEXT.replace("'" + "a" * 64, f"'{SOME_APP}"), "without the"),
        ([], "", r"allowed-apps is \[\] without a \[gate\]"),
    ],
)
def test_a_wrong_gate_is_refused(
    tmp_path: Path, apps: list[str], text: str, sentence: str
) -> None:
    file = write_node(tmp_path, allowed_apps=apps)
    file.write_text(file.read_text() + text)
    with pytest.raises(ConfigurationError, match=sentence):
        NodeOptions.from_toml(file)


def test_an_app_behind_the_gate_is_checked_and_allowed_by_its_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_confinement(tmp_path)
    file = write_node(tmp_path, allowed_apps=[])
    file.write_text(file.read_text() + GATE_TEXT)
    options = NodeOptions.from_toml(file)
    assert "a" * 64 in node_command.supernode_command(options, tmp_path)
    main(["node", "check", str(file)])
    printed = capsys.readouterr().out
    assert "behind it runs aaaaaaaaaaaaaaaa" in printed
    assert not re.search(r"^\S+ +data:", printed, re.MULTILINE)
    policy = tmp_path / "policy.toml"
    units = re.sub(
        "(?m)^allowed-units.*", "allowed-units = ['record']", policy.read_text()
    )
    policy.write_text(units)
    main(["node", "check", str(file)])
    assert "policy.toml does not allow 'client'" in said(capsys, "gate")


def test_a_key_that_every_node_needs_is_missed(tmp_path: Path) -> None:
    for key in ("policy", "ledger", "identity", "allowed-apps", "data-path", "home"):
        with pytest.raises(ConfigurationError, match=f"'{key}' is not there"):
            NodeOptions.from_toml(write_node(tmp_path, left_out=(key,)))
    (tmp_path / "broken.toml").write_text("a = ")
    for name in ("broken.toml", "none.toml"):
        with pytest.raises(ConfigurationError, match=name):
            NodeOptions.from_toml(tmp_path / name)


def damage(folder: Path, item: str) -> None:
    """Make one thing wrong."""
    if item == "file":
        (folder / "node.toml").chmod(0o620)
    elif item == "home":
        (folder / "home").mkdir(mode=0o755)
    elif item == "policy":
        (folder / "policy.toml").write_text("max-epsilom-total = 1.0\n")
    elif item == "identity":
        (folder / "identity").chmod(0o644)
    elif item == "ledger":
        (folder / "ledger.jsonl").write_text("not a ledger\n")
    elif item == "data":
        (folder / "rows.npy").write_bytes(b"not a table")
    elif item == "output":
        (folder / "results").write_text("a file")


@pytest.mark.parametrize(
    "item", ["file", "home", "policy", "identity", "ledger", "data", "output"]
)
def test_a_node_does_not_start_while_something_is_wrong(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    started: dict[str, object],
    item: str,
) -> None:
    file = write_node(tmp_path)
    damage(tmp_path, item)
    for command in ("check", "start"):
        assert main(["node", command, str(file)]) == 1
        assert said(capsys, item).startswith("wrong")
    assert not started


@pytest.mark.parametrize(
    ("rows", "verdict"), [("a,1\n", "wrong"), ("a,1\nb,>89\n3,4\n", "ok")]
)
def test_a_table_of_which_no_row_is_left_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, verdict: str
) -> None:
    table = tmp_path / "people.csv"
    table.write_text(f"sex,age\n{rows}")
    table.chmod(0o600)
    main(
        [
            "node",
            "check",
            str(write_node(tmp_path, data_path=str(table), columns=["sex", "age"])),
        ]
    )
    line = said(capsys, "data")
    assert line.startswith(verdict)
    assert line.endswith("has 2 columns to cluster by, and 1 rows") == (verdict == "ok")


@pytest.mark.parametrize("name", ["node.toml", "policy.toml", "ledger.jsonl"])
def test_files_that_others_may_change_are_refused(tmp_path: Path, name: str) -> None:
    file = write_node(tmp_path)
    (tmp_path / name).touch()
    (tmp_path / name).chmod(0o666)
    findings = check(file, NodeOptions.from_toml(file), apps=False)
    assert [
        finding.says for finding in findings if finding.verdict is Verdict.WRONG
    ] == [
        f"{tmp_path / name} may be changed by others: chown it to root, or chmod"
        " go-w it."
    ]


def test_a_link_to_what_others_may_put_there_is_refused(tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    file = write_node(tmp_path)
    (tmp_path / "policy.toml").rename(shared / "policy.toml")
    (tmp_path / "policy.toml").symlink_to(shared / "policy.toml")
    assert not any(
        finding.verdict is Verdict.WRONG
        for finding in check(file, NodeOptions.from_toml(file), apps=False)
    )
    shared.chmod(0o777)
    findings = check(file, NodeOptions.from_toml(file), apps=False)
    assert [
        finding.says for finding in findings if finding.verdict is Verdict.WRONG
    ] == [f"{shared} may be changed by others: chown it to root, or chmod go-w it."]


def test_a_policy_of_another_user_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_node(tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path / "policy.toml", 65533, -1)
    replace_user(monkeypatch, lambda: 65532)
    assert main(["node", "check", str(file)]) == 1
    assert "chown it to root" in said(capsys, "policy")


def test_rows_that_everybody_may_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_node(tmp_path / "open")
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "open" / "rows.npy").chmod(0o644)
    assert main(["node", "check", str(file)]) == 1
    assert "may be read or changed by everybody: chmod o-rw it" in said(capsys, "data")


def test_the_connection_needs_tls_and_a_certificate_that_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        main(
            [
                "node",
                "check",
                str(write_node(tmp_path, superlink="superlink.example.org:443")),
            ]
        )
        == 1
    )
    assert "without TLS" in said(capsys, "connection")
    made = make_credentials(tmp_path / "certificates", [tmp_path / "keys"])
    secure = {
        "insecure": False,
        "key": str(made.node_keys[0]),
        "root_certificates": str(made.authority),
    }
    file = write_node(tmp_path, superlink="superlink.example.org:443", **secure)
    assert main(["node", "check", str(file)]) == 0
    assert said(capsys, "connection").startswith("ok")
    later = findings.time.time() + 8 * 86400
    replace_time(monkeypatch, lambda: later)
    assert main(["node", "check", str(file)]) == 1
    assert "set the clock, or get a new certificate" in said(capsys, "connection")
    monkeypatch.undo()
    replace_answer(monkeypatch, lambda options: Answer(True, 0.5, ()))
    made.node_keys[0].chmod(0o644)
    made.node_keys[0].parent.chmod(0o755)
    assert main(["node", "check", str(file)]) == 1
    assert "chmod o-rw" in said(capsys, "connection")
    assert (
        main(["node", "check", str(write_node(tmp_path, superlink="localhost:1"))]) == 0
    )
    for changes in ({}, secure):
        capsys.readouterr()
        assert (
            main(
                ["node", "check", str(write_node(tmp_path, host="0.0.0.0", **changes))]
            )
            == 1
        )
        assert "where others reach this node's tasks" in said(capsys, "connection")


def test_check_says_which_defence_the_systems_users_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_node(tmp_path)
    options = NodeOptions.from_toml(file)
    replace_user(monkeypatch, lambda: 0)
    assert "this is root" in said_of_user(file, options)
    replace_user(monkeypatch, lambda: file.stat().st_uid or 65533)
    replace_rights(monkeypatch, lambda path, mode: Path(path) == options.policy)
    assert f"could change {options.policy}" in said_of_user(file, options).replace(
        f"{file}, ", ""
    )
    replace_user(monkeypatch, lambda: 65533)
    secret = NodeOptions.from_toml(
        write_node(tmp_path / "b", insecure=False, key="/etc/flower/key")
    )
    replace_rights(monkeypatch, lambda path, mode: path == secret.key)
    assert "note  user:       apps can read the SuperNode's key" in said_of_user(
        file, secret
    )
    replace_rights(monkeypatch, lambda path, mode: False)
    assert said_of_user(file, secret).startswith(
        "ok    user:       apps can neither change policy"
    )


def said_of_user(file: Path, options: NodeOptions) -> str:
    return next(
        str(finding)
        for finding in check(file, options, apps=False)
        if finding.item == "user"
    )


def test_a_node_has_a_schema_and_a_database_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], started: dict[str, object]
) -> None:
    pytest.importorskip("sqlalchemy")
    (tmp_path / "schema.toml").write_text(
        '[columns]\nage = { kind = "number", bounds = [0, 100] }\n'
    )
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE people (age REAL)")
        database.executemany(
            "INSERT INTO people VALUES (?)", [(30.0,), (None,), (40.0,)]
        )
    own = {
        "data_path": f"sqlite:///{tmp_path}/rows.db?pw=s3cret",
        "query": "SELECT age FROM people",
    }
    own = own | {"schema": str(tmp_path / "schema.toml"), "data_id": "people"}
    file = write_node(tmp_path, **own)
    assert main(["node", "check", str(file)]) == 0
    line = said(capsys, "data")
    assert line.endswith("1 columns to cluster by, and 2 rows")
    assert "s3cret" not in line
    with pytest.raises(Started):
        main(["node", "start", str(file)])
    assert sys.platform == "win32" or started["limit"] == (
        importlib.import_module("resource").RLIMIT_CORE,
        (0, 0),
    )
    command = started["command"]
    assert isinstance(command, list)
    # No word of it is in the command line, which `ps` shows to everybody.
    assert "people" not in " ".join(command)
    told = tomllib.loads(Path(command[-1]).read_text())
    assert (told["schema"], told["query"]) == (
        f"{tmp_path}/schema.toml",
        "SELECT age FROM people",
    )
    for lacking in ("query", "data_id"):
        with pytest.raises(ConfigurationError, match="and it or a cluster data-id"):
            NodeOptions.from_toml(write_node(tmp_path, **{**own, lacking: ""}))


def test_a_node_says_how_its_file_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("age;kg\n31;70,5\n47;1.080,25\n")
    schema = (
        '[columns]\nage = { kind = "number", bounds = [0, 100] }\nkg = { kind ='
        ' "number", bounds = [0, 2000] }\n'
    )
    (tmp_path / "schema.toml").write_text(schema)
    own = {
        "data_path": str(tmp_path / "rows.csv"),
        "schema": str(tmp_path / "schema.toml"),
    }
    file = write_node(tmp_path, **own)
    assert main(["node", "check", str(file)]) == 1
    capsys.readouterr()
    text = file.read_text()
    file.write_text(text + '[file]\ndecimal = ","\nthousands = "."\n')
    assert main(["node", "check", str(file)]) == 0
    assert said(capsys, "data").endswith("2 columns to cluster by, and 2 rows")
    options = NodeOptions.from_toml(file)
    table = load_stated(
        options.data_path,
        layout_of(options.node_config),
        Schema.load(tmp_path / "schema.toml"),
    )
    assert table.points.tolist() == [[31.0, 70.5], [47.0, 1080.25]]
    file.write_text(text + '[file]\ndecimal = ";"\n')
    with pytest.raises(ConfigurationError, match="the file's decimal is ';': it must"):
        NodeOptions.from_toml(file)


def test_start_becomes_flowers_supernode_with_guarded_programs_only(
    tmp_path: Path,
    started: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    file = write_node(tmp_path, data_id="ward 7", verbose=True)
    with pytest.raises(Started):
        main(["node", "start", str(file)])
    command, environment = started["command"], started["environment"]
    assert isinstance(command, list)
    assert isinstance(environment, dict)
    # The file itself, whatever is installed: it imports nothing of this project.
    own = str(Path(node_command.__file__).parent / "guard" / "supernode_program.py")
    assert command[:5] == [sys.executable, "-I", own, "--allowed-apps", SOME_APP]
    assert started["program"] == sys.executable
    assert "--insecure" in command
    assert "allow-runtime-dependency-installation" not in str(command)
    told = tomllib.loads(Path(command[-1]).read_text())
    assert (told["policy"], told["data-id"], told["verbose"]) == (
        str(tmp_path / "policy.toml"),
        "ward 7",
        True,
    )
    assert Path(command[-1]).stat().st_mode & 0o777 == 0o600
    assert environment["PATH"] == str(tmp_path / "home" / "guarded-programs")
    assert environment["FLWR_HOME"] == str(tmp_path / "home")
    assert [name for name in environment if name.startswith("PYTHON")] == [
        "PYTHONUNBUFFERED",
        "PYTHONSAFEPATH",
    ]
    assert (
        SOME_APP
        in (tmp_path / "home" / "guarded-programs" / "flwr-clientapp").read_text()
    )
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    # Where it is asked for, one that waits, and the same words.
    with pytest.raises(Started):
        main(["node", "start", str(file), "--wait"])
    patient = started["command"]
    assert isinstance(patient, list)
    assert patient[:4] == [sys.executable, "-I", own, "--wait"]
    assert patient[4:] == command[3:]
    # What it would be is printed by itself, and nothing is waited for or started.
    started.clear()
    capsys.readouterr()
    assert main(["node", "start", str(file), "--wait", "--dry-run"]) == 0
    assert shlex.split(capsys.readouterr().out) == patient
    assert not started


def test_apps_are_started_by_another_user_where_isolation_is_process(
    tmp_path: Path, started: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "check", "--apps", str(write_node(tmp_path))]) == 1
    assert "isolation = 'process' only" in capsys.readouterr().err
    file = write_node(
        tmp_path, isolation="process", runtime_secret=str(tmp_path / "secret")
    )
    with pytest.raises(Started):
        main(["node", "start", str(file)])
    assert "--superexec-auth-secret-file" in str(started["command"])
    assert started["environment"]["PATH"] == os.devnull  # type: ignore[index]
    assert not (tmp_path / "home").exists()
    # What the app is told is read once, from a pipe, so that nothing of it stays in the
    # folder for temporary files.
    (pipe,) = [Path(word) for word in started["command"] if word.endswith(".toml")]  # type: ignore[attr-defined]
    assert (stat.S_ISFIFO(pipe.stat().st_mode), pipe.parent.stat().st_mode & 0o777) == (
        True,
        0o700,
    )
    assert tomllib.loads(pipe.read_text())["policy"] == str(tmp_path / "policy.toml")
    deadline = time.monotonic() + 180.0
    while pipe.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "policy:" not in capsys.readouterr().err
    with pytest.raises(Started):
        main(["node", "start", "--apps", str(file)])
    assert str(started["program"]).endswith("flower-superexec")
    assert started["environment"]["PATH"] == str(tmp_path / "home" / "guarded-programs")  # type: ignore[index]
    assert "connection:" not in capsys.readouterr().err


def test_what_a_node_that_was_killed_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_call(monkeypatch, "tempdir", str(tmp_path), of=tempfile)
    ended, alive, other = (
        tmp_path / f"flwr-dpkmeans-{process}-x"
        for process in (2**30, os.getpid(), "tests")
    )
    for folder in (ended, alive, other):
        folder.mkdir()
    assert node_command.read_once(b"a = 1\n").read_text() == "a = 1\n"
    assert (ended.exists(), alive.exists(), other.exists()) == (False, True, True)
    with subprocess.Popen(["true"]) as reader:
        reader.wait()
        (ended / "empty").mkdir(parents=True)
        node_command.write_once(
            ended / "pipe", b"", reader.pid
        )  # who should have read it is gone
    assert not ended.exists()


def test_a_node_starts_again_in_the_home_of_its_first_start(
    tmp_path: Path, started: dict[str, object]
) -> None:
    file = write_node(tmp_path, home=str(tmp_path / "new" / "home"))
    for _ in range(2):
        with pytest.raises(Started):
            main(["node", "start", str(file)])
    assert started
    assert (tmp_path / "new" / "home").is_dir()


def test_hash_prints_what_goes_into_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.fab").write_bytes(packed(app_files()))
    assert main(["node", "hash", str(tmp_path / "a.fab")]) == 0
    assert capsys.readouterr().out.strip() == digest_of(packed(app_files()))
    (tmp_path / "b.fab").write_bytes(packed(app_files("../x")))
    assert main(["node", "hash", str(tmp_path / "b.fab")]) == 1
    assert "no plain name" in capsys.readouterr().err


def test_all_commands_are_reached_through_the_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert name in capsys.readouterr().out
    assert main([]) == main(["nodes"]) == 2
    assert main(["--help"]) == 0


def test_the_console_script_is_the_same_door() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["flwr-dpkmeans"].partition(":")
    assert getattr(importlib.import_module(module), name) is main


def test_a_command_that_fails_says_why_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the package or the system refuses; and no trace of Python's."""
    missing = str(tmp_path / "missing")
    for command in (
        ["identity", "show"],
        ["ledger", "accept"],
        ["node", "hash"],
        ["node", "check"],
    ):
        assert main([*command, missing]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert missing in said.err


def test_the_example_names_every_key() -> None:
    file = ROOT / "flwr_dpkmeans" / "deploy" / "node.example.toml"
    options = NodeOptions.from_toml(file)
    named = re.findall(r"^(?:# )?([a-z-]+) = ", file.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(
        str(field.alias) for field in NodeOptions.model_fields.values()
    )
    assert not options.insecure
    assert options.root_certificates
    assert options.key


def test_check_says_what_the_data_have_cost_and_notes_a_data_set_under_another_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default name in the ledger is the path."""
    file = write_node(tmp_path)
    ledger = FileLedger(tmp_path / "ledger.jsonl")
    rows = str(tmp_path / "rows.npy")
    ledger.charge(
        LedgerEntry(
            "1/2",
            rows,
            "ab",
            1,
            0,
            "sums",
            epsilon=1.25,
            delta=1e-6,
            unit="record",
            mu=gaussian_cost(1.25).mu,
            own_delta=0.0,
        )
    )
    (tmp_path / "ledger.jsonl").chmod(0o600)
    main(["node", "check", str(file)])
    assert (
        "has cost epsilon 1.25 per record; epsilon 0 per person; epsilon 0 per client"
    ) in said(capsys, "ledger")
    main(["node", "check", str(write_node(tmp_path, data_id="ward-7"))])
    line = said(capsys, "belonging")
    assert line.startswith("wrong")
    assert f"knows nothing of 'ward-7', but of {rows!r}" in line


def test_the_hash_of_the_example_is_no_app(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["node", "check", str(write_node(tmp_path, allowed_apps=["0" * 64]))])
    assert said(capsys, "app").startswith("wrong")


def test_a_connection_without_a_key_is_a_note_and_no_error() -> None:
    options = SimpleNamespace(
        host="127.0.0.1", insecure=False, superlink="example.org:9092", key=None,
        root_certificates=None, invitation=None,
    )  # fmt: skip
    with pytest.raises(NoteError, match="whoever reaches the SuperLink can be a node"):
        NodeCheck(Path(), cast(Any, options))._connection()


@pytest.mark.parametrize(
    ("anything", "run", "total", "noted"),
    [
        (True, 1.0, math.inf, True),
        (True, math.inf, 2.0, True),
        (True, 1.0, 2.0, False),
        (False, math.inf, 1.0, False),
    ],
)
def test_a_policy_that_leaves_everything_open_is_a_note(
    anything: bool, run: float, total: float, noted: bool, tmp_path: Path,
) -> None:  # fmt: skip
    tmp_path.chmod(0o755)
    policy = tmp_path / "policy.toml"
    limits = {"max-epsilon-per-run": run, "max-epsilon-total": total}
    stated = [f"{key} = {limit}\n" for key, limit in limits.items()]
    policy.write_text(f"allow-anything = {str(anything).lower()}\n{''.join(stated)}")
    options: Any = SimpleNamespace(
        policy=policy, columns=("a",), table_schema=None, schema_digest="",
        data_path="",
    )  # fmt: skip
    checked = NodeCheck(Path(), options)
    if noted:
        with pytest.raises(NoteError, match="allows anything and leaves epsilon open"):
            checked._policy()
    elif anything:
        line = f"at most epsilon {run:g} for a run, {total:g} in all at delta 0.01"
        assert checked._policy() == line
    else:
        with pytest.raises(RefusalError, match="does not limit max-epsilon-per-run"):
            checked._policy()
    policy.chmod(0o666)
    with pytest.raises(ConfigurationError, match="may be changed by others"):
        NodeCheck(Path(), options)._policy()


def test_a_policys_columns_are_held_against_those_of_the_schema(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "schema.toml").write_text(
        'profile = ["ward"]\n[columns]\nage = { kind = "number", bounds = [0, 9] }\n'
        'ward = { kind = "category", values = ["A"], weight = 0 }\n'
    )
    limits = (
        "allow-anything = true\nmax-epsilon-per-run = 1\nmax-epsilon-total ="
        ' 2\nallowed-columns = ["age"{}]\n'
    )
    files = {"policy": tmp_path / "p.toml", "table_schema": tmp_path / "schema.toml"}
    options: Any = SimpleNamespace(**files, columns=(), schema_digest="", data_path="")
    options.policy.write_text(limits.format(', "ward=A"'))
    line = "at most epsilon 1 for a run, 2 in all at delta 0.01"
    assert NodeCheck(Path(), options)._policy() == line
    options.policy.write_text(limits.format(""))
    with pytest.raises(RefusalError, match="its table of 2 names has 1 besides them"):
        NodeCheck(Path(), options)._policy()
