"""Flower's SuperNode as a party runs it.

What of Flower is replaced in its process, and why, stands here alone.

It was read in flwr `READ_IN`; a test fails when one of the functions that it stands
before has changed, and a version that does not call them ends the program before it
connects. Always replaced are

- ``get_fused_config_from_fab``, which inflates and parses the ``pyproject.toml`` of any
  app that a run brings, in the SuperNode itself and before a process with a guard
  exists: 290 kB become 600 MB, and what it raises ends the node;
- ``_push_messages``, which waits for a reply for ever, also where nothing is left that
  could give one: such a node is dead inside, and "online" for everybody else.

With ``--eager`` the node looks three times as often for messages and replies, and waits
to be let in.

`node start` runs this file as a program in Python's isolated mode, so it imports
nothing of this project.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.common.constant import Status
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient

READ_IN = "1.42.0"
"""The version of flwr that was read; these files are the same in 1.41.0."""
CONFIG, PULL = "get_fused_config_from_fab", "_pull_and_store_message"
PUSH, LOOP = "_push_messages", "start_client_internal"
SEAMS = ((CONFIG, PULL), (PUSH, LOOP))
"""Functions of ``flwr.supernode.start_client_internal`` that are replaced, and what
calls each.
"""

_CONFIG_FILE = "pyproject.toml"
_LARGEST_CONFIG = 1 << 20
_PLAIN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others, Python's module inflates whole blocks before it counts."""
_DEAD = 70
"""Exit code of a node that cannot answer any more, where Flower's own way to end takes
too long.
"""
_GRACE_SECONDS = 20.0

_PATIENCE = 75
_REFUSED = (
    "the SuperLink refuses this node: its clock is 5 s ahead or 305 s behind (set it,"
    " such as by NTP), or its operator has unregistered it, or it has a new database"
    " (start this node again)"
)

ReadConfig = Callable[[bytes, Any], dict[str, Any]]
"""``read(content, run)`` is a run's configuration over the defaults of its app, a whole
FAB.
"""


class PatientClient(FleetHttpClient):
    """Waits while the SuperLink takes a node that was killed for connected, or finds
    this one's clock wrong.

    For the first it takes a minute; at the second Flower's own client ends its node,
    without a word on why.
    """

    _is_in = False

    def ActivateNode(self, request: ActivateNodeRequest) -> ActivateNodeResponse:
        """Be let in; whom it refuses for longer it does not know."""
        for tried in range(_PATIENCE):
            with contextlib.suppress(httpx.HTTPStatusError):
                answer = super().ActivateNode(request)
                self._is_in = True
                return answer
            if not tried:
                print(
                    "waiting for the SuperLink to miss this node's last process, for a"
                    " minute",
                    file=sys.stderr,
                )
            time.sleep(1.0)
        return super().ActivateNode(request)

    def DeactivateNode(self, request: DeactivateNodeRequest) -> DeactivateNodeResponse:
        """Leave, and wait for nothing any more."""
        self._is_in = False
        return super().DeactivateNode(request)

    def _unary_unary(self, *given: Any, **named: Any) -> Any:
        """Ask, and sign anew while the SuperLink refuses a node that is in.

        Then it is Flower's turn.
        """
        for tried in range(_PATIENCE * self._is_in):
            try:
                return super()._unary_unary(*given, **named)
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.UNAUTHORIZED:
                    raise
            if not tried:
                print(
                    f"{_REFUSED}; waiting for {_PATIENCE} s, then this node ends",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(1.0)
        return super()._unary_unary(*given, **named)


# -- an app's configuration ------------------------------------------------------------


def guarded_config(read: ReadConfig, allowed: frozenset[str] | None) -> ReadConfig:
    """Return what reads the configuration of a run whose app is approved, and of others
    not a byte.

    Parameters
    ----------
    read : callable
        Flower's own function.
    allowed : frozenset of str, optional
        SHA-256 of the approved apps; None, as in throw-away deployments, approves all.

    Notes
    -----
    The run of an app that is not approved goes on without a configuration: the process
    of its message has the guard, which refuses the app, alerts the owner and answers.
    Where an approved one cannot be read, such as for a key of the run that it does not
    have, the message is left alone: what is raised here would end the node.
    """

    def config_of(content: bytes, run: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        if allowed is not None and digest not in allowed:
            return {}
        try:
            _require_small(content)
            return read(content, run)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            _say(
                f"the configuration of the app with SHA-256 {digest} cannot be read"
                f" ({reason!a}): its run is ignored"
            )
            raise RunNotRunningException from error

    return config_of


def _require_small(content: bytes) -> None:
    """Refuse an app whose configuration is larger than anybody writes one.

    Not more than that is inflated.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        member = archive.getinfo(_CONFIG_FILE)
        if member.compress_type not in _PLAIN_METHODS:
            raise ValueError(
                f"{_CONFIG_FILE} is compressed by method {member.compress_type}, but 0"
                " and 8 are taken"
            )
        with archive.open(member) as file:
            # What the archive says of its size may be false.
            if len(file.read(_LARGEST_CONFIG + 1)) > _LARGEST_CONFIG:
                raise ValueError(
                    f"{_CONFIG_FILE} has more than {_LARGEST_CONFIG} bytes, which is"
                    " the most"
                )


# -- a message that nobody can answer any more -----------------------------------------


class Watch:
    """Ends a SuperNode that waits for what cannot come any more.

    Its unit starts it again.

    Flower's loop waits for a message's reply, and for all of its content, without an
    end. It comes from the process of the app, or from what reports that this was
    killed, or from Flower itself a minute after the last sign of life. None of them
    gives one where the process dies between its first two questions, or while it
    answers.

    Parameters
    ----------
    look_seconds : float
        Between two looks.
    over_seconds : float
        For so long all tasks are over, nothing has come and nothing is under way to the
        SuperLink: then nothing will.
    idle_seconds : float
        For so long no app runs at all, as where the program that starts them has ended.
    end : callable, optional
        ``end(sentence)`` ends the node.
    """

    def __init__(
        self,
        *,
        look_seconds: float = 5.0,
        over_seconds: float = 15.0,
        idle_seconds: float = 300.0,
        end: Callable[[str], None] | None = None,
    ) -> None:
        self._look_seconds = look_seconds
        self._over_looks = max(1, round(over_seconds / look_seconds))
        self._idle_looks = max(1, round(idle_seconds / look_seconds))
        self._end = _end if end is None else end

    def around(self, push: Callable[..., None]) -> Callable[..., None]:
        """Return Flower's function that waits for replies and sends them, under watch."""

        def pushed(
            state: Any,
            object_store: Any,
            send: Callable[..., Any],
            push_object: Callable[..., Any],
        ) -> None:
            calls, done = _Calls(), threading.Event()
            threading.Thread(
                target=self._look, args=(state, calls, done), daemon=True
            ).start()
            try:
                push(
                    state=state,
                    object_store=object_store,
                    send=calls.counted(send),
                    push_object=calls.counted(push_object),
                )
            finally:
                done.set()

        return pushed

    def _look(
        self,
        state: Any,
        calls: _Calls,
        done: threading.Event,
    ) -> None:
        """Look at the tasks until the reply is sent.

        Looks are counted: a node that was suspended has not waited.
        """
        n_over = n_idle = 0
        while not done.wait(self._look_seconds):
            statuses = {task.status.status for task in state.get_tasks()}
            has_moved = calls.have_moved()
            is_over = statuses <= {Status.FINISHED} and not has_moved
            is_idle = Status.RUNNING not in statuses and not has_moved
            n_over = n_over + 1 if is_over else 0
            n_idle = n_idle + 1 if is_idle else 0
            if n_over >= self._over_looks:
                self._end(
                    "the app of its message has ended without an answer, and that could"
                    " not be reported"
                )
                return
            if n_idle >= self._idle_looks:
                self._end(
                    "no app was started for its message: the program that starts apps"
                    " may have ended"
                )
                return


class _Calls:
    """Calls to the SuperLink: whether one is under way, or was since the last look.

    On a slow line that takes long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_open = self._n_begun = self._n_seen = 0

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*values: Any, **named: Any) -> Any:
            with self._counting():
                return call(*values, **named)

        return counted

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        with self._lock:
            self._n_open += 1
            self._n_begun += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_open -= 1

    def have_moved(self) -> bool:
        with self._lock:
            moved = self._n_open > 0 or self._n_begun > self._n_seen
            self._n_seen = self._n_begun
            return moved


def _end(sentence: str) -> None:
    """End this process as Flower does, which says goodbye to the SuperLink, or without
    where that takes too long.
    """
    _say(
        f"this node ends: {sentence}. Start it again, as its unit does; what was"
        " charged stays charged"
    )
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(_DEAD)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


# -- the program -----------------------------------------------------------------------


def missing_seams() -> list[str]:
    """Return the functions that this version of Flower should call, but does not.

    Without them the node is not run.
    """
    missing = []
    for name, caller in SEAMS:
        function = getattr(start_client_internal, caller, None)
        called = () if function is None else function.__code__.co_names
        if name not in called or not hasattr(start_client_internal, name):
            missing.append(name)
    return missing


def main(arguments: Sequence[str]) -> None:
    """Run the SuperNode; what is not an argument of this program is one of Flower's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(
        "--allowed-apps", help="SHA-256 of each, with commas; left out: all"
    )
    parser.add_argument(
        "--eager", action="store_true", help="look three times as often"
    )
    parser.add_argument("--wait", action="store_true", help="wait to be let in again")
    options, words = parser.parse_known_args(list(arguments))
    missing = missing_seams()
    if missing:
        sys.exit(
            f"this version of Flower does not call {missing[0]}, which the guard stands"
            " before: update it"
        )
    allowed = (
        None
        if options.allowed_apps is None
        else frozenset(options.allowed_apps.split(","))
    )
    flower = vars(start_client_internal)
    flower[CONFIG] = guarded_config(flower[CONFIG], allowed)
    flower[PUSH] = Watch().around(flower[PUSH])
    if options.eager:
        # Of 3 s and 0.5 s. A version of Flower that waits elsewhere keeps its own pace.
        flower["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 3))
    if options.wait:
        vars(fleet_http_connection)["FleetHttpClient"] = PatientClient
    sys.argv = ["flower-supernode", *words]
    flower_supernode()


if __name__ == "__main__":
    main(sys.argv[1:])
