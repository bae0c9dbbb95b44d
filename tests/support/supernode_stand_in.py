"""A SuperNode whose SuperLink is played.

Its own state, loop and Runtime API on loopback, and guarded programs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.supercore.date import now
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode import start_client_internal
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.servicer.runtime import runtime_handlers

from flwr_dpkmeans.deploy.guard.app_guard import Guard
from flwr_dpkmeans.deploy.guard.approved_config import guarded_config
from flwr_dpkmeans.deploy.guard.guarded_programs import write_programs
from flwr_dpkmeans.deploy.guard.node_watch import Watch

NODE_ID = 7
WORDS = ("--insecure", "--runtime-api-address")


class EndedError(BaseException):
    """The node has ended itself."""


class StandInNode:
    """One node; each message is of a run of its own.

    Parameters
    ----------
    content : bytes
        The FAB that each run brings.
    allowed : frozenset of str, optional
        SHA-256 of the apps that are approved.
    read : callable, optional
        Reads an app's configuration; by default as Flower does.
    """

    def __init__(
        self,
        content: bytes,
        allowed: frozenset[str] | None = None,
        read: Callable[..., dict[str, Any]] | None = None,
    ) -> None:
        factory = NodeStateFactory(ObjectStoreFactory())
        self.state: Any = factory.state()
        self.state.set_node_id(NODE_ID)
        self.handlers = SimpleNamespace(**vars(runtime_handlers))
        self.app = create_app(factory)
        self.app.state.runtime_handlers = self.handlers
        self.fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        self.sent: list[Message] = []
        self.objects: list[str] = []
        self.ended: list[str] = []
        read = read or start_client_internal.get_fused_config_from_fab
        self.read_config = guarded_config(read, allowed)
        self._n_runs = 0

    def play(self, name: str, handler: Callable[..., Any]) -> None:
        """Let a handler answer apps from now on."""
        vars(self.handlers)[name] = handler

    @contextlib.contextmanager
    def bringing(self, content: bytes) -> Iterator[None]:
        """Let the SuperLink send another app for a while."""
        before = self.fab
        self.fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        try:
            yield
        finally:
            self.fab = before

    def receive(self, monkeypatch: Any) -> int | None:
        """Take in one message as Flower's own loop does, and return its run's id."""
        self._n_runs += 1
        metadata = Metadata(
            self._n_runs, "", 1, NODE_ID, "", "", time.time(), 600.0, "query"
        )
        message = Message(content=RecordDict(), metadata=metadata)
        message.metadata.__dict__["_message_id"] = message.object_id
        contents = {
            name: one.deflate() for name, one in get_all_nested_objects(message).items()
        }
        tree, run = get_object_tree(message), Run.create_empty(self._n_runs)
        run.fab_id, run.fab_version, run.fab_hash = (
            "somebody/counted",
            "0.1.0",
            self.fab.hash_str,
        )
        run.series_id = self._n_runs
        monkeypatch.setattr(
            start_client_internal, "get_fused_config_from_fab", self.read_config
        )
        return start_client_internal._pull_and_store_message(
            state=self.state, object_store=self.state.object_store, node_config={},
            receive=lambda: (remove_content_from_message(message), tree),
            get_run=lambda _: run, get_fab=lambda *_: self.fab,
            pull_object=lambda _, name: contents[name],
            confirm_message_received=lambda *_: None, trusted_entities=None,
        )  # fmt: skip

    def answer(self, monkeypatch: Any, **pace: float) -> None:
        """Wait for the reply and send it, as Flower's own loop does under watch."""
        watch = Watch(end=self.ended.append, **pace)

        def sleep(seconds: float) -> None:
            if self.ended:
                raise EndedError
            time.sleep(seconds / 10)

        monkeypatch.setattr(start_client_internal, "time", SimpleNamespace(sleep=sleep))
        with contextlib.suppress(EndedError):
            watch.around(start_client_internal._push_messages)(
                state=self.state,
                object_store=self.state.object_store,
                send=self._send,
                push_object=self._push,
            )

    def _send(self, message: Message, tree: Any, _: float) -> tuple[set[str], str]:
        self.sent.append(message)
        return {
            tree.object_id,
            *(child.object_id for child in tree.children),
        }, "session"

    def _push(self, _run: int, _session: str, name: str, _content: bytes) -> None:
        self.objects.append(name)

    def miss_signs_of_life(self) -> None:
        """Let a minute pass for the tasks that run."""
        with self.state.lock_task_store:
            for record in self.state.task_token_store.values():
                record.active_until = now() - timedelta(seconds=1)

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Serve the Runtime API on loopback, and yield its address."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = uvicorn.Server(
                uvicorn.Config(self.app, log_level="error", lifespan="on")
            )
            thread = threading.Thread(target=server.run, args=([listening],))
            thread.start()
            try:
                yield f"127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                thread.join()


@contextlib.contextmanager
def apps_of(
    address: str, home: Path, allowed: frozenset[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the guarded program that starts apps; errors go to ``home/apps.log``."""
    home.mkdir(mode=0o700, parents=True)
    environment = os.environ | write_programs(
        Guard(allowed, home / "apps", home / "alerts.log"), home / "programs"
    )
    environment |= {"FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
    command = [str(home / "programs" / "flower-superexec"), *WORDS, address]
    with (home / "apps.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stderr=log, stdout=log, start_new_session=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def kill_app(starter: int) -> None:
    """Kill the process that runs an app, which the program that starts apps began."""
    process = _killed_child(starter)
    for _ in range(1000):
        if _state(process) in ("", "Z"):
            return
        time.sleep(0.01)


def _killed_child(process: int) -> int:
    """The child that was killed.

    One that ended as it was looked at was a helper of the app's.
    """
    children = Path(f"/proc/{process}/task/{process}/children")
    for _ in range(100):
        for child in map(int, children.read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                if _state(child) not in ("", "Z"):
                    os.kill(child, signal.SIGKILL)
                    return child
        time.sleep(0.01)
    raise AssertionError("no app is there to be killed")


def _state(process: int) -> str:
    """What Linux calls it; Z is one that has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def around(
    function: Callable[..., Any], *, kill: Callable[[], None], after: bool
) -> Callable[..., Any]:
    """Return a handler during whose first call the app is killed.

    Before Flower's own one, or after it.
    """
    done: list[bool] = []

    def handled(*values: Any) -> Any:
        if done:
            return function(*values)
        done.append(True)
        if after:
            answer = function(*values)
            kill()
            return answer
        kill()
        raise RuntimeError("nobody waits for this answer")

    return handled
