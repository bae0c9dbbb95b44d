"""How long a program takes to start here, and what a server should wait for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

LEAST_TIMEOUT = 60.0
"""Seconds that no server should wait less than."""

_POLL_SECONDS = 6.0
"""At most, until a SuperNode has a message and until its answer is seen."""

_MARGIN = 3.0
"""Times the longest round trip."""

_START_TIME = 19
"""Of the values behind a process's name in Linux's /proc, in ticks since the boot."""


def seconds_since_start() -> float | None:
    """How long this process has been there; None where the system does not tell.

    Called when all is imported, it is what each message costs a node at least: a fork,
    an interpreter and the same imports.
    """
    try:
        stat = Path("/proc/self/stat").read_text()
        ticks = int(stat.rpartition(")")[2].split()[_START_TIME])
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return now - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def advised_timeout(start_seconds: float) -> float:
    """Return the round timeout that suits a machine on which a start takes so long.

    Examples
    --------
    >>> advised_timeout(1.5), advised_timeout(30.0)
    (60.0, 198.0)
    """
    round_trip = _POLL_SECONDS + 2.0 * start_seconds
    return max(LEAST_TIMEOUT, _MARGIN * round_trip)
