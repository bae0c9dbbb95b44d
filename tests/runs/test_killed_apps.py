"""An app's process is killed at each moment of a message.

Its node answers, or ends, and is never dead but online.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Message
from flwr.common.constant import ErrorCode, Status
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.servicer.runtime import runtime_handlers
from support.apps import app_files, packed, pyproject
from support.supernode_stand_in import StandInNode, apps_of, around, kill_app

from flwr_dpkmeans.deploy.guard import supernode_program
from flwr_dpkmeans.deploy.guard.approved_config import guarded_config
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.guard.node_watch import Watch
from flwr_dpkmeans.deploy.guard.refusal import GuardError
from flwr_dpkmeans.flower import _private

linux = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(),
    reason="looks for processes as Linux tells them",
)
FAST = {"look_seconds": 0.05, "over_seconds": 0.2, "idle_seconds": 30.0}
PATIENT = {"look_seconds": 0.1, "over_seconds": 1.0, "idle_seconds": 300.0}
APP = packed(app_files())
KILLED = packed(app_files(answer='__import__("os").kill(__import__("os").getpid(), 9)'))

_NAMES_ITSELF = (
    "(__import__('pathlib').Path(__import__('os').environ['FLWR_HOME']) / 'named')"
)
NAMED = packed(
    app_files(answer=f"str({_NAMES_ITSELF}.write_text(__import__('sys').argv[0]))")
)


# -- the node's own watch --------------------------------------------------------------


def test_a_node_whose_app_died_before_it_took_its_message_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flower's own loop would wait for ever."""
    node = StandInNode(APP)
    assert node.receive(monkeypatch) == 1
    (task,) = node.state.get_tasks()
    assert node.state.claim_task(task.task_id)
    assert node.state.activate_task(task.task_id)
    node.miss_signs_of_life()
    node.answer(monkeypatch, **FAST)
    assert node.ended == ["the app of its message has ended without an answer"]
    assert node.sent == []


def test_a_node_whose_apps_nobody_starts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    node = StandInNode(APP)
    node.receive(monkeypatch)
    node.answer(monkeypatch, **FAST | {"idle_seconds": 0.3})
    assert node.ended == [
        "no app was started for its message: the program that starts apps may have"
        " ended"
    ]


def test_an_app_that_computes_for_long_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = StandInNode(APP)
    node.receive(monkeypatch)
    (task,) = node.state.get_tasks()
    node.state.claim_task(task.task_id)
    node.state.activate_task(task.task_id)
    (taken,) = runtime_handlers.pull_messages(None, node.state, task).messages_list

    def answer_late() -> None:
        time.sleep(1.0)
        # which is a reply of Flower's own, as the message was taken
        node.miss_signs_of_life()

    thread = threading.Thread(target=answer_late)
    thread.start()
    node.answer(monkeypatch, **FAST | {"idle_seconds": 0.3})
    thread.join()
    assert node.ended == []
    assert [reply.metadata.reply_to_message_id for reply in node.sent] == [
        taken.metadata.message_id
    ]


def test_a_reply_that_takes_long_to_send_is_not_taken_for_dead() -> None:
    tasks = [SimpleNamespace(status=SimpleNamespace(status=Status.FINISHED))]
    ended: list[str] = []

    def push(
        state: Any,
        object_store: Any,
        send: Callable[..., Any],
        push_object: Callable[..., Any],
    ) -> None:
        send("reply")
        push_object("content")

    Watch(end=ended.append, **FAST).around(push)(
        state=SimpleNamespace(get_tasks=lambda: tasks),
        object_store=None,
        send=lambda _: time.sleep(0.5),
        push_object=lambda _: time.sleep(0.5),
    )
    assert ended == []


_ENDS = """
import signal, sys, time, types
from flwr_dpkmeans.deploy.guard.node_watch import Watch
signal.signal(signal.SIGTERM, lambda *_: sys.exit("goodbye"))
watch = Watch(look_seconds=0.05, over_seconds=0.1)
state = types.SimpleNamespace(get_tasks=lambda: [])
nothing = dict.fromkeys(("object_store", "send", "push_object"))
watch.around(lambda **_: time.sleep(60.0))(state=state, **nothing)
"""


def test_the_node_says_why_it_ends_and_says_goodbye_as_flower_does() -> None:
    words = [sys.executable, "-c", _ENDS]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=180.0
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "this node ends: the app of its message has ended without an answer"
    )
    assert done.stderr.endswith("goodbye\n")


# -- an app's configuration ------------------------------------------------------------


def bomb(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An app of some kilobytes whose configuration has 50 MB."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        archive.writestr("pyproject.toml", pyproject() + "\n#" + " " * 50_000_000)
    return content.getvalue()


def test_the_configuration_of_an_app_that_is_not_approved_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its run goes on to the process that has the guard, which refuses it."""

    def read(content: bytes, run: Any) -> dict[str, Any]:
        pytest.fail("it was parsed")

    for content in (bomb(), b"no archive"):
        node = StandInNode(content, frozenset({digest_of(APP)}), read)
        assert node.receive(monkeypatch) == 1
        assert [task.type for task in node.state.get_tasks()] == ["flwr-clientapp"]


def test_an_approved_app_is_configured_as_flower_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = packed(
        app_files()
        | {
            "pyproject.toml": (
                pyproject() + '\n[tool.flwr.app.config]\nk = 3\nname = "x"\n'
            )
        }
    )
    node = StandInNode(content, frozenset({digest_of(content)}))
    assert node.receive(monkeypatch) == 1
    assert node.state.get_run_series_context(1).run_config == {"k": 3, "name": "x"}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
@pytest.mark.parametrize("allowed", [True, False])
def test_what_cannot_be_read_ends_no_node_and_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: int,
    allowed: bool,
) -> None:
    import tracemalloc

    content = bomb(method)
    node = StandInNode(
        content, frozenset({hashlib.sha256(content).hexdigest()}) if allowed else None
    )
    tracemalloc.start()
    try:
        assert node.receive(monkeypatch) is None
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert "cannot be read" in capsys.readouterr().err
    # Whoever reviews such an app is told, too.
    with pytest.raises(GuardError, match=r"more than 1048576 bytes|is compressed"):
        digest_of(content)


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", packed({"a": "b"}), packed({"pyproject.toml": "[project"})],
)
def test_what_flower_would_raise_ends_no_node(content: bytes) -> None:
    def read(content: bytes, run: Any) -> dict[str, Any]:
        return start_client_internal.get_fused_config_from_fab(content, run)

    with pytest.raises(RunNotRunningException):
        guarded_config(read, None)(content, SimpleNamespace(override_config={}))


# -- a Flower that was not read --------------------------------------------------------


def test_a_flower_that_works_in_another_way_is_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _private.missing_node_seams() == []
    for caller, name in (
        ("_pull_and_store_message", "get_fused_config_from_fab"),
        ("start_client_internal", "_push_messages"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(start_client_internal, caller, lambda: None)
            assert _private.missing_node_seams() == [name]
            with pytest.raises(SystemExit, match=f"does not call {name}"):
                supernode_program.main(["--allowed-apps", "a" * 64])


# -- kills at each moment --------------------------------------------------------------


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[StandInNode, Any, Path]]:
    """A node with its guarded programs, as real processes."""
    home = tmp_path_factory.mktemp("node") / "home"
    node = StandInNode(APP)
    allowed = frozenset(map(digest_of, (APP, KILLED, NAMED)))
    with node.serving() as address, apps_of(address, home, allowed) as starter:
        yield node, starter, home


MOMENTS: dict[str, tuple[str, bool]] = {
    "before it asks": ("pull_task_input", False),
    "after its task has begun": ("pull_task_input", True),
    "after it took its message": ("pull_messages", True),
    "before its answer is taken in": ("push_messages", False),
    "after its answer was taken in, without content": ("push_messages", True),
    "after it was over": ("push_task_output", True),
}


ENDS_ITS_NODE = {
    # Flower never notices that nobody answers a message that was not taken.
    "after its task has begun",
    # Its content will never come.
    "after its answer was taken in, without content",
}


@linux
@pytest.mark.nightly
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_leaves_no_node_that_is_dead_and_online(
    running: tuple[StandInNode, Any, Path], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    node, starter, home = running
    name, after = MOMENTS[moment]
    handler, killed = getattr(runtime_handlers, name), threading.Event()

    def kill() -> None:
        kill_app(starter.pid)
        killed.set()

    node.play(name, around(handler, kill=kill, after=after))
    _process_one(node, monkeypatch, killed)
    assert killed.wait(60.0)
    if moment in ENDS_ITS_NODE:
        # Its unit starts it again.
        assert len(node.ended) == 1
        node.state.delete_messages()
    else:
        assert node.ended == []
        (reply,) = node.sent
        # A task that had not begun is begun by another process.
        assert reply.has_error() == (
            moment not in ("before it asks", "after it was over")
        )
        assert not reply.has_error() or reply.error.code == ErrorCode.CLIENT_APP_CRASHED
    # The next message is answered, and by its own reply.
    node.play(name, handler)
    reply = _answered(node, monkeypatch)
    assert node.ended == []
    assert not reply.has_error()
    # Its owner sees when it was asked, and when it answered.
    received, answered = home / "received", home / "answered"
    deadline = time.monotonic() + 60.0
    while answered.stat().st_mtime < received.stat().st_mtime:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@linux
@pytest.mark.nightly
def test_an_app_sees_by_its_programs_name_that_it_has_a_guard(
    running: tuple[StandInNode, Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves behind, and what it warns of, depend on it."""
    node, _, home = running
    with node.bringing(NAMED):
        assert not _answered(node, monkeypatch).has_error()
    assert (home / "named").read_text() == "guarded flwr-clientapp"


@linux
@pytest.mark.nightly
def test_an_app_that_is_killed_as_it_computes_is_answered_for(
    running: tuple[StandInNode, Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _, _ = running
    with node.bringing(KILLED):
        reply = _answered(node, monkeypatch)
    assert node.ended == []
    assert reply.error.code == ErrorCode.CLIENT_APP_CRASHED
    assert not _answered(node, monkeypatch).has_error()


def _answered(
    node: StandInNode,
    monkeypatch: pytest.MonkeyPatch,
) -> Message:
    """Take in one message, and return the only reply that was sent."""
    _process_one(node, monkeypatch, threading.Event())
    (reply,) = node.sent
    return reply


def _process_one(
    node: StandInNode, monkeypatch: pytest.MonkeyPatch, killed: threading.Event
) -> None:
    """Take in one message, and wait for what becomes of it.

    Flower's minute without signs of life is over as soon as the app was killed.
    """
    del node.ended[:], node.sent[:]
    assert node.receive(monkeypatch) is not None
    over = threading.Event()

    def pass_time() -> None:
        while not over.wait(0.1):
            if killed.is_set():
                node.miss_signs_of_life()
                return

    thread = threading.Thread(target=pass_time)
    thread.start()
    try:
        node.answer(monkeypatch, **PATIENT)
    finally:
        over.set()
        thread.join()
