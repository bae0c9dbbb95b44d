"""Ends a SuperNode that waits for what cannot come any more."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, Protocol, TypeVar

from .flower_seams import private

_DEAD = 70
"""Exit code of a node that cannot answer any more, where Flower's own way to end takes
too long.
"""
_GRACE_SECONDS = 20.0

P = ParamSpec("P")
T = TypeVar("T")


class _TaskStatus(Protocol):
    status: str


class _Task(Protocol):
    status: _TaskStatus


class _NodeState(Protocol):
    """What of Flower's state of a SuperNode is looked at."""

    def get_tasks(self) -> Sequence[_Task]: ...


class Watch:
    """Ends a SuperNode that waits for what cannot come any more.

    Its unit starts it again.

    Flower's loop waits for a message's reply, and for all of its content, without an
    end. It comes from the process of the app, or from Flower itself a minute after the
    last sign of life of one that has taken its message. Neither gives one where the
    process is killed before, or while it answers.

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
        """Return Flower's function that waits for replies, under watch."""

        def watched(
            state: _NodeState,
            object_store: object,
            send: Callable[..., object],
            push_object: Callable[..., object],
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

        return watched

    def _look(
        self,
        state: _NodeState,
        calls: _Calls,
        done: threading.Event,
    ) -> None:
        """Look at the tasks until the reply is sent.

        Looks are counted: a node that was suspended has not waited.
        """
        running, finished = private.task_statuses()
        n_over = n_idle = 0
        while not done.wait(self._look_seconds):
            statuses = {task.status.status for task in state.get_tasks()}
            has_moved = calls.have_moved()
            is_over = statuses <= {finished} and not has_moved
            is_idle = running not in statuses and not has_moved
            n_over = n_over + 1 if is_over else 0
            n_idle = n_idle + 1 if is_idle else 0
            if n_over >= self._over_looks:
                self._end("the app of its message has ended without an answer")
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

    def counted(self, call: Callable[P, T]) -> Callable[P, T]:
        def counted(*values: P.args, **options: P.kwargs) -> T:
            with self._counting():
                return call(*values, **options)

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
            has_moved = self._n_open > 0 or self._n_begun > self._n_seen
            self._n_seen = self._n_begun
            return has_moved


def _end(sentence: str) -> None:
    """End this process as Flower does, which says goodbye to the SuperLink.

    Or without where that takes too long.
    """
    print(
        f"this node ends: {sentence}. Start it again, as its unit does; what was"
        " charged stays charged",
        file=sys.stderr,
        flush=True,
    )
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(_DEAD)
