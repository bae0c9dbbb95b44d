"""Apps from a server: only bytes on the node's list are unpacked, into a folder that
nobody prepared.
"""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.common.serde import context_from_proto
from flwr.proto.runtime_pb2 import PushTaskOutputRequest
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supernode.runtime import run_clientapp
from support.apps import THIEF, app_files, packed, pyproject
from support.gates import gate_options
from support.installed import forget, install

from flwr_dpkmeans.deploy.guard import app_program
from flwr_dpkmeans.deploy.guard.app_guard import Guard
from flwr_dpkmeans.deploy.guard.app_program import put_before_flower
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.guard.guarded_programs import write_programs
from flwr_dpkmeans.deploy.guard.refusal import GuardError
from flwr_dpkmeans.flower import _private

VERSIONS = (
    *(
        "../../x",
        "0.1.0.abcdef01/../../../x",
        "/tmp/x",
        "..",
        "0.1.0\\..\\..\\x",
        "..%2f..%2fx",
        "%2e%2e/x",
    ),
    *("0.1.0/x", "~/x", "\uff0e\uff0e\uff0fx", "$HOME", "0.1.0 x"),
)
MEMBERS = (
    "../x.py",
    "/tmp/x.py",
    "a/../../x.py",
    "a/..",
    "C:/x.py",
    "a\\..\\..\\x.py",
    "..\\x.py",
)


RUN_SERVERAPP: Any = importlib.import_module("flwr.superlink.runtime.run_serverapp")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def guard_for(home: Path, *allowed: bytes) -> Guard:
    """A guard with its private folder."""
    folder = home / "guarded-apps"
    folder.mkdir(mode=0o700, parents=True)
    return Guard(frozenset(map(sha256, allowed)), folder, home / "alerts.log")


def everything(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.name != "alerts.log"}


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts Flower's own functions and paths back afterwards."""
    functions = [
        (vars(module), {**vars(module)}) for module in (run_clientapp, RUN_SERVERAPP)
    ]
    install(monkeypatch, counted=None)
    forget(monkeypatch, "counted")
    before = list(sys.path)
    yield
    sys.path[:] = before
    for names, original in functions:
        names.update(original)


def test_an_approved_app_is_unpacked_into_a_private_folder(tmp_path: Path) -> None:
    content = packed(app_files())
    guard = guard_for(tmp_path, content)
    target = guard.unpack(content)
    assert target.parent == guard.folder
    assert target.stat().st_mode & 0o777 == 0o700
    assert (target / "counted.py").read_text() == app_files()["counted.py"]
    assert not guard.alerts.exists()


def test_a_full_disk_is_said_and_half_an_app_is_not_left(tmp_path: Path) -> None:
    """A limit of a file's size is what an unprivileged test can fill."""
    guard = guard_for(tmp_path, content := packed(app_files(mark="x" * 100_000)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(GuardError, match=r"written \(File too large\): make room"):
            guard.unpack(content)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(guard.folder.iterdir()) == []


def test_what_a_killed_process_unpacked_does_not_stay_for_ever(tmp_path: Path) -> None:
    guard = guard_for(tmp_path, content := packed(app_files()))
    context = multiprocessing.get_context("fork")
    process = context.Process(
        target=lambda: (guard.unpack(content), os.kill(os.getpid(), signal.SIGKILL))
    )
    process.start()
    process.join()
    (left,) = guard.folder.iterdir()
    own = guard.unpack(content)
    assert not left.exists()
    # What a living one has is left alone.
    assert {own, guard.unpack(content)} == {*guard.folder.iterdir()}


def test_other_bytes_under_a_good_name_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, other = packed(app_files()), packed(app_files(answer=THIEF))
    guard = guard_for(tmp_path, good)
    before = everything(tmp_path)
    with pytest.raises(GuardError, match=sha256(other)):
        guard.unpack(other)
    assert everything(tmp_path) == before
    said = capsys.readouterr().err
    assert said.count("ALERT") == 1
    assert sha256(other) in said
    assert guard.alerts.read_text() == said
    assert guard.alerts.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_leads_elsewhere_is_refused_even_if_it_was_approved(
    tmp_path: Path, version: str
) -> None:
    content = packed(app_files(version))
    for guard in (guard_for(tmp_path / "a"), guard_for(tmp_path / "b", content)):
        before = everything(tmp_path)
        with pytest.raises(GuardError):
            guard.unpack(content)
        assert everything(tmp_path) == before
        assert sha256(content) in guard.alerts.read_text()
    with pytest.raises(GuardError, match="plain name"):
        digest_of(content)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_leads_elsewhere_is_refused_even_if_it_was_approved(
    tmp_path: Path, member: str
) -> None:
    content = packed(app_files() | {member: "x"})
    guard = guard_for(tmp_path, content)
    before = everything(tmp_path)
    with pytest.raises(GuardError, match="leads out"):
        guard.unpack(content)
    assert everything(tmp_path) == before


def test_a_symbolic_link_in_an_app_is_refused(tmp_path: Path) -> None:
    content = packed(app_files(), links={"data": "/etc"})
    with pytest.raises(GuardError, match="link"):
        guard_for(tmp_path, content).unpack(content)


def test_bytecode_that_came_with_an_app_is_refused_even_if_it_was_approved() -> None:
    with pytest.raises(GuardError, match="is compiled, so nobody can review it"):
        digest_of(
            packed(app_files() | {"__pycache__/counted.cpython-311.pyc": "secret"})
        )


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_and_what_is_no_app_are_refused() -> None:
    import io

    content = io.BytesIO(packed(app_files()))
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("counted.py", "other")
    with pytest.raises(GuardError, match="two members"):
        digest_of(content.getvalue())
    for wrong in (
        b"",
        b"PK",
        packed({"a": "b"}),
        packed({"pyproject.toml": "[project"}),
    ):
        with pytest.raises(GuardError, match="no FAB"):
            digest_of(wrong)


def test_a_damaged_encrypted_or_deeply_nested_app_is_a_refusal_too() -> None:
    deep = pyproject() + "\nx = " + "[" * 100_000
    encrypted = bytearray(packed({"pyproject.toml": pyproject()}))
    encrypted[6] |= 1
    encrypted[encrypted.find(b"PK\x01\x02") + 8] |= 1
    damaged = bytearray(packed({"pyproject.toml": pyproject() * 20}))
    damaged[60] ^= 0xFF
    for wrong in (packed({"pyproject.toml": deep}), bytes(encrypted), bytes(damaged)):
        with pytest.raises(GuardError, match="no FAB"):
            digest_of(wrong)


def test_a_folder_that_is_a_link_or_open_to_others_is_not_used(tmp_path: Path) -> None:
    content = packed(app_files())
    guard = guard_for(tmp_path / "home", content)
    guard.folder.chmod(0o750)
    with pytest.raises(GuardError, match="mode 750"):
        guard.unpack(content)
    elsewhere = tmp_path / "writable"
    guard.folder.rename(elsewhere)
    elsewhere.chmod(0o700)
    guard.folder.symlink_to(elsewhere)
    with pytest.raises(GuardError, match="or a link"):
        guard.unpack(content)
    assert list(elsewhere.iterdir()) == []
    guard.folder.unlink()
    guard.folder.mkdir(mode=0o700)
    guard.folder.parent.chmod(0o777)
    with pytest.raises(GuardError, match="everybody may write"):
        guard.unpack(content)


def test_what_is_hashed_is_what_is_unpacked(tmp_path: Path) -> None:
    good, other = packed(app_files()), packed(app_files(mark="x" * 10))
    content = bytearray(good)

    class Swapped(Guard):
        """The caller changes the content after it was hashed."""

        def _remove_what_was_left(self) -> None:
            content[:] = other

    guard = Swapped(**vars(guard_for(tmp_path, good)))
    target = guard.unpack(content)  # type: ignore[arg-type]
    assert (target / "counted.py").read_text() == app_files()["counted.py"]


@pytest.mark.usefixtures("flower")
def test_an_app_that_comes_after_an_approved_one_is_checked_too(tmp_path: Path) -> None:
    good, other = packed(app_files()), packed(app_files(answer=THIEF))
    put_before_flower(guard_for(tmp_path, good))
    run_clientapp.install_from_fab(good, skip_prompt=True)
    with pytest.raises(LoadClientAppError, match="only approved apps run here"):
        run_clientapp.install_from_fab(other, skip_prompt=True)
    with pytest.raises(LoadClientAppError, match="no approved app"):
        run_clientapp.get_load_client_app_fn(
            default_app_ref="", app_path=None, multi_app=True
        )


@pytest.mark.usefixtures("flower")
def test_of_an_app_behind_a_gate_nothing_is_imported(tmp_path: Path) -> None:
    """The gate answers in its place; of an app without one the app does."""
    gated, free = packed(app_files(answer=THIEF, mark="gated")), packed(app_files())
    guard = guard_for(tmp_path, gated, free)
    gate = tmp_path / "gate.json"
    gate.write_text(gate_options(app=sha256(gated)).model_dump_json(by_alias=True))
    put_before_flower(replace(guard, gate=gate))
    for content, kind in ((gated, "GateApp"), (free, "ClientApp")):
        run_clientapp.install_from_fab(content, skip_prompt=True)
        load = run_clientapp.get_load_client_app_fn(
            default_app_ref="", app_path=None, multi_app=True
        )
        app = load("somebody/counted", "0.1.0", "")
        assert type(app).__name__ == kind
        assert ("counted" in sys.modules) == (kind == "ClientApp")


@pytest.mark.usefixtures("flower")
def test_a_server_runs_approved_apps_only(tmp_path: Path) -> None:
    """Whoever reaches the SuperLink's port may ask for any app there."""
    good, other = packed(app_files()), packed(app_files(answer=THIEF))
    put_before_flower(guard_for(tmp_path, good), _private.SERVER_APP)
    target = RUN_SERVERAPP.install_from_fab(good, skip_prompt=True)
    assert (
        RUN_SERVERAPP.get_project_dir("somebody/counted", "../../x", "0" * 64) == target
    )
    with pytest.raises(
        LoadClientAppError,
        match=f"only approved apps run here.* .SHA-256 {sha256(other)}.: ask who",
    ):
        RUN_SERVERAPP.install_from_fab(other, skip_prompt=True)
    for app in (_private.CLIENT_APP, _private.SERVER_APP):
        assert _private.missing_app_seams(app) == []


@pytest.mark.usefixtures("flower")
@pytest.mark.parametrize("failed", [False, True])
def test_what_an_app_remembers_is_saved_with_its_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failed: bool
) -> None:
    """Flower saves it at the process's end, for which it has 5 s."""
    steps: list[object] = []
    client = MagicMock()
    client.PushTaskOutput.side_effect = steps.append
    monkeypatch.setattr(run_clientapp, "push_message", lambda *_: steps.append("reply"))
    put_before_flower(guard_for(tmp_path))
    context = Context(7, 3, {}, RecordDict({"seen": ConfigRecord({"round": 9})}), {})
    message: Any = SimpleNamespace(has_error=lambda: failed)
    run_clientapp.push_message(client, message, context)
    n_steps = 1 if failed else 2
    assert len(steps) == n_steps
    # Its owner sees when it answered.
    assert time.time() - (tmp_path / "answered").stat().st_mtime < 600.0
    run_clientapp.push_task_output(
        client=client, context=context, sub_status="at the end", details=""
    )
    reply, output = steps
    assert reply == "reply"
    assert isinstance(output, PushTaskOutputRequest)
    # An error's words are Flower's own, at its process's end.
    assert output.sub_status == ("at the end" if failed else "completed")
    assert context_from_proto(output.context).state["seen"]["round"] == 9


_HOLDS = (
    "import fcntl, sys; file = open(sys.argv[1], 'w');"
    " fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"
)


def test_a_message_is_asked_for_when_the_process_of_the_one_before_has_ended(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "turn.lock"
    words = [sys.executable, "-I", "-c", _HOLDS, str(lock)]
    with (
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as before,
        ThreadPoolExecutor() as pool,
    ):
        assert before.stdin is not None
        assert before.stdout is not None
        before.stdout.readline()
        turn = pool.submit(app_program.wait_for_turn, lock)
        assert not wait([turn], timeout=0.3).done
        before.stdin.close()
        turn.result(timeout=9.0)


def test_a_process_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "turn.lock"
    words = [sys.executable, "-I", "-c", _HOLDS, str(lock)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as before:
        assert before.stdout is not None
        before.stdout.readline()
        app_program.wait_for_turn(lock, seconds=0.1)
        assert before.poll() is None
        before.kill()


@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.symlink_to("elsewhere")]
)
def test_a_message_is_asked_for_where_nothing_can_be_locked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    """Flower would wait for the answer of one that nobody asks for, for ever."""
    make(tmp_path / "turn.lock")
    app_program.wait_for_turn(tmp_path / "turn.lock")
    assert "turn.lock cannot be locked" in capfd.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("flower")
def test_content_that_never_comes_is_not_asked_for_longer_than_a_server_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as of a run that has ended in between."""
    waits: list[float] = []

    def inflate(*_: object, max_time: float, **__: object) -> str:
        waits.append(max_time)
        return "message"

    monkeypatch.setattr(run_clientapp, "pull_and_inflate_object_from_tree", inflate)
    put_before_flower(guard_for(tmp_path))
    inflated: Any = run_clientapp.pull_and_inflate_object_from_tree
    assert inflated(None, None, None, return_type=Message) == "message"
    assert waits == [600.0]


@pytest.mark.usefixtures("flower")
def test_what_somebody_unpacked_before_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = packed(app_files(mark="reviewed"))
    guard = guard_for(tmp_path / "home", good)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    poison = app_files(mark="poison", answer=THIEF)
    # Where Flower unpacks, and where it skips unpacking if something is there; and the
    # guard's own folder.
    for folder in (
        f"apps/somebody.counted.0.1.0.{sha256(good)[:8]}",
        f"guarded-apps/{sha256(good)}",
    ):
        place = tmp_path / "home" / folder
        place.mkdir(parents=True)
        for name, text in poison.items():
            (place / name).write_text(text)
    put_before_flower(guard)
    run_clientapp.install_from_fab(good, skip_prompt=True)
    load = run_clientapp.get_load_client_app_fn(
        default_app_ref="", app_path=None, multi_app=True
    )
    assert isinstance(load("somebody/counted", "0.1.0", sha256(good)), ClientApp)
    assert sys.modules["counted"].MARK == "reviewed"


@pytest.mark.usefixtures("flower")
def test_the_servers_words_do_not_choose_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Id, version and hash of a run come from the server."""
    good = packed(app_files())
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    poisoned = tmp_path / f"x.{sha256(good)[:8]}"
    shutil.copytree(guard_for(tmp_path / "other", good).unpack(good), poisoned)
    version = f"0.1.0/../../../x/../x.{sha256(good)[:8]}"
    put_before_flower(guard_for(tmp_path / "home", good))
    target = run_clientapp.install_from_fab(good, skip_prompt=True)
    assert (
        run_clientapp.get_project_dir("somebody/counted", version, "0" * 64) == target
    )
    load = run_clientapp.get_load_client_app_fn(
        default_app_ref="", app_path=None, multi_app=True
    )
    with pytest.raises(LoadClientAppError, match="mismatch"):
        load("somebody/counted", version, "0" * 64)
    assert "counted" not in sys.modules
    with pytest.raises(LoadClientAppError, match="installs nothing"):
        run_clientapp.install_app_dependencies(target)


def test_a_flower_that_works_in_another_way_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        run_clientapp, "run_clientapp", lambda: run_clientapp.pull_task_input
    )
    with pytest.raises(GuardError, match="does not call install_from_fab"):
        put_before_flower(guard_for(tmp_path))


def test_every_program_that_flower_starts_is_a_guarded_one(tmp_path: Path) -> None:
    guard = Guard(frozenset({"a" * 64}), tmp_path / "apps", tmp_path / "alerts.log")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "flwr-clientapp").write_text("prepared")
    for app in (_private.CLIENT_APP, _private.SERVER_APP):
        path = write_programs(guard, tmp_path / "programs", app)["PATH"]
        for name in [*TASK_TYPE_TO_COMMAND.values(), "flower-superexec"]:
            found = Path(str(shutil.which(name, path=path)))
            assert found.parent == tmp_path / "programs"
            assert ("a" * 64 in found.read_text()) == (name == app)
            assert str(app_program.__file__) in found.read_text()


def test_a_node_does_not_start_where_programs_cannot_be_run(tmp_path: Path) -> None:
    guard = Guard(frozenset({"a" * 64}), tmp_path / "apps", tmp_path / "alerts.log")
    with pytest.raises(GuardError, match="noexec"):
        write_programs(guard, tmp_path / "programs", find=lambda name, path: None)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(GuardError, match="is a link"):
        write_programs(guard, tmp_path / "link")
    for wrong in ({"a" * 8}, {"A" * 64}, set()):
        with pytest.raises(GuardError, match="SHA-256"):
            write_programs(
                Guard(frozenset(wrong), tmp_path / "apps", tmp_path / "alerts.log"),
                tmp_path / "programs",
            )


def test_a_guarded_program_takes_nothing_from_variables_and_the_working_folder(
    tmp_path: Path,
) -> None:
    poison = tmp_path / "poison"
    poison.mkdir()
    for name in ("sitecustomize", "usercustomize", "tomllib", "flwr", "zipfile"):
        (poison / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    guard = Guard(frozenset({"a" * 64}), tmp_path / "apps", tmp_path / "alerts.log")
    variables = write_programs(guard, tmp_path / "programs")
    del variables["PYTHONSAFEPATH"]
    command = [str(tmp_path / "programs" / "flwr-clientapp"), "--help"]
    environment = (
        os.environ
        | variables
        | {
            "PYTHONPATH": str(poison),
            "PYTHONSTARTUP": str(poison / "flwr.py"),
        }
    )
    completed = subprocess.run(
        command,
        cwd=poison,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert "--token" in completed.stdout
    assert not (tmp_path / "ran").exists()


_IMPORTS = """
import runpy, sys
sys.argv = [sys.argv[1], *sys.argv[2:]]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith("flwr_dpkmeans")))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        ["app_program.py", "flwr-clientapp", "flwr-clientapp", "a" * 64, "f", "a", ""],
        ["app_program.py", "flower-superexec", "flwr-clientapp", "", "f", "a", ""],
        ["supernode_program.py"],
    ],
)
def test_a_guarded_program_imports_nothing_of_this_project(
    tmp_path: Path, words: list[str]
) -> None:
    """The app's own copy would not be imported beside one that is there already."""
    program = Path(app_program.__file__).with_name(words[0])
    command = [sys.executable, "-I", "-c", _IMPORTS, program, *words[1:], "--help"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "usage:" in done.stdout, done.stderr
    assert done.stdout.endswith("\n[]\n")


def test_alerts_do_not_fill_the_disk(tmp_path: Path) -> None:
    guard = replace(guard_for(tmp_path), most_alert_bytes=500)
    for index in range(10):
        with pytest.raises(GuardError):
            guard.unpack(b"%d" % index)
    assert 500 <= guard.alerts.stat().st_size < 1000
