"""Processes that a Ray simulation started, found by a mark in their environment that no
other process has.

SuperLink, SuperExec, simulation, Ray's daemons and workers start each other and partly
detach, so parent ids do not lead to all of them. The environment is inherited by all.

Run as a program (``python ray_processes.py HOME``), it waits until its standard input
closes, which happens however its parent ends, then ends the marked processes and
removes HOME. It imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HOME_VARIABLE = "FLWR_HOME"
"""The mark: every SuperLink of the engine has a home of its own."""
_PROC = Path("/proc")
_PATIENCE = 3.0
_POLL = 0.1
_LONGEST = 20.0


def is_supported() -> bool:
    """Whether processes can be found here at all: on Linux."""
    return (_PROC / "self" / "environ").exists()


def marked_processes(home: Path) -> list[int]:
    """Ids of all processes that run with this home, except this one."""
    return sorted(_marked(home))


def _marked(home: Path) -> Iterator[int]:
    mark = f"{HOME_VARIABLE}={home}".encode()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            # It has ended, or it is another user's.
            continue


def used_bytes(home: Path) -> int:
    """Memory of all marked processes now.

    Pages that several of them share are counted once (PSS).
    """
    total = 0
    for process in _marked(home):
        with contextlib.suppress(OSError):
            for line in (
                (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
            ):
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def end_marked(home: Path, patience: float = _PATIENCE) -> list[int]:
    """Ask all marked processes to end, then insist.

    Parameters
    ----------
    home : Path
        The mark.
    patience : float
        Seconds until a process that was asked is killed.

    Returns
    -------
    list of int
        Those that are still there; empty unless something cannot be killed.
    """
    start = time.monotonic()
    told_to_end: set[int] = set()
    left = marked_processes(home)
    while left and time.monotonic() - start < _LONGEST:
        late = time.monotonic() - start >= patience
        for process in left:
            if late or process not in told_to_end:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
                told_to_end.add(process)
        time.sleep(_POLL)
        left = marked_processes(home)
    return left


def _guard(home: Path) -> None:
    """Wait for the parent's end, then clean up what it could not."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    if home.exists():
        end_marked(home, patience=0.0)
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
