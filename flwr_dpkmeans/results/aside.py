"""Work that takes as long, and as much, as a party's rows have it.

In a process of its own, that nothing waits for.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

_MEMORY = 1 << 30
"""Bytes that such a process may take besides what it begins with."""
_CPU_SECONDS = 600
_DATA_FIELD = 5
"""Of Linux's ``statm``: pages of data and stack."""
_LAST_TO_RUN = 19
_FIRST_TO_KILL = b"1000"


def can_run_aside() -> bool:
    """Whether this process answers one message of Flower's and then ends.

    And can leave another behind.

    That a reply leaves must not depend on a row, nor on what a row makes somebody's
    work cost. In other processes, as in a simulation, all parties are one's own.
    """
    has_limits = sys.platform == "linux"
    return has_limits and Path(sys.argv[0]).name.endswith("flwr-clientapp")


def run_aside(work: Callable[[], object]) -> None:
    """Do something in a process that has limits of its own and is nobody's child.

    Return at once.

    Memory beyond the limit is a MemoryError there. If the machine has none left, the
    system ends that process first.
    """
    with warnings.catch_warnings():
        # Other threads may hold locks in a fork, but Flower's one of this process only
        # sends signs of life.
        warnings.simplefilter("ignore", DeprecationWarning)
        first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        if not os.fork():
            os.setsid()
            _limit()
            work()
    finally:
        os._exit(0)


def _limit() -> None:
    """Give this process the last turn and a bound.

    So that the node itself lacks nothing.
    """
    import resource

    with contextlib.suppress(OSError):
        os.nice(_LAST_TO_RUN)
        Path("/proc/self/oom_score_adj").write_bytes(_FIRST_TO_KILL)
    # What is written to: libraries set aside much more of the address space than they
    # ever use.
    pages = int(Path("/proc/self/statm").read_text().split()[_DATA_FIELD])
    most = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
