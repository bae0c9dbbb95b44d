"""Apps from a server: only bytes on the node's list are unpacked, into a folder that
nobody prepared.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.common.serde import context_from_proto, message_from_proto
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp
from support.apps import THIEF, app_files, packed, pyproject

from flwr_dpkmeans.deploy import app_guard as guards
from flwr_dpkmeans.deploy.app_guard import (
    Guard,
    GuardError,
    digest_of,
    put_before_flower,
    write_programs,
)

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
def flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts Flower's own functions and paths back afterwards."""
    for name in (*guards._SEAMS, *guards._WRAPPED):
        monkeypatch.setattr(run_clientapp, name, getattr(run_clientapp, name))
    for name in guards._SEAMS[:-1]:
        monkeypatch.setattr(RUN_SERVERAPP, name, getattr(RUN_SERVERAPP, name))
    monkeypatch.setattr(RUN_SERVERAPP, guards._SEAMS[-1], None, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "counted", None)
    monkeypatch.delitem(sys.modules, "counted")


def test_an_approved_app_is_unpacked_into_a_private_folder(tmp_path: Path) -> None:
    content = packed(app_files())
    guard = guard_for(tmp_path, content)
    target = guard.unpack(content)
    assert target.parent == guard.folder
    assert target.stat().st_mode & 0o777 == 0o700
    assert (target / "counted.py").read_text() == app_files()["counted.py"]
    assert not guard.alerts.exists()


def test_a_full_disk_is_said_and_half_an_app_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = guard_for(tmp_path, content := packed(app_files()))

    def fill(archive: zipfile.ZipFile, target: Path) -> None:
        (target / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", fill)
    with pytest.raises(
        GuardError, match=r"cannot be written \(No space left on device\): make room"
    ):
        guard.unpack(content)
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
        guards.digest_of(
            packed(app_files() | {"__pycache__/counted.cpython-311.pyc": "secret"})
        )


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_and_what_is_no_app_are_refused() -> None:
    import io
    import zipfile

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


def test_what_is_hashed_is_what_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, other = packed(app_files()), packed(app_files(mark="x" * 10))
    held = bytearray(good)
    guard = guard_for(tmp_path, good)
    whole = guards.require_plain

    def swap(content: bytes) -> None:
        whole(content)
        held[:] = other

    monkeypatch.setattr(guards, "require_plain", swap)
    target = guard.unpack(held)  # type: ignore[arg-type]
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
def test_a_server_runs_approved_apps_only(tmp_path: Path) -> None:
    """Whoever reaches the SuperLink's port may ask for any app there."""
    good, other = packed(app_files()), packed(app_files(answer=THIEF))
    put_before_flower(guard_for(tmp_path, good), guards.SERVER_APP)
    target = RUN_SERVERAPP.install_from_fab(good, skip_prompt=True)
    assert (
        RUN_SERVERAPP.get_project_dir("somebody/counted", "../../x", "0" * 64) == target
    )
    with pytest.raises(
        LoadClientAppError,
        match=f"only approved apps run here.* .SHA-256 {sha256(other)}.: ask who",
    ):
        RUN_SERVERAPP.install_from_fab(other, skip_prompt=True)
    assert guards.missing_seams(guards.SERVER_APP) == guards.missing_seams() == []


@pytest.mark.usefixtures("flower")
def test_an_app_that_is_killed_is_answered_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By what a fork wrote down before it unpacked anything."""
    monkeypatch.setattr(TaskIdentity, "_node_id", 7)
    monkeypatch.setattr(TaskIdentity, "_task_id", 3)
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    asked = Message.__new__(Message)
    asked.__dict__["_metadata"] = Metadata(1, "asked", 0, 7, "", "", 1.0, 60.0, "train")
    asked.__dict__["_content"], asked.__dict__["_error"] = RecordDict(), None
    pulled, said = (asked, SimpleNamespace(node_id=7), "run", "fab"), list[Any]()
    monkeypatch.setattr(run_clientapp, "pull_task_input", lambda _: pulled)
    (heard, answer), (_, begun) = os.pipe(), os.pipe()
    put_before_flower(guard_for(tmp_path), reporter=guards.Reporter(answer, begun))
    assert run_clientapp.pull_task_input(None) == pulled  # type: ignore[arg-type]
    with os.fdopen(heard, "rb") as pipe:
        prepared = pipe.read()
    client = MagicMock()
    client.PushMessages.side_effect = lambda asked: (
        said.append(asked)
        or SimpleNamespace(
            session_id="s",
            objects_to_push=[tree.object_id for tree in asked.message_object_trees],
        )
    )
    client.PushObject.side_effect = lambda asked: (
        said.append(asked) or SimpleNamespace(stored=True)
    )
    client.PushTaskOutput.side_effect = said.append
    monkeypatch.setattr(
        RuntimeHttpClient,
        "from_server_address",
        lambda *given, **_: said.append(given) or client,
    )
    words = [
        "--runtime-api-address",
        "127.0.0.1:9",
        "--token",
        "ab",
        "--insecure",
        "--parent-pid",
        "1",
    ]
    monkeypatch.setattr(run_clientapp, "pull_task_input", lambda _: pulled)
    guards._report(guards.CLIENT_APP, words, prepared, "SIGKILL")
    (address, insecure, root, _), pushed, stored, output = said
    assert (address, insecure, root) == ("127.0.0.1:9", True, None)
    assert (stored.node.node_id, stored.run_id, stored.session_id) == (7, 1, "s")
    (reply,) = [message_from_proto(one) for one in pushed.messages_list]
    assert (
        reply.error.code,
        reply.metadata.reply_to_message_id,
        reply.metadata.dst_node_id,
    ) == (8, "asked", 0)
    assert (output.sub_status, output.details[:37]) == (
        "failed",
        "its app was killed (SIGKILL); what no",
    )
    del said[:]
    guards._report(
        guards.CLIENT_APP, words, b"", "SIGKILL"
    )  # before it had asked for its message
    assert (
        said[1].messages_list[0].metadata.reply_to_message_id,
        said[3].sub_status,
    ) == ("asked", "failed")
    monkeypatch.setattr(
        run_clientapp, "pull_task_input", MagicMock(side_effect=RuntimeError)
    )
    del said[:]
    with pytest.raises(
        RuntimeError
    ):  # then Flower misses its signs of life, and answers
        guards._report(guards.CLIENT_APP, words, b"", "SIGKILL")
    assert len(said) == 1
    del said[:]
    guards._report(
        guards.SERVER_APP, [*words[:4], "--root-certificates", "ca.crt"], b"", "SIGSEGV"
    )
    assert said[0][:3] == ("127.0.0.1:9", False, "ca.crt")
    assert [type(one).__name__ for one in said[1:]] == ["PushTaskOutputRequest"]


@pytest.mark.usefixtures("flower")
@pytest.mark.parametrize("failed", [False, True])
def test_what_an_app_remembers_is_saved_with_its_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failed: bool
) -> None:
    """Flower saves it at the process's end, for which it has 5 s.

    Too little for a busy machine.
    """
    done, client = list[Any](), MagicMock()
    client.PushTaskOutput.side_effect = done.append
    monkeypatch.setattr(run_clientapp, "push_message", lambda *_: done.append("reply"))
    monkeypatch.setattr(
        run_clientapp, "push_task_output", lambda **_: done.append("end")
    )
    read, begun = os.pipe()
    put_before_flower(
        guard_for(tmp_path), reporter=guards.Reporter(os.dup(begun), begun)
    )
    context = Context(7, 3, {}, RecordDict({"seen": ConfigRecord({"round": 9})}), {})
    run_clientapp.push_message(
        client, SimpleNamespace(has_error=lambda: failed), context
    )  # type: ignore[arg-type]
    run_clientapp.push_task_output(
        client=client, context=context, sub_status="completed", details=""
    )
    # From then on nobody else answers, and its owner sees when it answered.
    assert os.read(read, 10) == b"1"
    assert time.time() - (tmp_path / "answered").stat().st_mtime < 600.0
    if failed:
        assert done == ["reply", "end"]  # with Flower's own words
    else:
        reply, saved = done
        assert (reply, saved.sub_status) == ("reply", "completed")
        assert context_from_proto(saved.context).state["seen"]["round"] == 9


@pytest.mark.usefixtures("flower")
def test_a_message_is_asked_for_when_the_process_of_the_one_before_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file,"
        " fcntl.LOCK_EX); print(); input()"
    )
    monkeypatch.setattr(run_clientapp, "pull_task_input", lambda _: "pulled")
    put_before_flower(guard_for(tmp_path))
    words = [sys.executable, "-I", "-c", held, str(tmp_path / "turn.lock")]
    with (
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as before,
        ThreadPoolExecutor() as pool,
    ):
        assert before.stdin is not None
        assert before.stdout is not None
        before.stdout.readline()
        asked = pool.submit(run_clientapp.pull_task_input, MagicMock())
        assert not wait([asked], timeout=0.3).done
        before.stdin.close()
        assert asked.result(timeout=180.0) == "pulled"


def test_a_process_that_never_ends_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guards, "_TURN_SECONDS", 0.1)
    monkeypatch.setattr(guards, "_locked", lambda *_: False)
    assert guards._in_turn(lambda _: "pulled", tmp_path / "turn.lock")(None) == "pulled"


_WAITS = """
import runpy, sys
guard = runpy.run_path(sys.argv[1])
file = open(sys.argv[2], "w")
guard["_locked"](file.fileno(), 1)
print("waits", flush=True)
input()
"""


def test_content_that_never_comes_is_waited_for_until_a_later_message_is_here(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def pull(name: str) -> bytes:
        asked.append(name)
        if len(asked) % 3:
            raise inflatable_utils.ObjectUnavailableError(name)
        return b"content"

    def inflate(tree: str, pull: Callable[[str], bytes], **waits: Any) -> bytes:
        return inflatable_utils.pull_objects(
            [tree], pull, **{**waits, "initial_backoff": 0.01}
        )[tree]

    inflated = guards._unless_late(inflate, tmp_path / "turn.lock")
    assert inflated("x", pull) == b"content"
    words = [
        sys.executable,
        "-I",
        "-c",
        _WAITS,
        guards.__file__,
        str(tmp_path / "turn.lock"),
    ]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as later:
        assert later.stdout is not None
        assert later.stdout.readline() == b"waits\n"
        with pytest.raises(
            inflatable_utils.ObjectPullError, match="a later message is here"
        ):
            inflated("x", pull)
        later.kill()
    assert asked == ["x"] * 4


@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.symlink_to("elsewhere")]
)
def test_a_message_is_asked_for_where_nothing_can_be_locked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    """Flower would wait for the answer of one that nobody asks for, for ever.

    The ledger refuses what comes twice.
    """
    make(tmp_path / "turn.lock")
    assert guards._in_turn(lambda _: "pulled", tmp_path / "turn.lock")(None) == "pulled"
    assert "turn.lock cannot be locked" in capfd.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


_STOOD_BY = """
import os, pathlib, runpy, signal, sys
guard = runpy.run_path(sys.argv[1])
guard["_stood_by"].__globals__["_report"] = lambda *given: print(*given, flush=True)
reporter = guard["_stood_by"]("flwr-serverapp", ["--token", "1"], pathlib.Path(sys.argv[3]), os.dup(0))
os.write(reporter.answer, b"answer")
os.close(reporter.answer)
if sys.argv[4] == "began":
    os.write(reporter.begun, b"1")
print("computes", flush=True)
os.kill(os.getpid(), int(sys.argv[2])) if sys.argv[2] != "0" else sys.exit(3)
"""


@pytest.mark.parametrize(
    ("number", "began", "said"),
    [
        (0, "", ""),
        (signal.SIGKILL, "", "flwr-serverapp ['--token', '1'] b'answer' SIGKILL\n"),
        # A second answer would be left in the SuperNode, which then takes it for that
        # of its next message.
        (signal.SIGKILL, "began", ""),
    ],
)
def test_what_an_app_was_forked_from_sees_how_it_ends(
    tmp_path: Path, number: int, began: str, said: str
) -> None:
    answered = tmp_path / "answered"
    words = [
        sys.executable,
        "-I",
        "-c",
        _STOOD_BY,
        guards.__file__,
        str(int(number)),
        str(answered),
        began,
    ]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=180.0,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"computes\n{said}", "")
    assert answered.exists() == bool(said)


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
    """Id, version and hash of a run come from the server, beside bytes that are
    approved.
    """
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
    for app in (guards.CLIENT_APP, guards.SERVER_APP):
        path = write_programs(guard, tmp_path / "programs", app)["PATH"]
        for name in [*TASK_TYPE_TO_COMMAND.values(), "flower-superexec"]:
            found = Path(str(shutil.which(name, path=path)))
            assert found.parent == tmp_path / "programs"
            assert ("a" * 64 in found.read_text()) == (
                name in (app, "flower-superexec")
            )
            assert str(Path(guards.__file__)) in found.read_text()


def test_a_node_does_not_start_where_programs_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(frozenset({"a" * 64}), tmp_path / "apps", tmp_path / "alerts.log")
    monkeypatch.setattr(guards.shutil, "which", lambda name, path: None)
    with pytest.raises(GuardError, match="noexec"):
        write_programs(guard, tmp_path / "programs")
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
    # The app's own copy of this package would not be imported beside one that is there
    # already.
    assert (
        re.findall(
            r"^\s*(?:from|import) flwr_dpkmeans",
            Path(guards.__file__).read_text(),
            re.MULTILINE,
        )
        == []
    )


_TWINS = """
import pathlib, runpy, sys, time, zipfile
guard = runpy.run_path(sys.argv[1])
guard["_forked"].__globals__["_EARLY"] = ("no_such_module", "colorsys")
forked = guard["_forked"](pathlib.Path(sys.argv[2]))
if forked is None:
    print("started", flush=True)
    time.sleep(60.0)
import os, signal
words, bytecode = forked
if len(words) > 2:
    words.append(len(bytecode.known))
    bytecode.write("a" * 64, pathlib.Path(words[2]), zipfile.ZipFile(words[3]))
print(words, "colorsys" in sys.modules, signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, os.getpid(), flush=True)
"""


def test_the_process_of_each_message_is_a_fork_that_ends_with_what_starts_apps(
    tmp_path: Path,
) -> None:
    messages = tmp_path / "messages"
    assert not guards._handed_over(messages, ["--token", "1"])
    os.mkfifo(messages)
    # Nobody is there who could take it: the message's process starts by itself.
    assert not guards._handed_over(messages, ["--token", "1"])
    command = [sys.executable, "-I", "-c", _TWINS, guards.__file__, str(messages)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as superexec:
        assert superexec.stdout is not None
        # As soon as what starts apps goes on: the twin, which still imports, takes it
        # when it is there.
        assert superexec.stdout.readline() == "started\n"
        assert guards._handed_over(messages, ["--token", "1"])
        assert guards._handed_over(messages, ["--token", "a b\n"])
        said = [superexec.stdout.readline().rpartition(" ") for _ in range(2)]
        assert sorted(line for line, _, _ in said) == [
            "['--token', '1'] True True",
            "['--token', 'a b\\n'] True True",
        ]
        assert len({*(process for _, _, process in said), str(superexec.pid)}) == 3
        # What the first fork compiled, the twin gives to later ones. Files that lie
        # about are never asked: even in the first one they may have been changed since
        # they were unpacked.
        for number, mark in enumerate(("reviewed", "poison")):
            target = tmp_path / mark
            target.mkdir()
            (target / "counted.py").write_text("MARK = 'poison'")
            with zipfile.ZipFile(hashed := tmp_path / f"{mark}.fab", "w") as archive:
                archive.writestr("counted.py", f"MARK = {mark!r}")
                archive.writestr("no_python.py", "(")
            deadline = time.monotonic() + 180.0
            while True:
                assert guards._handed_over(
                    messages, ["--token", "2", str(target), str(hashed)]
                )
                *_, known = ast.literal_eval(
                    superexec.stdout.readline().rpartition("] ")[0] + "]"
                )
                if known == number:
                    break
                assert time.monotonic() < deadline
            read = [
                sys.executable,
                "-I",
                "-B",
                "-c",
                (
                    "import sys; sys.path[0:0] = sys.argv[1:]; import counted as c;"
                    " print(c.MARK)"
                ),
            ]
            assert (
                subprocess.check_output([*read, str(target)], text=True) == "reviewed\n"
            )
        superexec.kill()
        # The twin has the other end of this pipe, too.
        assert superexec.stdout.read() == ""
    assert not guards._handed_over(messages, ["--token", "1"])


def test_alerts_do_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_LONGEST_ALERTS", 500)
    guard = guard_for(tmp_path)
    for index in range(10):
        with pytest.raises(GuardError):
            guard.unpack(b"%d" % index)
    assert 500 <= guard.alerts.stat().st_size < 1000
