"""How much of a table a process works on at once; no limit shows in any result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceLimits:
    """Sizes of the pieces that tables are read, kept and summed in."""

    table_bytes: int = 1 << 24
    """A larger table of numbers lies in a file and is no array in memory."""
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
    """That sums over blocks take; None: all of the machine."""


_in_force = [ResourceLimits()]
"""The last one holds."""


def limits() -> ResourceLimits:
    """Return the limits in force."""
    return _in_force[-1]


def n_processors() -> int:
    """Return how many processors sums over blocks take."""
    return limits().n_processors or os.cpu_count() or 1


@contextmanager
def resource_limits(new_limits: ResourceLimits) -> Iterator[None]:
    """Set limits for all threads of the process until the end of a ``with`` block."""
    _in_force.append(new_limits)
    try:
        yield
    finally:
        _in_force.pop()
