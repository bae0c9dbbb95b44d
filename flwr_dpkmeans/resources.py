"""How much of a table a process works on at once; no limit shows in any result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ResourceLimits:
    """Sizes of the pieces that tables are read, kept and summed in."""

    table_bytes: int = 1 << 24
    """A larger table of numbers lies in a file and is no array in memory."""
    retained_bytes: int = 1 << 28
    """Of tables that are made anew for each look, as many stay in memory."""
    window_numbers: int = 1 << 16
    """Numbers of such a file that fit into a processor's cache together."""
    block_bytes: int = 1 << 21
    """Size of one working array; a step has a handful of them.

    What is returned, and the centres, come on top.
    """
    rows_read: int = 1 << 16
    """Rows of a source that are read together."""
    text_bytes: int = 1 << 20
    """Bytes of a text file that are read together."""
    n_processors: int | None = None
    """That sums over blocks take; None: all that this process may use."""


_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time, or "max", and in how many of the clock."""
_in_force = [ResourceLimits()]
"""The last one holds."""


def limits() -> ResourceLimits:
    """Return the limits in force."""
    return _in_force[-1]


def n_processors() -> int:
    """Return how many processors sums over blocks take."""
    return limits().n_processors or usable_processors()


def usable_processors() -> int:
    """Return how many processors this process may use.

    Those that it is bound to, and no more than its container's share (Linux, cgroup 2).
    """
    bound = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        bound = len(os.sched_getaffinity(0))
    return max(1, min(bound, _container_share(bound)))


def _container_share(otherwise: int) -> int:
    """Whole processors of the container's quota, at least 1."""
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return otherwise
    if not (quota.isdecimal() and period.isdecimal()):
        return otherwise
    return max(1, int(quota) // max(1, int(period)))


@contextmanager
def resource_limits(new_limits: ResourceLimits) -> Iterator[None]:
    """Set limits for all threads of the process until the end of a ``with`` block."""
    _in_force.append(new_limits)
    try:
        yield
    finally:
        _in_force.pop()
